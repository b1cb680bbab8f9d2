/* The histogram of sequence lengths. */
#include "data/internal.h"

static rcv_status check_kind(const rcv_data *data) {
    return data->has_spans ? RCV_OK
                           : rcvi_fail(RCV_INVALID, "a stream of tokens is one sequence, and has no lengths to count");
}

static void count_length(void *user, int64_t sequence, rcvi_span span) {
    int64_t *counts = user;
    (void)sequence;
    counts[span.length]++;
}

rcv_status rcvi_histogram_new(const rcv_data *data, rcvi_histogram *histogram) {
    *histogram = (rcvi_histogram){0};
    RCVI_TRY(check_kind(data));
    int64_t *counts = rcvi_new(data->context, (size_t)data->totals.longest + 1, sizeof *counts);
    if (!counts) return RCV_NO_MEMORY;
    rcv_status status = rcvi_data_each_span(data, count_length, counts);
    if (status) {
        rcvi_free(data->context, counts);
        return status;
    }
    *histogram = (rcvi_histogram){counts, data->totals.longest, data->totals.sequences, data->totals.tokens};
    return RCV_OK;
}

void rcvi_histogram_free(rcv_context *context, rcvi_histogram *histogram) {
    rcvi_free(context, histogram->counts);
    *histogram = (rcvi_histogram){0};
}

rcv_status rcv_data_lengths(const rcv_data *data, int64_t *counts) {
    RCVI_NEED(data, "data");
    RCVI_NEED(counts, "counts");
    RCVI_TRY(check_kind(data));
    for (int64_t i = 0; i <= data->totals.longest; i++) counts[i] = 0;
    return rcvi_data_each_span(data, count_length, counts);
}

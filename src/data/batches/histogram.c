/* Histograms of the data: of the lengths of sequences, and of classes. */
#include "data/internal.h"

#include <string.h>

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

/* ---- classes ---- */

enum { LABELS_AT_ONCE = 1024 };

static rcv_status count_step_classes(const rcv_data *data, rcvi_span span, int64_t *counts) {
    int32_t labels[LABELS_AT_ONCE];
    for (int64_t at = 0; at < span.length; at += LABELS_AT_ONCE) {
        const int64_t left = span.length - at, count = left < LABELS_AT_ONCE ? left : LABELS_AT_ONCE;
        RCVI_TRY(rcvi_data_read_labels(data, (rcvi_span){span.start + at, count}, labels));
        for (int64_t i = 0; i < count; i++)
            if (labels[i] >= 0) counts[labels[i]]++;
    }
    return RCV_OK;
}

rcv_status rcvi_data_count_classes(const rcv_data *data, int64_t *counts) {
    memset(counts, 0, (size_t)data->totals.outputs * sizeof *counts);
    for (int64_t i = 0; i < data->totals.sequences; i++) {
        rcvi_span span;
        int32_t label;
        if (data->kind == RCV_DATA_STEP_CLASSES) {
            RCVI_TRY(rcvi_data_read_spans(data, i, 1, &span));
            RCVI_TRY(count_step_classes(data, span, counts));
        } else {
            RCVI_TRY(rcvi_data_read_label(data, i, &label));
            if (label >= 0) counts[label]++;
        }
    }
    return RCV_OK;
}

rcv_status rcv_data_count_classes(const rcv_data *data, int64_t *counts) {
    RCVI_NEED(data, "data");
    RCVI_NEED(counts, "counts");
    if (!rcvi_kind_has_classes(data->kind)) return rcvi_fail(RCV_INVALID, "this data has no classes");
    return rcvi_data_count_classes(data, counts);
}

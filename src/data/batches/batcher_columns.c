/* Batches of a token stream in columns. Column b begins at token b * column; window w of all columns is a batch. States are carried from window to
 * window of a column. The last token of the stream is a target only. */
#include "data/batches/batcher.h"

static int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

rcv_status rcvi_columns_set_up(rcvi_batcher *batcher) {
    const rcvi_batcher_options *options = &batcher->options;
    int64_t tokens = batcher->data->totals.tokens, windows;
    if (options->how == RCVI_ALL) {
        batcher->column = divide_up(tokens - 1, options->batch);
        windows = divide_up(batcher->column, options->steps);
    } else {
        batcher->column = tokens / options->batch;
        windows = batcher->column > 0 ? (batcher->column - 1) / options->steps : 0;
    }
    if (windows < 1)
        return rcvi_fail(
            RCV_INVALID,
            "%lld tokens in %lld columns have %lld each, where a window of %lld steps needs one more than that",
            (long long)tokens, (long long)options->batch, (long long)batcher->column, (long long)options->steps);
    batcher->buckets = rcvi_new(batcher->context, 1, sizeof *batcher->buckets);
    if (!batcher->buckets) return RCV_NO_MEMORY;
    batcher->buckets[0] = (rcvi_bucket){.bound = options->steps, .batch = options->batch, .batches = windows};
    batcher->bucket_count = 1;
    batcher->batches = windows;
    return RCV_OK;
}

/* Number of targets of a column in the window that begins at step `at` of the column. */
static int64_t targets_of(const rcvi_batcher *batcher, int64_t column, int64_t at) {
    int64_t left = batcher->column - at, all = batcher->data->totals.tokens - 1 - (column * batcher->column + at);
    if (batcher->options.how == RCVI_ALL && all < left) left = all;
    if (left > batcher->options.steps) left = batcher->options.steps;
    return left > 0 ? left : 0;
}

rcv_status rcvi_columns_fill(rcvi_batcher *batcher, rcvi_batch *batch) {
    const int64_t rows = batcher->options.batch, steps = batcher->options.steps;
    const int64_t at = batcher->position.batch * steps;
    batch->steps = steps;
    batch->batch = rows;
    batch->carries = at > 0;
    for (int64_t b = 0; b < rows; b++) {
        int64_t count = targets_of(batcher, b, at);
        if (count > 0)
            RCVI_TRY(rcvi_data_read_tokens(batcher->data, b * batcher->column + at, count + 1, batcher->tokens));
        for (int64_t t = 0; t < steps; t++) {
            batcher->inputs[t * rows + b] = t < count ? batcher->tokens[t] : 0;
            batcher->targets[t * rows + b] = t < count ? batcher->tokens[t + 1] : -1;
        }
        batch->counted += count;
    }
    return RCV_OK;
}

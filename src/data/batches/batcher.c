/* The batcher: checks of options, buffers, position. A batch depends only on the data, the options and the position (epoch, batch). */
#include "data/batches/batcher.h"

#include <string.h>

int64_t rcvi_bucket_batch(int64_t batch, int64_t tokens, int64_t bound) {
    if (tokens == 0) return batch;
    int64_t fitting = tokens / bound;
    if (fitting < 1) fitting = 1;
    return batch > 0 && batch < fitting ? batch : fitting;
}

int64_t rcvi_bucket_batches(int64_t sequences, int64_t batch) { return sequences / batch + (sequences % batch != 0); }

static rcv_status check_scaling(const rcv_data *data, const rcvi_scaling *scaling) {
    const int64_t outputs = rcvi_kind_has_values(data->kind) ? data->totals.outputs : 0;
    if (!scaling || (scaling->features == data->totals.features && scaling->outputs == outputs)) return RCV_OK;
    return rcvi_fail(RCV_INVALID,
                     "data of %lld features and %lld values cannot be scaled as %lld features and %lld values",
                     (long long)data->totals.features, (long long)outputs, (long long)scaling->features,
                     (long long)scaling->outputs);
}

static rcv_status check_options(const rcv_data *data, const rcvi_batcher_options *options) {
    bool sequences = options->how == RCVI_SEQUENCES;
    if (options->batch < 0 || options->tokens < 0 || (options->batch == 0 && (!sequences || options->tokens == 0)))
        return rcvi_fail(RCV_INVALID,
                         "a batch of %lld sequences and %lld tokens is empty; one of the two must be 1 or more",
                         (long long)options->batch, (long long)options->tokens);
    if (!sequences && options->steps < 1)
        return rcvi_fail(RCV_INVALID, "a window of %lld steps is empty; it needs at least 1",
                         (long long)options->steps);
    if (sequences != (data->kind != RCV_DATA_STREAM))
        return rcvi_fail(RCV_INVALID, sequences ? "a stream of tokens is one sequence, and is read in columns"
                                                : "lines and examples are sequences, and cannot be read in columns");
    return check_scaling(data, options->scaling);
}

/* Allocates an array of a * b elements, if it is `wanted`. */
static bool new_array(rcv_context *context, bool wanted, int64_t a, int64_t b, size_t size, void *array_pointer) {
    int64_t count;
    if (!wanted) return true;
    void *array = NULL;
    if (rcvi_multiply(a, b, &count) && (uint64_t)count <= SIZE_MAX / size)
        array = rcvi_new(context, (size_t)count, size);
    else
        rcvi_fail(RCV_NO_MEMORY, "a batch of %lld times %lld elements does not fit into memory", (long long)a,
                  (long long)b);
    memcpy(array_pointer, &array, sizeof array);
    return array != NULL;
}

/* Allocates arrays for the largest batch of any bucket. */
static rcv_status new_arrays(rcvi_batcher *batcher) {
    const rcv_data *data = batcher->data;
    rcv_context *context = batcher->context;
    int64_t cells = 0, rows = 0, steps = 0;
    for (size_t i = 0; i < batcher->bucket_count; i++) {
        const rcvi_bucket *b = &batcher->buckets[i];
        int64_t these;
        if (!rcvi_multiply(b->bound, b->batch, &these))
            return rcvi_fail(RCV_NO_MEMORY, "a batch of %lld steps of %lld sequences does not fit into memory",
                             (long long)b->bound, (long long)b->batch);
        if (these > cells) cells = these;
        if (b->batch > rows) rows = b->batch;
        if (b->bound > steps) steps = b->bound;
    }
    const bool is_text = data->vocabulary != NULL, values = rcvi_kind_has_values(data->kind);
    const bool own_targets = rcvi_kind_has_steps(data->kind) && !rcvi_kind_is_text(data->kind);
    const int64_t targets = rcvi_kind_has_steps(data->kind) ? cells : rows, outputs = values ? data->totals.outputs : 1;
    bool good = new_array(context, is_text, cells, 1, sizeof(int32_t), &batcher->inputs) &&
                new_array(context, is_text, steps + 1, 1, sizeof(int32_t), &batcher->tokens) &&
                new_array(context, !values, targets, 1, sizeof(int32_t), &batcher->targets) &&
                new_array(context, !is_text, cells, data->totals.features, sizeof(float), &batcher->x) &&
                new_array(context, !is_text, steps, data->totals.features, sizeof(float), &batcher->numbers) &&
                new_array(context, values, targets, outputs, sizeof(float), &batcher->values) &&
                new_array(context, own_targets, steps, outputs, sizeof(float), &batcher->labels) &&
                new_array(context, batcher->options.how == RCVI_SEQUENCES, rows, 1, sizeof(int64_t), &batcher->lengths);
    return good ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcvi_batcher_new(const rcv_data *data, const rcvi_batcher_options *options, rcvi_batcher **batcher) {
    *batcher = NULL;
    RCVI_TRY(check_options(data, options));
    rcvi_batcher *made = rcvi_new(data->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = data->context;
    made->data = data;
    made->options = *options;
    made->options.bounds = NULL;
    made->ordered = -1;
    rcv_status status = options->how == RCVI_SEQUENCES
                            ? rcvi_sequences_set_up(made, options->bounds, options->bound_count)
                            : rcvi_columns_set_up(made);
    if (!status) status = new_arrays(made);
    if (status) {
        rcvi_batcher_free(made);
        return status;
    }
    *batcher = made;
    return RCV_OK;
}

void rcvi_batcher_free(rcvi_batcher *batcher) {
    if (!batcher) return;
    void *const blocks[] = {batcher->buckets, batcher->order,   batcher->batch_order, batcher->inputs,
                            batcher->targets, batcher->tokens,  batcher->x,           batcher->values,
                            batcher->lengths, batcher->numbers, batcher->labels,      batcher};
    rcv_context *context = batcher->context;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(context, blocks[i]);
}

void rcvi_batcher_set_scaling(rcvi_batcher *batcher, const rcvi_scaling *scaling) {
    batcher->options.scaling = scaling;
}

int64_t rcvi_batcher_count(const rcvi_batcher *batcher) { return batcher->batches; }

bool rcvi_batcher_shape(const rcvi_batcher *batcher, size_t bucket, int64_t *steps, int64_t *batch, int64_t *batches) {
    if (bucket >= batcher->bucket_count) return false;
    const rcvi_bucket *b = &batcher->buckets[bucket];
    if (steps) *steps = b->bound;
    if (batch) *batch = b->batch;
    if (batches) *batches = b->batches;
    return true;
}

rcv_status rcvi_batcher_seek(rcvi_batcher *batcher, rcvi_position position) {
    if (position.epoch < 0 || position.epoch == INT64_MAX || position.batch < 0 || position.batch > batcher->batches)
        return rcvi_fail(RCV_INVALID, "batch %lld of epoch %lld does not exist: an epoch has %lld batches",
                         (long long)position.batch, (long long)position.epoch, (long long)batcher->batches);
    if (position.batch == batcher->batches) position = (rcvi_position){position.epoch + 1, 0};
    batcher->position = position;
    return RCV_OK;
}

rcvi_position rcvi_batcher_position(const rcvi_batcher *batcher) { return batcher->position; }

rcv_status rcvi_batcher_next(rcvi_batcher *batcher, rcvi_batch *batch) {
    rcvi_position *position = &batcher->position;
    *batch = (rcvi_batch){.ends = position->batch + 1 == batcher->batches,
                          .inputs = batcher->inputs,
                          .x = batcher->x,
                          .targets = batcher->targets,
                          .values = batcher->values,
                          .lengths = batcher->lengths};
    if (batcher->options.how == RCVI_SEQUENCES) {
        RCVI_TRY(rcvi_sequences_order(batcher, position->epoch));
        RCVI_TRY(rcvi_sequences_fill(batcher, batch));
    } else {
        RCVI_TRY(rcvi_columns_fill(batcher, batch));
    }
    RCVI_TRY(rcvi_data_check(batcher->data)); /* the files did not change while the batch was read */
    if (++position->batch == batcher->batches) *position = (rcvi_position){position->epoch + 1, 0};
    return RCV_OK;
}

/* What the two ways of making batches share. */
#ifndef RCVI_DATA_BATCHER_H
#define RCVI_DATA_BATCHER_H

#include "data/internal.h"

/* A bucket: sequences of at most `bound` steps, `batch` side by side. Those that are too long for the one before it are order[own ..
 * own + own_count - 1]; its batches hold order[first .. first + count - 1], and the first of them is number `first_batch` before
 * batches are shuffled. Columns have one. */
typedef struct {
    int64_t bound, batch;
    int64_t own, own_count;
    int64_t first, count;
    int64_t first_batch, batches;
} rcvi_bucket;

struct rcvi_batcher {
    rcv_context *context;
    const rcv_data *data;
    rcvi_batcher_options options; /* without the bounds */
    rcvi_bucket *buckets;
    size_t bucket_count;
    int64_t batches;
    rcvi_position position;
    int64_t column;            /* of columns: tokens from one to the next */
    int64_t ordered;           /* the epoch that the orders are of; -1: none */
    uint32_t *order;           /* [sequences] bucket after bucket; NULL for columns */
    uint32_t *batch_order;     /* [batches] */
    int32_t *inputs, *targets; /* NULL where a batch has none */
    int32_t *tokens;           /* [steps + 1] of one row */
    float *x, *values;
    float *numbers; /* [steps, features] of one row */
    int64_t *lengths;
};

/* How many sequences of this length stand side by side, and how many batches so many of them are. */
int64_t rcvi_bucket_batch(int64_t batch, int64_t tokens, int64_t bound);
int64_t rcvi_bucket_batches(int64_t sequences, int64_t batch);

rcv_status rcvi_columns_set_up(rcvi_batcher *batcher);
rcv_status rcvi_columns_fill(rcvi_batcher *batcher, rcvi_batch *batch);
rcv_status rcvi_sequences_set_up(rcvi_batcher *batcher, const int64_t *bounds, size_t count);
rcv_status rcvi_sequences_order(rcvi_batcher *batcher, int64_t epoch);
rcv_status rcvi_sequences_fill(rcvi_batcher *batcher, rcvi_batch *batch);

#endif

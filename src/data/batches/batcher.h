/* Internals of the batcher, shared by the two kinds of batches: columns and sequences. */
#ifndef RCVI_DATA_BATCHER_H
#define RCVI_DATA_BATCHER_H

#include "data/internal.h"
#include "data/scaling.h"

/* A bucket: sequences of at most `bound` steps, `batch` per batch. Its own sequences, those too long for the previous bucket, are
 * order[own .. own + own_count - 1]. Its batches contain order[first .. first + count - 1]; the first of them has number `first_batch` before
 * shuffling. Columns have one bucket. */
typedef struct {
    int64_t bound, batch;
    int64_t own, own_count;
    int64_t first, count;
    int64_t first_batch, batches;
} rcvi_bucket;

struct rcvi_batcher {
    rcv_context *context;
    const rcv_data *data;
    rcvi_batcher_options options; /* without `bounds` */
    rcvi_bucket *buckets;
    size_t bucket_count;
    int64_t batches;
    rcvi_position position;
    int64_t column;            /* of columns: distance in tokens between two columns */
    int64_t ordered;           /* the epoch for which the orders were computed; -1: none */
    uint32_t *order;           /* [sequences] grouped by bucket; NULL for columns */
    uint32_t *batch_order;     /* [batches] */
    int32_t *inputs, *targets; /* NULL if batches have none */
    int32_t *tokens;           /* [steps + 1] of one row */
    float *x, *values;
    float *numbers; /* [steps, features] of one row */
    void *labels;   /* [steps, 1 or outputs] of one row, where each step has a target of its own */
    int64_t *lengths;
};

/* Sequences per batch of a bucket with this bound; number of batches for so many sequences. */
int64_t rcvi_bucket_batch(int64_t batch, int64_t tokens, int64_t bound);
int64_t rcvi_bucket_batches(int64_t sequences, int64_t batch);

rcv_status rcvi_columns_set_up(rcvi_batcher *batcher);
rcv_status rcvi_columns_fill(rcvi_batcher *batcher, rcvi_batch *batch);
rcv_status rcvi_sequences_set_up(rcvi_batcher *batcher, const int64_t *bounds, size_t count);
rcv_status rcvi_sequences_order(rcvi_batcher *batcher, int64_t epoch);
rcv_status rcvi_sequences_fill(rcvi_batcher *batcher, rcvi_batch *batch);

#endif

/* Training data: tokens of texts and numbers of examples, read from files, and the batches made from them. */
#ifndef RCVI_DATA_H
#define RCVI_DATA_H

#include "base/base.h"

/* ---- kinds ---- */

/* Tokens, whose targets are the next tokens; else examples, which have targets of their own. */
static inline bool rcvi_kind_is_text(rcv_data_kind kind) { return kind <= RCV_DATA_LINES; }
static inline bool rcvi_kind_has_classes(rcv_data_kind kind) {
    return kind == RCV_DATA_CLASSES || kind == RCV_DATA_STEP_CLASSES;
}
static inline bool rcvi_kind_has_values(rcv_data_kind kind) {
    return kind == RCV_DATA_VALUES || kind == RCV_DATA_STEP_VALUES;
}
/* A target at every time step; else one for a sequence. */
static inline bool rcvi_kind_has_steps(rcv_data_kind kind) {
    return rcvi_kind_is_text(kind) || kind == RCV_DATA_STEP_CLASSES || kind == RCV_DATA_STEP_VALUES;
}

/* ---- data ---- */

/* Reads tokens from .. from + count - 1. Words of a text are numbered by decreasing count, words with equal counts by their bytes; the count of <eos>
 * is the number of lines; <unk> is added at the end if the text does not have it. Tokens are stored as uint8, uint16 or int32, the
 * smallest type for the vocabulary; at byte level they are the bytes of the text itself. RCV_IO if the file was truncated, or contains a number that
 * is not a token. */
rcv_status rcvi_data_read_tokens(const rcv_data *data, int64_t from, int64_t count, int32_t *tokens);
rcv_missing rcvi_data_missing(const rcv_data *data); /* other than RCV_MISSING_ERROR: features may be NaN */
rcv_status rcvi_data_count_classes(const rcv_data *data, int64_t *counts); /* [outputs] targets of each class */
uint64_t rcvi_data_hash(const rcv_data *data); /* of the text and the options it was read with */

rcv_status rcvi_vocabulary_copy(const rcv_vocabulary *from, rcv_vocabulary **vocabulary);

/* ---- batches ---- */

typedef enum {
    RCVI_COLUMNS, /* columns of the token stream, with the state carried from batch to batch; tokens that do not fill all columns or the last window are dropped */
    RCVI_ALL,     /* columns without dropped tokens: the last column and window are padded with ignored targets */
    RCVI_SEQUENCES /* independent sequences in buckets; none is dropped; empty rows of a bucket's last batch are filled with shorter sequences */
} rcvi_batching;

typedef struct {
    rcvi_batching how;
    int64_t batch; /* sequences per batch; with `tokens` the maximum (0: no maximum) */
    int64_t steps; /* of a window (columns) */
    int64_t
        tokens; /* tokens per batch of sequences, with padding: a batch of a bucket has tokens / bound sequences; 0: `batch` sequences */
    const int64_t *bounds; /* increasing lengths of the buckets; the last is at least the longest sequence */
    size_t bound_count;
    bool shuffle; /* shuffle sequences, and the order of batches, in every epoch */
    uint64_t seed;
    const struct rcvi_scaling
        *scaling; /* of features and values, scaling.h; NULL: they stay as the data has them. Outlives the batcher */
} rcvi_batcher_options;

/* Position of the batcher; sufficient to resume. */
typedef struct {
    int64_t epoch,
        batch; /* `batch`: batches of this epoch that were read; after the last one the position is batch 0 of the next epoch */
} rcvi_position;

typedef struct {
    int64_t steps, batch;  /* of the arrays */
    size_t bucket;         /* number of its bucket; 0 for columns */
    bool carries;          /* the states continue from the previous batch; else they start from the initial state */
    bool ends;             /* it is the last batch of its epoch */
    int64_t counted;       /* number of targets that are neither missing nor ignored */
    const int32_t *inputs; /* [steps, batch] tokens; NULL if inputs are numbers */
    const float *x;        /* [steps, batch, features] numbers; NULL if inputs are tokens */
    const int32_t
        *targets; /* [steps, batch] next token or class, -1: missing or ignored; of one class a sequence: [batch] */
    const float
        *values; /* [batch, outputs], or, at every step, [steps, batch, outputs]: the first is NaN where ignored */
    const int64_t *
        lengths; /* [batch], each at least 1; NULL for columns. Rows without a sequence have length 1 and are ignored */
} rcvi_batch;

typedef struct rcvi_batcher rcvi_batcher;

rcv_status rcvi_batcher_new(const rcv_data *data, const rcvi_batcher_options *options, rcvi_batcher **batcher);
void rcvi_batcher_free(rcvi_batcher *batcher);
void rcvi_batcher_set_scaling(rcvi_batcher *batcher, const struct rcvi_scaling *scaling);
int64_t rcvi_batcher_count(const rcvi_batcher *batcher); /* batches of an epoch */
/* The shape of the batches of a bucket, and how many an epoch has. False if there is no such bucket. */
bool rcvi_batcher_shape(const rcvi_batcher *batcher, size_t bucket, int64_t *steps, int64_t *batch, int64_t *batches);
rcv_status rcvi_batcher_seek(rcvi_batcher *batcher, rcvi_position position);
rcvi_position rcvi_batcher_position(const rcvi_batcher *batcher);
/* Reads the next batch; after the last of an epoch, the first of the next epoch. The arrays are valid until the next call. */
rcv_status rcvi_batcher_next(rcvi_batcher *batcher, rcvi_batch *batch);

/* ---- buckets ---- */

typedef struct {
    int64_t *counts; /* [longest + 1] sequences of every length */
    int64_t longest, sequences, tokens;
} rcvi_histogram;

rcv_status rcvi_histogram_new(const rcv_data *data, rcvi_histogram *histogram);
void rcvi_histogram_free(rcv_context *context, rcvi_histogram *histogram);

/* The cost, in seconds or any unit, of a batch of `batch` sequences padded to `steps`. NULL: steps * batch. */
typedef double rcvi_batch_cost(void *user, int64_t steps, int64_t batch);

typedef struct {
    size_t most;           /* maximum number of buckets, K */
    int64_t batch, tokens; /* as in the batcher's options */
    rcvi_batch_cost *cost;
    void *user;
} rcvi_bucket_options;

/* Find increasing bounds (bounds: [most]); the last one is the longest length. The greedy algorithm starts with one bucket per length and merges the pair of
 * neighbours with the least added cost, until K are left and further merging does not reduce the cost. The optimum is found by dynamic
 * programming over the distinct lengths. Both group neighbouring lengths if there are more than RCVI_BUCKET_GROUPS. */
enum { RCVI_BUCKET_GROUPS = 2000 };
rcv_status rcvi_buckets_greedy(rcv_context *context, const rcvi_histogram *histogram,
                               const rcvi_bucket_options *options, int64_t *bounds, size_t *count);
rcv_status rcvi_buckets_best(rcv_context *context, const rcvi_histogram *histogram, const rcvi_bucket_options *options,
                             int64_t *bounds, size_t *count);
/* The total cost of the batches that the batcher makes. With `tokens`, batches differ in size; the cost is then computed as if buckets did not share
 * batches. Without a cost function it is the number of tokens with padding; divided by histogram->tokens it is the padding ratio. */
double rcvi_buckets_cost(const rcvi_histogram *histogram, const rcvi_bucket_options *options, const int64_t *bounds,
                         size_t count);

#endif

/* What is learnt from: tokens of texts and numbers of examples, read from files, and the batches made of them. */
#ifndef RCVI_DATA_H
#define RCVI_DATA_H

#include "base/base.h"

/* ---- data ---- */

/* Words of a text are numbered by falling count, equal counts in the order of their bytes; <eos> counts as the lines do, and <unk> is
 * added at the end where the text has none. Tokens lie as uint8, uint16 or int32, whatever holds the vocabulary, and are read through one
 * call; of a text at byte level it is the text itself that is read. RCV_IO where the file was cut short, or holds a number that is no token. */
rcv_status rcvi_data_read_tokens(const rcv_data *data, int64_t from, int64_t count, int32_t *tokens);
uint64_t rcvi_data_hash(const rcv_data *data); /* of the text and how it was read */

rcv_status rcvi_vocabulary_copy(const rcv_vocabulary *from, rcv_vocabulary **vocabulary);

/* ---- batches ---- */

typedef enum {
    RCVI_COLUMNS, /* of the token stream, state carried from batch to batch; what does not fill the columns or the last window is left out */
    RCVI_ALL, /* the same, but nothing is left out: the last column and window are filled up with targets that do not count */
    RCVI_SEQUENCES /* each by itself, in buckets; nothing is left out, and rows that a bucket leaves empty are the next shorter one's */
} rcvi_batching;

typedef struct {
    rcvi_batching how;
    int64_t batch; /* sequences side by side; with `tokens` at most that many (0: any) */
    int64_t steps; /* of a window (columns) */
    int64_t
        tokens; /* of a batch of sequences, padding included: each bucket has tokens / its length sequences; 0: `batch` */
    const int64_t *bounds; /* rising lengths of the buckets; the last is at least the longest sequence */
    size_t bound_count;
    bool shuffle; /* sequences, and the order of the batches, anew in every epoch */
    uint64_t seed;
} rcvi_batcher_options;

/* Where the batcher stands: enough to go on from. */
typedef struct {
    int64_t epoch, batch; /* batches of this epoch that were taken; behind its last one it is the next epoch, and 0 */
} rcvi_position;

typedef struct {
    int64_t steps, batch;   /* of the arrays */
    size_t bucket;          /* its number; 0 for columns */
    bool carries;           /* states go on from the batch before; else they begin anew */
    bool ends;              /* the last of its epoch */
    int64_t counted;        /* targets that count */
    const int32_t *inputs;  /* [steps, batch] tokens, NULL where inputs are numbers */
    const float *x;         /* [steps, batch, features] then */
    const int32_t *targets; /* [steps, batch] the next token, or -1; of classes [batch] */
    const float *values;    /* [batch, outputs], of values; NaN where a row does not count */
    const int64_t *
        lengths; /* [batch], each at least 1; NULL for columns. Rows beyond the examples have length 1 and do not count */
} rcvi_batch;

typedef struct rcvi_batcher rcvi_batcher;

rcv_status rcvi_batcher_new(const rcv_data *data, const rcvi_batcher_options *options, rcvi_batcher **batcher);
void rcvi_batcher_free(rcvi_batcher *batcher);
int64_t rcvi_batcher_count(const rcvi_batcher *batcher); /* batches of an epoch */
/* Shapes that will come: one a bucket. False past the end. */
bool rcvi_batcher_shape(const rcvi_batcher *batcher, size_t bucket, int64_t *steps, int64_t *batch, int64_t *batches);
rcv_status rcvi_batcher_seek(rcvi_batcher *batcher, rcvi_position position);
rcvi_position rcvi_batcher_position(const rcvi_batcher *batcher);
/* The next batch, of the next epoch behind the last. It lasts until the next call. */
rcv_status rcvi_batcher_next(rcvi_batcher *batcher, rcvi_batch *batch);

/* ---- buckets ---- */

typedef struct {
    int64_t *counts; /* [longest + 1] sequences of every length */
    int64_t longest, sequences, tokens;
} rcvi_histogram;

rcv_status rcvi_histogram_new(const rcv_data *data, rcvi_histogram *histogram);
void rcvi_histogram_free(rcv_context *context, rcvi_histogram *histogram);

/* What a step of work costs: seconds (or any unit) of a batch of `batch` sequences padded to `steps`; NULL: steps * batch. */
typedef double rcvi_batch_cost(void *user, int64_t steps, int64_t batch);

typedef struct {
    size_t most;           /* buckets, K */
    int64_t batch, tokens; /* as in the batcher's options */
    rcvi_batch_cost *cost;
    void *user;
} rcvi_bucket_options;

/* Rising bounds, at most `most` (there is room for so many), the last one the longest length. Greedy merges the two neighbours that cost
 * least until K are left, and on as long as that gains; the optimum is by dynamic programming over the different lengths. Both
 * take neighbouring lengths together where more than RCVI_BUCKET_GROUPS differ. */
enum { RCVI_BUCKET_GROUPS = 2000 };
rcv_status rcvi_buckets_greedy(rcv_context *context, const rcvi_histogram *histogram,
                               const rcvi_bucket_options *options, int64_t *bounds, size_t *count);
rcv_status rcvi_buckets_best(rcv_context *context, const rcvi_histogram *histogram, const rcvi_bucket_options *options,
                             int64_t *bounds, size_t *count);
/* The cost of all batches, as the batcher makes them (with `tokens`, where batches differ in size, as if each bucket filled its own alone);
 * without a cost function that is tokens with padding, and divided by histogram->tokens it is padded / ideal. */
double rcvi_buckets_cost(const rcvi_histogram *histogram, const rcvi_bucket_options *options, const int64_t *bounds,
                         size_t count);

#endif

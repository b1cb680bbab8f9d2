/* Operations of a training step outside of the network: embedding lookup, masks, the output layer with its loss, the norm of the gradient, the update.
 *
 * Arrays lie in the device's memory and hold `real`: double where the type is RCV_FLOAT64, else float. In the other types
 * operands of products are rounded as plans round them. Calls are carried out in order; on devices with streams they are enqueued. Every sum has a
 * fixed order: the same calls give the same bits. Values that change from update to update are read from the device's memory
 * (`rcvi_control`, groups, ids), so that recorded calls can be replayed unchanged. */
#ifndef RCVI_LEARN_H
#define RCVI_LEARN_H

#include "base/base.h"
#include "base/random.h"

typedef struct rcvi_learn rcvi_learn; /* a device's own: threads or handles, and scratch memory for one shape */

typedef struct {
    rcv_dtype dtype;
    int64_t threads;  /* as a plan's; 0: as many as the context says */
    int64_t rows;     /* of a call, at most */
    int64_t features; /* inputs of the output layer */
    int64_t classes;  /* outputs of it: classes or values */
    /* Rows of logits in memory at once; 0: the device chooses (at most a quarter of the rows, where there are many). */
    int64_t chunk;
    bool training; /* gradients will be requested */
    /* The gradient of the output layer is never stored: heads have no dweight and dbias, and the update is given the head itself.
     * Logits of all rows are in memory for `chunk` classes at once, a multiple of 64. Softmax only, and nothing is accumulated.
     * A device that cannot do it refuses with RCV_UNSUPPORTED. */
    bool lean;
    /* Memory of the device that a lean head may use during `head`, and during `update` after all parts have been updated: the caller's, who
     * stores nothing there meanwhile. NULL: none. */
    void *spare;
    size_t spare_bytes;
} rcvi_learn_shape;

/* The values of one update, in the device's memory. */
typedef struct {
    uint64_t seed;   /* of masks */
    uint64_t number; /* of the update, rising: the value that signals are set to */
    double weight;   /* factor of the loss of a row before it is differentiated: `scale` / number of rows that count */
    double scale;    /* of the loss, against underflow of gradients (float16), else 1; the update divides by it */
    double clip;     /* largest norm of the gradient; 0: no limit */
    double clip_value;               /* largest magnitude of an element, before the norm is taken; 0: no limit */
    double rate;                     /* learning rate */
    double decay;                    /* weight decay; in adamw decoupled from the gradient, else added to it */
    double momentum;                 /* of momentum */
    double beta1, beta2, epsilon;    /* of adam, adamw */
    double correction1, correction2; /* 1 - beta1^n, 1 - beta2^n of the n-th update, n from 1 */
    double average; /* weight of the newest value, 1/n for the n-th since averaging began; 0: it has not begun */
} rcvi_control;

/* The results of an update, in the device's memory. Where the norm is not finite, parameters and moments stay unchanged. */
typedef struct {
    double loss; /* the sum over rows, times the weights of their classes, without the control's weight and scale */
    double norm; /* of the gradient, after `scale` was divided out and elements were clipped, before the norm was */
} rcvi_outcome;

/* Rows grouped by id, in the device's memory: `count` different ids; rows order[starts[g]] .. order[starts[g + 1] - 1], in rising order,
 * have ids[g]. Each array has room for all rows (starts for one more). */
typedef struct {
    const int32_t *count;
    const int32_t *ids, *starts, *order;
} rcvi_groups;

/* A mask: elements are kept with probability 1 - p and divided by it, or 0. Decided, as in plans, by
 * rcvi_hash_uniform(control->seed + salt * 0x9e3779b97f4a7c15, index), kept where that is < 1 - p. */
typedef enum {
    RCVI_MASK_ELEMENTS,  /* index: row * columns + column, the row of the whole batch where the array is a shard */
    RCVI_MASK_OVER_TIME, /* (shard.first + row % period) * columns + column: the same at every step of a sequence */
    RCVI_MASK_IDS        /* ids[row]: whole rows, as in word dropout */
} rcvi_mask_kind;

typedef struct {
    rcvi_mask_kind kind;
    double probability; /* in [0, 1) */
    uint64_t salt;
    int64_t period; /* sequences of a step */
    rcvi_shard shard;
    const int32_t *ids; /* the device's */
} rcvi_mask;

/* The output layer and its loss: softmax cross-entropy, or squared error. */
typedef struct {
    int64_t rows;
    const void *y;             /* [rows, features] */
    const void *weight, *bias; /* [classes, features], [classes]; bias may be NULL */
    const int32_t *targets;    /* [rows], softmax: the class, or -1: the row does not count. NULL: squared error */
    /* [rows, classes], squared error: the loss is the sum of (out - value)^2 / classes. A row whose first value is NaN does not count. */
    const void *values;
    const void *class_weights; /* [classes], softmax: positive factors of a row's loss, by its class; NULL: 1 */
    void *dy;                  /* [rows, features]; NULL: the loss alone */
    void *dweight, *dbias;     /* gradients of weight and bias; NULL: not requested */
    bool accumulate;           /* add to dweight and dbias instead of overwriting them; dy is always overwritten */
    bool adds_loss;            /* add to outcome->loss instead of overwriting it */
    bool rounded;              /* `prepare_head` was called for it */
    bool later;                /* dweight and dbias are left to `head_gradients` */
} rcvi_head;

/* A contiguous range of parameters, [count], with its gradient and moments. Arrays that a kind of update does not use are NULL. */
typedef struct {
    int64_t count;
    void *parameters;
    const void *gradient;
    void *first, *second; /* moments */
    void *average;
} rcvi_update_part;

/* A sparse gradient: only these rows are not zero. [groups.count, columns]; row g belongs to row groups.ids[g] of the table. */
typedef struct {
    rcvi_groups groups;
    int64_t rows, columns; /* rows: the largest number of groups */
    void *table;
    const void *gradient; /* NULL: there is no sparse gradient */
} rcvi_sparse_part;

/* g = clipped gradient / scale, plus decay * p except in adamw; then
 *   sgd       p -= rate g
 *   momentum  m = momentum m + g;  p -= rate m
 *   adam      m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;  p -= rate (m / c1) / (sqrt(v / c2) + epsilon)
 *   adamw     p -= rate decay p, then as adam
 * and where control->average is not 0: average += (p - average) * control->average, after p has changed.
 * Where there is a clip, the gradient is scaled by min(1, clip / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does. */
typedef enum { RCVI_SGD, RCVI_MOMENTUM, RCVI_ADAM, RCVI_ADAMW } rcvi_update_kind;

typedef struct {
    rcvi_update_kind kind;
    const rcvi_update_part *parts;
    int part_count;          /* at most RCVI_MAX_UPDATE_PARTS */
    rcvi_sparse_part sparse; /* for plain sgd only, without decay and average */
    /* Where learning is lean: the head whose weight and bias, which are in no part, the update changes by sgd; else NULL. It is the head of the
     * last call of `head` with dy before the update, and the arrays that it points to have not changed since. */
    const rcvi_head *head;
} rcvi_update;

enum { RCVI_MAX_UPDATE_PARTS = 8 };

typedef struct rcvi_learn_table {
    rcv_status (*open)(rcv_context *context, int ordinal, const rcvi_learn_shape *shape, rcvi_learn **learn);
    void (*close)(rcvi_learn *learn);
    size_t (*bytes)(const rcvi_learn *learn);      /* that it holds in the device's memory */
    size_t (*head_bytes)(const rcvi_learn *learn); /* of these, for logits */
    void *(*stream)(const rcvi_learn *learn);      /* on which it enqueues, for rcv_run_set_stream; NULL: no streams */

    /* Copies from the host, whose memory may be reused at once; copies to the host, after waiting for all enqueued work. */
    rcv_status (*send)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*fetch)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*copy)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*clear)(rcvi_learn *learn, void *to, size_t bytes); /* to zero */
    rcv_status (*wait)(rcvi_learn *learn);

    /* out[r] = table[ids[r]], rows of `columns`; zeros where ids[r] < 0. */
    rcv_status (*gather)(rcvi_learn *learn, int64_t rows, int64_t columns, const int32_t *ids, const void *table,
                         void *out);
    /* Sums over groups of rows: into row g of out (compact), or, with `by_id`, added to row ids[g]. */
    rcv_status (*scatter)(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_groups *groups, bool by_id,
                          const void *from, void *out);
    /* out = from with the mask applied; in place where they are the same. */
    rcv_status (*mask)(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_mask *mask,
                       const rcvi_control *control, const void *from, void *out);
    rcv_status (*head)(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome);
    /* The parts of a head that can run concurrently with a time loop of the network: the preparation of the weight, before `head`, and the
     * gradients of weight and bias, after it. `beside`: the event right before that loop, after which all they read is ready; NULL: none.
     * Later calls wait for them. Both are NULL on devices where nothing is gained. */
    rcv_status (*prepare_head)(rcvi_learn *learn, const rcvi_head *head, void *beside);
    rcv_status (*head_gradients)(rcvi_learn *learn, const rcvi_head *head, void *beside);
    /* out[rows, classes] = y weight^T + bias; at most the shape's rows. */
    rcv_status (*logits)(rcvi_learn *learn, const rcvi_head *head, void *out);
    /* Writes the norm to outcome->norm, then updates all parts. */
    rcv_status (*update)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                         rcvi_outcome *outcome);
    /* The two halves of `update`, without a head, for ranks that all-reduce in between: the sum of squares of the gradient, as the norm takes it, to
     * outcome->norm; and, after outcome->norm was set to the norm, the rest. */
    rcv_status (*sum_squares)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                              rcvi_outcome *outcome);
    rcv_status (*apply)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                        rcvi_outcome *outcome);
    /* Sets *to, in the host's memory (pinned, for a GPU), to *value, in the device's, when all work enqueued before is done. */
    rcv_status (*signal)(rcvi_learn *learn, uint64_t *to, const uint64_t *value);

    /* Replaying calls (CUDA graphs); all NULL where nothing is gained. The calls between `replay` and `end_recording` are the same every time for
     * a key: addresses, shapes and flags, also of runs on this stream. Values that differ are read from the device's memory. `replay`
     * sets *done when it has enqueued all of them; else the caller makes its calls and ends with `end_recording`: the first time they are
     * carried out one by one, the second time they are recorded, and `end_recording` enqueues them. Between the two calls nothing is sent, fetched or
     * waited for. A caller that fails in between calls `cancel_recording`: calls that were being recorded have then not been carried
     * out, and calls with this key are not recorded any more. */
    rcv_status (*replay)(rcvi_learn *learn, uint64_t key, bool *done);
    rcv_status (*end_recording)(rcvi_learn *learn, uint64_t key);
    void (*cancel_recording)(rcvi_learn *learn, uint64_t key);
} rcvi_learn_table;

#endif

/* What stands around a network while it learns: rows of tables, masks, the loss, the norm, the update.
 *
 * Arrays lie in the device's memory and hold `real`: double where the type is RCV_FLOAT64, else float. In the other types
 * operands of products are rounded as plans round them. Calls are carried out in order; where the device has streams they
 * are enqueued. Every sum has a fixed order: the same calls give the same bits. What changes from update to update is read from
 * the device's memory (`rcvi_control`, groups, ids), so that what was enqueued once can be repeated as it is. */
#ifndef RCVI_LEARN_H
#define RCVI_LEARN_H

#include "base/base.h"
#include "base/random.h"

typedef struct rcvi_learn rcvi_learn; /* a device's own: threads or handles, and scratch for one shape */

typedef struct {
    rcv_dtype dtype;
    int64_t threads;  /* as a plan's; 0: as many as the context says */
    int64_t rows;     /* of a call, at most */
    int64_t features; /* into the output layer */
    int64_t classes;  /* or values, out of it */
    int64_t
        chunk; /* rows of logits that exist at once; 0: the device chooses (a quarter of the rows at most, where those are many) */
    bool training; /* gradients will be asked for */
    /* The gradient of the output layer is never stored: heads have no dweight and dbias, and the update is given the head itself.
     * Logits of all rows exist for some classes at once, `chunk` of them, in whole 64s. Softmax alone, and nothing is accumulated.
     * A device that does not do it refuses with RCV_UNSUPPORTED. */
    bool lean;
    /* Memory of the device that a lean head may use while it is computed, and again behind the update of all parts: the caller's, who
     * keeps nothing there meanwhile. NULL: none. */
    void *spare;
    size_t spare_bytes;
} rcvi_learn_shape;

/* What changes from update to update, in the device's memory. */
typedef struct {
    uint64_t seed;   /* of masks */
    uint64_t number; /* of the update, rising: what signals become */
    double
        weight; /* by which the loss of a row is multiplied before it is differentiated: 1 / rows that count, times `scale` */
    double scale;      /* of the loss where gradients would sink (float16), else 1: the update divides by it */
    double clip;       /* largest norm of the gradient; 0: any */
    double clip_value; /* largest magnitude of an element, before the norm is taken; 0: any */
    double rate;       /* learning rate */
    double decay;      /* of weights; in adamw apart from the gradient, elsewhere as part of it */
    double momentum;   /* of momentum */
    double beta1, beta2, epsilon;    /* of adam, adamw */
    double correction1, correction2; /* 1 - beta1^n, 1 - beta2^n of the n-th update, n from 1 */
    double average; /* the n-th value since averaging began takes part with 1/n; 0: averaging has not begun */
} rcvi_control;

/* What came of an update, in the device's memory. A norm that is no number leaves parameters and moments as they were. */
typedef struct {
    double loss; /* the sum over rows, not multiplied by anything */
    double norm; /* of the gradient, after `scale` was divided out and elements were clipped, before the norm was */
} rcvi_outcome;

/* Rows by id, in the device's memory: `count` different ids; rows order[starts[g]] .. order[starts[g + 1] - 1], in rising order,
 * have ids[g]. Each array has room for all rows (starts for one more). */
typedef struct {
    const int32_t *count;
    const int32_t *ids, *starts, *order;
} rcvi_groups;

/* A mask: elements are kept with probability 1 - p and divided by it, or 0. Decided, as in plans, by
 * rcvi_hash_uniform(control->seed + salt * 0x9e3779b97f4a7c15, index), kept where that is < 1 - p. */
typedef enum {
    RCVI_MASK_ELEMENTS,  /* index: row * columns + column, the row that of the whole where the array is a shard */
    RCVI_MASK_OVER_TIME, /* (shard.first + row % period) * columns + column: the same at every step of a sequence */
    RCVI_MASK_IDS        /* ids[row], for all of the row: a word is there or not */
} rcvi_mask_kind;

typedef struct {
    rcvi_mask_kind kind;
    double probability; /* in [0, 1) */
    uint64_t salt;
    int64_t period; /* sequences of a step */
    rcvi_shard shard;
    const int32_t *ids; /* the device's */
} rcvi_mask;

/* Softmax cross-entropy, or squares. */
typedef struct {
    int64_t rows;
    const void *y;             /* [rows, features] */
    const void *weight, *bias; /* [classes, features], [classes]; bias may be NULL */
    const int32_t *targets;    /* [rows], softmax: the class, or -1: the row does not count. NULL: squares */
    const void *
        values; /* [rows, classes], squares: loss is the sum of (out - value)^2 / classes; where a row's first is NaN it
                               * does not count */
    void *dy;   /* [rows, features]; NULL: the loss alone */
    void *dweight, *dbias; /* of the weight, NULL where not wanted */
    bool accumulate;       /* add to dweight and dbias instead of overwriting them; dy is always overwritten */
    bool adds_loss;        /* add to outcome->loss instead of overwriting it */
    bool rounded;          /* `head_weight` was called for it */
    bool later;            /* dweight and dbias may come by `head_rest` */
} rcvi_head;

/* Parameters in one piece. Arrays that a kind of update does not use are NULL. */
typedef struct {
    int64_t count;
    void *parameters;
    const void *gradient;
    void *first, *second; /* moments */
    void *average;
} rcvi_update_part;

/* Rows of a gradient that has no others: [groups.count, columns], row g of table row groups.ids[g]. */
typedef struct {
    rcvi_groups groups;
    int64_t rows, columns; /* at most so many groups */
    void *table;
    const void *gradient; /* NULL: there is no such part */
} rcvi_sparse_part;

/* g = clipped gradient (/ scale), plus decay * p but in adamw; then
 *   sgd       p -= rate g
 *   momentum  m = momentum m + g;  p -= rate m
 *   adam      m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;  p -= rate (m / c1) / (sqrt(v / c2) + epsilon)
 *   adamw     p -= rate decay p, then as adam
 * and where `average` of the control is not 0: average += (p - average) * average_weight, after p has changed.
 * All of it is scaled by min(1, clip / (norm + 1e-6)) where there is a clip (as torch.nn.utils.clip_grad_norm_). */
typedef enum { RCVI_SGD, RCVI_MOMENTUM, RCVI_ADAM, RCVI_ADAMW } rcvi_update_kind;

typedef struct {
    rcvi_update_kind kind;
    const rcvi_update_part *parts;
    int part_count;          /* at most RCVI_MAX_UPDATE_PARTS */
    rcvi_sparse_part sparse; /* plain sgd alone: without decay and average */
    /* The head whose weight and bias, which are in no part, the update changes by sgd where learning is lean; else NULL. It is that
     * of the call of `head`, with dy, that was the last before the update; what it points to has not changed since. */
    const rcvi_head *head;
} rcvi_update;

enum { RCVI_MAX_UPDATE_PARTS = 8 };

typedef struct rcvi_learn_table {
    rcv_status (*open)(rcv_context *context, int ordinal, const rcvi_learn_shape *shape, rcvi_learn **learn);
    void (*close)(rcvi_learn *learn);
    size_t (*bytes)(const rcvi_learn *learn);      /* that it holds in the device's memory */
    size_t (*head_bytes)(const rcvi_learn *learn); /* of these, for logits */
    void *(*stream)(
        const rcvi_learn *learn); /* on which it enqueues, for rcv_run_set_stream; NULL where there are none */

    /* Copies from the host, which may use its memory again at once; and to it, waiting for all that was enqueued. */
    rcv_status (*send)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*fetch)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*copy)(rcvi_learn *learn, void *to, const void *from, size_t bytes);
    rcv_status (*clear)(rcvi_learn *learn, void *to, size_t bytes); /* to zero */
    rcv_status (*wait)(rcvi_learn *learn);

    /* out[r] = table[ids[r]], rows of `columns`; zeros where ids[r] < 0. */
    rcv_status (*gather)(rcvi_learn *learn, int64_t rows, int64_t columns, const int32_t *ids, const void *table,
                         void *out);
    /* Sums over groups of rows: to row g of out (compact), or, with `by_id`, to row ids[g], added to what is there. */
    rcv_status (*scatter)(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_groups *groups, bool by_id,
                          const void *from, void *out);
    /* out = from under a mask; they may be the same. */
    rcv_status (*mask)(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_mask *mask,
                       const rcvi_control *control, const void *from, void *out);
    rcv_status (*head)(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome);
    /* What of a head nothing waits for on the way may go beside a run's loop: what is made of the weight alone, before `head`, and the
     * gradients of weight and bias, behind it. `beside`: the event behind which that loop begins, and before which all lies that is
     * needed, or NULL; calls that follow wait. All NULL on devices where nothing is gained. */
    rcv_status (*head_weight)(rcvi_learn *learn, const rcvi_head *head, void *beside);
    rcv_status (*head_rest)(rcvi_learn *learn, const rcvi_head *head, void *beside);
    /* out[rows, classes] = y weight^T + bias; rows at most those of the shape. */
    rcv_status (*logits)(rcvi_learn *learn, const rcvi_head *head, void *out);
    /* The norm to outcome->norm, then the update of all parts. */
    rcv_status (*update)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                         rcvi_outcome *outcome);
    /* Its two halves, for those who ask others in between, without a head: the sum of squares of the gradient, as the norm takes it, to
     * outcome->norm; and, where outcome->norm has become the norm, the rest. */
    rcv_status (*squares)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                          rcvi_outcome *outcome);
    rcv_status (*apply)(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                        rcvi_outcome *outcome);
    /* When all that was enqueued before is done, *to, of the host's memory (on a GPU pinned), becomes *value, of the device's. */
    rcv_status (*signal)(rcvi_learn *learn, uint64_t *to, const uint64_t *value);

    /* Calls that repeat: all NULL where nothing is gained. What stands between `replay` and `recorded` is the same every time for
     * a key: addresses, shapes and flags, of runs on this stream too; what differs is read from the device's memory. `replay`
     * answers whether it has enqueued all of it; else the caller makes its calls and ends with `recorded`. That is so the first
     * time, when they are carried out one by one, and the second, when they are recorded, and carried out by `recorded`. Between
     * the two nothing is sent, fetched or waited for. Who fails in between calls `abandon`: what was to be recorded has then not been
     * carried out, and the key's calls are no longer recorded. */
    rcv_status (*replay)(rcvi_learn *learn, uint64_t key, bool *done);
    rcv_status (*recorded)(rcvi_learn *learn, uint64_t key);
    void (*abandon)(rcvi_learn *learn, uint64_t key);
} rcvi_learn_table;

#endif

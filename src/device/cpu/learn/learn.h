/* What stands around a network, by a team of threads (device/learn.h says what that is).
 *
 * A call is work that every member takes a share of. Shares are rows, columns or elements, and no sum goes over a border
 * between two of them, so that the bits of a result do not depend on how many members there are. */
#ifndef RCVI_CPU_LEARN_H
#define RCVI_CPU_LEARN_H

#include "device/cpu/engine/team.h"
#include "device/cpu/kernels/kernels.h"
#include "device/learn.h"

enum { RCVI_LEARN_SLOTS = 256 }; /* into which the elements of a part are cut for the norm */

typedef struct rcvi_learn_real rcvi_learn_real;

struct rcvi_learn {
    rcv_context *context;
    const rcvi_kernels *kernels;
    const rcvi_learn_real *real;
    rcvi_kernel_type type;
    rcvi_learn_shape shape; /* chunk and threads filled in */
    int64_t size;           /* bytes of an element */
    rcvi_team *team;
    void *memory;
    size_t bytes, head_bytes;
    char *scratch; /* [threads, scratch_bytes], of products */
    int64_t scratch_bytes;
    char *logits;          /* [chunk, classes]; their gradients, in the end */
    char *packed, *turned; /* the weight, as the products to logits and to dy read it */
    double *losses;        /* [rows] */
    double *squares;       /* [RCVI_MAX_UPDATE_PARTS + 1, RCVI_LEARN_SLOTS] */
};

typedef struct {
    const rcvi_learn *learn;
    int member, members;
} rcvi_learn_share;

typedef void rcvi_learn_work(const rcvi_learn_share *share, const void *job);

/* Has all members do the work, or the caller alone where there is little of it. */
rcv_status rcvi_learn_run(rcvi_learn *learn, double operations, rcvi_learn_work *work, const void *job);
/* Inside of work: none goes on before all have come. */
void rcvi_learn_barrier(const rcvi_learn_share *share);
/* The member's part of `extent`, cut at multiples of `unit`. */
void rcvi_learn_cut(const rcvi_learn_share *share, int64_t extent, int64_t unit, int64_t *first, int64_t *end);

typedef struct {
    int64_t rows, columns;
    const int32_t *ids;
    const rcvi_groups *groups;
    bool by_id;
    const rcvi_mask *mask;
    uint64_t seed;
    const void *from;
    void *out;
} rcvi_learn_rows;

/* One chunk of a head: `rows` rows from `row` on, whose logits lie at `logits` without the bias. */
typedef struct {
    const rcvi_head *head;
    double weight; /* of a row's loss */
    int64_t row, rows, features, classes;
    void *logits;
    double *losses; /* [rows] */
} rcvi_learn_chunk;

/* An update's numbers, once for all elements. */
typedef struct {
    const rcvi_update *update;
    const rcvi_control *control;
    rcvi_outcome *outcome;
} rcvi_learn_update;

/* The work on elements, in float and in double. */
struct rcvi_learn_real {
    rcvi_learn_work *gather, *scatter, *mask; /* of rcvi_learn_rows */
    /* Of rcvi_learn_chunk, the member's rows: the loss, and the gradient in place of logits where there is a dy. */
    rcvi_learn_work *softmax, *square;
    rcvi_learn_work *add_bias; /* the member's rows */
    rcvi_learn_work *sum_bias; /* dbias (+)= the sum over rows, the member's columns; from row 0 on it may overwrite */
    rcvi_learn_work *norm;     /* of rcvi_learn_update: the member's slots of learn->squares */
    rcvi_learn_work *update;   /* the member's elements; outcome->norm is there */
};
extern const rcvi_learn_real rcvi_learn_float, rcvi_learn_double;

rcv_status rcvi_learn_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control,
                           rcvi_outcome *outcome);
rcv_status rcvi_learn_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
/* Bytes of scratch that a member needs for the products of any call; of learn->packed, and of learn->turned. */
int64_t rcvi_learn_head_scratch(const rcvi_learn *learn);
int64_t rcvi_learn_head_packed(const rcvi_learn *learn);
int64_t rcvi_learn_head_turned(const rcvi_learn *learn);

extern const struct rcvi_learn_table rcvi_cpu_learn;

#endif

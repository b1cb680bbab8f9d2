/* The embedding, the output layer with its loss, and the update of parameters on the CPU, by a team of threads (device/learn.h
 * describes the operations).
 *
 * Every member of the team computes a share of each call. Shares are rows, columns or elements, and no sum crosses the border between
 * two of them, so the bits of a result do not depend on the number of members. */
#ifndef RCVI_CPU_LEARN_H
#define RCVI_CPU_LEARN_H

#include "device/cpu/engine/team.h"
#include "device/cpu/kernels/kernels.h"
#include "device/learn.h"

enum { RCVI_LEARN_SLOTS = 256 }; /* partial sums of squares of each part, for the norm */

typedef struct rcvi_learn_real rcvi_learn_real;

struct rcvi_learn {
    rcv_context *context;
    const rcvi_kernels *kernels;
    const rcvi_learn_real *real;
    rcvi_kernel_type type;
    rcvi_learn_shape shape; /* with chunk and threads set */
    int64_t size;           /* bytes of an element */
    rcvi_team *team;
    void *memory;
    size_t bytes, head_bytes;
    char *scratch; /* [threads, scratch_bytes], for products */
    int64_t scratch_bytes;
    char *logits;                            /* [chunk, classes]; overwritten by their gradients */
    char *packed_for_logits, *packed_for_dy; /* the weight, packed as the right operand of each product */
    double *losses;                          /* [rows] */
    double *squares;                         /* [RCVI_MAX_UPDATE_PARTS + 1, RCVI_LEARN_SLOTS] */
};

typedef struct {
    const rcvi_learn *learn;
    int member, members;
} rcvi_learn_share;

typedef void rcvi_learn_work(const rcvi_learn_share *share, const void *job);

/* Runs work(share, job) on all members, or on the caller alone where there are few operations. */
rcv_status rcvi_learn_run(rcvi_learn *learn, double operations, rcvi_learn_work *work, const void *job);
/* A barrier of all members that run the work. */
void rcvi_learn_barrier(const rcvi_learn_share *share);
/* The member's range first .. end - 1 of `extent`, divided at multiples of `unit`. */
void rcvi_learn_share_range(const rcvi_learn_share *share, int64_t extent, int64_t unit, int64_t *first, int64_t *end);

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

/* One chunk of the output layer: rows row .. row + rows - 1; logits [rows, classes], still without the bias. */
typedef struct {
    const rcvi_head *head;
    double weight; /* weight of a row's loss */
    int64_t row, rows, features, classes;
    void *logits;
    double *losses; /* [rows] */
} rcvi_learn_chunk;

/* Arguments of the norm and of the update. */
typedef struct {
    const rcvi_update *update;
    const rcvi_control *control;
    rcvi_outcome *outcome;
} rcvi_learn_update;

/* The work on elements, in float and in double. */
struct rcvi_learn_real {
    rcvi_learn_work *gather, *scatter, *mask; /* job: rcvi_learn_rows */
    /* job: rcvi_learn_chunk. The member's rows: the loss, and, where there is a dy, the gradient in place of the logits. */
    rcvi_learn_work *softmax, *square;
    rcvi_learn_work *add_bias; /* the member's rows */
    rcvi_learn_work *
        sum_bias; /* dbias (+)= the sum over rows, for the member's columns; the chunk of row 0 overwrites unless accumulate */
    rcvi_learn_work *norm;   /* job: rcvi_learn_update. Fills the member's slots of learn->squares */
    rcvi_learn_work *update; /* the member's elements; outcome->norm is set before */
};
extern const rcvi_learn_real rcvi_learn_float, rcvi_learn_double;

rcv_status rcvi_learn_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control,
                           rcvi_outcome *outcome);
rcv_status rcvi_learn_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
/* Bytes of a member's scratch for the products of any call; of packed_for_logits; of packed_for_dy. */
int64_t rcvi_learn_head_scratch(const rcvi_learn *learn);
int64_t rcvi_learn_logits_packed_bytes(const rcvi_learn *learn);
int64_t rcvi_learn_dy_packed_bytes(const rcvi_learn *learn);

extern const struct rcvi_learn_table rcvi_cpu_learn;

#endif

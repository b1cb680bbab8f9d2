/* A pass over a program's steps, shared by pass.c (the order, the streams) and launch.c (the launch of each kind of step). */
#ifndef RCVI_CUDA_PASS_H
#define RCVI_CUDA_PASS_H

#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"

enum {
    RCVI_MOST_STEPS = RCVI_MAX_MOVES, /* in one launch */
    RCVI_MAX_DEFERRED = 64
};
_Static_assert((int)RCVI_MOST_STEPS >= (int)RCVI_MAX_MEMBERS && (int)RCVI_MOST_STEPS >= (int)RCVI_MAX_SUMS,
               "maps and sums too");

typedef struct {
    rcvi_worker *worker;
    const rcvi_engine *engine;
    const rcvi_program *program; /* at the sizes of the call */
    const rcvi_binding *binding;
    char *scratch;
    int *slots;           /* [streams] numbers of the split operands in the slots; 0: none */
    int64_t inner, outer; /* iterations of the innermost loop, and of the one around it */
    bool inside;          /* in a loop that is launched step by step */
    bool products;        /* only products are launched: for measurements */
    /* With several streams: deferred groups, which are launched beside the next persistent loop, or before a launch that touches the same
     * bytes. */
    const rcvi_cuda_group *deferred[RCVI_MAX_DEFERRED];
    int deferred_count;
} rcvi_cuda_pass;

/* A step of the program at one iteration, to be launched. */
typedef struct {
    size_t index;            /* of the step */
    const rcvi_step *step;   /* at the sizes of the call */
    const rcvi_view **views; /* of a map, in the order of the engine's */
    const rcvi_cuda_ready *ready;
    int64_t time, span, rows; /* first time step, time steps, rows of its output */
} rcvi_cuda_due;

/* The time step of the sequence: of a reversed direction they are counted from the end. */
static inline int64_t rcvi_cuda_step_of(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return d->step->direction ? p->program->sizes.steps - 1 - d->time : d->time;
}

/* Rows of a product, or its depth where `a` is transposed. */
static inline int64_t rcvi_cuda_product_length(const rcvi_cuda_due *d) {
    const rcvi_step *s = d->step;
    if (!s->gemm.transpose_a) return d->rows;
    return s->time.timed ? s->gemm.depth / s->time.span * d->span : s->gemm.depth;
}

/* A stream's workspace. */
static inline char *rcvi_cuda_workspace(const rcvi_cuda_pass *p, int stream_index) {
    const rcvi_engine *e = p->engine;
    size_t first = (e->workspace_bytes + 255) / 256 * 256, each = (e->beside_bytes + 255) / 256 * 256;
    return p->scratch + e->workspace + (stream_index > 0 ? first + (size_t)(stream_index - 1) * each : 0);
}

/* The part of a stream of what every stream has. */
static inline char *rcvi_cuda_of_stream(const rcvi_cuda_pass *p, size_t place, size_t bytes, int stream_index) {
    return p->scratch + place + (size_t)stream_index * ((bytes + 255) / 256 * 256);
}

/* The slot of a product's split `a`: its number, its address, and whether the operand is in it. */
static inline int rcvi_cuda_slot_of(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return (d->ready->operand - 1) % p->engine->streams;
}
static inline char *rcvi_cuda_slot(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return rcvi_cuda_of_stream(p, p->engine->split_a, p->engine->split_a_bytes, rcvi_cuda_slot_of(p, d));
}
static inline bool rcvi_cuda_is_in_slot(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return p->slots[rcvi_cuda_slot_of(p, d)] == d->ready->operand;
}

/* Launches steps of a group as one. `stream_index`: number of the stream, which has a workspace of its own. */
rcv_status rcvi_cuda_launch_members(const rcvi_cuda_pass *pass, const rcvi_cuda_due *members, int count,
                                    int stream_index, cudaStream_t stream);
/* Makes the rounded copies of x and of the parameters. */
rcv_status rcvi_cuda_round_inputs(const rcvi_cuda_pass *pass, cudaStream_t stream);

#endif

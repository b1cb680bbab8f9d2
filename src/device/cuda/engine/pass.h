/* What the two files that take a program's steps share: pass.c, in which order and on which stream; launch.c, each of them. */
#ifndef RCVI_CUDA_PASS_H
#define RCVI_CUDA_PASS_H

#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"

enum {
    RCVI_MOST_STEPS = RCVI_MAX_MOVES, /* of a launch */
    RCVI_MAX_WAITING = 64
};
_Static_assert((int)RCVI_MOST_STEPS >= (int)RCVI_MAX_MEMBERS && (int)RCVI_MOST_STEPS >= (int)RCVI_MAX_SUMS,
               "maps and sums too");

typedef struct {
    rcvi_worker *worker;
    const rcvi_engine *engine;
    const rcvi_binding *binding;
    char *scratch;
    int *held; /* [streams] numbers of the operands whose parts are in the slots; 0: none */
    int64_t inner, outer;
    bool inside;   /* of a loop that is launched step by step */
    bool products; /* all else is left out */
    /* With several streams: what nothing on the way needs yet, to be launched beside the next loop that is one kernel, or before what
     * meets it in memory. */
    const rcvi_cuda_group *waiting[RCVI_MAX_WAITING];
    int waiting_count;
} rcvi_cuda_pass;

/* A step of the program at one iteration. */
typedef struct {
    const rcvi_step *step;
    const rcvi_cuda_ready *ready;
    int64_t time, span, rows;
} rcvi_cuda_due;

/* The caller's step that is computed. */
static inline int64_t rcvi_cuda_step_of(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return d->step->direction ? p->engine->program->options.steps - 1 - d->time : d->time;
}

/* A stream's workspace. */
static inline char *rcvi_cuda_workspace(const rcvi_cuda_pass *p, int stream_index) {
    const rcvi_engine *e = p->engine;
    size_t first = (e->workspace_bytes + 255) / 256 * 256, each = (e->beside_bytes + 255) / 256 * 256;
    return p->scratch + e->workspace + (stream_index > 0 ? first + (size_t)(stream_index - 1) * each : 0);
}

/* A stream's own of what every stream has. */
static inline char *rcvi_cuda_of_stream(const rcvi_cuda_pass *p, size_t place, size_t bytes, int stream_index) {
    return p->scratch + place + (size_t)stream_index * ((bytes + 255) / 256 * 256);
}

/* Where the parts of a product's `a` lie, and whether they are there. */
static inline int rcvi_cuda_slot_of(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return (d->ready->operand - 1) % p->engine->streams;
}
static inline char *rcvi_cuda_slot(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return rcvi_cuda_of_stream(p, p->engine->split_a, p->engine->split_a_bytes, rcvi_cuda_slot_of(p, d));
}
static inline bool rcvi_cuda_is_held(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    return p->held[rcvi_cuda_slot_of(p, d)] == d->ready->operand;
}

/* Steps of a group, as one launch; a stream has a workspace of its own. */
rcv_status rcvi_cuda_launch_members(const rcvi_cuda_pass *pass, const rcvi_cuda_due *members, int count,
                                    int stream_index, cudaStream_t stream);
/* Rounded copies of what is the caller's. */
rcv_status rcvi_cuda_round_inputs(const rcvi_cuda_pass *pass, cudaStream_t stream);

#endif

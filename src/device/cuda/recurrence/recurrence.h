/* Loops of maps as kernels: docs/SCAN.md.
 *
 * Every recurrence of a loop (program/recurrence.h) becomes a kernel. Where the state is affine in the one before, it is a scan
 * (scan.cuh) that computes the rest of the iteration in its loads and stores. Else, or where there are enough channels, a thread goes
 * through all iterations of its channels (loop.cuh). */
#ifndef RCVI_CUDA_RECURRENCE_H
#define RCVI_CUDA_RECURRENCE_H

#include "device/cuda/engine/engine.h"
#include "device/cuda/recurrence/scan.h"
#include "program/recurrence.h"

enum { RCVI_RECURRENCE_KERNELS = 4 };

/* When an operand is read. */
typedef enum {
    RCVI_READ_NEVER,
    RCVI_READ_ONCE, /* before the first iteration: it is the same in all of them */
    RCVI_READ_EARLY, /* the state's effect depends on it; loaded again, from a near cache, where it is needed when the state is known */
    RCVI_READ_LATE, /* needed only when the state is known */
    RCVI_READ_CARRIED
} rcvi_read_time;

typedef struct {
    const rcvi_recurrence *r;
    rcvi_scan_cut cut;        /* a loop has the form RCVI_SCAN_CHANNELS, and only vector, steps and threads */
    rcvi_cuda_type *types;    /* [operands] */
    bool *has_rounded;        /* [operands] */
    rcvi_read_time *readings; /* [operands] */
    bool *early, *late;       /* [instructions] computed before the state is known, and after it */
    bool *again;              /* [instructions] both */
    bool *read_again;         /* [operands] likewise */
    bool early_stores;        /* results that are known early are stored early */
    int fetch, batch;         /* positions whose values are loaded at once, before the state is known and after it */
    int sum;                  /* the carried value that is a sum, or RCVI_NONE */
    size_t states, sums;      /* bytes of scratch: states that tiles pass on, sums of tiles */
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernels[RCVI_RECURRENCE_KERNELS]; /* scan, or reduce, carry and expand; the last: sum */
} rcvi_cuda_recurrence;

/* Of a loop. */
struct rcvi_cuda_recurrences {
    rcvi_cuda_recurrence *all;
    int count;
};

/* Finds a loop's recurrences and writes their sources; RCV_UNSUPPORTED, with the reason, where it cannot. */
rcv_status rcvi_cuda_recurrences_new(rcvi_engine *engine, size_t loop, rcvi_cuda_recurrences **out);
void rcvi_cuda_recurrences_free(rcv_context *context, rcvi_cuda_recurrences *recurrences);
rcv_status rcvi_cuda_recurrence_load(rcvi_cuda_recurrence *recurrence, const void *code);
/* Launches all recurrences of a loop, in iteration `outer` of the loop around it; the worker's buffers are bound. sized: [count] the
 * recurrences at the sizes of the call. */
typedef struct rcvi_worker rcvi_worker;
rcv_status rcvi_cuda_recurrences_launch(const rcvi_worker *worker, const rcvi_cuda_recurrences *recurrences,
                                        const rcvi_recurrence *sized, int64_t outer, char *scratch,
                                        cudaStream_t stream);
/* Describes how the loop runs. */
void rcvi_cuda_recurrences_tell(const rcvi_cuda_recurrences *recurrences, rcvi_text *text);

/* Whether the operand is read when the state is known: then stores to it come after that. */
static inline bool rcvi_recurrence_reads_late(const rcvi_cuda_recurrence *c, int operand) {
    return c->readings[operand] == RCVI_READ_LATE || c->read_again[operand];
}
/* Writes the source of one. */
rcv_status rcvi_recurrence_source(rcv_context *context, const rcvi_engine *engine, rcvi_cuda_recurrence *recurrence);

#endif

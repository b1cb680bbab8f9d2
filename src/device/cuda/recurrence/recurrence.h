/* Loops of maps as kernels: docs/SCAN.md.
 *
 * Every recurrence of a loop (program/recurrence.h) becomes a kernel. Where the state is affine in the one before, it is a scan
 * (scan.cuh) in whose loads and stores the rest of the iteration stands; else, or where there are channels enough, a thread goes through
 * all iterations (loop.cuh). */
#ifndef RCVI_CUDA_RECURRENCE_H
#define RCVI_CUDA_RECURRENCE_H

#include "device/cuda/engine/engine.h"
#include "device/cuda/recurrence/scan.h"
#include "program/recurrence.h"

enum { RCVI_RECURRENCE_KERNELS = 4 };

/* What becomes of an operand that is read. */
typedef enum {
    RCVI_READ_NEVER,
    RCVI_READ_ONCE,  /* the same in every iteration */
    RCVI_READ_EARLY, /* what the state's effect follows from; once more, from a near cache, when the state is known */
    RCVI_READ_LATE,  /* what is needed then alone */
    RCVI_READ_CARRIED
} rcvi_reading;

typedef struct {
    const rcvi_recurrence *r;
    rcvi_scan_cut cut;      /* form: what is scanned; a loop: RCVI_SCAN_CHANNELS, of vector, steps and threads alone */
    rcvi_cuda_type *types;  /* [operands] */
    bool *has_rounded;      /* [operands] */
    rcvi_reading *readings; /* [operands] */
    bool *early, *late;     /* [instructions] before the state is known, and when it is */
    bool *again;            /* [instructions] both */
    bool *read_again;       /* [operands] likewise */
    bool early_stores;      /* what is known early is stored at once */
    int fetch, batch;       /* positions whose values are loaded at once, before the state is known and when it is */
    int sum;                /* the carried value that is a sum, or RCVI_NONE */
    size_t states, sums;    /* bytes: of what a scan's tiles pass on, and of their sums */
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernels[RCVI_RECURRENCE_KERNELS]; /* scan, or reduce, carry and expand; behind them: sum */
} rcvi_cuda_recurrence;

/* Of a loop. */
struct rcvi_cuda_recurrences {
    rcvi_cuda_recurrence *all;
    int count;
};

/* The loop's recurrences and their kernels' texts; or a sentence that says what stands against it. */
rcv_status rcvi_cuda_recurrences_new(rcvi_engine *engine, size_t loop, rcvi_cuda_recurrences **out);
void rcvi_cuda_recurrences_free(rcv_context *context, rcvi_cuda_recurrences *recurrences);
rcv_status rcvi_cuda_recurrence_load(rcvi_cuda_recurrence *recurrence, const void *code);
/* All of a loop on this stream, in iteration `outer` of the one around it; the worker's buffers are bound. */
typedef struct rcvi_worker rcvi_worker;
rcv_status rcvi_cuda_recurrences_launch(const rcvi_worker *worker, const rcvi_cuda_recurrences *recurrences,
                                        int64_t outer, char *scratch, cudaStream_t stream);
/* How the loop runs, in words. */
void rcvi_cuda_recurrences_tell(const rcvi_cuda_recurrences *recurrences, rcvi_text *text);

/* Is the operand read when the state is known? Then it is stored to behind that. */
static inline bool rcvi_recurrence_reads_late(const rcvi_cuda_recurrence *c, int operand) {
    return c->readings[operand] == RCVI_READ_LATE || c->read_again[operand];
}
/* The text of one. */
rcv_status rcvi_recurrence_source(rcv_context *context, const rcvi_engine *engine, rcvi_cuda_recurrence *recurrence);

#endif

/* Sequences of different lengths, without work after their ends: ragged.c. */
#ifndef RCVI_CUDA_RAGGED_H
#define RCVI_CUDA_RAGGED_H

#include "device/cuda/engine/engine.h"

/* The sequences of one call, sorted by length, the longest first. */
typedef struct rcvi_cuda_rows {
    int64_t *order;   /* [batch] the caller's sequence at each row */
    int64_t *lengths; /* [batch] in this order */
    int64_t *alive;   /* [steps] sequences that have this step */
} rcvi_cuda_rows;

/* Finds whether runs sort, which steps then are short, and which buffers are cleared before their loop. */
rcv_status rcvi_cuda_find_short(rcvi_engine *engine);
/* The first loop that touches a buffer of which nothing but zeros is written before; else RCVI_NONE. */
int rcvi_cuda_first_loop(const rcvi_program *program, int buffer);
/* Whether rows of the buffer are the caller's sequences. */
bool rcvi_cuda_is_by_row(const rcvi_buffer *buffer);

rcv_status rcvi_cuda_rows_open(rcv_context *context, const rcvi_program *program, rcvi_cuda_rows *rows);
void rcvi_cuda_rows_close(rcv_context *context, rcvi_cuda_rows *rows);
/* lengths: [sizes.batch], each at most sizes.steps. */
void rcvi_cuda_rows_sort(rcvi_cuda_rows *rows, rcvi_sizes sizes, const int64_t *lengths);

#endif

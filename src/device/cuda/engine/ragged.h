/* Sequences of different lengths without work for what lies behind their ends. */
#ifndef RCVI_CUDA_RAGGED_H
#define RCVI_CUDA_RAGGED_H

#include "device/cuda/engine/engine.h"

/* Of one call: the sequences, the longest first. */
typedef struct rcvi_cuda_rows {
    int64_t steps, batch;
    int64_t *order;   /* [batch] sequence of the caller's at each row */
    int64_t *lengths; /* [batch] in this order */
    int64_t *alive;   /* [steps] sequences that have this step */
} rcvi_cuda_rows;

/* Whether runs sort, which steps then leave rows out, and what is cleared before the loop with which its life begins. */
rcv_status rcvi_cuda_find_short(rcvi_engine *engine);
/* Rows of it are sequences of the caller's. */
bool rcvi_cuda_is_by_row(const rcvi_buffer *buffer);

rcv_status rcvi_cuda_rows_open(rcv_context *context, const rcvi_program *program, rcvi_cuda_rows *rows);
void rcvi_cuda_rows_close(rcv_context *context, rcvi_cuda_rows *rows);
void rcvi_cuda_rows_sort(rcvi_cuda_rows *rows, const int64_t *lengths);

#endif

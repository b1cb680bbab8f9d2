/* Kernels around a network, as C functions that enqueue them on a stream, like those of kernels/kernels.h. `real` is F32 or F64; arrays of it
 * begin at multiples of its bytes. What changes from call to call is read from device memory. */
#ifndef RCVI_CUDA_LEARN_KERNELS_H
#define RCVI_CUDA_LEARN_KERNELS_H

#include "device/cuda/kernels/types.h"
#include "device/learn.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in device/learn.h. */
cudaError_t rcvi_cuda_gather(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                             const int32_t *ids, const void *table, void *out);
cudaError_t rcvi_cuda_scatter(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                              const rcvi_groups *groups, bool by_id, const void *from, void *out);
cudaError_t rcvi_cuda_mask(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                           const rcvi_mask *mask, const rcvi_control *control, const void *from, void *out);

/* to[rows, wide] of BF16 or F16 = from[rows, columns] of floats, zeros after them; `wide` is a multiple of 16 bytes, and `to` begins at one.
 * One job and one source type: 6,656 rows of 650 take 9.8 microseconds on an H200, by rcvi_cuda_move about 12. */
cudaError_t rcvi_cuda_round(cudaStream_t stream, rcvi_cuda_type type, int64_t rows, int64_t columns, int64_t wide,
                            const float *from, void *to);

/* Rows of an output layer, before its bias: their losses, and their gradients.
 *
 * Of softmax the classes may come in several calls, from the first on: a call has those from `first` on of `all`, and the call with the last of them completes numbers and losses. Gradients are computed in a call that has all classes, or in later calls,
 * without losses.
 *
 * Rows of logits and of gradients are `wide` elements long, a multiple of 16 bytes of both, and begin at such; gradients are 0 from
 * `classes` on. They may be the logits themselves where they are of the same type. */
typedef struct {
    int64_t rows, classes, wide;
    int64_t first, all;
    const void *logits;
    const void *bias;          /* [classes] or NULL */
    const int32_t *targets;    /* [rows], of all classes; NULL: squares */
    const void *values;        /* [rows, classes] of squares */
    const void *class_weights; /* [all] of softmax: factors of a row by its target; NULL: 1 */
    double *losses;            /* [rows]; NULL: losses and numbers are complete */
    void *numbers;             /* [rows, 2] reals of scratch */
    void *gradients;           /* NULL: the losses alone */
    void *sums; /* [rcvi_cuda_head_slices, classes] reals: sums of gradients over slices of rows; NULL: not wanted */
    rcvi_cuda_type real;
    rcvi_cuda_type type; /* of gradients: real, BF16 or F16 */
    bool exact;          /* exponentials in full float precision */
    const rcvi_control *control;
} rcvi_head_rows;
int64_t rcvi_cuda_head_slices(int64_t rows, int64_t classes);
cudaError_t rcvi_cuda_head_rows(cudaStream_t stream, const rcvi_head_rows *rows);
/* outcome->loss (+)= the sum. */
cudaError_t rcvi_cuda_sum_losses(cudaStream_t stream, int64_t rows, const double *losses, bool add,
                                 rcvi_outcome *outcome);
/* out[r] += bias, rows of `columns`. */
cudaError_t rcvi_cuda_add_bias(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                               const void *bias, void *out);

/* Which half of an update: both; the sum of squares, which goes to outcome->norm; or the rest, which reads the norm there. */
typedef enum { RCVI_HALF_BOTH, RCVI_HALF_SQUARES, RCVI_HALF_APPLY } rcvi_cuda_half;

/* Writes the norm to outcome, then updates all parts. `sums`: RCVI_NORM_SUMS + 1 doubles of scratch. */
enum { RCVI_NORM_SUMS = 1024 };
cudaError_t rcvi_cuda_update(cudaStream_t stream, rcvi_cuda_type real, int processors, rcvi_cuda_half half,
                             const rcvi_update *update, const rcvi_control *control, rcvi_outcome *outcome,
                             double *sums);
/* Before an update that has a head: the squares of its gradient, for the norm. They are stored to `sums` or, with `adds`, added to it; the
 * update adds those of its parts. Of a part only the gradient is read. */
cudaError_t rcvi_cuda_add_squares(cudaStream_t stream, rcvi_cuda_type real, const rcvi_update_part *parts, int count,
                                  bool adds, const rcvi_control *control, double *sums);
/* After it: updates parameters [rows, columns] by sgd; the gradient has `row` elements from row to row. */
cudaError_t rcvi_cuda_change_rows(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                  void *parameters, const void *gradient, int64_t row, const rcvi_control *control,
                                  const double *sums);

#ifdef __cplusplus
}
#endif

#endif

/* Products of float32 by split-bf16 emulation: several products of bfloat16 by cuBLASLt, sums in float.
 *
 * A float32 x is nearly the sum of `parts` bfloat16 numbers, each the rounding of what the ones before leave: hi + mid + lo. Of the
 * products of part p of a and part q of b, counted from 0, those with p + q < parts are computed, the small ones first.
 *
 * The parts of `a` lie one after the other along depth, the first one first; those of `b` in the opposite order. So
 * a_0 b_n + .. + a_n b_0 is one product, n + 1 times as deep, of memory as it lies: the library is called `parts` times. Where depth
 * lies along a row, the parts of a row are next to each other, else parts are blocks of rows. An operand that several products share has
 * one layout for all of them: an `a` in blocks of rows whose depth lies along rows is multiplied part by part. */
#ifndef RCVI_CUDA_SPLIT_GEMM_H
#define RCVI_CUDA_SPLIT_GEMM_H

#include "device/cuda/gemm/gemm.h"
#include "device/cuda/kernels/split.h"

enum { RCVI_MAX_SPLIT_PRODUCTS = RCVI_MAX_SPLIT * (RCVI_MAX_SPLIT + 1) / 2 };

/* All that follows from a shape. */
typedef struct {
    rcvi_split a, b; /* without addresses */
    struct {
        rcvi_cuda_gemm_shape shape;
        int64_t a, b; /* elements from the first part */
    } products[RCVI_MAX_SPLIT_PRODUCTS];
    int count;
} rcvi_split_gemm_layout;

/* For a shape in F32 with a batch of 1, and not transpose_out. `blocks`: the parts of `a` are blocks of rows. */
void rcvi_split_gemm_lay_out(const rcvi_cuda_gemm_shape *shape, int parts, bool blocks, rcvi_split_gemm_layout *layout);

/* Whether it is faster than multiply-adds of float32: operands are read and written once more, and `out` a few times. */
bool rcvi_split_gemm_pays(const rcvi_cuda_gemm_shape *shape);

typedef struct rcvi_split_gemm rcvi_split_gemm;

/* `choice` as in rcvi_cuda_gemm_new; the last one, where the library proposes fewer. */
rcv_status rcvi_split_gemm_new(rcv_context *context, rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int parts,
                               bool blocks, int choice, rcvi_split_gemm **out);
void rcvi_split_gemm_free(rcvi_split_gemm *split);
/* Bytes of the library's workspace, and of the split operands, 256-byte aligned. */
size_t rcvi_split_gemm_workspace(const rcvi_split_gemm *split);
size_t rcvi_split_gemm_bytes_a(const rcvi_split_gemm *split);
size_t rcvi_split_gemm_bytes_b(const rcvi_split_gemm *split);

/* These enqueue, and allocate nothing. `length`: rows, or depth where a is transposed, at most those of the shape; 0: those. */
rcv_status rcvi_split_gemm_split_a(const rcvi_split_gemm *split, int64_t length, const void *a, void *to,
                                   cudaStream_t stream);
rcv_status rcvi_split_gemm_split_b(const rcvi_split_gemm *split, int64_t length, const void *b, void *to,
                                   cudaStream_t stream);
/* Multiplies split operands. `stores`: a shape that accumulates overwrites out. */
rcv_status rcvi_split_gemm_run(const rcvi_split_gemm *split, int64_t length, const void *a, const void *b,
                               const void *start, bool stores, void *out, void *workspace, cudaStream_t stream);

#endif

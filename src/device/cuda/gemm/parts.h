/* Products of float32 by cuBLASLt as several of bfloat16, sums in float: x is nearly hi + mid + lo, and of the products of parts p
 * and q, counted from 0, those with p + q < parts are taken, the small ones first.
 *
 * The parts of `a` lie behind each other along depth from the first on, those of `b` from the last on. So a_0 b_n + .. + a_n b_0 is one
 * product, n + 1 times as deep, of memory that is there: `parts` calls of the library are all. Where depth lies along a row its parts are
 * beside each other, else they are blocks of rows. An operand that several products share has one order for all of them: `a` in
 * blocks of rows though depth lies along them meets `b` part by part. */
#ifndef RCVI_CUDA_GEMM_PARTS_H
#define RCVI_CUDA_GEMM_PARTS_H

#include "device/cuda/gemm/gemm.h"
#include "device/cuda/kernels/split.h"

enum { RCVI_MAX_PART_PRODUCTS = RCVI_MAX_SPLIT * (RCVI_MAX_SPLIT + 1) / 2 };

/* All that follows from a shape. */
typedef struct {
    rcvi_split a, b; /* but where from and where to */
    struct {
        rcvi_cuda_gemm_shape shape;
        int64_t a, b; /* elements from the first of the parts */
    } products[RCVI_MAX_PART_PRODUCTS];
    int count;
} rcvi_parts_layout;

/* Of a shape in F32, with one product: not `transpose_out`. `blocks`: the parts of `a` are blocks of rows. */
void rcvi_cuda_parts_lay_out(const rcvi_cuda_gemm_shape *shape, int parts, bool blocks, rcvi_parts_layout *layout);

/* Whether that is faster than multiply-adds: operands are read and written once more, and `out` a few times. */
bool rcvi_cuda_parts_pay(const rcvi_cuda_gemm_shape *shape);

typedef struct rcvi_cuda_parts rcvi_cuda_parts;

/* `choice` as of rcvi_cuda_gemm_new; where the library proposes fewer, the last of them. */
rcv_status rcvi_cuda_parts_new(rcv_context *context, rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int parts,
                               bool blocks, int choice, rcvi_cuda_parts **out);
void rcvi_cuda_parts_free(rcvi_cuda_parts *parts);
/* Bytes: of the library's own memory, and of the parts of both operands, 256-byte aligned. */
size_t rcvi_cuda_parts_workspace(const rcvi_cuda_parts *parts);
size_t rcvi_cuda_parts_bytes_a(const rcvi_cuda_parts *parts);
size_t rcvi_cuda_parts_bytes_b(const rcvi_cuda_parts *parts);

/* All of these enqueue, and allocate nothing. */
rcv_status rcvi_cuda_parts_split_a(const rcvi_cuda_parts *parts, const void *a, void *to, cudaStream_t stream);
rcv_status rcvi_cuda_parts_split_b(const rcvi_cuda_parts *parts, const void *b, void *to, cudaStream_t stream);
/* Of operands that are split. `stores`: a shape that accumulates, without what is there. */
rcv_status rcvi_cuda_parts_run(const rcvi_cuda_parts *parts, const void *a, const void *b, const void *start,
                               bool stores, void *out, void *workspace, cudaStream_t stream);

#endif

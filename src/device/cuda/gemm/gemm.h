/* Products by cuBLASLt: out[rows, columns] (+)= op(a) op(b), row-major, sums in float (double in double). */
#ifndef RCVI_CUDA_GEMM_H
#define RCVI_CUDA_GEMM_H

#include "device/cuda/cuda.h"

typedef struct {
    int64_t rows, columns, depth;
    bool transpose_a, transpose_b; /* a is stored [depth, rows]; b is stored [columns, depth] */
    bool accumulate;               /* adds to out */
    bool starts;        /* sums start from a given row [columns]; not with accumulate, transpose_out or in double */
    bool transpose_out; /* out is stored [columns, rows]: Y^T = W X^T */
    rcvi_cuda_type a, b, out;      /* a and b are of one type; out is F32 (F64 in double), or that type */
    bool tensor;                   /* F32 operands as tf32 */
    bool whole_b;                  /* every row of b, as stored, has row_b elements of memory, the last one too */
    bool padded;                   /* so have all rows of a and b, with zeros after the elements that are multiplied */
    int64_t row_a, row_b, row_out; /* elements from row to row, as stored */
    int64_t batch, step_a, step_b, step_out; /* number of products, and elements from one to the next */
} rcvi_cuda_gemm_shape;

typedef struct rcvi_cuda_blas rcvi_cuda_blas; /* a handle of one device; threads may share it */
typedef struct rcvi_cuda_gemm rcvi_cuda_gemm; /* descriptors and an algorithm for one shape */

rcv_status rcvi_cuda_blas_new(rcv_context *context, rcvi_cuda_blas **blas);
void rcvi_cuda_blas_free(rcvi_cuda_blas *blas);
const char *rcvi_cuda_blas_name(void); /* with version; NULL with a sentence where there is none */

enum { RCVI_GEMM_WORKSPACE = 32 << 20 }; /* most bytes of workspace of a product, 256-byte aligned */

/* The algorithm is the `choice`-th (from 0) of those that the library proposes and that always give the same bits; RCV_UNSUPPORTED
 * where there are fewer. */
rcv_status rcvi_cuda_gemm_new(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice,
                              rcvi_cuda_gemm **gemm);
/* The same with at most `room` bytes of workspace. */
rcv_status rcvi_cuda_gemm_new_within(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                                     rcvi_cuda_gemm **gemm);
/* Times the first `choices` algorithms on data of this shape and keeps the fastest; takes about `seconds` at most. Memory for the
 * trials is allocated and freed here. */
rcv_status rcvi_cuda_gemm_tune(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choices, double seconds,
                               rcvi_cuda_gemm **gemm);
void rcvi_cuda_gemm_free(rcvi_cuda_gemm *gemm);
size_t rcvi_cuda_gemm_workspace(const rcvi_cuda_gemm *gemm); /* bytes that this one needs */
/* Enqueues; allocates nothing. `start`: [columns] of the output's type where the shape starts from a row, else NULL. */
rcv_status rcvi_cuda_gemm_run(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, void *out,
                              void *workspace, cudaStream_t stream);
/* The same for a shape that accumulates, but overwrites out. */
rcv_status rcvi_cuda_gemm_store(const rcvi_cuda_gemm *gemm, const void *a, const void *b, void *out, void *workspace,
                                cudaStream_t stream);

/* The same for fewer rows, or less depth where a is transposed, than the shape has: `length` of them. `stores`: a shape that accumulates
 * overwrites out. The algorithm is that of the shape; where it does not take this length, another one is looked for, which takes
 * some 100 microseconds. */
rcv_status rcvi_cuda_gemm_run_length(const rcvi_cuda_gemm *gemm, int64_t length, const void *a, const void *b,
                                     const void *start, bool stores, void *out, void *workspace, cudaStream_t stream);

#endif

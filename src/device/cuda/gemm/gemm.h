/* Products by cuBLASLt: out[rows, columns] (+)= op(a) op(b), row-major, sums in float (double in double). */
#ifndef RCVI_CUDA_GEMM_H
#define RCVI_CUDA_GEMM_H

#include "device/cuda/cuda.h"

typedef struct {
    int64_t rows, columns, depth;
    bool transpose_a, transpose_b; /* a is [depth, rows]; b is [columns, depth] */
    bool accumulate;
    bool starts;        /* from a row that is given for every column: not with accumulate, transposed or in double */
    bool transpose_out; /* out is stored [columns, rows]: Y^T = W X^T */
    rcvi_cuda_type a, b, out;                /* a and b alike; out F32 (F64 in double), or as they are */
    bool tensor;                             /* F32 operands as tf32 */
    bool whole_b;                            /* the last of b's rows, as stored, is row_b elements of memory too */
    bool padded;                             /* all rows of a and b are, and zeros behind what is multiplied */
    int64_t row_a, row_b, row_out;           /* elements from row to row, as stored */
    int64_t batch, step_a, step_b, step_out; /* `batch` products, so many elements apart */
} rcvi_cuda_gemm_shape;

typedef struct rcvi_cuda_blas rcvi_cuda_blas; /* handle of one device; may be shared by threads */
typedef struct rcvi_cuda_gemm rcvi_cuda_gemm; /* descriptors and an algorithm for one shape */

rcv_status rcvi_cuda_blas_new(rcv_context *context, rcvi_cuda_blas **blas);
void rcvi_cuda_blas_free(rcvi_cuda_blas *blas);
const char *rcvi_cuda_blas_name(void); /* with version; NULL with a sentence where there is none */

enum { RCVI_GEMM_WORKSPACE = 32 << 20 }; /* bytes that a product may take, 256-byte aligned */

/* The algorithm is the `choice`-th (from 0) of those that the library proposes and that give the same bits every time;
 * RCV_UNSUPPORTED where there are fewer. */
rcv_status rcvi_cuda_gemm_new(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice,
                              rcvi_cuda_gemm **gemm);
/* The same with less workspace than that at most. */
rcv_status rcvi_cuda_gemm_new_within(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                                     rcvi_cuda_gemm **gemm);
/* Times the first `choices` of them on data of this shape and keeps the fastest; takes about `seconds` at most. Memory
 * for the trial is allocated and freed here. */
rcv_status rcvi_cuda_gemm_tune(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choices, double seconds,
                               rcvi_cuda_gemm **gemm);
void rcvi_cuda_gemm_free(rcvi_cuda_gemm *gemm);
size_t rcvi_cuda_gemm_workspace(const rcvi_cuda_gemm *gemm); /* bytes this one needs */
/* Enqueues; allocates nothing. `start`: [columns] of the output's type where the shape says so. */
rcv_status rcvi_cuda_gemm_run(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, void *out,
                              void *workspace, cudaStream_t stream);
/* The same of a shape that accumulates, without what is there. */
rcv_status rcvi_cuda_gemm_store(const rcvi_cuda_gemm *gemm, const void *a, const void *b, void *out, void *workspace,
                                cudaStream_t stream);

#endif

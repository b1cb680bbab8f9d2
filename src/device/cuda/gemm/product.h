/* A product made ready for cuBLASLt, for the files of this folder. */
#ifndef RCVI_CUDA_GEMM_PRODUCT_H
#define RCVI_CUDA_GEMM_PRODUCT_H

#include "device/cuda/gemm/cublaslt.h"

enum { RCVI_GEMM_ALIGNMENT = 16 }; /* bytes: the most that an algorithm asks for */

/* An algorithm of the library. */
typedef struct {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;      /* bytes */
    uint32_t alignment[3]; /* bytes, of left, right and out */
} rcvi_gemm_method;

/* The library's matrices are column-major. A row-major matrix, read by it, is its transpose: so it computes
 * out^T = op(b)^T op(a)^T with our b as `left`. Where out is stored transposed, that is out = op(a) op(b) again, with our a as `left`
 * and each operand transposed once more. */
struct rcvi_cuda_gemm {
    rcvi_cuda_blas *blas;
    rcvi_cuda_gemm_shape shape; /* as computed: may be deeper, wider or shorter than what was asked for (align.c) */
    bool empty;                 /* some length is 0: a sum over nothing */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out;
    rcvi_gemm_method strict, loose; /* with the alignment that the strides promise; with that of single elements */
    /* The rest of a product that was cut: a product of its own, whose operands begin so many elements later. */
    rcvi_cuda_gemm *rest;
    int64_t rest_a, rest_b, rest_out, rest_start;
    bool rest_adds; /* depth was cut: the rest is added */
    size_t room;    /* bytes of workspace that its algorithms may take */
    /* Operands a and b, as stored, that are copied to so many bytes of the workspace, with the rows of `shape`; 0: read where they are. */
    struct {
        size_t bytes;
        int64_t rows, columns, row; /* as given */
    } copies[2];
    /* Where `aside` is not 0, the output is computed in so many bytes of the workspace, with the strides of `shape`, and then copied
     * or added to its place: [rows, columns] with row_out elements from row to row. */
    size_t aside;
    int64_t rows, columns, row_out;
};

/* A matrix as we store it: [rows, columns], `row` elements from row to row, `step` from product to product of a batch. */
typedef struct {
    rcvi_cuda_type type;
    int64_t rows, columns, row, step;
} rcvi_gemm_stored;
rcvi_gemm_stored rcvi_gemm_stored_a(const rcvi_cuda_gemm_shape *shape);
rcvi_gemm_stored rcvi_gemm_stored_b(const rcvi_cuda_gemm_shape *shape);
rcvi_gemm_stored rcvi_gemm_stored_out(const rcvi_cuda_gemm_shape *shape);
/* The largest power of 2 up to RCVI_GEMM_ALIGNMENT at whose multiples every row and every product of the batch begins, if the first
 * element does. */
uint32_t rcvi_gemm_alignment(rcvi_gemm_stored matrix, int64_t batch);

/* The library's status as ours, with a sentence that names the product. */
rcv_status rcvi_gemm_fail(const rcvi_cuda_gemm_shape *shape, cublasStatus_t status, const char *what);

/* describe.c: the descriptors of `shape`. */
rcv_status rcvi_gemm_describe(rcvi_cuda_gemm *gemm);
/* The layouts of the same product with fewer rows or less depth, in memory of the caller's. */
typedef struct {
    cublasLtMatrixLayoutOpaque_t left, right, out;
} rcvi_gemm_layouts;
rcv_status rcvi_gemm_lay_out_length(const rcvi_cuda_gemm *gemm, int64_t length, rcvi_gemm_layouts *layouts);
/* The length that rcvi_cuda_gemm_run_length changes. */
static inline int64_t *rcvi_gemm_length(rcvi_cuda_gemm_shape *shape) {
    return shape->transpose_a ? &shape->depth : &shape->rows;
}
/* Sets the row from which the sums start, for the next call of the library. */
cublasStatus_t rcvi_gemm_set_start(cublasLtMatmulDesc_t product, const void *start);

/* algorithm.c: the `choice`-th algorithm as `strict`, and the first one without alignment as `loose`. */
rcv_status rcvi_gemm_choose(rcvi_cuda_gemm *gemm, int choice);

/* align.c. What a product may take of `room` bytes of workspace. */
size_t rcvi_gemm_room(const rcvi_cuda_gemm_shape *shape, size_t room);
/* Changes gemm->shape so that the library's fast algorithms apply; cuts a rest from it. In this order. */
void rcvi_gemm_copy_operands(rcvi_cuda_gemm *gemm);
void rcvi_gemm_deepen(rcvi_cuda_gemm_shape *shape);
void rcvi_gemm_put_aside(rcvi_cuda_gemm *gemm);
rcv_status rcvi_gemm_cut(rcvi_cuda_blas *blas, rcvi_cuda_gemm *gemm);

/* gemm.c: makes a product of exactly this shape. */
rcv_status rcvi_gemm_make(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                          rcvi_cuda_gemm **gemm);

#endif

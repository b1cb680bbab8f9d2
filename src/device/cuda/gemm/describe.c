/* Shapes as cuBLASLt's descriptors. */
#include "device/cuda/gemm/product.h"

static const char *const type_names[] = {
    [RCVI_F32] = "float32", [RCVI_F64] = "float64", [RCVI_BF16] = "bf16",
    [RCVI_F16] = "fp16",    [RCVI_U8] = "uint8",    [RCVI_I64] = "int64",
};

rcv_status rcvi_gemm_fail(const rcvi_cuda_gemm_shape *s, cublasStatus_t status, const char *what) {
    rcv_status kind = status == CUBLAS_STATUS_ALLOC_FAILED ? RCV_NO_MEMORY : RCV_UNSUPPORTED;
    return rcvi_fail(kind, "%s %s for the product of [%lld, %lld]%s and [%lld, %lld]%s, %lld times in %s: %s",
                     rcvi_cublaslt.name, what, (long long)s->rows, (long long)s->depth,
                     s->transpose_a ? " transposed" : "", (long long)s->depth, (long long)s->columns,
                     s->transpose_b ? " transposed" : "", (long long)s->batch, type_names[s->a],
                     rcvi_cublaslt.call.GetStatusName(status));
}

static bool data_type(rcvi_cuda_type type, cudaDataType *data) {
    switch (type) {
    case RCVI_F32: *data = CUDA_R_32F; return true;
    case RCVI_F64: *data = CUDA_R_64F; return true;
    case RCVI_BF16: *data = CUDA_R_16BF; return true;
    case RCVI_F16: *data = CUDA_R_16F; return true;
    default: return false;
    }
}

rcvi_gemm_stored rcvi_gemm_stored_a(const rcvi_cuda_gemm_shape *s) {
    return (rcvi_gemm_stored){s->a, s->transpose_a ? s->depth : s->rows, s->transpose_a ? s->rows : s->depth, s->row_a,
                              s->step_a};
}
rcvi_gemm_stored rcvi_gemm_stored_b(const rcvi_cuda_gemm_shape *s) {
    return (rcvi_gemm_stored){s->b, s->transpose_b ? s->columns : s->depth, s->transpose_b ? s->depth : s->columns,
                              s->row_b, s->step_b};
}
rcvi_gemm_stored rcvi_gemm_stored_out(const rcvi_cuda_gemm_shape *s) {
    return (rcvi_gemm_stored){s->out, s->transpose_out ? s->columns : s->rows, s->transpose_out ? s->rows : s->columns,
                              s->row_out, s->step_out};
}

static cublasStatus_t set_batch(const rcvi_cuda_gemm_shape *s, rcvi_gemm_stored m, cublasLtMatrixLayout_t layout) {
    int32_t batch = (int32_t)s->batch;
    if (s->batch == 1) return CUBLAS_STATUS_SUCCESS;
    if (batch != s->batch) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status =
        rcvi_cublaslt.call.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return rcvi_cublaslt.call.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.step,
                                                       sizeof m.step);
}

/* Makes a layout in `memory`, or in memory of the library's where that is NULL. */
static rcv_status lay_out(const rcvi_cuda_gemm_shape *s, rcvi_gemm_stored m, cublasLtMatrixLayoutOpaque_t *memory,
                          cublasLtMatrixLayout_t *layout) {
    cudaDataType type;
    if (m.rows == 1 && m.row < m.columns) m.row = m.columns; /* there is no next row */
    if (m.row < m.columns || !data_type(m.type, &type))
        return rcvi_gemm_fail(s, CUBLAS_STATUS_INVALID_VALUE, "has no layout");
    uint64_t rows = (uint64_t)m.columns, columns = (uint64_t)m.rows; /* as the library counts them */
    cublasStatus_t status;
    if (memory)
        status =
            rcvi_cublaslt.call.MatrixLayoutInit_internal(*layout = memory, sizeof *memory, type, rows, columns, m.row);
    else
        status = rcvi_cublaslt.call.MatrixLayoutCreate(layout, type, rows, columns, m.row);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_batch(s, m, *layout);
    return status == CUBLAS_STATUS_SUCCESS ? RCV_OK : rcvi_gemm_fail(s, status, "has no layout");
}

rcv_status rcvi_gemm_lay_out_length(const rcvi_cuda_gemm *gemm, int64_t length, rcvi_gemm_layouts *layouts) {
    rcvi_cuda_gemm_shape s = gemm->shape;
    cublasLtMatrixLayout_t layout;
    *rcvi_gemm_length(&s) = length;
    RCVI_TRY(lay_out(&s, s.transpose_out ? rcvi_gemm_stored_a(&s) : rcvi_gemm_stored_b(&s), &layouts->left, &layout));
    RCVI_TRY(lay_out(&s, s.transpose_out ? rcvi_gemm_stored_b(&s) : rcvi_gemm_stored_a(&s), &layouts->right, &layout));
    return lay_out(&s, rcvi_gemm_stored_out(&s), &layouts->out, &layout);
}

cublasStatus_t rcvi_gemm_set_start(cublasLtMatmulDesc_t product, const void *start) {
    return rcvi_cublaslt.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &start, sizeof start);
}

/* The row that sums start from, a number for every column of ours, is the bias epilogue of the library: a number for every row of its
 * column-major output. */
static cublasStatus_t describe_start(cublasLtMatmulDesc_t product, rcvi_cuda_type out) {
    static const _Alignas(256) char somewhere[256]; /* replaced by every run */
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType type = CUDA_R_32F;
    if (!data_type(out, &type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t status =
        rcvi_cublaslt.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            rcvi_cublaslt.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    return status == CUBLAS_STATUS_SUCCESS ? rcvi_gemm_set_start(product, somewhere) : status;
}

rcv_status rcvi_gemm_describe(rcvi_cuda_gemm *gemm) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    cudaDataType scale = s->a == RCVI_F64 ? CUDA_R_64F : CUDA_R_32F;
    cublasComputeType_t compute = s->a == RCVI_F64                ? CUBLAS_COMPUTE_64F
                                  : s->a == RCVI_F32 && s->tensor ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F;
    bool transpose_left = s->transpose_out ? !s->transpose_a : s->transpose_b;
    bool transpose_right = s->transpose_out ? !s->transpose_b : s->transpose_a;
    cublasOperation_t left = transpose_left ? CUBLAS_OP_T : CUBLAS_OP_N,
                      right = transpose_right ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = rcvi_cublaslt.call.MatmulDescCreate(&gemm->product, compute, scale);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            rcvi_cublaslt.call.MatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            rcvi_cublaslt.call.MatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right);
    if (status == CUBLAS_STATUS_SUCCESS && s->starts) status = describe_start(gemm->product, s->out);
    if (status != CUBLAS_STATUS_SUCCESS) return rcvi_gemm_fail(s, status, "has no descriptor");
    RCVI_TRY(lay_out(s, s->transpose_out ? rcvi_gemm_stored_a(s) : rcvi_gemm_stored_b(s), NULL, &gemm->left));
    RCVI_TRY(lay_out(s, s->transpose_out ? rcvi_gemm_stored_b(s) : rcvi_gemm_stored_a(s), NULL, &gemm->right));
    return lay_out(s, rcvi_gemm_stored_out(s), NULL, &gemm->out);
}

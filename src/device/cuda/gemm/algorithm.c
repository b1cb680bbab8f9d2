/* Which of cuBLASLt's algorithms computes a product.
 *
 * An algorithm may need operands that begin at multiples of up to 16 bytes. The first one asks for what the shape's strides promise; a
 * second one needs no alignment, for operands that begin elsewhere. Algorithms whose results differ from run to run are left out. */
#include "device/cuda/gemm/product.h"

#include <string.h>

enum { MOST_RESULTS = 32 }; /* algorithms that the library proposes */

uint32_t rcvi_gemm_alignment(rcvi_gemm_stored m, int64_t batch) {
    size_t bytes = rcvi_cuda_bytes(m.type), alignment = RCVI_GEMM_ALIGNMENT;
    while (alignment > bytes &&
           ((m.rows > 1 && (size_t)m.row * bytes % alignment) || (batch > 1 && (size_t)m.step * bytes % alignment)))
        alignment /= 2;
    return (uint32_t)alignment;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const uint32_t alignment[3], uint32_t reductions,
                             uint64_t workspace) {
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment[0], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment[1], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment[2], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment[2], sizeof *alignment},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && status == CUBLAS_STATUS_SUCCESS; i++)
        status = rcvi_cublaslt.call.MatmulPreferenceSetAttribute(preference, attributes[i].name, attributes[i].value,
                                                                 attributes[i].bytes);
    return status;
}

/* Whether the algorithm fits in the workspace and always sums in the same order. A reduction in place (atomic additions) does not. */
static bool is_usable(const cublasLtMatmulHeuristicResult_t *result, uint32_t reductions, size_t room) {
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written = 0;
    if (result->state != CUBLAS_STATUS_SUCCESS || result->workspaceSize > room) return false;
    if (rcvi_cublaslt.call.MatmulAlgoConfigGetAttribute(&result->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                        sizeof scheme, &written) != CUBLAS_STATUS_SUCCESS)
        return false;
    return (scheme & ~reductions) == 0;
}

/* The choice-th of the algorithms that need no more than this alignment. */
static rcv_status propose(const rcvi_cuda_gemm *gemm, const uint32_t alignment[3], int choice,
                          rcvi_gemm_method *found) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (rcvi_cuda_bytes(s->out) > 2) reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE; /* as the sums */
    cublasLtMatmulHeuristicResult_t results[MOST_RESULTS];
    memset(results, 0, sizeof results);
    int count = 0;
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = rcvi_cublaslt.call.MatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) status = prefer(preference, alignment, reductions, gemm->room);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            rcvi_cublaslt.call.MatmulAlgoGetHeuristic(gemm->blas->handle, gemm->product, gemm->left, gemm->right,
                                                      gemm->out, gemm->out, preference, MOST_RESULTS, results, &count);
    if (preference) rcvi_cublaslt.call.MatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return rcvi_gemm_fail(s, status, "has no algorithm");
    for (int i = 0; i < count; i++) {
        if (!is_usable(&results[i], reductions, gemm->room) || choice-- > 0) continue;
        found->algorithm = results[i].algo;
        found->workspace = results[i].workspaceSize;
        memcpy(found->alignment, alignment, sizeof found->alignment);
        return RCV_OK;
    }
    return rcvi_gemm_fail(s, CUBLAS_STATUS_NOT_SUPPORTED, "has no further algorithm");
}

rcv_status rcvi_gemm_choose(rcvi_cuda_gemm *gemm, int choice) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    rcvi_gemm_stored left = s->transpose_out ? rcvi_gemm_stored_a(s) : rcvi_gemm_stored_b(s),
                     right = s->transpose_out ? rcvi_gemm_stored_b(s) : rcvi_gemm_stored_a(s);
    uint32_t strict[] = {rcvi_gemm_alignment(left, s->batch), rcvi_gemm_alignment(right, s->batch),
                         rcvi_gemm_alignment(rcvi_gemm_stored_out(s), s->batch)};
    uint32_t loose[] = {(uint32_t)rcvi_cuda_bytes(left.type), (uint32_t)rcvi_cuda_bytes(right.type),
                        (uint32_t)rcvi_cuda_bytes(s->out)};
    RCVI_TRY(propose(gemm, strict, choice, &gemm->strict));
    if (memcmp(strict, loose, sizeof strict)) return propose(gemm, loose, 0, &gemm->loose);
    gemm->loose = gemm->strict;
    return RCV_OK;
}

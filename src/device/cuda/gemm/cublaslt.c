/* cuBLASLt opened when first needed, and its handles. */
#include "device/cuda/gemm/cublaslt.h"
#include "base/library.h"

#include <stdio.h>
#include <string.h>

#define SYMBOL(name) "cublasLt" #name,

struct rcvi_cublaslt_library rcvi_cublaslt = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void open_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    static const char *const symbols[] = {RCVI_CUBLASLT_FUNCTIONS(SYMBOL)};
    void *functions[sizeof symbols / sizeof *symbols] = {NULL};
    _Static_assert(sizeof functions == sizeof rcvi_cublaslt.call, "the table is function pointers and nothing else");
    rcvi_cublaslt.found = rcvi_library_open(names, symbols, functions, sizeof functions / sizeof *functions,
                                            rcvi_cublaslt.reason, sizeof rcvi_cublaslt.reason);
    if (!rcvi_cublaslt.found) return;
    memcpy(&rcvi_cublaslt.call, functions, sizeof functions);
    size_t version = rcvi_cublaslt.call.GetVersion();
    snprintf(rcvi_cublaslt.name, sizeof rcvi_cublaslt.name, "cuBLASLt %zu.%zu.%zu", version / 10000,
             version / 100 % 100, version % 100);
}

const char *rcvi_cuda_blas_name(void) {
    pthread_once(&rcvi_cublaslt.once, open_library);
    if (rcvi_cublaslt.found) return rcvi_cublaslt.name;
    rcvi_fail(RCV_UNSUPPORTED, "products on the GPU need cuBLASLt of CUDA 12 or 13: %s", rcvi_cublaslt.reason);
    return NULL;
}

/* The handle of the current device. Handles stay until the process ends: destroying one waits for the whole device, which breaks captures of
 * other threads. The library's functions may be called with the same handle from many threads. */
static cublasStatus_t find_handle(cublasLtHandle_t *handle) {
    int ordinal = 0;
    if (cudaGetDevice(&ordinal) != cudaSuccess || ordinal < 0 || ordinal >= RCVI_CUBLASLT_DEVICES)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    pthread_mutex_lock(&rcvi_cublaslt.lock);
    cublasLtHandle_t *own = &rcvi_cublaslt.handles[ordinal];
    cublasStatus_t status = *own ? CUBLAS_STATUS_SUCCESS : rcvi_cublaslt.call.Create(own);
    if (status != CUBLAS_STATUS_SUCCESS) *own = NULL;
    *handle = *own;
    pthread_mutex_unlock(&rcvi_cublaslt.lock);
    return status;
}

rcv_status rcvi_cuda_blas_new(rcv_context *context, rcvi_cuda_blas **blas) {
    *blas = NULL;
    if (!rcvi_cuda_blas_name()) return RCV_UNSUPPORTED;
    rcvi_cuda_blas *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    cublasStatus_t status = find_handle(&made->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        rcvi_free(context, made);
        return rcvi_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? RCV_NO_MEMORY : RCV_UNSUPPORTED,
                         "%s does not start on this GPU: %s", rcvi_cublaslt.name,
                         rcvi_cublaslt.call.GetStatusName(status));
    }
    *blas = made;
    return RCV_OK;
}

void rcvi_cuda_blas_free(rcvi_cuda_blas *blas) {
    if (blas) rcvi_free(blas->context, blas);
}

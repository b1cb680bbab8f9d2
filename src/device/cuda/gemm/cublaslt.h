/* cuBLASLt, opened at run time: the functions that are used. */
#ifndef RCVI_CUDA_CUBLASLT_H
#define RCVI_CUDA_CUBLASLT_H

#include "device/cuda/gemm/gemm.h"

#include <cublasLt.h>
#include <pthread.h>

#define RCVI_CUBLASLT_FUNCTIONS(F)                                                                                     \
    F(GetVersion)                                                                                                      \
    F(GetStatusName)                                                                                                   \
    F(Create)                                                                                                          \
    F(MatmulDescCreate)                                                                                                \
    F(MatmulDescDestroy)                                                                                               \
    F(MatmulDescSetAttribute)                                                                                          \
    F(MatrixLayoutCreate)                                                                                              \
    F(MatrixLayoutDestroy)                                                                                             \
    F(MatrixLayoutInit_internal)                                                                                       \
    F(MatrixLayoutSetAttribute)                                                                                        \
    F(MatmulPreferenceCreate)                                                                                          \
    F(MatmulPreferenceDestroy)                                                                                         \
    F(MatmulPreferenceSetAttribute)                                                                                    \
    F(MatmulAlgoGetHeuristic)                                                                                          \
    F(MatmulAlgoConfigGetAttribute)                                                                                    \
    F(Matmul)

#define RCVI_CUBLASLT_FIELD(name) __typeof__ (&cublasLt##name)(name);

enum { RCVI_CUBLASLT_DEVICES = 64 };

/* Written once, by the first rcvi_cuda_blas_name, but for the handles. */
extern struct rcvi_cublaslt_library {
    pthread_once_t once;
    pthread_mutex_t lock; /* of handles, and of a descriptor while it holds the address of a row that sums start from */
    cublasLtHandle_t handles[RCVI_CUBLASLT_DEVICES]; /* NULL: not created yet */
    bool found;
    struct {
        RCVI_CUBLASLT_FUNCTIONS(RCVI_CUBLASLT_FIELD)
    } call;
    char name[64], reason[256]; /* with version; why it was not found */
} rcvi_cublaslt;

struct rcvi_cuda_blas {
    rcv_context *context;
    cublasLtHandle_t handle; /* of its device; shared */
};

#endif

/* Copies of parameters between an array of the caller (all parameters, or one tensor) and cuDNN's weight space, in contiguous pieces. */
#ifndef RCVI_CUDA_VENDOR_COPY_H
#define RCVI_CUDA_VENDOR_COPY_H

#include "device/cuda/kernels/types.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Elements that are contiguous on both sides. */
typedef struct {
    int64_t flat, space; /* elements from the start of the caller's array, and of cuDNN's weights */
    int64_t count;
} rcvi_weight_piece;

typedef struct {
    const rcvi_weight_piece *pieces; /* [count], device memory; no two overlap */
    int64_t count, longest;          /* elements of the longest one */
    rcvi_cuda_type type;             /* of the weight space: F32, BF16 or F16; the flat array is F32 */
} rcvi_weight_map;

cudaError_t rcvi_cuda_weights_in(cudaStream_t stream, rcvi_weight_map map, const float *flat, void *space);
/* flat = space, or flat += space. */
cudaError_t rcvi_cuda_weights_out(cudaStream_t stream, rcvi_weight_map map, float *flat, const void *space, bool add);

#ifdef __cplusplus
}
#endif

#endif

/* A copy past the caches, for measuring the bandwidth of memory. */
#include "device/cuda/kernels/kernels.cuh"

enum { STREAM_THREADS = 256, STREAM_BYTES = 16 };

__global__ void stream_each(size_t count, const float4 *a, const float4 *b, float4 *c) {
    size_t i = (size_t)blockIdx.x * STREAM_THREADS + threadIdx.x;
    if (i >= count) return;
    float4 x = __ldcs(a + i);
    if (b) {
        float4 y = __ldcs(b + i);
        x = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
    __stcs(c + i, x);
}

extern "C" cudaError_t rcvi_cuda_stream_copy(cudaStream_t stream, size_t bytes, const void *a, const void *b, void *c) {
    size_t count = bytes / STREAM_BYTES, blocks = (count + STREAM_THREADS - 1) / STREAM_THREADS;
    if (blocks > INT32_MAX) return cudaErrorInvalidValue;
    if (blocks == 0) return cudaSuccess;
    stream_each<<<(unsigned)blocks, STREAM_THREADS, 0, stream>>>(count, (const float4 *)a, (const float4 *)b,
                                                                 (float4 *)c);
    return cudaGetLastError();
}

/* Lengths that lie in the device's memory: clamped, and sequences sorted by them. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/sort_lengths.h"

using namespace rcvi;

__device__ static void count_alive(const rcvi_sorting &s, rcvi_sort_shared *shared, int thread) {
    rcvi_sort_clear(&s, thread);
    __syncthreads();
    rcvi_sort_count(&s, thread);
    __syncthreads();
    rcvi_sort_sum_parts(&s, shared, thread);
    __syncthreads();
    rcvi_sort_sum(&s, shared, thread);
    __syncthreads();
}

__global__ void __launch_bounds__(RCVI_SORT_THREADS) sort_rows(const rcvi_sorting s) {
    __shared__ rcvi_sort_shared shared;
    const int thread = (int)threadIdx.x;
    const int64_t tiles = (s.batch + RCVI_SORT_THREADS - 1) / RCVI_SORT_THREADS;
    count_alive(s, &shared, thread);
    for (int64_t tile = tiles; tile-- > 0;) {
        rcvi_sort_load(&s, &shared, tile * RCVI_SORT_THREADS, thread);
        __syncthreads();
        rcvi_sort_place(&s, &shared, tile * RCVI_SORT_THREADS, thread);
        __syncthreads();
    }
    count_alive(s, &shared, thread);
}

__global__ void __launch_bounds__(RCVI_SORT_THREADS) copy_lengths(const rcvi_sorting s) {
    rcvi_sort_copy(&s, (int64_t)blockIdx.x * RCVI_SORT_THREADS + threadIdx.x);
}

extern "C" cudaError_t rcvi_cuda_sort_lengths(cudaStream_t stream, const rcvi_sorting *sorting) {
    dim3 grid((unsigned)divide_up(sorting->batch, RCVI_SORT_THREADS)), block(RCVI_SORT_THREADS);
    if (sorting->order) return start(sort_rows, dim3(1), block, stream, *sorting);
    return start(copy_lengths, grid, block, stream, *sorting);
}

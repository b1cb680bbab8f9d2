/* Splits float32 matrices into bfloat16 parts, for split-bf16 emulation. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/split.cuh"
#include "device/cuda/kernels/tuning.h"

using namespace rcvi;

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) split(const __grid_constant__ rcvi_split m) {
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    if (m.high * (m.wide / RCVI_SPLIT_PIECE) + step < UINT32_MAX)
        split_pieces<__nv_bfloat16>(m, (uint32_t)first, (uint32_t)step);
    else
        split_pieces<__nv_bfloat16>(m, first, step);
}

cudaError_t rcvi_cuda_split(cudaStream_t stream, const rcvi_split *given) {
    rcvi_split m = *given;
    if (m.parts < 1 || m.parts > RCVI_MAX_SPLIT || m.wide % RCVI_SPLIT_PIECE) return cudaErrorInvalidValue;
    m.by_four = m.columns % 4 == 0 && is_aligned(m.from, RCVI_F32, m.rows, m.row, 4);
    int64_t blocks = divide_up(m.high * (m.wide / RCVI_SPLIT_PIECE), THREADS);
    if (blocks == 0) return cudaSuccess;
    return start(split, dim3((unsigned)least(blocks, RCVI_TUNED_SPLIT_BLOCKS)), dim3(THREADS), stream, m);
}

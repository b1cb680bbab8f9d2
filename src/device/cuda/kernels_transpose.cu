/* Matrices turned over through tiles in shared memory, so that reads and writes both go along rows. */
#include "device/cuda/kernels.cuh"

using namespace rcvi;

enum { SIDE = 32, DOWN = 8, MOST_BLOCKS = 1 << 20 };

/* out[columns, wide] = a[depth, columns]^T, zeros from depth to wide. A block takes tiles of 32 by 32. */
template <typename REAL>
__global__ void turn(int64_t columns, int64_t depth, int64_t wide, rcvi_matrix out, rcvi_matrix a) {
    __shared__ REAL tile[SIDE][SIDE + 1];
    int64_t across = (wide + SIDE - 1) / SIDE, count = across * ((columns + SIDE - 1) / SIDE);
    for (int64_t t = blockIdx.x; t < count; t += gridDim.x) {
        int64_t k = t % across * SIDE, c = t / across * SIDE;
        for (int i = (int)threadIdx.y; i < SIDE; i += DOWN) {
            REAL x[1] = {0};
            if (k + i < depth && c + threadIdx.x < columns) load(a, k + i, c + threadIdx.x, x);
            tile[i][threadIdx.x] = x[0];
        }
        __syncthreads();
        for (int i = (int)threadIdx.y; i < SIDE; i += DOWN) {
            REAL x[1] = {tile[threadIdx.x][i]};
            if (c + i < columns && k + threadIdx.x < wide) store(out, c + i, k + threadIdx.x, x);
        }
        __syncthreads(); /* before the next tile is read */
    }
}

static cudaError_t start_turn(cudaStream_t stream, int64_t columns, int64_t depth, int64_t wide, rcvi_matrix out,
                              rcvi_matrix a) {
    if (columns <= 0 || wide <= 0 || (!out.at && !out.twin)) return cudaSuccess;
    if (!are_numbers(out) || !are_numbers(a)) return cudaErrorInvalidValue;
    if (wide == 1) out.column = 1;
    if (!out.column) return cudaErrorInvalidValue;
    a.twin = NULL;
    int64_t count = divide_up(wide, SIDE) * divide_up(columns, SIDE);
    dim3 grid((unsigned)least(count, MOST_BLOCKS)), block(SIDE, DOWN);
    if (has_double(out) || has_double(a)) return start(turn<double>, grid, block, stream, columns, depth, wide, out, a);
    return start(turn<float>, grid, block, stream, columns, depth, wide, out, a);
}

extern "C" cudaError_t rcvi_cuda_pack(cudaStream_t stream, int64_t columns, int64_t depth, int64_t wide,
                                      bool transposed, rcvi_matrix a, void *out, rcvi_cuda_type type) {
    rcvi_matrix packed = {out, wide, 1, type, NULL, type, {NULL, 0}};
    if (transposed) return start_turn(stream, columns, depth, wide, packed, a);
    return widen(stream, columns, depth, packed, a);
}

/* Several matrices copied, widened or turned over by one launch. */
#include "device/cuda/kernels.cuh"

using namespace rcvi;

enum { SIDE = 32, DOWN = 8, MOST_BLOCKS = 256 };

struct moves {
    rcvi_move at[RCVI_MAX_MOVES];
};

/* out[rows, wide] from a[rows, columns], or from a[columns, rows]^T, tile by tile; a row of blocks takes a matrix. */
template <typename REAL> __global__ void move_each(const __grid_constant__ moves all) {
    __shared__ REAL tile[SIDE][SIDE + 1];
    const rcvi_move &m = all.at[blockIdx.y];
    const int64_t across = (m.wide + SIDE - 1) / SIDE, count = across * ((m.rows + SIDE - 1) / SIDE);
    const int x = (int)threadIdx.x;
    for (int64_t t = blockIdx.x; t < count; t += gridDim.x) {
        const int64_t column = t % across * SIDE, row = t / across * SIDE;
        for (int i = (int)threadIdx.y; m.transposed && i < SIDE; i += DOWN) {
            REAL one[1] = {0};
            if (column + i < m.columns && row + x < m.rows) load(m.a, column + i, row + x, one);
            tile[i][x] = one[0];
        }
        __syncthreads();
        for (int i = (int)threadIdx.y; i < SIDE; i += DOWN) {
            REAL one[1] = {0};
            if (m.transposed)
                one[0] = tile[x][i];
            else if (row + i < m.rows && column + x < m.columns)
                load(m.a, row + i, column + x, one);
            if (row + i < m.rows && column + x < m.wide) store(m.out, row + i, column + x, one);
        }
        __syncthreads(); /* before the next tile is read */
    }
}

extern "C" cudaError_t rcvi_cuda_move(cudaStream_t stream, const rcvi_move *given, int count) {
    moves all = {};
    int64_t most = 0;
    bool wide = false;
    if (count > RCVI_MAX_MOVES) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++) {
        all.at[i] = given[i];
        all.at[i].a.twin = NULL;
        if (!are_numbers(given[i].out) || !are_numbers(given[i].a)) return cudaErrorInvalidValue;
        int64_t tiles = divide_up(given[i].wide, SIDE) * divide_up(given[i].rows, SIDE);
        most = tiles > most ? tiles : most;
        wide |= has_double(given[i].out) || has_double(given[i].a);
    }
    if (most <= 0) return cudaSuccess;
    dim3 grid((unsigned)least(most, MOST_BLOCKS), (unsigned)count), block(SIDE, DOWN);
    if (wide) return start(move_each<double>, grid, block, stream, all);
    return start(move_each<float>, grid, block, stream, all);
}

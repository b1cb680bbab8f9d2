/* Matrices copied, converted, widened or turned over, several by one launch. */
#include "device/cuda/kernels.cuh"

using namespace rcvi;

enum { SIDE = 64, THREADS = 256, BLOCKS = 4096 /* that fill a large GPU several times */ };

struct moves {
    rcvi_move at[RCVI_MAX_MOVES];
    bool by_four[RCVI_MAX_MOVES]; /* elements go four in an access */
};

/* out[rows, wide] from a[rows, columns], or from a[columns, rows]^T, tile by tile, V elements in an access: whole groups of
 * V are there or not. Everything of a tile is loaded before anything is stored. A turned tile goes through shared memory,
 * so that reads and writes both go along rows. */
template <typename REAL, int V> __device__ inline void move_tiles(const rcvi_move &m, REAL (*turned)[SIDE + 1]) {
    constexpr int ACROSS = SIDE / V, DOWN = THREADS / ACROSS, TIMES = SIDE / DOWN;
    const int64_t across = (m.wide + SIDE - 1) / SIDE, count = across * ((m.rows + SIDE - 1) / SIDE);
    const int x = (int)threadIdx.x % ACROSS * V, y = (int)threadIdx.x / ACROSS;
    for (int64_t t = blockIdx.x; t < count; t += gridDim.x) {
        const int64_t column = t % across * SIDE, row = t / across * SIDE;
        const int64_t from_row = m.transposed ? column : row, from_column = m.transposed ? row : column;
        const int64_t high = m.transposed ? m.columns : m.rows, length = m.transposed ? m.rows : m.columns;
        REAL some[TIMES][V];
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
#pragma unroll
            for (int k = 0; k < V; k++) some[i][k] = 0;
            if (from_row + y + i * DOWN < high && from_column + x < length)
                load(m.a, from_row + y + i * DOWN, from_column + x, some[i]);
        }
        if (m.transposed) {
#pragma unroll
            for (int i = 0; i < TIMES; i++) {
#pragma unroll
                for (int k = 0; k < V; k++) turned[y + i * DOWN][x + k] = some[i][k];
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < TIMES; i++) {
#pragma unroll
                for (int k = 0; k < V; k++) some[i][k] = turned[x + k][y + i * DOWN];
            }
            __syncthreads(); /* before the next tile comes */
        }
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            if (row + y + i * DOWN < m.rows && column + x < m.wide)
                store(m.out, row + y + i * DOWN, column + x, some[i]);
        }
    }
}

/* Blocks with the same y take a matrix. */
template <typename REAL> __global__ void __launch_bounds__(THREADS) move_each(const __grid_constant__ moves all) {
    __shared__ REAL turned[SIDE][SIDE + 1];
    if (all.by_four[blockIdx.y])
        move_tiles<REAL, 4>(all.at[blockIdx.y], turned);
    else
        move_tiles<REAL, 1>(all.at[blockIdx.y], turned);
}

static bool goes_by_four(const rcvi_move &m) {
    if (m.columns % 4 || m.wide % 4 || (m.transposed && m.rows % 4)) return false;
    return takes(m.out, m.rows, 4) && takes(m.a, m.transposed ? m.columns : m.rows, 4);
}

extern "C" cudaError_t rcvi_cuda_move(cudaStream_t stream, const rcvi_move *given, int count) {
    moves all = {};
    int64_t most = 0;
    bool wide = false;
    if (count > RCVI_MAX_MOVES) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++) {
        all.at[i] = given[i];
        all.at[i].a.twin = NULL;
        if (given[i].wide == 1) all.at[i].out.column = 1; /* the one column, whatever its step */
        if (!are_numbers(given[i].out) || !are_numbers(given[i].a) || !all.at[i].out.column)
            return cudaErrorInvalidValue;
        all.by_four[i] = goes_by_four(all.at[i]);
        int64_t tiles = divide_up(given[i].wide, SIDE) * divide_up(given[i].rows, SIDE);
        most = tiles > most ? tiles : most;
        wide |= has_double(given[i].out) || has_double(given[i].a);
    }
    if (most <= 0) return cudaSuccess;
    dim3 grid((unsigned)least(most, divide_up(BLOCKS, count)), (unsigned)count), block(THREADS);
    if (wide) return start(move_each<double>, grid, block, stream, all);
    return start(move_each<float>, grid, block, stream, all);
}

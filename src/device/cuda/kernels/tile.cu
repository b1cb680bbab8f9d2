/* Operands in the order in which persistent kernels copy them to shared memory. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/tuning.h"

using namespace rcvi;

enum { THREADS = 256, EACH = RCVI_TUNED_TILE_PIECES };

/* Blocks of one tiling follow those of another; all blocks clear words, too. */
struct tilings {
    rcvi_tiling at[RCVI_MAX_TILINGS];
    unsigned first[RCVI_MAX_TILINGS];
    int count;
    unsigned *clear;
    int64_t words;
};

__device__ inline float round_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

/* Loads elements column .. column + PIECE - 1 of a row, V to an access; those past the last column stay. Columns are a multiple of V. */
template <int V, int PIECE>
__device__ inline void load_piece(const rcvi_tiling &m, int64_t from, int64_t column, float (&x)[PIECE]) {
#pragma unroll
    for (int i = 0; i < PIECE; i += V) {
        float some[V];
        if (column + i >= m.columns) continue;
        load_any(m.from, m.from_type, from + i, some);
#pragma unroll
        for (int k = 0; k < V; k++) x[i + k] = some[k];
    }
}

/* A thread writes a piece of 16 bytes of a row, in all its parts. INDEX counts pieces: a division of 64 bits takes longer than all the
 * rest. */
template <typename T, typename INDEX> __device__ inline void tile_pieces(const rcvi_tiling &m, unsigned block) {
    constexpr int PIECE = 16 / (int)sizeof(T);
    const INDEX depth = (INDEX)(m.chunks / m.parts), pieces = depth * (INDEX)m.fold * 8, rows = (INDEX)m.rows,
                slice = (INDEX)m.slice, tile_rows = (INDEX)m.tile, count = (INDEX)m.slots * rows * pieces;
#pragma unroll 1
    for (INDEX n = (INDEX)block * (EACH * THREADS) + threadIdx.x, k = 0; k < EACH && n < count; k++, n += THREADS) {
        const INDEX in_row = n % pieces, row = n / pieces % rows, in_slice = row % slice;
        const int64_t column = (int64_t)in_row * PIECE, slot = n / pieces / rows;
        const int64_t from = slot * m.slot + row * m.row + column;
        const int64_t tile = row / slice * m.tiles + in_slice / tile_rows, line = in_slice % tile_rows;
        alignas(16) T element[PIECE];
        float x[PIECE] = {};
        if (m.by == 4)
            load_piece<4>(m, from, column, x);
        else if (m.by == 2)
            load_piece<2>(m, from, column, x);
        else
            load_piece<1>(m, from, column, x);
        const int64_t chunk = in_row / 8 % depth * m.parts, fold = in_row / 8 / depth, piece = n % 8 ^ (line & 7);
        const int64_t wide = m.tile * m.fold;
        char *to = (char *)m.to + slot * m.to_slot + (tile * m.chunks + chunk) * wide * 128 +
                   (fold * m.tile + line) * 128 + piece * 16;
        for (int part = 0; part < m.parts; part++) {
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                float rounded;
                convert(m.tensor ? round_tf32(x[i]) : x[i], element[i]);
                convert(element[i], rounded);
                x[i] -= rounded;
            }
            *(uint4 *)(to + part * wide * 128) = *(const uint4 *)element;
        }
    }
}

template <typename T> __device__ inline void tile_all(const rcvi_tiling &m, unsigned block) {
    const int64_t most = m.slots * m.rows * (m.chunks / m.parts) * m.fold * 8 + EACH * THREADS;
    if (most < UINT32_MAX)
        tile_pieces<T, uint32_t>(m, block);
    else
        tile_pieces<T, int64_t>(m, block);
}

__global__ void __launch_bounds__(THREADS) tile_each(const __grid_constant__ tilings all) {
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < all.words; n += (int64_t)gridDim.x * THREADS)
        all.clear[n] = 0;
    int i = all.count - 1;
    while (blockIdx.x < all.first[i]) i--;
    const rcvi_tiling &m = all.at[i];
    const unsigned block = blockIdx.x - all.first[i];
    if (m.type == RCVI_BF16)
        tile_all<__nv_bfloat16>(m, block);
    else if (m.type == RCVI_F16)
        tile_all<__half>(m, block);
    else
        tile_all<float>(m, block);
}

/* Elements of an access: 4, 2 or 1. */
static int elements_by(const rcvi_tiling &m) {
    int v = 4;
    while (v > 1 && (m.columns % v || !is_aligned(m.from, m.from_type, 2, m.row, v) ||
                     !is_aligned(m.from, m.from_type, 2, m.slot, v)))
        v /= 2;
    return v;
}

cudaError_t rcvi_cuda_tile(cudaStream_t stream, const rcvi_tiling *list, int count, unsigned *clear, int64_t words) {
    for (int done = 0; done < count; done += RCVI_MAX_TILINGS) {
        tilings all = {};
        int64_t blocks = 0;
        all.count = (int)least(count - done, RCVI_MAX_TILINGS);
        for (int i = 0; i < all.count; i++) {
            rcvi_tiling *m = &all.at[i];
            *m = list[done + i];
            m->by = elements_by(*m);
            all.first[i] = (unsigned)blocks;
            blocks += divide_up(m->slots * m->rows * (m->chunks / m->parts) * m->fold * 8, EACH * THREADS);
        }
        if (blocks == 0) continue;
        all.clear = clear;
        all.words = words;
        words = 0;
        cudaError_t error = start(tile_each, dim3((unsigned)blocks), dim3(THREADS), stream, all);
        if (error != cudaSuccess) return error;
    }
    return words ? cudaMemsetAsync(clear, 0, (size_t)words * sizeof *clear, stream) : cudaSuccess;
}

/* Operands in the order in which persistent kernels copy them to shared memory. */
#include "device/cuda/kernels.cuh"

using namespace rcvi;

enum { THREADS = 256, EACH = 4 }; /* pieces of a thread, all of which are on their way at once */

/* Of each the blocks, one behind the other. */
struct tilings {
    rcvi_tiling at[RCVI_MAX_TILINGS];
    int64_t first[RCVI_MAX_TILINGS];
    int count;
};

__device__ inline float round_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

/* What is there of a row's elements column .. column + PIECE - 1, V in an access: whole groups of V are there or not. */
template <typename S, int V, int PIECE>
__device__ inline void load_piece(const rcvi_tiling &m, int64_t from, int64_t column, S (&x)[PIECE]) {
    using piece = typename word<(V * sizeof(S) < 16 ? V * sizeof(S) : 16)>::type;
    constexpr int pieces = V * (int)sizeof(S) / (int)sizeof(piece);
#pragma unroll
    for (int i = 0; i < PIECE; i += V) {
        if (column + i >= m.columns) continue;
        const piece *at = reinterpret_cast<const piece *>(static_cast<const S *>(m.from) + from + i);
#pragma unroll
        for (int k = 0; k < pieces; k++) reinterpret_cast<piece *>(x + i)[k] = at[k];
    }
}

/* A piece of 16 bytes of a row, in all its parts. */
template <typename T, typename S, int PIECE>
__device__ inline void store_piece(const rcvi_tiling &m, char *to, const S (&from)[PIECE]) {
    float x[PIECE];
#pragma unroll
    for (int i = 0; i < PIECE; i++) convert(from[i], x[i]);
    for (int part = 0; part < m.parts; part++) {
        alignas(16) T element[PIECE];
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            float rounded;
            convert(m.tensor ? round_tf32(x[i]) : x[i], element[i]);
            convert(element[i], rounded);
            x[i] -= rounded;
        }
        *(uint4 *)(to + part * m.tile * m.fold * 128) = *(const uint4 *)element;
    }
}

/* The pieces of a block. Only where it begins is found by dividing 64 bits, which takes long. */
template <typename T, typename S, int V> __device__ inline void tile_pieces(const rcvi_tiling &m, int64_t block) {
    constexpr int PIECE = 16 / (int)sizeof(T);
    const unsigned depth = (unsigned)(m.chunks / m.parts), pieces = depth * (unsigned)m.fold * 8,
                   rows = (unsigned)m.rows, slice = (unsigned)m.slice, tile_rows = (unsigned)m.tile;
    const int64_t begin = block * (EACH * THREADS), first_row = begin / pieces, first_slot = first_row / rows;
    const unsigned in_first = (unsigned)(begin - first_row * pieces), above = (unsigned)(first_row - first_slot * rows);
    alignas(16) S x[EACH][PIECE];
    char *to[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned n = in_first + (unsigned)(e * THREADS) + threadIdx.x, in_row = n % pieces,
                       line_of = above + n / pieces, row = line_of % rows, in_slice = row % slice,
                       line = in_slice % tile_rows;
        const int64_t column = (int64_t)in_row * PIECE, slot = first_slot + line_of / rows;
        const int64_t tile = row / slice * m.tiles + in_slice / tile_rows, chunk = in_row / 8 % depth * m.parts,
                      fold = in_row / 8 / depth, piece = in_row % 8 ^ (line & 7);
        to[e] = nullptr;
#pragma unroll
        for (int i = 0; i < PIECE; i++) convert(0.0f, x[e][i]);
        if (slot >= m.slots) continue;
        load_piece<S, V>(m, slot * m.slot + row * m.row + column, column, x[e]);
        to[e] = (char *)m.to + slot * m.to_slot + (tile * m.chunks + chunk) * m.tile * m.fold * 128 +
                (fold * m.tile + line) * 128 + piece * 16;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (to[e]) store_piece<T>(m, to[e], x[e]);
}

template <typename T, typename S> __device__ inline void tile_from(const rcvi_tiling &m, int64_t block) {
    if (m.by == 4)
        tile_pieces<T, S, 4>(m, block);
    else if (m.by == 2)
        tile_pieces<T, S, 2>(m, block);
    else
        tile_pieces<T, S, 1>(m, block);
}

/* Operands are of the type that is multiplied, or float. */
template <typename T> __device__ inline void tile_to(const rcvi_tiling &m, int64_t block) {
    if (m.from_type == RCVI_F32)
        tile_from<T, float>(m, block);
    else
        tile_from<T, T>(m, block);
}

__global__ void __launch_bounds__(THREADS) tile_each(const __grid_constant__ tilings all) {
    int i = all.count - 1;
    while (blockIdx.x < all.first[i]) i--;
    const rcvi_tiling &m = all.at[i];
    const int64_t block = blockIdx.x - all.first[i];
    if (m.type == RCVI_BF16)
        tile_to<__nv_bfloat16>(m, block);
    else if (m.type == RCVI_F16)
        tile_to<__half>(m, block);
    else
        tile_to<float>(m, block);
}

/* Elements in an access: 4, 2 or 1. */
static int elements_by(const rcvi_tiling &m) {
    int v = 4;
    while (v > 1 && (m.columns % v || !is_aligned(m.from, m.from_type, 2, m.row, v) ||
                     !is_aligned(m.from, m.from_type, 2, m.slot, v)))
        v /= 2;
    return v;
}

cudaError_t rcvi_cuda_tile(cudaStream_t stream, const rcvi_tiling *list, int count) {
    for (int done = 0; done < count; done += RCVI_MAX_TILINGS) {
        tilings all = {};
        int64_t blocks = 0;
        all.count = (int)least(count - done, RCVI_MAX_TILINGS);
        for (int i = 0; i < all.count; i++) {
            rcvi_tiling *m = &all.at[i];
            *m = list[done + i];
            m->by = elements_by(*m);
            if (m->from_type != RCVI_F32 && m->from_type != m->type) return cudaErrorInvalidValue;
            all.first[i] = blocks;
            blocks += divide_up(m->slots * m->rows * (m->chunks / m->parts) * m->fold * 8, EACH * THREADS);
        }
        if (blocks == 0) continue;
        cudaError_t error = start(tile_each, dim3((unsigned)blocks), dim3(THREADS), stream, all);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

/* Rows of tables, and masks over rows. A thread takes up to 16 bytes of a row at a time; the threads of a block cover a row, or several
 * where rows are short. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/tuning.h"

using namespace rcvi;

enum { THREADS = 256, MOST_BLOCKS = 1 << 15, MOST_DOWN = 65535 };

/* Blocks and threads for `rows` rows of `groups` accesses. */
struct spread {
    dim3 grid, block;
    spread(int64_t rows, int64_t groups) {
        unsigned across = 32;
        while (across < THREADS && across < groups) across *= 2;
        unsigned down = THREADS / across;
        block = dim3(across, down);
        int64_t x = least(divide_up(groups, across), MOST_BLOCKS);
        grid = dim3((unsigned)x, (unsigned)least(divide_up(rows, down), MOST_DOWN));
    }
};

/* Calls work(row, first element of an access) for every access. */
template <int V, typename WORK> __device__ inline void for_each(int64_t rows, int64_t columns, const WORK &work) {
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * V, row_step = (int64_t)gridDim.y * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += row_step) {
        for (int64_t c = first; c < columns; c += step) work(r, c);
    }
}

/* The largest power of two up to 16 that divides all of these. */
static int common(uintptr_t a, uintptr_t b, uintptr_t c) {
    uintptr_t all = a | b | c;
    return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : 4;
}

/* ---- rounding ---- */

enum { PIECE = 8 }; /* elements of 16 bytes */

/* A thread writes a piece of 16 bytes of a row at a time, and loads V floats at once. */
template <typename OUT, int V>
__global__ void __launch_bounds__(THREADS)
    round_rows(int64_t rows, int64_t columns, int64_t wide, const float *from, OUT *to) {
    const int64_t first = (int64_t)blockIdx.x * RCVI_TUNED_ROUND_ROWS;
    const unsigned pieces = (unsigned)(wide / PIECE);
    const unsigned count =
        pieces * (unsigned)(rows - first < RCVI_TUNED_ROUND_ROWS ? rows - first : RCVI_TUNED_ROUND_ROWS);
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        const int64_t r = first + i / pieces, c = (int64_t)(i % pieces) * PIECE;
        float x[PIECE];
#pragma unroll
        for (int k = 0; k < PIECE; k += V) {
            float some[V] = {};
            if (c + k + V <= columns) load_as<float>(from, r * columns + c + k, some);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (c + k + V > columns && c + k + v < columns) some[v] = from[r * columns + c + k + v];
                x[k + v] = some[v];
            }
        }
        store_as<OUT>(to, r * wide + c, x);
    }
}

template <typename OUT>
static cudaError_t start_round(cudaStream_t stream, int64_t rows, int64_t columns, int64_t wide, const float *from,
                               void *to) {
    const dim3 grid((unsigned)divide_up(rows, RCVI_TUNED_ROUND_ROWS)), block(THREADS);
    const uintptr_t all = (uintptr_t)from | (uintptr_t)(columns * (int64_t)sizeof(float));
    if (all % 16 == 0) return start(round_rows<OUT, 4>, grid, block, stream, rows, columns, wide, from, (OUT *)to);
    if (all % 8 == 0) return start(round_rows<OUT, 2>, grid, block, stream, rows, columns, wide, from, (OUT *)to);
    return start(round_rows<OUT, 1>, grid, block, stream, rows, columns, wide, from, (OUT *)to);
}

extern "C" cudaError_t rcvi_cuda_round(cudaStream_t stream, rcvi_cuda_type type, int64_t rows, int64_t columns,
                                       int64_t wide, const float *from, void *to) {
    if (rows <= 0 || wide <= 0) return cudaSuccess;
    if (wide % PIECE || (uintptr_t)to % 16 || wide > INT32_MAX / RCVI_TUNED_ROUND_ROWS ||
        rows / RCVI_TUNED_ROUND_ROWS >= INT32_MAX)
        return cudaErrorInvalidValue;
    if (type == RCVI_BF16) return start_round<__nv_bfloat16>(stream, rows, columns, wide, from, to);
    return start_round<__half>(stream, rows, columns, wide, from, to);
}

/* ---- gather ---- */

/* Rows as words, of any element type. */
template <typename WORD>
__global__ void gather(int64_t rows, int64_t words, const int32_t *ids, const WORD *table, WORD *out) {
    for_each<1>(rows, words, [&](int64_t r, int64_t w) {
        const int64_t id = ids[r];
        out[r * words + w] = id < 0 ? WORD{} : table[id * words + w];
    });
}

template <typename WORD>
static cudaError_t start_gather(cudaStream_t stream, int64_t rows, int64_t bytes, const int32_t *ids, const void *table,
                                void *out) {
    int64_t words = bytes / (int64_t)sizeof(WORD);
    spread s(rows, words);
    return start(gather<WORD>, s.grid, s.block, stream, rows, words, ids, (const WORD *)table, (WORD *)out);
}

extern "C" cudaError_t rcvi_cuda_gather(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                        const int32_t *ids, const void *table, void *out) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    int64_t bytes = columns * number_bytes(real);
    switch (common((uintptr_t)table, (uintptr_t)out, (uintptr_t)bytes)) {
    case 16: return start_gather<uint4>(stream, rows, bytes, ids, table, out);
    case 8: return start_gather<uint2>(stream, rows, bytes, ids, table, out);
    default: return start_gather<unsigned>(stream, rows, bytes, ids, table, out);
    }
}

/* ---- scatter ---- */

/* Block x sums the rows of group x, for columns blockIdx.y * blockDim.x * V on: one after the other, in their order. */
template <typename REAL, int V>
__global__ void scatter(int64_t columns, rcvi_groups groups, bool by_id, const REAL *from, REAL *out) {
    const int64_t g = blockIdx.x;
    if (g >= *groups.count) return;
    const int first = groups.starts[g], end = groups.starts[g + 1];
    const int64_t to = (by_id ? (int64_t)groups.ids[g] : g) * columns;
    for (int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V; c < columns;
         c += (int64_t)gridDim.y * blockDim.x * V) {
        REAL sum[V] = {}, x[RCVI_TUNED_TABLE_AHEAD][V];
        for (int i = first; i < end; i += RCVI_TUNED_TABLE_AHEAD) {
#pragma unroll
            for (int k = 0; k < RCVI_TUNED_TABLE_AHEAD; k++) {
                if (i + k < end) load_as<REAL>(from, groups.order[i + k] * columns + c, x[k]);
            }
#pragma unroll
            for (int k = 0; k < RCVI_TUNED_TABLE_AHEAD; k++) {
#pragma unroll
                for (int v = 0; v < V; v++) {
                    if (i + k < end) sum[v] += x[k][v];
                }
            }
        }
        if (by_id) {
            load_as<REAL>(out, to + c, x[0]);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] = x[0][v] + sum[v];
        }
        store_as<REAL>(out, to + c, sum);
    }
}

template <typename REAL, int V>
static cudaError_t start_scatter(cudaStream_t stream, int64_t rows, int64_t columns, const rcvi_groups &groups,
                                 bool by_id, const void *from, void *out) {
    unsigned across = 32;
    while (across < THREADS && across * V < columns) across *= 2;
    dim3 grid((unsigned)rows, (unsigned)least(divide_up(columns, across * V), MOST_DOWN));
    return start(scatter<REAL, V>, grid, dim3(across), stream, columns, groups, by_id, (const REAL *)from, (REAL *)out);
}

extern "C" cudaError_t rcvi_cuda_scatter(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                         const rcvi_groups *groups, bool by_id, const void *from, void *out) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    if (rows > INT32_MAX) return cudaErrorInvalidValue;
    int bytes = common((uintptr_t)from, (uintptr_t)out, (uintptr_t)(columns * number_bytes(real)));
    if (real == RCVI_F64) {
        if (bytes == 16) return start_scatter<double, 2>(stream, rows, columns, *groups, by_id, from, out);
        return start_scatter<double, 1>(stream, rows, columns, *groups, by_id, from, out);
    }
    if (bytes == 16) return start_scatter<float, 4>(stream, rows, columns, *groups, by_id, from, out);
    if (bytes == 8) return start_scatter<float, 2>(stream, rows, columns, *groups, by_id, from, out);
    return start_scatter<float, 1>(stream, rows, columns, *groups, by_id, from, out);
}

/* ---- masks ---- */

template <typename REAL, int V>
__global__ void mask_rows(int64_t rows, int64_t columns, rcvi_mask mask, const uint64_t *seed, const REAL *from,
                          REAL *out) {
    const uint64_t key = hash_key(*seed, mask.salt);
    const double keep = 1 - mask.probability;
    for_each<V>(rows, columns, [&](int64_t r, int64_t c) {
        REAL x[V];
        load_as<REAL>(from, r * columns + c, x);
        const bool whole = mask.kind == RCVI_MASK_IDS;
        const int64_t row = mask.kind == RCVI_MASK_OVER_TIME ? mask.shard.first + r % mask.period
                                                             : shard_row(mask.shard, mask.period, r);
        const uint64_t index = whole ? (uint64_t)(int64_t)mask.ids[r] : (uint64_t)(row * columns + c);
#pragma unroll
        for (int v = 0; v < V; v++)
            x[v] = hash_uniform(key, whole ? index : index + v) < keep ? (REAL)((double)x[v] / keep) : (REAL)0;
        store_as<REAL>(out, r * columns + c, x);
    });
}

template <typename REAL, int V>
static cudaError_t start_mask(cudaStream_t stream, int64_t rows, int64_t columns, const rcvi_mask &mask,
                              const rcvi_control *control, const void *from, void *out) {
    spread s(rows, divide_up(columns, V));
    return start(mask_rows<REAL, V>, s.grid, s.block, stream, rows, columns, mask, (const uint64_t *)&control->seed,
                 (const REAL *)from, (REAL *)out);
}

extern "C" cudaError_t rcvi_cuda_mask(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                      const rcvi_mask *mask, const rcvi_control *control, const void *from, void *out) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    int bytes = common((uintptr_t)from, (uintptr_t)out, (uintptr_t)(columns * number_bytes(real)));
    if (real == RCVI_F64) {
        if (bytes == 16) return start_mask<double, 2>(stream, rows, columns, *mask, control, from, out);
        return start_mask<double, 1>(stream, rows, columns, *mask, control, from, out);
    }
    if (bytes == 16) return start_mask<float, 4>(stream, rows, columns, *mask, control, from, out);
    if (bytes == 8) return start_mask<float, 2>(stream, rows, columns, *mask, control, from, out);
    return start_mask<float, 1>(stream, rows, columns, *mask, control, from, out);
}

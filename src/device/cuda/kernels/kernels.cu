/* Elementwise kernels: copies, fills, selections, dropout, masks.
 *
 * `each` is their loop: a thread takes V elements of a row at a time and reads all of them before it writes, so an output may be one of
 * the operands. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/tuning.h"

#include <math.h>

using namespace rcvi;

enum {
    THREADS = 256,
    SENT_VALUES = 448 /* of a launch, as arguments */
};

template <typename REAL, int V, typename OPERATION>
__global__ void each(int64_t rows, int64_t columns, rcvi_matrix out, OPERATION operation) {
    int64_t row_step = (int64_t)gridDim.y * blockDim.y, step = (int64_t)gridDim.x * blockDim.x * V;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += row_step) {
        for (int64_t c = first; c < out.wide; c += step) {
            REAL x[V] = {};
            if (c < columns) operation(r, c, x);
            store(out, r, c, x);
        }
    }
}

struct copying {
    rcvi_matrix a;
    template <typename REAL, int V> __device__ void operator()(int64_t r, int64_t c, REAL (&x)[V]) const {
        load(a, r, c, x);
    }
};

struct adding {
    rcvi_matrix to, a;
    template <typename REAL, int V> __device__ void operator()(int64_t r, int64_t c, REAL (&x)[V]) const {
        REAL there[V];
        load(to, r, c, there);
        load(a, r, c, x);
#pragma unroll
        for (int i = 0; i < V; i++) x[i] += there[i];
    }
};

struct filling {
    double number;
    template <typename REAL, int V> __device__ void operator()(int64_t, int64_t, REAL (&x)[V]) const {
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = (REAL)number;
    }
};

struct choosing {
    const uint8_t *mask;
    int64_t mask_row;
    rcvi_matrix a, b;
    template <typename REAL, int V> __device__ void operator()(int64_t r, int64_t c, REAL (&x)[V]) const {
        if (mask[r * mask_row])
            load(a, r, c, x);
        else
            load(b, r, c, x);
    }
};

/* As rcvi_hash_uniform, and the CPU's step. */
struct dropping {
    rcvi_matrix a;
    double keep;
    uint64_t salt;
    const uint64_t *seed;
    int64_t columns, period, batch;
    rcvi_shard shard;
    rcvi_order order;
    template <typename REAL, int V> __device__ void operator()(int64_t r, int64_t c, REAL (&x)[V]) const {
        uint64_t key = hash_key(*seed, salt);
        int64_t row = ordered(order, r);
        int64_t line = period ? shard.first + row % period : shard_row(shard, batch, row);
        uint64_t element = (uint64_t)(line * columns + c);
        load(a, r, c, x);
#pragma unroll
        for (int i = 0; i < V; i++) {
            REAL value = a.at ? (REAL)(x[i] / keep) : (REAL)1;
            x[i] = hash_uniform(key, element + i) < keep ? value : (REAL)0;
        }
    }
};

/* Threads without work, with so many threads along a row. */
static int64_t idle_threads(int64_t groups, unsigned across) { return divide_up(groups, across) * across - groups; }

template <typename REAL, typename OPERATION>
static cudaError_t start_each(cudaStream_t stream, int64_t rows, int64_t columns, int v, const rcvi_matrix &out,
                              const OPERATION &operation) {
    int64_t groups = divide_up(out.wide, v);
    unsigned across = 1;
    while (across < THREADS && across < groups) across *= 2;
    while (across > 32 && idle_threads(groups, across / 2) < idle_threads(groups, across)) across /= 2;
    unsigned down = THREADS / across;
    int64_t x = divide_up(groups, across), y = divide_up(rows, down);
    x = least(x, RCVI_TUNED_EACH_BLOCKS);
    y = least(y, RCVI_TUNED_EACH_BLOCKS / x);
    dim3 grid((unsigned)x, (unsigned)y), block(across, down);
    if (v == 8) return start(each<REAL, 8, OPERATION>, grid, block, stream, rows, columns, out, operation);
    if (v == 4) return start(each<REAL, 4, OPERATION>, grid, block, stream, rows, columns, out, operation);
    if (v == 2) return start(each<REAL, 2, OPERATION>, grid, block, stream, rows, columns, out, operation);
    return start(each<REAL, 1, OPERATION>, grid, block, stream, rows, columns, out, operation);
}

/* Whether all that is written has 16 bits. */
static bool is_narrow(const rcvi_matrix &m) {
    return (!m.at || number_bytes(m.type) == 2) && (!m.rounded || number_bytes(m.rounded_type) == 2);
}

/* Whether the rows are contiguous. */
static bool is_one_row(const rcvi_matrix &m, int64_t columns) {
    return !m.order.of && !m.order.steps && ((!m.at && !m.rounded) || (m.row == columns && m.column == 1));
}

/* Computes every element of `out` by the operation on `a` and `b`; operands that it has not are absent. */
template <typename OPERATION>
static cudaError_t make(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out, rcvi_matrix a,
                        rcvi_matrix b, bool by_row, const OPERATION &operation) {
    if (rows <= 0 || columns <= 0 || (!out.at && !out.rounded)) return cudaSuccess;
    if (!are_numbers(out) || !are_numbers(a) || !are_numbers(b)) return cudaErrorInvalidValue;
    if (columns == 1) out.column = 1; /* one column, whatever its stride */
    if (!out.column) return cudaErrorInvalidValue;
    a.rounded = b.rounded = NULL;
    if (out.wide < columns) out.wide = columns;
    if (!by_row && out.wide == columns && is_one_row(out, columns) && is_one_row(a, columns) &&
        is_one_row(b, columns)) {
        columns *= rows;
        rows = 1;
        out.wide = columns;
    }
    /* Eight elements a thread for large outputs of 16 bits: more bytes in flight. Wider elements are stored 16 bytes a thread, so that a
     * warp writes whole sectors: float32 by eight elements a thread took four times as long as memory needs. */
    int v = rows * columns >= RCVI_TUNED_EACH_WIDE && is_narrow(out) ? 8 : 4;
    while (v > 1 && (columns % v || out.wide % v || !allows_vectors(out, rows, v) || !allows_vectors(a, rows, v) ||
                     !allows_vectors(b, rows, v)))
        v /= 2;
    if (has_double(out) || has_double(a) || has_double(b))
        return start_each<double>(stream, rows, columns, v, out, operation);
    return start_each<float>(stream, rows, columns, v, out, operation);
}

static const rcvi_matrix absent = {NULL, 0, 0, RCVI_F32, NULL, RCVI_F32, {NULL, 0, 0}, 0};

/* Copies `count` pieces of 16 bytes. A block takes RCVI_TUNED_COPY_PIECES times as many pieces as it has threads; a thread loads all of its
 * pieces before it stores one. */
__global__ void copy_pieces(int64_t count, const uint4 *from, uint4 *to) {
    int64_t step = (int64_t)gridDim.x * THREADS * RCVI_TUNED_COPY_PIECES;
    for (int64_t i = (int64_t)blockIdx.x * THREADS * RCVI_TUNED_COPY_PIECES + threadIdx.x; i < count; i += step) {
        uint4 piece[RCVI_TUNED_COPY_PIECES];
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_COPY_PIECES; k++) {
            if (i + k * THREADS < count) piece[k] = from[i + k * THREADS];
        }
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_COPY_PIECES; k++) {
            if (i + k * THREADS < count) to[i + k * THREADS] = piece[k];
        }
    }
}

/* Bytes of a copy without conversion in whole pieces of 16 bytes; 0: it is not one. */
static int64_t bytes_as_they_are(int64_t rows, int64_t columns, const rcvi_matrix &out, const rcvi_matrix &a) {
    bool plain =
        out.at && a.at && !out.rounded && out.type == a.type && is_one_row(out, columns) && is_one_row(a, columns);
    int64_t bytes = plain && rows > 0 && columns > 0 ? rows * columns * number_bytes(out.type) : 0;
    return ((uintptr_t)out.at | (uintptr_t)a.at | (uintptr_t)bytes) % sizeof(uint4) ? 0 : bytes;
}

extern "C" cudaError_t rcvi_cuda_copy(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out,
                                      rcvi_matrix a) {
    int64_t pieces = bytes_as_they_are(rows, columns, out, a) / (int64_t)sizeof(uint4);
    if (pieces) {
        dim3 grid((unsigned)least(divide_up(pieces, THREADS * RCVI_TUNED_COPY_PIECES), RCVI_TUNED_EACH_BLOCKS));
        return start(copy_pieces, grid, dim3(THREADS), stream, pieces, (const uint4 *)a.at, (uint4 *)out.at);
    }
    return make(stream, rows, columns, out, a, absent, false, copying{a});
}

extern "C" cudaError_t rcvi_cuda_add(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out,
                                     rcvi_matrix a) {
    return make(stream, rows, columns, out, a, absent, false, adding{out, a});
}

/* A thread takes V columns of RCVI_TUNED_ADD_ROWS rows, blockDim.y apart, and loads all of them before it stores one. */
template <int V>
__global__ void store_or_add(int64_t rows, int64_t columns, bool add, float *out, int64_t row_out, const float *a,
                             int64_t row_a) {
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (column >= columns) return;
    int64_t step = (int64_t)gridDim.y * blockDim.y * RCVI_TUNED_ADD_ROWS;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y * RCVI_TUNED_ADD_ROWS + threadIdx.y; r < rows; r += step) {
        float x[RCVI_TUNED_ADD_ROWS][V], there[RCVI_TUNED_ADD_ROWS][V] = {};
#pragma unroll
        for (int i = 0; i < RCVI_TUNED_ADD_ROWS; i++) {
            int64_t row = r + i * blockDim.y;
            if (row < rows) load_as<float>(a, row * row_a + column, x[i]);
            if (row < rows && add) load_as<float>(out, row * row_out + column, there[i]);
        }
#pragma unroll
        for (int i = 0; i < RCVI_TUNED_ADD_ROWS; i++) {
            int64_t row = r + i * blockDim.y;
#pragma unroll
            for (int k = 0; k < V; k++) x[i][k] += there[i][k];
            if (row < rows) store_as<float>(out, row * row_out + column, x[i]);
        }
    }
}

extern "C" cudaError_t rcvi_cuda_store_or_add(cudaStream_t stream, int64_t rows, int64_t columns, bool accumulate,
                                              float *out, int64_t row_out, const float *a, int64_t row_a) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    bool by_two =
        columns % 2 == 0 && is_aligned(out, RCVI_F32, rows, row_out, 2) && is_aligned(a, RCVI_F32, rows, row_a, 2);
    dim3 block(32, THREADS / 32);
    dim3 grid((unsigned)divide_up(columns, 32 * (by_two ? 2 : 1)),
              (unsigned)least(divide_up(rows, block.y * RCVI_TUNED_ADD_ROWS), RCVI_TUNED_EACH_BLOCKS));
    if (by_two) return start(store_or_add<2>, grid, block, stream, rows, columns, accumulate, out, row_out, a, row_a);
    return start(store_or_add<1>, grid, block, stream, rows, columns, accumulate, out, row_out, a, row_a);
}

/* As store_or_add, a column a thread. */
__global__ void pad_rows(int64_t rows, int64_t columns, float *out, int64_t row_out, const float *a, int64_t row_a) {
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= row_out) return;
    int64_t step = (int64_t)gridDim.y * blockDim.y * RCVI_TUNED_ADD_ROWS;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y * RCVI_TUNED_ADD_ROWS + threadIdx.y; r < rows; r += step) {
        float x[RCVI_TUNED_ADD_ROWS] = {};
#pragma unroll
        for (int i = 0; i < RCVI_TUNED_ADD_ROWS; i++) {
            int64_t row = r + i * blockDim.y;
            if (row < rows && column < columns) x[i] = a[row * row_a + column];
        }
#pragma unroll
        for (int i = 0; i < RCVI_TUNED_ADD_ROWS; i++) {
            int64_t row = r + i * blockDim.y;
            if (row < rows) out[row * row_out + column] = x[i];
        }
    }
}

extern "C" cudaError_t rcvi_cuda_pad_rows(cudaStream_t stream, int64_t rows, int64_t columns, float *out,
                                          int64_t row_out, const float *a, int64_t row_a) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    dim3 block(32, THREADS / 32);
    dim3 grid((unsigned)divide_up(row_out, 32),
              (unsigned)least(divide_up(rows, block.y * RCVI_TUNED_ADD_ROWS), RCVI_TUNED_EACH_BLOCKS));
    return start(pad_rows, grid, block, stream, rows, columns, out, row_out, a, row_a);
}

extern "C" cudaError_t rcvi_cuda_fill(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out,
                                      double number) {
    bool zeros = number == 0 && !signbit(number);
    if (zeros && out.at && !out.rounded && is_one_row(out, columns) && are_numbers(out)) /* the fastest way */
        return cudaMemsetAsync(out.at, 0, (size_t)(rows * columns) * (size_t)number_bytes(out.type), stream);
    return make(stream, rows, columns, out, absent, absent, false, filling{number});
}

extern "C" cudaError_t rcvi_cuda_select(cudaStream_t stream, int64_t rows, int64_t columns, const uint8_t *mask,
                                        int64_t mask_row, rcvi_matrix out, rcvi_matrix a, rcvi_matrix b) {
    return make(stream, rows, columns, out, a, b, true, choosing{mask, mask_row, a, b});
}

extern "C" cudaError_t rcvi_cuda_dropout(cudaStream_t stream, int64_t rows, int64_t columns, double probability,
                                         uint64_t salt, int64_t period, int64_t batch, const rcvi_shard *shard,
                                         const uint64_t *seed, rcvi_order order, rcvi_matrix out, rcvi_matrix a) {
    bool by_row = order.of != NULL || period || shard->total;
    return make(stream, rows, columns, out, a, absent, by_row,
                dropping{a, 1 - probability, salt, seed, columns, period, batch, *shard, order});
}

/* ---- masks ---- */

/* `last` rows of zeros follow. */
__global__ void mark(int64_t steps, int64_t last, int64_t batch, const uint8_t *resets, bool boundary, rcvi_order order,
                     const int64_t *lengths, uint8_t *out) {
    int64_t count = (steps + last) * batch, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t t = i / batch;
        bool live = t < steps && (!lengths || t < lengths[i - t * batch]);
        out[i] = live && (!boundary || (resets && resets[ordered(order, i)]));
    }
}

static cudaError_t start_mark(cudaStream_t stream, int64_t steps, int64_t last, int64_t batch, const uint8_t *resets,
                              bool boundary, rcvi_order order, const int64_t *lengths, uint8_t *out) {
    int64_t blocks = divide_up((steps + last) * batch, THREADS);
    if (blocks <= 0 || !out) return cudaSuccess;
    dim3 grid((unsigned)least(blocks, RCVI_TUNED_EACH_BLOCKS));
    return start(mark, grid, dim3(THREADS), stream, steps, last, batch, resets, boundary, order, lengths, out);
}

extern "C" cudaError_t rcvi_cuda_mark_live(cudaStream_t stream, int64_t steps, int64_t batch, const int64_t *lengths,
                                           uint8_t *out) {
    return start_mark(stream, steps, 0, batch, NULL, false, rcvi_order{NULL, batch, 0}, lengths, out);
}

extern "C" cudaError_t rcvi_cuda_mark_boundaries(cudaStream_t stream, int64_t steps, int64_t batch,
                                                 const uint8_t *resets, rcvi_order order, const int64_t *lengths,
                                                 uint8_t *out) {
    return start_mark(stream, steps, 1, batch, resets, true, order, lengths, out);
}

/* ---- values from the host ---- */

struct values {
    int64_t value[SENT_VALUES];
};

__global__ void send(values from, int count, int64_t *to) {
    if ((int)threadIdx.x < count) to[threadIdx.x] = from.value[threadIdx.x];
}

extern "C" cudaError_t rcvi_cuda_send_values(cudaStream_t stream, const int64_t *from, int64_t count, int64_t *to) {
    for (int64_t done = 0; done < count; done += SENT_VALUES) {
        int n = (int)least(count - done, SENT_VALUES);
        values piece = {};
        for (int i = 0; i < n; i++) piece.value[i] = from[done + i];
        cudaError_t error = start(send, dim3(1), dim3(SENT_VALUES), stream, piece, n, to + done);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

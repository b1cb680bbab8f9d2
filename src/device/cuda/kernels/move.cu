/* Matrices copied, converted, padded or transposed, several in one launch.
 *
 * A block takes a tile of one of them. It branches on types once a tile, not once an element, so that all loads of a tile are in flight
 * before the first one is used: with a branch for every element, rows of 650 floats, two to an access, took four times as long as memory
 * needs. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/tuning.h"

using namespace rcvi;

enum { SIDE = RCVI_TUNED_MOVE_SIDE, THREADS = 256 };

/* out[rows, wide] from a[rows, columns], or from a[columns, rows]^T. */
struct job {
    const void *a;
    void *out, *rounded;
    int64_t row_a, row_out, rows, columns, wide;
    unsigned first, across; /* its first tile in the launch; tiles of a row of tiles */
    unsigned char type_a, type_out, type_rounded;
    unsigned char by_a, by_out; /* elements in an access: 1, 2 or 4 */
    bool transposed, repeated;  /* repeated: a has one element a row */
    bool ordered_a : 1, ordered_out : 1;
};

struct moves {
    job at[RCVI_MAX_MOVES];
    rcvi_order order; /* of those that are ordered */
    int count;
};

/* A thread's part of a tile: V elements from column x on, of the rows y, y + DOWN ... */
template <typename REAL, int V> struct share {
    static constexpr int ACROSS = SIDE / V, DOWN = THREADS / ACROSS, TIMES = SIDE / DOWN;
    REAL at[TIMES][V];
    static __device__ int x() { return (int)threadIdx.x % ACROSS * V; }
    static __device__ int y() { return (int)threadIdx.x / ACROSS; }
};

/* A tile of a matrix in memory: [SIDE, SIDE] elements from [row, column] on, of which so many exist. */
struct tile {
    int64_t row, column;
    int rows, columns;
};

/* How many of a tile's rows or columns lie before `end`. */
__device__ inline int within(int64_t first, int64_t end) {
    return end - first > SIDE ? SIDE : end > first ? (int)(end - first) : 0;
}

template <typename T, typename REAL, int V>
__device__ inline void load_rows(const job &m, const tile &t, share<REAL, V> &some) {
    using mine = share<REAL, V>;
    const T *at = (const T *)m.a + (t.row + mine::y()) * m.row_a + (m.repeated ? 0 : t.column + mine::x());
    const int64_t step = m.row_a * mine::DOWN;
    const bool there = m.a && mine::x() < t.columns;
#pragma unroll
    for (int i = 0; i < mine::TIMES; i++, at += step) {
#pragma unroll
        for (int k = 0; k < V; k++) some.at[i][k] = 0;
        if (there && mine::y() + i * mine::DOWN < t.rows) load_as<T>(at, 0, some.at[i]);
    }
}

template <typename REAL, int V> __device__ inline void load_share(const job &m, const tile &t, share<REAL, V> &some) {
    switch (m.type_a) {
    case RCVI_F32: load_rows<float>(m, t, some); break;
    case RCVI_F64: load_rows<double>(m, t, some); break;
    case RCVI_BF16: load_rows<__nv_bfloat16>(m, t, some); break;
    default: load_rows<__half>(m, t, some); break;
    }
}

template <typename T, typename REAL, int V>
__device__ inline void store_rows(void *to, int64_t row, const tile &t, const share<REAL, V> &some) {
    using mine = share<REAL, V>;
    T *at = (T *)to + (t.row + mine::y()) * row + t.column + mine::x();
    const int64_t step = row * mine::DOWN;
#pragma unroll
    for (int i = 0; i < mine::TIMES; i++, at += step) {
        if (mine::x() < t.columns && mine::y() + i * mine::DOWN < t.rows) store_as<T>(at, 0, some.at[i]);
    }
}

template <typename REAL, int V>
__device__ inline void store_typed(void *to, int type, int64_t row, const tile &t, const share<REAL, V> &some) {
    switch (type) {
    case RCVI_F32: store_rows<float>(to, row, t, some); break;
    case RCVI_F64: store_rows<double>(to, row, t, some); break;
    case RCVI_BF16: store_rows<__nv_bfloat16>(to, row, t, some); break;
    default: store_rows<__half>(to, row, t, some); break;
    }
}

template <typename REAL, int V>
__device__ inline void store_share(const job &m, const tile &t, const share<REAL, V> &some) {
    if (m.out) store_typed(m.out, m.type_out, m.row_out, t, some);
    if (m.rounded) store_typed(m.rounded, m.type_rounded, m.row_out, t, some);
}

template <typename REAL, int V> __device__ inline void move_straight(const job &m, const tile &from, const tile &to) {
    share<REAL, V> some;
    load_share(m, from, some);
    store_share(m, to, some);
}

/* A transposed tile goes through shared memory, so that reads and writes both go along rows. */
template <typename REAL, int V>
__device__ inline void load_tile(const job &m, const tile &from, REAL (*transposed)[SIDE + 1]) {
    share<REAL, V> some;
    load_share(m, from, some);
#pragma unroll
    for (int i = 0; i < some.TIMES; i++) {
#pragma unroll
        for (int k = 0; k < V; k++) transposed[some.y() + i * some.DOWN][some.x() + k] = some.at[i][k];
    }
}

template <typename REAL, int V>
__device__ inline void store_tile(const job &m, const tile &to, const REAL (*transposed)[SIDE + 1]) {
    share<REAL, V> some;
#pragma unroll
    for (int i = 0; i < some.TIMES; i++) {
#pragma unroll
        for (int k = 0; k < V; k++) some.at[i][k] = transposed[some.x() + k][some.y() + i * some.DOWN];
    }
    store_share(m, to, some);
}

template <typename REAL>
__device__ inline void move_transposed(const job &m, const tile &from, const tile &to, REAL (*transposed)[SIDE + 1]) {
    switch (m.by_a) {
    case 4: load_tile<REAL, 4>(m, from, transposed); break;
    case 2: load_tile<REAL, 2>(m, from, transposed); break;
    default: load_tile<REAL, 1>(m, from, transposed); break;
    }
    __syncthreads();
    switch (m.by_out) {
    case 4: store_tile<REAL, 4>(m, to, transposed); break;
    case 2: store_tile<REAL, 2>(m, to, transposed); break;
    default: store_tile<REAL, 1>(m, to, transposed); break;
    }
}

/* Rows in another order, element by element: these are states, which are small. */
template <typename REAL>
__device__ inline void move_ordered(const job &m, const rcvi_order &order, const tile &from, const tile &to) {
    for (int n = (int)threadIdx.x; n < SIDE * SIDE; n += THREADS) {
        const int y = n / SIDE, x = n % SIDE, from_y = m.transposed ? x : y, from_x = m.transposed ? y : x;
        int64_t row = from.row + from_y, to_row = to.row + y;
        REAL one[1] = {0};
        if (y >= to.rows || x >= to.columns) continue;
        if (m.ordered_out) to_row = ordered(order, to_row);
        if (m.a && from_y < from.rows && from_x < from.columns) {
            if (m.ordered_a) row = ordered(order, row);
            load_any(m.a, (rcvi_cuda_type)m.type_a, row * m.row_a + (m.repeated ? 0 : from.column + from_x), one);
        }
        if (m.out) store_any(m.out, (rcvi_cuda_type)m.type_out, to_row * m.row_out + to.column + x, one);
        if (m.rounded) store_any(m.rounded, (rcvi_cuda_type)m.type_rounded, to_row * m.row_out + to.column + x, one);
    }
}

/* The move that a tile belongs to. */
__device__ inline int find_job(const moves &all, unsigned number) {
    int low = 0, high = all.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (all.at[middle].first <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename REAL>
__global__ void __launch_bounds__(THREADS, sizeof(REAL) == 8 ? 3 : 4) move_each(const __grid_constant__ moves all) {
    __shared__ REAL transposed[SIDE][SIDE + 1];
    const job &m = all.at[find_job(all, blockIdx.x)];
    const unsigned number = blockIdx.x - m.first;
    const int64_t row = (int64_t)(number / m.across) * SIDE, column = (int64_t)(number % m.across) * SIDE;
    const int rows = within(row, m.rows), columns = within(column, m.columns);
    const tile to = {row, column, rows, within(column, m.wide)};
    const tile from = {m.transposed ? column : row, m.transposed ? row : column, m.transposed ? columns : rows,
                       m.transposed ? rows : columns};
    const int by = m.by_a < m.by_out ? m.by_a : m.by_out;
    if (m.ordered_a || m.ordered_out)
        move_ordered<REAL>(m, all.order, from, to);
    else if (m.transposed)
        move_transposed<REAL>(m, from, to, transposed);
    else if (by == 4)
        move_straight<REAL, 4>(m, from, to);
    else if (by == 2)
        move_straight<REAL, 2>(m, from, to);
    else
        move_straight<REAL, 1>(m, from, to);
}

/* Elements of an access to rows of this length, which is a multiple of it. */
static int elements_by(const rcvi_matrix &m, int64_t rows, int64_t length) {
    if (!m.column) return 1;
    for (int v = 4; v > 1; v /= 2) {
        if (length % v == 0 && allows_vectors(m, rows, v)) return v;
    }
    return 1;
}

static job make_job(const rcvi_move &m, int64_t first) {
    job made = {};
    made.a = m.a.at;
    made.out = m.out.at;
    made.rounded = m.out.rounded;
    made.row_a = m.a.row;
    made.row_out = m.out.row;
    made.rows = m.rows;
    made.columns = m.columns;
    made.wide = m.wide;
    made.first = (unsigned)first;
    made.across = (unsigned)divide_up(m.wide, SIDE);
    made.type_a = (unsigned char)m.a.type;
    made.type_out = (unsigned char)m.out.type;
    made.type_rounded = (unsigned char)m.out.rounded_type;
    made.by_a = (unsigned char)elements_by(m.a, m.transposed ? m.columns : m.rows, m.transposed ? m.rows : m.columns);
    made.by_out = (unsigned char)elements_by(m.out, m.rows, m.wide);
    made.transposed = m.transposed;
    made.repeated = !m.a.column;
    made.ordered_a = m.a.order.of != NULL;
    made.ordered_out = m.out.order.of != NULL;
    return made;
}

/* All ordered ones must have the same order. */
static bool join_order(rcvi_order *order, const rcvi_order &other) {
    if (other.steps) return false;
    if (!other.of) return true;
    if (!order->of) *order = other;
    return order->of == other.of && order->batch == other.batch;
}

extern "C" cudaError_t rcvi_cuda_move(cudaStream_t stream, const rcvi_move *given, int count) {
    static_assert(sizeof(moves) <= 4096, "what a kernel may be given");
    moves all = {};
    int64_t tiles = 0;
    bool wide = false;
    if (count > RCVI_MAX_MOVES) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++) {
        rcvi_move m = given[i];
        m.a.rounded = NULL;
        if (m.wide == 1) m.out.column = 1; /* one column, whatever its stride */
        if (!are_numbers(m.out) || !are_numbers(m.a) || !m.out.column) return cudaErrorInvalidValue;
        if (!join_order(&all.order, m.a.order) || !join_order(&all.order, m.out.order)) return cudaErrorInvalidValue;
        if (m.rows <= 0 || m.wide <= 0) continue;
        all.at[all.count++] = make_job(m, tiles);
        tiles += divide_up(m.wide, SIDE) * divide_up(m.rows, SIDE);
        if (tiles > INT32_MAX) return cudaErrorInvalidValue;
        wide |= has_double(m.out) || has_double(m.a);
    }
    if (tiles == 0) return cudaSuccess;
    dim3 grid((unsigned)tiles), block(THREADS);
    if (wide) return start(move_each<double>, grid, block, stream, all);
    return start(move_each<float>, grid, block, stream, all);
}

/* The norm of a gradient and the update of parameters, over all parts in one launch.
 *
 * Elements of a part are accessed 16 bytes at a time where its arrays have the same offset from a multiple of 16: some single elements,
 * then whole accesses, then single elements again. The norm is summed by a fixed number of threads and blocks, in a fixed order. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/tuning.h"

#include <math.h>

using namespace rcvi;

enum { THREADS = 256 };

/* A part, and where its whole accesses begin. */
struct piece {
    rcvi_update_part part;
    int64_t head, wholes; /* single elements before them; accesses */
};

struct pieces {
    piece at[RCVI_MAX_UPDATE_PARTS];
    int count;
    rcvi_sparse_part sparse;
};

/* ---- elements ---- */

/* Unscales and clips an element of the gradient. */
template <typename REAL> struct preparing {
    REAL inverse, most;
    __device__ preparing(const rcvi_control &c) : inverse((REAL)(1 / c.scale)), most((REAL)c.clip_value) {}
    __device__ REAL operator()(REAL g) const {
        g *= inverse;
        if (most > 0) g = g > most ? most : g < -most ? -most : g; /* NaN stays NaN */
        return g;
    }
};

/* The numbers of the control in the type of the parameters. */
template <typename REAL> struct numbers {
    REAL rate, decay, momentum, beta1, beta2, rest1,
        rest2; /* 1 - beta, computed in double: in float it would lose digits */
    REAL epsilon, correction1, correction2, average, factor;
    __device__ numbers(const rcvi_control &c, double scaled)
        : rate((REAL)c.rate), decay((REAL)c.decay), momentum((REAL)c.momentum), beta1((REAL)c.beta1),
          beta2((REAL)c.beta2), rest1((REAL)(1 - c.beta1)), rest2((REAL)(1 - c.beta2)), epsilon((REAL)c.epsilon),
          correction1((REAL)c.correction1), correction2((REAL)c.correction2), average((REAL)c.average),
          factor((REAL)scaled) {}
};

/* One parameter and its moments; g is clipped, and scaled to the norm. */
template <typename REAL, int KIND>
__device__ inline void change(const numbers<REAL> &n, REAL g, REAL &p, REAL &first, REAL &second) {
    if (KIND == RCVI_ADAMW)
        p -= n.rate * n.decay * p;
    else
        g += n.decay * p;
    if (KIND == RCVI_SGD) {
        p -= n.rate * g;
    } else if (KIND == RCVI_MOMENTUM) {
        first = n.momentum * first + g;
        p -= n.rate * first;
    } else {
        first = n.beta1 * first + n.rest1 * g;
        second = n.beta2 * second + n.rest2 * g * g;
        p -= n.rate * (first / n.correction1) / (sqrt(second / n.correction2) + n.epsilon);
    }
}

/* V elements from `i` on. */
template <typename REAL, int KIND, int V>
__device__ inline void change_some(const rcvi_update_part &part, int64_t i, const preparing<REAL> &prepare,
                                   const numbers<REAL> &n) {
    REAL g[V], p[V], first[V] = {}, second[V] = {}, average[V] = {};
    const bool averages = part.average && n.average != 0;
    load_as<REAL>(part.gradient, i, g);
    load_as<REAL>(part.parameters, i, p);
    if (KIND != RCVI_SGD) load_as<REAL>(part.first, i, first);
    if (KIND >= RCVI_ADAM) load_as<REAL>(part.second, i, second);
    if (averages) load_as<REAL>(part.average, i, average);
#pragma unroll
    for (int v = 0; v < V; v++) {
        change<REAL, KIND>(n, prepare(g[v]) * n.factor, p[v], first[v], second[v]);
        average[v] += (p[v] - average[v]) * n.average;
    }
    store_as<REAL>(part.parameters, i, p);
    if (KIND != RCVI_SGD) store_as<REAL>(part.first, i, first);
    if (KIND >= RCVI_ADAM) store_as<REAL>(part.second, i, second);
    if (averages) store_as<REAL>(part.average, i, average);
}

/* The k-th of the single elements of a part. */
template <int V> __device__ inline int64_t single(const piece &a, int64_t k) {
    return k < a.head ? k : k + a.wholes * V;
}

/* ---- the norm ---- */

template <typename REAL, int V>
__device__ inline void add_squares(const void *gradient, int64_t i, const preparing<REAL> &prepare, double &sum) {
    REAL g[V];
    load_as<REAL>(gradient, i, g);
#pragma unroll
    for (int v = 0; v < V; v++) {
        const double x = (double)prepare(g[v]);
        sum += x * x;
    }
}

/* Called by whole warps; the first lane gets the sum. */
__device__ inline double sum_lanes(double x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffff, x, offset);
    return x;
}

/* Called by a block of whole warps; the first thread gets the sum. */
__device__ inline double sum_block(double x) {
    __shared__ double part[32];
    x = sum_lanes(x);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    return sum_lanes(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0);
}

template <typename REAL>
__global__ void __launch_bounds__(THREADS)
    norm_sums(const __grid_constant__ pieces all, const rcvi_control *control, bool adds, double *sums) {
    constexpr int V = 16 / (int)sizeof(REAL);
    const preparing<REAL> prepare(*control);
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    double sum[2] = {0, 0}; /* two independent sums hide the latency of additions */
    for (int a = 0; a < all.count; a++) {
        const piece &m = all.at[a];
        int64_t i = first;
        for (; i + step < m.wholes; i += 2 * step) {
            add_squares<REAL, V>(m.part.gradient, m.head + i * V, prepare, sum[0]);
            add_squares<REAL, V>(m.part.gradient, m.head + (i + step) * V, prepare, sum[1]);
        }
        if (i < m.wholes) add_squares<REAL, V>(m.part.gradient, m.head + i * V, prepare, sum[0]);
        for (int64_t k = first; k < m.part.count - m.wholes * V; k += step)
            add_squares<REAL, 1>(m.part.gradient, single<V>(m, k), prepare, sum[1]);
    }
    if (all.sparse.gradient) {
        const int64_t count = *all.sparse.groups.count * all.sparse.columns;
        for (int64_t i = first; i < count; i += step) add_squares<REAL, 1>(all.sparse.gradient, i, prepare, sum[0]);
    }
    const double total = sum_block(sum[0] + sum[1]);
    if (threadIdx.x == 0) sums[blockIdx.x] = adds ? sums[blockIdx.x] + total : total;
}

/* The factor of the gradient is stored after the sums; NaN: nothing is updated. */
__global__ void norm_of(rcvi_cuda_half half, const rcvi_control *control, rcvi_outcome *outcome, double *sums) {
    const double squares = half == RCVI_HALF_APPLY ? 0 : sum_block(sums[threadIdx.x]);
    if (threadIdx.x) return;
    if (half != RCVI_HALF_APPLY) outcome->norm = half == RCVI_HALF_SQUARES ? squares : sqrt(squares);
    const double norm = outcome->norm, clip = control->clip, factor = clip / (norm + 1e-6);
    sums[RCVI_NORM_SUMS] = !isfinite(norm) ? (double)NAN : clip > 0 && factor < 1 ? factor : 1;
}

/* ---- the update ---- */

template <typename REAL, int KIND>
__global__ void __launch_bounds__(THREADS)
    update(const __grid_constant__ pieces all, const rcvi_control *control, const double *factor) {
    constexpr int V = 16 / (int)sizeof(REAL);
    if (isnan(*factor)) return;
    const preparing<REAL> prepare(*control);
    const numbers<REAL> n(*control, *factor);
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    for (int a = 0; a < all.count; a++) {
        const piece &m = all.at[a];
        for (int64_t i = first; i < m.wholes; i += step) change_some<REAL, KIND, V>(m.part, m.head + i * V, prepare, n);
        for (int64_t k = first; k < m.part.count - m.wholes * V; k += step)
            change_some<REAL, KIND, 1>(m.part, single<V>(m, k), prepare, n);
    }
    if (KIND != RCVI_SGD || !all.sparse.gradient) return;
    const rcvi_sparse_part &s = all.sparse;
    const REAL *gradient = (const REAL *)s.gradient;
    for (int64_t g = blockIdx.x; g < *s.groups.count; g += gridDim.x) {
        REAL *row = (REAL *)s.table + s.groups.ids[g] * s.columns;
        for (int64_t c = threadIdx.x; c < s.columns; c += THREADS)
            row[c] -= n.rate * (prepare(gradient[g * s.columns + c]) * n.factor);
    }
}

/* Rows of parameters by sgd, V elements at a time. */
template <typename REAL, int V>
__global__ void __launch_bounds__(THREADS)
    change_rows(int64_t rows, int64_t columns, REAL *parameters, const REAL *gradient, int64_t row,
                const rcvi_control *control, const double *factor) {
    if (isnan(*factor)) return;
    const preparing<REAL> prepare(*control);
    const numbers<REAL> n(*control, *factor);
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V,
                  step = (int64_t)gridDim.x * blockDim.x * V;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += (int64_t)gridDim.y * blockDim.y) {
        for (int64_t c = first; c < columns; c += step) {
            REAL g[V], p[V], none = 0;
            load_as<REAL>(gradient, r * row + c, g);
            load_as<REAL>(parameters, r * columns + c, p);
#pragma unroll
            for (int v = 0; v < V; v++) change<REAL, RCVI_SGD>(n, prepare(g[v]) * n.factor, p[v], none, none);
            store_as<REAL>(parameters, r * columns + c, p);
        }
    }
}

/* ---- launches ---- */

/* Where the arrays have different offsets from a multiple of 16 bytes, all elements are single. */
static piece cut(const rcvi_update_part &part, int bytes) {
    const void *arrays[] = {part.parameters, part.gradient, part.first, part.second, part.average};
    const int64_t v = 16 / bytes;
    piece made = {part, part.count, 0};
    uintptr_t off = (uintptr_t)part.parameters % 16;
    for (const void *array : arrays) {
        if (array && (uintptr_t)array % 16 != off) return made;
    }
    int64_t head = off ? (int64_t)(16 - off) / bytes : 0;
    if (off % (unsigned)bytes || head >= part.count) return made;
    made.head = head;
    made.wholes = (part.count - head) / v;
    return made;
}

template <typename REAL>
static cudaError_t start_update(cudaStream_t stream, int processors, rcvi_update_kind kind, const pieces &all,
                                const rcvi_control *control, const double *factor) {
    static void (*const kernels[])(const pieces, const rcvi_control *, const double *) = {
        update<REAL, RCVI_SGD>, update<REAL, RCVI_MOMENTUM>, update<REAL, RCVI_ADAM>, update<REAL, RCVI_ADAMW>};
    dim3 grid((unsigned)(processors * RCVI_TUNED_UPDATE_BLOCKS));
    return start(kernels[kind], grid, dim3(THREADS), stream, all, control, factor);
}

static cudaError_t start_squares(cudaStream_t stream, rcvi_cuda_type real, const pieces &all,
                                 const rcvi_control *control, bool adds, double *sums) {
    dim3 grid(RCVI_NORM_SUMS), block(THREADS);
    if (real == RCVI_F64) return start(norm_sums<double>, grid, block, stream, all, control, adds, sums);
    return start(norm_sums<float>, grid, block, stream, all, control, adds, sums);
}

static pieces cut_all(const rcvi_update_part *parts, int count, int bytes) {
    static_assert(sizeof(pieces) <= 4000, "kernel arguments are limited");
    pieces all = {};
    for (int i = 0; i < count; i++) {
        if (parts[i].count > 0) all.at[all.count++] = cut(parts[i], bytes);
    }
    return all;
}

extern "C" cudaError_t rcvi_cuda_add_squares(cudaStream_t stream, rcvi_cuda_type real, const rcvi_update_part *parts,
                                             int count, bool adds, const rcvi_control *control, double *sums) {
    if (count > RCVI_MAX_UPDATE_PARTS) return cudaErrorInvalidValue;
    return start_squares(stream, real, cut_all(parts, count, number_bytes(real)), control, adds, sums);
}

template <typename REAL, int V>
static cudaError_t start_rows(cudaStream_t stream, int64_t rows, int64_t columns, void *parameters,
                              const void *gradient, int64_t row, const rcvi_control *control, const double *factor) {
    const int64_t most = 65535;
    unsigned across = 32;
    while (across < THREADS && across * V < columns) across *= 2;
    unsigned down = THREADS / across;
    dim3 grid((unsigned)least(divide_up(columns, across * V), most), (unsigned)least(divide_up(rows, down), most));
    return start(change_rows<REAL, V>, grid, dim3(across, down), stream, rows, columns, (REAL *)parameters,
                 (const REAL *)gradient, row, control, factor);
}

extern "C" cudaError_t rcvi_cuda_change_rows(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                             void *parameters, const void *gradient, int64_t row,
                                             const rcvi_control *control, const double *sums) {
    const int64_t bytes = number_bytes(real);
    const double *factor = sums + RCVI_NORM_SUMS;
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    uintptr_t all = (uintptr_t)parameters | (uintptr_t)gradient | (uintptr_t)(columns * bytes);
    if (rows > 1) all |= (uintptr_t)(row * bytes);
    if (real == RCVI_F64) {
        if (all % 16 == 0)
            return start_rows<double, 2>(stream, rows, columns, parameters, gradient, row, control, factor);
        return start_rows<double, 1>(stream, rows, columns, parameters, gradient, row, control, factor);
    }
    if (all % 16 == 0) return start_rows<float, 4>(stream, rows, columns, parameters, gradient, row, control, factor);
    if (all % 8 == 0) return start_rows<float, 2>(stream, rows, columns, parameters, gradient, row, control, factor);
    return start_rows<float, 1>(stream, rows, columns, parameters, gradient, row, control, factor);
}

extern "C" cudaError_t rcvi_cuda_update(cudaStream_t stream, rcvi_cuda_type real, int processors, rcvi_cuda_half half,
                                        const rcvi_update *given, const rcvi_control *control, rcvi_outcome *outcome,
                                        double *sums) {
    pieces all = cut_all(given->parts, given->part_count, number_bytes(real));
    all.sparse = given->sparse;
    cudaError_t error = cudaSuccess;
    if (half != RCVI_HALF_APPLY) error = start_squares(stream, real, all, control, given->head != NULL, sums);
    if (error == cudaSuccess)
        error = start(norm_of, dim3(1), dim3(RCVI_NORM_SUMS), stream, half, control, outcome, sums);
    if (error != cudaSuccess || half == RCVI_HALF_SQUARES) return error;
    const double *factor = sums + RCVI_NORM_SUMS;
    if (real == RCVI_F64) return start_update<double>(stream, processors, given->kind, all, control, factor);
    return start_update<float>(stream, processors, given->kind, all, control, factor);
}

/* Rows of an output layer: softmax cross-entropy or squares, and their gradients in the rows' own memory. A block takes a row.
 *
 * In place. A gradient of 16 bits lies over the first half of its row, so over elements that other threads read. Where threads hold
 * the whole row in registers all of it was read before the first barrier. Else the block goes through the row in strips, all
 * threads at the same one, and a barrier stands between a strip's loads and its stores: a strip's gradient covers the first half of
 * the first strip, or what strips before it held. */
#include "device/cuda/kernels.cuh"
#include "device/cuda/learn_kernels.h"

#include <float.h>
#include <math.h>

using namespace rcvi;

enum {
    LANES = 32,
    MOST_THREADS = 896, /* with 72 registers each */
    FEW_HELD = 16,
    HELD = 40, /* reals of a row that a thread may have in registers */
    SUM_THREADS = 1024,
    BIAS_THREADS = 256
};

/* ---- numbers ---- */

__device__ inline float lowest(float) { return -FLT_MAX; }
__device__ inline double lowest(double) { return -DBL_MAX; }

template <bool EXACT> __device__ inline float exponential(float x) { return EXACT ? expf(x) : __expf(x); }
template <bool EXACT> __device__ inline double exponential(double x) { return exp(x); }

/* A maximum, and the sum of exponentials of what lies how far below it. One that has met nothing has the lowest number, which, unlike
 * infinity, can be subtracted from itself. */
template <typename REAL> struct total { REAL most, sum; };

template <bool EXACT, typename REAL> __device__ inline total<REAL> join(total<REAL> a, total<REAL> b) {
    const REAL most = a.most > b.most ? a.most : b.most;
    return {most, a.sum * exponential<EXACT>(a.most - most) + b.sum * exponential<EXACT>(b.most - most)};
}

template <bool EXACT, typename REAL> __device__ inline total<REAL> join_lanes(total<REAL> a) {
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        total<REAL> b = {__shfl_down_sync(0xffffffff, a.most, apart), __shfl_down_sync(0xffffffff, a.sum, apart)};
        a = join<EXACT>(a, b);
    }
    return a;
}

/* Every thread of the block gets it. What any of them loaded before the call is loaded. */
template <bool EXACT, typename REAL> __device__ inline total<REAL> join_block(total<REAL> a) {
    __shared__ total<REAL> parts[LANES], whole;
    a = join_lanes<EXACT>(a);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = a;
    __syncthreads();
    if (threadIdx.x < LANES) {
        a = threadIdx.x < blockDim.x / LANES ? parts[threadIdx.x] : total<REAL>{lowest(REAL()), 0};
        a = join_lanes<EXACT>(a);
        if (threadIdx.x == 0) whole = a;
    }
    __syncthreads();
    return whole;
}

template <typename REAL> __device__ inline REAL sum_lanes(REAL x) {
    for (int apart = LANES / 2; apart > 0; apart /= 2) x += __shfl_down_sync(0xffffffff, x, apart);
    return x;
}

/* The first thread gets it. */
template <typename REAL> __device__ inline REAL sum_block(REAL x) {
    __shared__ REAL parts[LANES];
    x = sum_lanes(x);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = x;
    __syncthreads();
    if (threadIdx.x >= LANES) return 0;
    return sum_lanes(threadIdx.x < blockDim.x / LANES ? parts[threadIdx.x] : (REAL)0);
}

/* ---- rows ---- */

/* Logits c .. c + V - 1 of a row with their bias; `none` from `classes` on. c < wide. */
template <typename REAL, int V>
__device__ inline void fetch(const rcvi_head_rows &a, const REAL *row, int64_t c, bool by_pieces, REAL none,
                             REAL (&x)[V]) {
    const REAL *bias = (const REAL *)a.bias;
    load_as<REAL>(row, c, x);
    if (bias && by_pieces && c + V <= a.classes) {
        REAL b[V];
        load_as<REAL>(bias, c, b);
#pragma unroll
        for (int v = 0; v < V; v++) x[v] += b[v];
    } else if (bias) {
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (c + v < a.classes) x[v] += bias[c + v];
        }
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (c + v >= a.classes) x[v] = none;
    }
}

template <typename REAL, int V> __device__ inline REAL largest(REAL most, const REAL (&x)[V]) {
#pragma unroll
    for (int v = 0; v < V; v++) most = x[v] > most ? x[v] : most;
    return most;
}

/* Stores (x * factor - [the target]) * weight; zeros where the row does not count. */
template <typename REAL, typename OUT, int V>
__device__ inline void give(REAL *row, int64_t c, REAL (&x)[V], REAL factor, int64_t target, REAL weight) {
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = target < 0 ? (REAL)0 : (x[v] * factor - (REAL)(c + v == target)) * weight;
    store_as<OUT>(row, c, x);
}

/* The whole row in registers: N accesses of V a thread, blockDim.x of them side by side. */
template <typename REAL, typename OUT, bool EXACT, int V, int N>
__device__ inline total<REAL> pass_held(const rcvi_head_rows &a, REAL *row, bool by_pieces, int64_t target,
                                        REAL weight) {
    REAL x[N][V], most = lowest(REAL()), sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int64_t c = (int64_t)(n * blockDim.x + threadIdx.x) * V;
        if (c < a.wide) {
            fetch(a, row, c, by_pieces, (REAL)-INFINITY, x[n]);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) x[n][v] = (REAL)-INFINITY;
        }
        most = largest(most, x[n]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int v = 0; v < V; v++) sum += x[n][v] = exponential<EXACT>(x[n][v] - most);
    }
    const total<REAL> whole = join_block<EXACT>(total<REAL>{most, sum});
    if (!a.differentiate) return whole;
    const REAL factor = exponential<EXACT>(most - whole.most) / whole.sum;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int64_t c = (int64_t)(n * blockDim.x + threadIdx.x) * V;
        if (c < a.wide) give<REAL, OUT>(row, c, x[n], factor, target, weight);
    }
    return whole;
}

/* The row from memory, twice. */
template <typename REAL, typename OUT, bool EXACT, int V>
__device__ inline total<REAL> pass_twice(const rcvi_head_rows &a, REAL *row, bool by_pieces, int64_t target,
                                         REAL weight) {
    const int64_t strip = (int64_t)blockDim.x * V;
    total<REAL> mine = {lowest(REAL()), 0};
    for (int64_t c = (int64_t)threadIdx.x * V; c < a.wide; c += strip) {
        REAL x[V];
        fetch(a, row, c, by_pieces, (REAL)-INFINITY, x);
        const REAL most = largest(mine.most, x);
        if (most > mine.most) mine = {most, mine.sum * exponential<EXACT>(mine.most - most)};
#pragma unroll
        for (int v = 0; v < V; v++) mine.sum += exponential<EXACT>(x[v] - mine.most);
    }
    const total<REAL> whole = join_block<EXACT>(mine);
    if (!a.differentiate) return whole;
    const REAL factor = 1 / whole.sum;
    for (int64_t first = 0; first < a.wide; first += strip) {
        const int64_t c = first + (int64_t)threadIdx.x * V;
        REAL x[V];
        if (c < a.wide) {
            fetch(a, row, c, by_pieces, (REAL)-INFINITY, x);
#pragma unroll
            for (int v = 0; v < V; v++) x[v] = exponential<EXACT>(x[v] - whole.most);
        }
        if (sizeof(OUT) < sizeof(REAL)) __syncthreads();
        if (c < a.wide) give<REAL, OUT>(row, c, x, factor, target, weight);
    }
    return whole;
}

/* N: accesses of V reals that a thread holds; 0: the row is read twice. */
template <typename REAL, typename OUT, bool EXACT, int V, int N>
__global__ void __launch_bounds__(MOST_THREADS) softmax(const __grid_constant__ rcvi_head_rows a, bool by_pieces) {
    const int64_t r = blockIdx.x;
    REAL *row = (REAL *)a.logits + r * a.wide;
    const int64_t given = a.targets[r], target = given < a.classes ? given : -1;
    const REAL weight = (REAL)a.control->weight;
    REAL wanted = 0; /* read before any thread writes: barriers follow */
    if (threadIdx.x == 0 && target >= 0) wanted = row[target] + (a.bias ? ((const REAL *)a.bias)[target] : (REAL)0);
    total<REAL> whole;
    if constexpr (N > 0)
        whole = pass_held<REAL, OUT, EXACT, V, N>(a, row, by_pieces, target, weight);
    else
        whole = pass_twice<REAL, OUT, EXACT, V>(a, row, by_pieces, target, weight);
    if (threadIdx.x == 0) a.losses[r] = target < 0 ? 0 : log((double)whole.sum) + ((double)whole.most - (double)wanted);
}

/* A row whose first value is NaN does not count. */
template <typename REAL, typename OUT, int V>
__global__ void __launch_bounds__(MOST_THREADS) squares(const __grid_constant__ rcvi_head_rows a, bool by_pieces) {
    const int64_t r = blockIdx.x, strip = (int64_t)blockDim.x * V;
    REAL *row = (REAL *)a.logits + r * a.wide;
    const REAL *values = (const REAL *)a.values + r * a.classes;
    const bool counts = !isnan(values[0]);
    const REAL factor = (REAL)(2 * a.control->weight / (double)a.classes);
    double sum = 0;
    for (int64_t first = 0; first < a.wide; first += strip) {
        const int64_t c = first + (int64_t)threadIdx.x * V;
        REAL x[V];
        if (c < a.wide) {
            fetch(a, row, c, by_pieces, (REAL)0, x);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (c + v < a.classes) x[v] -= values[c + v];
                x[v] = counts ? x[v] : (REAL)0;
                sum += (double)x[v] * (double)x[v];
                x[v] *= factor;
            }
        }
        if (sizeof(OUT) < sizeof(REAL)) __syncthreads();
        if (a.differentiate && c < a.wide) store_as<OUT>(row, c, x);
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) a.losses[r] = sum / (double)a.classes;
}

/* ---- starting them ---- */

template <typename REAL, typename OUT, bool EXACT, int V>
static cudaError_t start_rows(cudaStream_t stream, const rcvi_head_rows &a) {
    const int64_t accesses = divide_up(a.wide, V), trips = divide_up(accesses, MOST_THREADS);
    const int64_t threads = divide_up(divide_up(accesses, trips), LANES) * LANES;
    dim3 grid((unsigned)a.rows), block((unsigned)threads);
    const bool by_pieces = (uintptr_t)a.bias % 16 == 0;
    if (!a.targets) return start(squares<REAL, OUT, V>, grid, block, stream, a, by_pieces);
    if constexpr (sizeof(REAL) == 4) {
        if (trips * V <= FEW_HELD)
            return start(softmax<REAL, OUT, EXACT, V, FEW_HELD / V>, grid, block, stream, a, by_pieces);
        if (trips * V <= HELD) return start(softmax<REAL, OUT, EXACT, V, HELD / V>, grid, block, stream, a, by_pieces);
    }
    return start(softmax<REAL, OUT, EXACT, V, 0>, grid, block, stream, a, by_pieces);
}

extern "C" cudaError_t rcvi_cuda_head_rows(cudaStream_t stream, const rcvi_head_rows *given) {
    const rcvi_head_rows &a = *given;
    if (a.rows <= 0) return cudaSuccess;
    if (a.rows > INT32_MAX || a.classes <= 0 || a.wide < a.classes) return cudaErrorInvalidValue;
    if (a.real == RCVI_F64) return start_rows<double, double, true, 2>(stream, a);
    if (a.type == RCVI_BF16) return start_rows<float, __nv_bfloat16, false, 8>(stream, a);
    if (a.type == RCVI_F16) return start_rows<float, __half, false, 8>(stream, a);
    if (a.exact) return start_rows<float, float, true, 4>(stream, a);
    return start_rows<float, float, false, 4>(stream, a);
}

/* ---- the sum of losses, and biases by themselves ---- */

__global__ void sum_losses(int64_t rows, const double *losses, bool add, rcvi_outcome *outcome) {
    double sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += SUM_THREADS) sum += losses[r];
    sum = sum_block(sum);
    if (threadIdx.x == 0) outcome->loss = add ? outcome->loss + sum : sum;
}

extern "C" cudaError_t rcvi_cuda_sum_losses(cudaStream_t stream, int64_t rows, const double *losses, bool add,
                                            rcvi_outcome *outcome) {
    return start(sum_losses, dim3(1), dim3(SUM_THREADS), stream, rows, losses, add, outcome);
}

template <typename REAL> __global__ void add_bias(int64_t rows, int64_t columns, const REAL *bias, REAL *out) {
    const int64_t c = (int64_t)blockIdx.x * BIAS_THREADS + threadIdx.x;
    if (c >= columns) return;
    const REAL b = bias[c];
    for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) out[r * columns + c] += b;
}

extern "C" cudaError_t rcvi_cuda_add_bias(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                          const void *bias, void *out) {
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    dim3 grid((unsigned)divide_up(columns, BIAS_THREADS), (unsigned)least(rows, 65535));
    if (real == RCVI_F64)
        return start(add_bias<double>, grid, dim3(BIAS_THREADS), stream, rows, columns, (const double *)bias,
                     (double *)out);
    return start(add_bias<float>, grid, dim3(BIAS_THREADS), stream, rows, columns, (const float *)bias, (float *)out);
}

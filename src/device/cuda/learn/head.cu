/* Losses and gradients of an output layer: softmax cross-entropy or squared errors.
 *
 * One kernel goes along rows, a block a row, and stores what gradients need: the largest logit and the sum of exponentials. Another goes
 * down columns: a thread has some columns of a slice of rows, computes their gradients, and sums these for the bias before they are
 * rounded. Slices, and so the order of every sum, depend only on the numbers of rows and classes. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/tuning.h"

#include <float.h>
#include <math.h>

using namespace rcvi;

enum {
    LANES = 32,
    THREADS = 256, /* of a tile of columns */
    SUM_THREADS = 1024
};

/* ---- numbers ---- */

__device__ inline float lowest(float) { return -FLT_MAX; }
__device__ inline double lowest(double) { return -DBL_MAX; }

template <bool EXACT> __device__ inline float exponential(float x) { return EXACT ? expf(x) : __expf(x); }
template <bool EXACT> __device__ inline double exponential(double x) { return exp(x); }

/* A maximum, and the sum of exp(x - maximum). Without elements the maximum is the lowest finite number, which, unlike infinity, can be
 * subtracted from itself. */
template <typename REAL> struct total { REAL most, sum; };

template <bool EXACT, typename REAL> __device__ inline total<REAL> join(total<REAL> a, total<REAL> b) {
    const REAL most = a.most > b.most ? a.most : b.most;
    return {most, a.sum * exponential<EXACT>(a.most - most) + b.sum * exponential<EXACT>(b.most - most)};
}

template <bool EXACT, typename REAL> __device__ inline total<REAL> join_lanes(total<REAL> a) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        total<REAL> b = {__shfl_down_sync(0xffffffff, a.most, offset), __shfl_down_sync(0xffffffff, a.sum, offset)};
        a = join<EXACT>(a, b);
    }
    return a;
}

/* Called by a block of whole warps; the first thread gets the result. */
template <bool EXACT, typename REAL> __device__ inline total<REAL> join_block(total<REAL> a) {
    __shared__ total<REAL> parts[LANES];
    a = join_lanes<EXACT>(a);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = a;
    __syncthreads();
    if (threadIdx.x >= LANES) return a;
    a = threadIdx.x < blockDim.x / LANES ? parts[threadIdx.x] : total<REAL>{lowest(REAL()), 0};
    return join_lanes<EXACT>(a);
}

__device__ inline double sum_lanes(double x) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffff, x, offset);
    return x;
}

__device__ inline double sum_block(double x) {
    __shared__ double parts[LANES];
    x = sum_lanes(x);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = x;
    __syncthreads();
    if (threadIdx.x >= LANES) return 0;
    return sum_lanes(threadIdx.x < blockDim.x / LANES ? parts[threadIdx.x] : 0.0);
}

/* ---- along rows ---- */

/* Elements c .. c + V - 1 of [classes], of any alignment; `none` after its end. */
template <typename REAL, int V>
__device__ inline void load_part(const REAL *from, int64_t c, int64_t classes, bool aligned, REAL none, REAL (&x)[V]) {
    if (aligned && c + V <= classes) {
        load_as<REAL>(from, c, x);
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = c + v < classes ? from[c + v] : none;
}

/* Logits with their bias; `none` from `classes` on. */
template <typename REAL, int V>
__device__ inline void load_logits(const rcvi_head_rows &a, const REAL *row, int64_t c, bool aligned, REAL none,
                                   REAL (&x)[V]) {
    REAL b[V] = {};
    if (a.bias) load_part((const REAL *)a.bias, c, a.classes, aligned, (REAL)0, b);
    load_as<REAL>(row, c, x);
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = c + v < a.classes ? x[v] + b[v] : none;
}

/* The target class, counted over all classes; -1: the row does not count. */
__device__ inline int64_t target_of(const rcvi_head_rows &a, int64_t r) {
    const int64_t target = a.targets[r];
    return target < a.all ? target : -1;
}

/* The factor of a row of this class, which counts. */
template <typename REAL> __device__ inline REAL factor_of(const rcvi_head_rows &a, int64_t target) {
    return a.class_weights ? ((const REAL *)a.class_weights)[target] : (REAL)1;
}

/* Stores the row's loss, and its [2] numbers: the largest logit, and 1 / the sum of exponentials. Before the call with the last classes
 * the numbers are maximum and sum so far, and the loss is minus the target's logit, or 0 before that class. */
template <bool EXACT, typename REAL>
__device__ inline void store_numbers(const rcvi_head_rows &a, int64_t r, total<REAL> met) {
    REAL *numbers = (REAL *)a.numbers + 2 * r;
    const bool ends = a.first + a.classes >= a.all;
    const int64_t target = target_of(a, r), here = target - a.first;
    double loss = a.first > 0 ? a.losses[r] : 0;
    if (a.first > 0) met = join<EXACT>(total<REAL>{numbers[0], numbers[1]}, met);
    numbers[0] = met.most;
    numbers[1] = ends ? 1 / met.sum : met.sum;
    if (target >= a.first && here < a.classes) {
        const REAL bias = a.bias ? ((const REAL *)a.bias)[here] : (REAL)0;
        loss = -(double)(((const REAL *)a.logits)[r * a.wide + here] + bias);
    }
    if (ends && target >= 0) loss = factor_of<REAL>(a, target) * (log((double)met.sum) + ((double)met.most + loss));
    a.losses[r] = loss;
}

/* `aligned`: the bias begins at a multiple of 16 bytes. */
template <typename REAL, bool EXACT>
__global__ void __launch_bounds__(RCVI_TUNED_HEAD_THREADS)
    softmax(const __grid_constant__ rcvi_head_rows a, bool aligned) {
    constexpr int V = 16 / (int)sizeof(REAL);
    const int64_t r = blockIdx.x, strip = (int64_t)blockDim.x * V;
    const REAL *row = (const REAL *)a.logits + r * a.wide;
    total<REAL> mine = {lowest(REAL()), 0};
    for (int64_t first = (int64_t)threadIdx.x * V; first < a.classes; first += RCVI_TUNED_HEAD_AHEAD * strip) {
        REAL x[RCVI_TUNED_HEAD_AHEAD][V], most = mine.most;
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_HEAD_AHEAD; k++) {
            const int64_t c = first + k * strip;
#pragma unroll
            for (int v = 0; v < V; v++) x[k][v] = (REAL)-INFINITY;
            if (c < a.classes) load_logits(a, row, c, aligned, (REAL)-INFINITY, x[k]);
        }
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_HEAD_AHEAD; k++) {
#pragma unroll
            for (int v = 0; v < V; v++) most = x[k][v] > most ? x[k][v] : most;
        }
        mine.sum *= exponential<EXACT>(mine.most - most);
        mine.most = most;
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_HEAD_AHEAD; k++) {
#pragma unroll
            for (int v = 0; v < V; v++) mine.sum += exponential<EXACT>(x[k][v] - most);
        }
    }
    mine = join_block<EXACT>(mine);
    if (threadIdx.x == 0) store_numbers<EXACT>(a, r, mine);
}

/* A row whose first value is NaN does not count. */
template <typename REAL>
__global__ void __launch_bounds__(RCVI_TUNED_HEAD_THREADS) squares(const __grid_constant__ rcvi_head_rows a) {
    const int64_t r = blockIdx.x;
    const REAL *row = (const REAL *)a.logits + r * a.wide, *values = (const REAL *)a.values + r * a.classes;
    const REAL *bias = (const REAL *)a.bias;
    double sum = 0;
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
        const double off = (double)(row[c] + (bias ? bias[c] : (REAL)0) - values[c]);
        sum += off * off;
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) a.losses[r] = isnan(values[0]) ? 0 : sum / (double)a.classes;
}

/* ---- down columns ---- */

/* Values that the gradients of a thread's columns share. */
template <typename REAL, bool EXACT, int V> struct column_work {
    const rcvi_head_rows &a;
    int64_t c;
    REAL bias[V], weight; /* of softmax: the control's; of squares: times 2 / classes */

    __device__ void softmax_row(int64_t r, REAL (&x)[V]) const {
        const REAL *numbers = (const REAL *)a.numbers + 2 * r;
        const REAL most = numbers[0], inverse = numbers[1];
        const int64_t target = target_of(a, r);
        const REAL factor = target < 0 ? (REAL)0 : weight * factor_of<REAL>(a, target);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const REAL share = exponential<EXACT>(x[v] + bias[v] - most) * inverse;
            x[v] = target < 0 ? (REAL)0 : (share - (REAL)(a.first + c + v == target)) * factor;
        }
    }

    __device__ void squares_row(int64_t r, REAL (&x)[V]) const {
        const REAL *values = (const REAL *)a.values + r * a.classes;
        const bool counts = !isnan(values[0]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const REAL value = c + v < a.classes ? values[c + v] : (REAL)0;
            x[v] = counts ? (x[v] + bias[v] - value) * weight : (REAL)0;
        }
    }

    /* Replaces logits by gradients; zeros from `classes` on. */
    __device__ void operator()(int64_t r, REAL (&x)[V]) const {
        if (a.targets)
            softmax_row(r, x);
        else
            squares_row(r, x);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (c + v >= a.classes) x[v] = 0;
        }
    }
};

/* Block [x, y]: THREADS * V columns of slice y of the rows. Where `sums` is given its row y gets their sums. */
template <typename REAL, typename OUT, bool EXACT, int V>
__global__ void __launch_bounds__(THREADS) gradients(const __grid_constant__ rcvi_head_rows a, bool aligned) {
    const int64_t each = (a.rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
    const int64_t end = first + each < a.rows ? first + each : a.rows;
    column_work<REAL, EXACT, V> work = {a, ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, {}, 0};
    if (work.c >= a.wide) return;
    if (a.bias) load_part((const REAL *)a.bias, work.c, a.classes, aligned, (REAL)0, work.bias);
    work.weight = (REAL)(a.targets ? a.control->weight : 2 * a.control->weight / (double)a.classes);
    REAL sum[V] = {};
    for (int64_t r = first; r < end; r += RCVI_TUNED_HEAD_AHEAD) {
        REAL x[RCVI_TUNED_HEAD_AHEAD][V];
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_HEAD_AHEAD; k++) {
            if (r + k < end) load_as<REAL>(a.logits, (r + k) * a.wide + work.c, x[k]);
        }
#pragma unroll
        for (int k = 0; k < RCVI_TUNED_HEAD_AHEAD; k++) {
            if (r + k >= end) continue;
            work(r + k, x[k]);
            store_as<OUT>(a.gradients, (r + k) * a.wide + work.c, x[k]);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += x[k][v];
        }
    }
    REAL *sums = (REAL *)a.sums + blockIdx.y * a.classes + work.c;
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (a.sums && work.c + v < a.classes) sums[v] = sum[v];
    }
}

/* ---- launches ---- */

static int64_t tiles_of(int64_t classes) { return divide_up(classes, THREADS * 4); }

extern "C" int64_t rcvi_cuda_head_slices(int64_t rows, int64_t classes) {
    int64_t wanted =
        least(least(divide_up(RCVI_TUNED_HEAD_BLOCKS, tiles_of(classes)), rows / RCVI_TUNED_HEAD_SLICE_ROWS),
              RCVI_TUNED_HEAD_SLICES);
    return wanted > 1 ? wanted : 1;
}

template <typename REAL, typename OUT, bool EXACT, int V>
static cudaError_t start_rows(cudaStream_t stream, const rcvi_head_rows &a) {
    const int64_t accesses = divide_up(a.classes, 16 / (int64_t)sizeof(REAL));
    const int64_t threads = least(divide_up(accesses, LANES) * LANES, RCVI_TUNED_HEAD_THREADS);
    const bool aligned = (uintptr_t)a.bias % 16 == 0;
    dim3 rows((unsigned)a.rows), block((unsigned)threads);
    cudaError_t error = cudaSuccess;
    if (a.losses && a.targets) error = start(softmax<REAL, EXACT>, rows, block, stream, a, aligned);
    if (a.losses && !a.targets) error = start(squares<REAL>, rows, block, stream, a);
    if (error != cudaSuccess || !a.gradients) return error;
    dim3 tiles((unsigned)divide_up(a.wide, THREADS * V), (unsigned)rcvi_cuda_head_slices(a.rows, a.classes));
    return start(gradients<REAL, OUT, EXACT, V>, tiles, dim3(THREADS), stream, a, aligned);
}

extern "C" cudaError_t rcvi_cuda_head_rows(cudaStream_t stream, const rcvi_head_rows *given) {
    const rcvi_head_rows &a = *given;
    if (a.rows <= 0) return cudaSuccess;
    if (a.rows > INT32_MAX || a.classes <= 0 || a.wide < a.classes) return cudaErrorInvalidValue;
    if (a.first < 0 || a.first + a.classes > a.all || (!a.targets && a.classes != a.all)) return cudaErrorInvalidValue;
    if (a.real == RCVI_F64) return start_rows<double, double, true, 2>(stream, a);
    if (a.type == RCVI_BF16) return start_rows<float, __nv_bfloat16, false, 4>(stream, a);
    if (a.type == RCVI_F16) return start_rows<float, __half, false, 4>(stream, a);
    if (a.exact) return start_rows<float, float, true, 4>(stream, a);
    return start_rows<float, float, false, 4>(stream, a);
}

/* ---- the sum of losses, and biases ---- */

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
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= columns) return;
    const REAL b = bias[c];
    for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) out[r * columns + c] += b;
}

extern "C" cudaError_t rcvi_cuda_add_bias(cudaStream_t stream, rcvi_cuda_type real, int64_t rows, int64_t columns,
                                          const void *bias, void *out) {
    const int64_t most = 65535;
    if (rows <= 0 || columns <= 0) return cudaSuccess;
    dim3 grid((unsigned)divide_up(columns, THREADS), (unsigned)least(rows, most)), block(THREADS);
    if (real == RCVI_F64)
        return start(add_bias<double>, grid, block, stream, rows, columns, (const double *)bias, (double *)out);
    return start(add_bias<float>, grid, block, stream, rows, columns, (const float *)bias, (float *)out);
}

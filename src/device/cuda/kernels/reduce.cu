/* Sums over rows and over columns. The order of every sum depends on (rows, columns) alone, not on the width of accesses. */
#include "device/cuda/kernels/kernels.cuh"
#include "device/cuda/kernels/tuning.h"

using namespace rcvi;

enum {
    LANES = 32,
    WARPS = 8, /* of a block */
    MOST_BLOCKS = 1 << 20
};

/* out[row, column] (+)= sum. */
template <typename REAL>
__device__ __noinline__ void finish(const rcvi_matrix &out, int64_t row, int64_t column, bool add, REAL sum) {
    REAL x[1] = {0};
    if (add) load(out, row, column, x);
    x[0] += sum;
    store(out, row, column, x);
}

/* Called by whole warps; returns the sum to every lane. */
template <typename REAL> __device__ inline REAL sum_lanes(REAL x) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffff, x, offset);
    return x;
}

/* ---- over columns ---- */

/* The sum of a row over the elements of thread `first` of `threads`, in four independent sums so that loads overlap. */
template <typename T, typename REAL>
__device__ inline REAL sum_part(const rcvi_matrix &a, int64_t row, int64_t columns, int first, int threads) {
    REAL sum[4] = {0, 0, 0, 0};
    int64_t start = row * a.row, c = first;
    for (; c + 3 * threads < columns; c += 4 * threads) {
        REAL x[4][1];
#pragma unroll
        for (int i = 0; i < 4; i++) load_as<T>(a.at, start + (c + i * threads) * a.column, x[i]);
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += x[i][0];
    }
    for (; c < columns; c += threads) {
        REAL x[1];
        load_as<T>(a.at, start + c * a.column, x);
        sum[0] += x[0];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* A warp sums a row. */
template <typename T, typename REAL>
__global__ void sum_short_rows(int64_t rows, const int64_t *counted, int64_t columns, bool add, rcvi_matrix out,
                               rcvi_matrix a) {
    if (counted) rows = *counted;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y; r < rows; r += (int64_t)gridDim.x * WARPS) {
        REAL sum = sum_lanes(sum_part<T, REAL>(a, r, columns, (int)threadIdx.x, LANES));
        if (threadIdx.x == 0) finish(out, r, 0, add, sum);
    }
}

/* A block sums a row. */
template <typename T, typename REAL>
__global__ void sum_long_rows(int64_t rows, const int64_t *counted, int64_t columns, bool add, rcvi_matrix out,
                              rcvi_matrix a) {
    __shared__ REAL part[WARPS];
    if (counted) rows = *counted;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int thread = (int)(threadIdx.y * LANES + threadIdx.x);
        REAL sum = sum_lanes(sum_part<T, REAL>(a, r, columns, thread, LANES * WARPS));
        if (threadIdx.x == 0) part[threadIdx.y] = sum;
        __syncthreads();
        if (thread == 0) {
            for (int i = 1; i < WARPS; i++) sum += part[i];
            finish(out, r, 0, add, sum);
        }
        __syncthreads(); /* before the next row overwrites the parts */
    }
}

template <typename T, typename REAL>
static cudaError_t start_columns(cudaStream_t stream, int64_t rows, const int64_t *counted, int64_t columns, bool add,
                                 const rcvi_matrix &out, const rcvi_matrix &a) {
    bool is_long = columns >= RCVI_TUNED_SUM_ROW;
    int64_t blocks = is_long ? rows : divide_up(rows, WARPS);
    dim3 grid((unsigned)least(blocks, MOST_BLOCKS)), block(LANES, WARPS);
    if (is_long) return start(sum_long_rows<T, REAL>, grid, block, stream, rows, counted, columns, add, out, a);
    return start(sum_short_rows<T, REAL>, grid, block, stream, rows, counted, columns, add, out, a);
}

extern "C" cudaError_t rcvi_cuda_reduce_columns(cudaStream_t stream, int64_t rows, const int64_t *counted,
                                                int64_t columns, bool accumulate, rcvi_matrix out, rcvi_matrix a) {
    if (rows <= 0 || (!out.at && !out.rounded)) return cudaSuccess;
    if (!are_numbers(out) || !are_numbers(a)) return cudaErrorInvalidValue;
    if (!a.at) columns = 0;
    switch (a.at ? a.type : RCVI_F32) {
    case RCVI_F32: return start_columns<float, float>(stream, rows, counted, columns, accumulate, out, a);
    case RCVI_F64: return start_columns<double, double>(stream, rows, counted, columns, accumulate, out, a);
    case RCVI_BF16: return start_columns<__nv_bfloat16, float>(stream, rows, counted, columns, accumulate, out, a);
    default: return start_columns<__half, float>(stream, rows, counted, columns, accumulate, out, a);
    }
}

/* ---- over rows ---- */

static int64_t count_slices(int64_t rows, int64_t columns) {
    int64_t wanted = RCVI_TUNED_SUM_BLOCKS / divide_up(columns > 0 ? columns : 1, RCVI_TUNED_SUM_SLICE_COLUMNS);
    wanted = least(least(wanted, RCVI_TUNED_SUM_SLICES), rows / RCVI_TUNED_SUM_SLICE_ROWS);
    return wanted > 1 ? wanted : 1;
}

/* Adds up the sums of the warps of a block for a lane's columns; the first warp gets the result. */
template <typename REAL, int V> __device__ inline void sum_warps(REAL (&sum)[V]) {
    __shared__ REAL part[WARPS][LANES][V + 1]; /* the odd stride avoids bank conflicts */
#pragma unroll
    for (int i = 0; i < V; i++) part[threadIdx.y][threadIdx.x][i] = sum[i];
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int w = 1; w < WARPS; w++) {
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += part[w][threadIdx.x][i];
        }
    }
}

/* The sums of one matrix are computed once. The first sum of every matrix comes before all repeated ones. */
struct sums {
    rcvi_sum at[RCVI_MAX_SUMS];
    unsigned char of[RCVI_MAX_SUMS]; /* the first sum of the same matrix */
    int count;
};

/* A block sums a slice of rows of 32 V columns, warp w the rows w, w + 8 ... of it. Where there is one slice the sums are
 * the result, else row blockIdx.y of the matrix's `slices`: [gridDim.y, columns]. blockIdx.z is the matrix, each once. */
template <typename T, typename REAL, int V>
__global__ void sum_slices(int64_t rows, int64_t columns, bool add, const __grid_constant__ sums all, REAL *slices) {
    const rcvi_matrix &a = all.at[blockIdx.z].a;
    int64_t each = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
    int64_t end = first + each < rows ? first + each : rows;
    int64_t column = ((int64_t)blockIdx.x * LANES + threadIdx.x) * V;
    REAL sum[V];
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] = 0;
    if (column < columns && a.at) {
#pragma unroll 4
        for (int64_t r = first + threadIdx.y; r < end; r += WARPS) {
            REAL x[V];
            load_as<T>(a.at, r * a.row + column * a.column, x);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += x[i];
        }
    }
    sum_warps(sum);
    if (threadIdx.y != 0 || column >= columns) return;
    if (gridDim.y > 1) {
#pragma unroll
        for (int i = 0; i < V; i++) slices[(blockIdx.z * gridDim.y + blockIdx.y) * columns + column + i] = sum[i];
        return;
    }
    for (int m = 0; m < all.count; m++) {
        if (all.of[m] != blockIdx.z) continue;
#pragma unroll
        for (int i = 0; i < V; i++) finish(all.at[m].out, 0, column + i, add, sum[i]);
    }
}

/* The second stage: out[., c] (+)= sum of slices[., c]. */
template <typename REAL>
__global__ void sum_parts(int64_t count, int64_t columns, bool add, const __grid_constant__ sums all,
                          const REAL *slices) {
    int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
    REAL sum[1] = {0};
    if (column < columns) {
#pragma unroll 4
        for (int64_t s = threadIdx.y; s < count; s += WARPS)
            sum[0] += slices[(all.of[blockIdx.z] * count + s) * columns + column];
    }
    sum_warps(sum);
    if (threadIdx.y == 0 && column < columns) finish(all.at[blockIdx.z].out, 0, column, add, sum[0]);
}

static bool is_same(const rcvi_matrix &a, const rcvi_matrix &b) {
    return a.at == b.at && a.row == b.row && a.column == b.column;
}

/* Adds a sum to the list: at the end where its matrix is summed already, else after the first `matrices` ones. */
static void add_sum(sums *all, int *matrices, const rcvi_sum &sum) {
    int first = 0;
    while (first < *matrices && !is_same(all->at[first].a, sum.a)) first++;
    int place = all->count++;
    if (first == *matrices) {
        all->at[place] = all->at[first]; /* the first repeated one moves to the end */
        all->of[place] = all->of[first];
        place = (*matrices)++;
    }
    all->at[place] = sum;
    all->of[place] = (unsigned char)first;
}

/* Elements of an access, at most `most`. */
static int elements_by(int most, int64_t rows, int64_t columns, const sums &all, int matrices, int64_t slices) {
    int v = most;
    for (int i = 0; i < matrices; i++) {
        const rcvi_matrix &a = all.at[i].a;
        while (v > 1 && (columns % v || (a.at && (!a.column || !is_aligned(a.at, a.type, rows, a.row, v))))) v /= 2;
    }
    while (v > 1 && divide_up(columns, LANES * v) * slices * matrices < RCVI_TUNED_SUM_FEW_BLOCKS) v /= 2;
    return v;
}

template <typename T, typename REAL, int V>
static cudaError_t start_slices(int v, cudaStream_t stream, int64_t rows, int64_t columns, bool add, const sums &all,
                                dim3 grid, REAL *scratch) {
    if constexpr (V > 1) {
        if (v < V) return start_slices<T, REAL, V / 2>(v, stream, rows, columns, add, all, grid, scratch);
    }
    grid.x = (unsigned)divide_up(columns, LANES * V);
    return start(sum_slices<T, REAL, V>, grid, dim3(LANES, WARPS), stream, rows, columns, add, all, scratch);
}

template <typename T, typename REAL>
static cudaError_t start_rows(cudaStream_t stream, int64_t rows, int64_t columns, bool add, const sums &all,
                              int matrices, REAL *scratch) {
    constexpr int V = 16 / (int)sizeof(T);
    int64_t count = count_slices(rows, columns);
    dim3 grid(1, (unsigned)count, (unsigned)matrices);
    int v = elements_by(V, rows, columns, all, matrices, count);
    cudaError_t error = start_slices<T, REAL, V>(v, stream, rows, columns, add, all, grid, scratch);
    if (error != cudaSuccess || count == 1) return error;
    grid = dim3((unsigned)divide_up(columns, LANES), 1, (unsigned)all.count);
    return start(sum_parts<REAL>, grid, dim3(LANES, WARPS), stream, count, columns, add, all, (const REAL *)scratch);
}

extern "C" int64_t rcvi_cuda_reduce_rows_scratch(int64_t rows, int64_t columns) {
    int64_t count = count_slices(rows, columns);
    return count > 1 ? count * columns : 0;
}

extern "C" cudaError_t rcvi_cuda_reduce_rows(cudaStream_t stream, int64_t rows, int64_t columns, bool accumulate,
                                             const rcvi_sum *given, int count, void *scratch) {
    sums all = {};
    int matrices = 0;
    rcvi_cuda_type type = RCVI_F32;
    if (count > RCVI_MAX_SUMS) return cudaErrorInvalidValue;
    if (columns <= 0) return cudaSuccess;
    for (int i = 0; i < count; i++) type = given[i].a.at ? given[i].a.type : type;
    for (int i = 0; i < count; i++) {
        rcvi_sum sum = given[i];
        if (!sum.out.at && !sum.out.rounded) continue;
        if (columns == 1) sum.out.column = 1;
        if (!are_numbers(sum.out) || !are_numbers(sum.a) || !sum.out.column) return cudaErrorInvalidValue;
        if (sum.a.at && sum.a.type != type) return cudaErrorInvalidValue;
        add_sum(&all, &matrices, sum);
    }
    if (!matrices) return cudaSuccess;
    if (rows < 0) rows = 0;
    float *singles = (float *)scratch;
    switch (type) {
    case RCVI_F32: return start_rows<float, float>(stream, rows, columns, accumulate, all, matrices, singles);
    case RCVI_F64:
        return start_rows<double, double>(stream, rows, columns, accumulate, all, matrices, (double *)scratch);
    case RCVI_BF16: return start_rows<__nv_bfloat16, float>(stream, rows, columns, accumulate, all, matrices, singles);
    default: return start_rows<__half, float>(stream, rows, columns, accumulate, all, matrices, singles);
    }
}

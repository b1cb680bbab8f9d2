/* Loads and stores of elements as float or double, one or V in an access; masks; launches. */
#ifndef RCVI_CUDA_KERNELS_CUH
#define RCVI_CUDA_KERNELS_CUH

#include "device/cuda/kernels/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace rcvi {

/* ---- conversion, to the nearest and to even ---- */

__device__ inline void convert(float from, float &to) { to = from; }
__device__ inline void convert(float from, double &to) { to = from; }
__device__ inline void convert(double from, float &to) { to = (float)from; }
__device__ inline void convert(double from, double &to) { to = from; }
__device__ inline void convert(__nv_bfloat16 from, float &to) { to = __bfloat162float(from); }
__device__ inline void convert(__nv_bfloat16 from, double &to) { to = __bfloat162float(from); }
__device__ inline void convert(__half from, float &to) { to = __half2float(from); }
__device__ inline void convert(__half from, double &to) { to = __half2float(from); }
__device__ inline void convert(float from, __nv_bfloat16 &to) { to = __float2bfloat16_rn(from); }
__device__ inline void convert(double from, __nv_bfloat16 &to) { to = __double2bfloat16(from); }
__device__ inline void convert(float from, __half &to) { to = __float2half_rn(from); }
__device__ inline void convert(double from, __half &to) { to = __double2half(from); }

/* ---- V neighbouring elements, which begin at a multiple of their bytes or of 16 ---- */

template <int BYTES> struct word;
template <> struct word<16> { using type = uint4; };
template <> struct word<8> { using type = uint2; };
template <> struct word<4> { using type = unsigned; };
template <> struct word<2> { using type = unsigned short; };

template <typename T, typename REAL, int V>
__device__ inline void load_as(const void *at, int64_t index, REAL (&x)[V]) {
    using piece = typename word<(V * sizeof(T) < 16 ? V * sizeof(T) : 16)>::type;
    constexpr int pieces = V * (int)sizeof(T) / (int)sizeof(piece);
    alignas(16) T element[V];
    const piece *from = reinterpret_cast<const piece *>(static_cast<const T *>(at) + index);
#pragma unroll
    for (int i = 0; i < pieces; i++) reinterpret_cast<piece *>(element)[i] = from[i];
#pragma unroll
    for (int i = 0; i < V; i++) convert(element[i], x[i]);
}

template <typename T, typename REAL, int V>
__device__ inline void store_as(void *at, int64_t index, const REAL (&x)[V]) {
    using piece = typename word<(V * sizeof(T) < 16 ? V * sizeof(T) : 16)>::type;
    constexpr int pieces = V * (int)sizeof(T) / (int)sizeof(piece);
    alignas(16) T element[V];
#pragma unroll
    for (int i = 0; i < V; i++) convert(x[i], element[i]);
    piece *to = reinterpret_cast<piece *>(static_cast<T *>(at) + index);
#pragma unroll
    for (int i = 0; i < pieces; i++)
        __stwb(to + i, reinterpret_cast<const piece *>(element)[i]); /* = may be split into smaller stores */
}

template <typename REAL, int V>
__device__ inline void load_any(const void *at, rcvi_cuda_type type, int64_t index, REAL (&x)[V]) {
    switch (type) {
    case RCVI_F32: load_as<float>(at, index, x); break;
    case RCVI_F64: load_as<double>(at, index, x); break;
    case RCVI_BF16: load_as<__nv_bfloat16>(at, index, x); break;
    default: load_as<__half>(at, index, x); break;
    }
}

template <typename REAL, int V>
__device__ inline void store_any(void *at, rcvi_cuda_type type, int64_t index, const REAL (&x)[V]) {
    switch (type) {
    case RCVI_F32: store_as<float>(at, index, x); break;
    case RCVI_F64: store_as<double>(at, index, x); break;
    case RCVI_BF16: store_as<__nv_bfloat16>(at, index, x); break;
    default: store_as<__half>(at, index, x); break;
    }
}

/* Where row `row` lies. */
__device__ inline int64_t ordered(const rcvi_order &order, int64_t row) {
    if (!order.of && !order.steps) return row;
    int64_t step = row / order.batch, sequence = row - step * order.batch;
    if (order.of) sequence = order.of[sequence];
    return order.steps ? sequence * order.steps + step : step * order.batch + sequence;
}

/* As rcvi_shard_row. */
__device__ inline int64_t shard_row(const rcvi_shard &shard, int64_t batch, int64_t row) {
    if (!shard.total) return row;
    int64_t step = row / batch;
    return (shard.time + step) * shard.total + shard.first + row - step * batch;
}

/* Elements column .. column + V - 1 of a row of a matrix; zeros where it is absent. */
template <typename REAL, int V>
__device__ inline void load(const rcvi_matrix &m, int64_t row, int64_t column, REAL (&x)[V]) {
    row = ordered(m.order, row);
    if (!m.at) {
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = 0;
    } else if (V > 1 && !m.column) {
        REAL one[1];
        load_any(m.at, m.type, row * m.row, one);
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = one[0];
    } else {
        load_any(m.at, m.type, row * m.row + column * m.column, x);
    }
}

template <typename REAL, int V>
__device__ inline void store(const rcvi_matrix &m, int64_t row, int64_t column, const REAL (&x)[V]) {
    int64_t index = ordered(m.order, row) * m.row + column * m.column;
    if (m.at) store_any(m.at, m.type, index, x);
    if (m.rounded) store_any(m.rounded, m.rounded_type, index, x);
}

/* ---- masks: rcvi_hash_uniform(seed + salt * 0x9e3779b97f4a7c15, index) ---- */

__device__ inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

__device__ inline uint64_t hash_key(uint64_t seed, uint64_t salt) {
    return mix(seed + (salt + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

__device__ inline double hash_uniform(uint64_t key, uint64_t index) {
    return (double)(mix(key + index * UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53;
}

/* ---- host ---- */

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Bytes of a number, or 0 for what is not one. */
inline int number_bytes(rcvi_cuda_type type) {
    switch (type) {
    case RCVI_F32: return 4;
    case RCVI_F64: return 8;
    case RCVI_BF16:
    case RCVI_F16: return 2;
    default: return 0;
    }
}

inline bool are_numbers(const rcvi_matrix &m) {
    return (!m.at || number_bytes(m.type)) && (!m.rounded || number_bytes(m.rounded_type));
}

inline bool has_double(const rcvi_matrix &m) {
    return (m.at && m.type == RCVI_F64) || (m.rounded && m.rounded_type == RCVI_F64);
}

/* Whether V elements can be read in one access at `at`, in every row. */
inline bool is_aligned(const void *at, rcvi_cuda_type type, int64_t rows, int64_t row, int v) {
    int bytes = number_bytes(type), multiple = v * bytes < 16 ? v * bytes : 16;
    return (uintptr_t)at % (unsigned)multiple == 0 && (rows <= 1 || row * bytes % multiple == 0);
}

inline bool allows_vectors(const rcvi_matrix &m, int64_t rows, int v) {
    if (!m.column) return !m.rounded; /* one element, read alone */
    return (!m.at || is_aligned(m.at, m.type, rows, m.row, v)) &&
           (!m.rounded || is_aligned(m.rounded, m.rounded_type, rows, m.row, v));
}

template <typename T> struct same { using type = T; };

/* Without <<< >>>, whose first call of a kernel would need the C++ library's thread-safe initialisation. */
template <typename... P>
cudaError_t start(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream,
                  typename same<P>::type... arguments) {
    void *places[] = {&arguments...};
    return cudaLaunchKernel((const void *)kernel, grid, block, places, 0, stream);
}

} // namespace rcvi

#endif

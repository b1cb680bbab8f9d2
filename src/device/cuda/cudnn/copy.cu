// One launch for all pieces: blockIdx.y goes over pieces, blockIdx.x and threads over elements, four at a time where
// both sides are aligned for that.
#include "device/cuda/cudnn/copy.h"
#include "device/cuda/kernels/kernels.cuh"

namespace {

constexpr int threads = 256, lanes = 4;
constexpr int64_t most_blocks = 2048, most_pieces = 65535; // of one launch's grid

template <class T> struct alignas(lanes * sizeof(T)) vector { T at[lanes]; };

template <class To, class From> struct convert;
template <> struct convert<float, float> {
    static __device__ float of(float value) { return value; }
};
template <> struct convert<float, __nv_bfloat16> {
    static __device__ float of(__nv_bfloat16 value) { return __bfloat162float(value); }
};
template <> struct convert<float, __half> {
    static __device__ float of(__half value) { return __half2float(value); }
};
template <> struct convert<__nv_bfloat16, float> {
    static __device__ __nv_bfloat16 of(float value) { return __float2bfloat16_rn(value); }
};
template <> struct convert<__half, float> {
    static __device__ __half of(float value) { return __float2half_rn(value); }
};

template <class T> __device__ bool aligned(const T *pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % sizeof(vector<T>) == 0;
}

template <bool add, class To, class From> __device__ void store(To &place, From value) {
    if constexpr (add) {
        place += convert<To, From>::of(value);
    } else {
        place = convert<To, From>::of(value);
    }
}

template <bool add, class To, class From> __device__ void copy_piece(To *to, const From *from, int64_t count) {
    int64_t first = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
    int64_t stride = static_cast<int64_t>(gridDim.x) * threads;
    int64_t vectors = aligned(to) && aligned(from) ? count / lanes : 0;
    for (int64_t i = first; i < vectors; i += stride) {
        vector<From> in = reinterpret_cast<const vector<From> *>(from)[i];
        vector<To> *place = reinterpret_cast<vector<To> *>(to) + i;
        vector<To> out;
        if constexpr (add) out = *place;
#pragma unroll
        for (int k = 0; k < lanes; k++) store<add>(out.at[k], in.at[k]);
        *place = out;
    }
    for (int64_t i = vectors * lanes + first; i < count; i += stride) store<add>(to[i], from[i]);
}

template <class Space>
__global__ void __launch_bounds__(threads) in_kernel(rcvi_weight_map map, const float *flat, Space *space) {
    for (int64_t p = blockIdx.y; p < map.count; p += gridDim.y) {
        rcvi_weight_piece piece = map.pieces[p];
        copy_piece<false>(space + piece.space, flat + piece.flat, piece.count);
    }
}

template <bool add, class Space>
__global__ void __launch_bounds__(threads) out_kernel(rcvi_weight_map map, float *flat, const Space *space) {
    for (int64_t p = blockIdx.y; p < map.count; p += gridDim.y) {
        rcvi_weight_piece piece = map.pieces[p];
        copy_piece<add>(flat + piece.flat, space + piece.space, piece.count);
    }
}

dim3 grid_of(const rcvi_weight_map &map) {
    int64_t blocks = (map.longest + threads * lanes - 1) / (threads * lanes);
    return dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
                static_cast<unsigned>(map.count < most_pieces ? map.count : most_pieces));
}

template <class Space> cudaError_t in(cudaStream_t stream, const rcvi_weight_map &map, const float *flat, void *space) {
    return rcvi::start(in_kernel<Space>, grid_of(map), dim3(threads), stream, map, flat, static_cast<Space *>(space));
}

template <class Space>
cudaError_t out(cudaStream_t stream, const rcvi_weight_map &map, float *flat, const void *space, bool add) {
    auto kernel = add ? out_kernel<true, Space> : out_kernel<false, Space>;
    return rcvi::start(kernel, grid_of(map), dim3(threads), stream, map, flat, static_cast<const Space *>(space));
}

} // namespace

extern "C" cudaError_t rcvi_cuda_weights_in(cudaStream_t stream, rcvi_weight_map map, const float *flat, void *space) {
    if (map.count == 0) return cudaSuccess;
    switch (map.type) {
    case RCVI_F32: return in<float>(stream, map, flat, space);
    case RCVI_BF16: return in<__nv_bfloat16>(stream, map, flat, space);
    case RCVI_F16: return in<__half>(stream, map, flat, space);
    default: return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t rcvi_cuda_weights_out(cudaStream_t stream, rcvi_weight_map map, float *flat, const void *space,
                                             bool add) {
    if (map.count == 0) return cudaSuccess;
    switch (map.type) {
    case RCVI_F32: return out<float>(stream, map, flat, space, add);
    case RCVI_BF16: return out<__nv_bfloat16>(stream, map, flat, space, add);
    case RCVI_F16: return out<__half>(stream, map, flat, space, add);
    default: return cudaErrorInvalidValue;
    }
}

/* The interpreter of maps: kernels that need no generated source. */
#include "device/cuda/kernels/interpret.h"

#include <cuda_runtime_api.h>

/* ---- copies from the GPU's memory to shared memory, without waiting ---- */

template <int BYTES> __device__ __forceinline__ void copy_async(void *to, unsigned long long from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

extern __shared__ __align__(16) unsigned char interpret_shared[];

namespace float32 {
#define REAL float
#define REAL_IS_DOUBLE 0
#include "device/cuda/kernels/interpret.cuh"
#undef REAL
#undef REAL_IS_DOUBLE
} // namespace float32

namespace float64 {
#define REAL double
#define REAL_IS_DOUBLE 1
#include "device/cuda/kernels/interpret.cuh"
#undef REAL
#undef REAL_IS_DOUBLE
} // namespace float64

#define KERNELS(NAME, TYPE, COUNT)                                                                                     \
    static __global__ void __launch_bounds__(RCVI_INTERPRET_THREADS)                                                   \
        NAME##_map(const __grid_constant__ TYPE::Arguments<COUNT> c, const __grid_constant__ rcvi_interpreted m) {     \
        TYPE::run_map(c, m, interpret_shared);                                                                         \
    }                                                                                                                  \
    static __global__ void __launch_bounds__(RCVI_INTERPRET_ROW_THREADS)                                               \
        NAME##_rows(const __grid_constant__ TYPE::Arguments<COUNT> c, const __grid_constant__ rcvi_interpreted m) {    \
        TYPE::run_rows(c, m, interpret_shared);                                                                        \
    }

KERNELS(few_float32, float32, RCVI_INTERPRET_FEW_WORDS)
KERNELS(many_float32, float32, RCVI_INTERPRET_WORDS)
KERNELS(few_float64, float64, RCVI_INTERPRET_FEW_WORDS)
KERNELS(many_float64, float64, RCVI_INTERPRET_WORDS)

extern "C" const void *rcvi_interpret_kernel(int is_double, int has_sums, int words) {
    static const void *const kernels[2][2][2] = {
        {{(const void *)few_float32_map, (const void *)many_float32_map},
         {(const void *)few_float32_rows, (const void *)many_float32_rows}},
        {{(const void *)few_float64_map, (const void *)many_float64_map},
         {(const void *)few_float64_rows, (const void *)many_float64_rows}},
    };
    return kernels[is_double != 0][has_sums != 0][words > RCVI_INTERPRET_FEW_WORDS];
}

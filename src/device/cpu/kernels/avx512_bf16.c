/* bfloat16 products of x86-64 with AVX-512 BF16: each lane multiplies a pair of k and adds to a float (VDPBF16PS). */
#if defined(__AVX512BF16__)
#include "device/cpu/kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#include "device/cpu/kernels/bfloat16.h"

#define TYPE bfloat16
#define SCALAR float
#define SOURCE float
#define OPERAND uint32_t
#define ELEMENT uint16_t
#define GROUP 2
#define FILL 2
#define UNIT_BYTES 4
#define BYTES 64
#define ROWS 12
#define STRIP 2
#define STRIPS 2
#define WIDE 6
#define ROUND(x) round_bfloat16(x)
#define IN_VECTOR_REGISTER(x) (void)0
#define MULTIPLY_ADD(sum, x, y)                                                                                        \
    (vector_bfloat16) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_epi32((int)(x)), (__m512bh)(y))
#include "device/cpu/kernels/product.h"

#define SUMS 24
#define REGISTER "v"
#define SMALL 0x38003800u /* 2^-15, twice */
#include "device/cpu/kernels/peak.h"

const rcvi_kernels rcvi_kernels_avx512_bf16 = {
    .name = "avx512-bf16",
    .what = "AVX-512, bfloat16 by VDPBF16PS",
    .products = {[RCVI_KERNEL_BFLOAT16] = {.panel = PANEL,
                                           .grain = LANES,
                                           .group = GROUP,
                                           .pack = pack_bfloat16,
                                           .product = product_bfloat16}},
    .peak = {[RCVI_KERNEL_BFLOAT16] = peak_bfloat16},
};
#else
typedef int rcvi_kernels_avx512_bf16_is_elsewhere;
#endif

/* Kernels of x86-64 with AVX2, FMA and F16C: vectors of 32 bytes, 16 registers. */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#define SET rcvi_kernels_avx2
#define SET_NAME "avx2"
#define SET_WHAT "AVX2 and FMA, vectors of 32 bytes"
#define VECTOR_BYTES 32
#define MAP_BYTES 32
/* Shape of the register tiles: kernels/product.h. */
#define ROWS 6
#define STRIP 2
#define STRIPS 2
#define WIDE 2
#define SUMS 12
#define REGISTER "x"
#define FUSED_FLOAT(sum, x, y) (vector_float) _mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)(y), (__m256)(sum))
#define FUSED_DOUBLE(sum, x, y) (vector_double) _mm256_fmadd_pd(_mm256_set1_pd(x), (__m256d)(y), (__m256d)(sum))
#define FUSED_FLOATS(sum, x, y) _mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(sum))
#define FUSED_DOUBLES(sum, x, y) _mm256_fmadd_pd((__m256d)(x), (__m256d)(y), (__m256d)(sum))
#define SCAN_VECTORS 8
#include "device/cpu/kernels/set.h"
#else
typedef int rcvi_kernels_avx2_is_elsewhere;
#endif

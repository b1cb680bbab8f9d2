/* Kernels of x86-64 with AVX-512: vectors of 64 bytes, 32 registers. */
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>

#define SET rcvi_kernels_avx512
#define SET_NAME "avx512"
#define SET_WHAT "AVX-512 (F, BW, DQ, VL), vectors of 64 bytes"
#define VECTOR_BYTES 64
#define MAP_BYTES 64
/* Shape of the register tiles: kernels/product.h; on Sapphire Rapids the shape does not matter (docs/EXPERIMENTS.md). */
#define ROWS 12
#define STRIP 2
#define STRIPS 2
#define WIDE 6
#define SUMS 24
#define REGISTER "v"
#define FUSED_FLOAT(sum, x, y) (vector_float) _mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)(y), (__m512)(sum))
#define FUSED_DOUBLE(sum, x, y) (vector_double) _mm512_fmadd_pd(_mm512_set1_pd(x), (__m512d)(y), (__m512d)(sum))
#define FUSED_FLOATS(sum, x, y) _mm512_fmadd_ps((__m512)(x), (__m512)(y), (__m512)(sum))
#define FUSED_DOUBLES(sum, x, y) _mm512_fmadd_pd((__m512d)(x), (__m512d)(y), (__m512d)(sum))
#define SCAN_VECTORS 8
#include "device/cpu/kernels/set.h"
#else
typedef int rcvi_kernels_avx512_is_elsewhere;
#endif

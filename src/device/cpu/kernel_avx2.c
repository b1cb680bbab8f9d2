/* x86-64 with AVX2 and FMA: vectors of 32 bytes, 16 registers. */
#if defined(__AVX2__) && defined(__FMA__)
#define SET rcvi_kernels_avx2
#define SET_NAME "avx2"
#define SET_WHAT "AVX2 and FMA, vectors of 32 bytes"
#define VECTOR_BYTES 32
#define ROWS 6
#define STRIP 2
#define STRIPS 2
#define WIDE 2
#define SUMS 12
#define REGISTER "x"
#include "device/cpu/kernel_set.h"
#else
typedef int rcvi_kernels_avx2_is_elsewhere;
#endif

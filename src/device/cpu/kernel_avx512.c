/* x86-64 with AVX-512: vectors of 64 bytes, 32 registers. */
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SET rcvi_kernels_avx512
#define SET_NAME "avx512"
#define SET_WHAT "AVX-512 (F, BW, DQ, VL), vectors of 64 bytes"
#define VECTOR_BYTES 64
#define ROWS 12
#define STRIP 2
#define STRIPS 2
#define WIDE 6
#define SUMS 24
#define REGISTER "v"
#include "device/cpu/kernel_set.h"
#else
typedef int rcvi_kernels_avx512_is_elsewhere;
#endif

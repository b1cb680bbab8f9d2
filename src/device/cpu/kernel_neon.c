/* 64-bit ARM: vectors of 16 bytes, 32 registers. */
#if defined(__aarch64__)
#define SET rcvi_kernels_neon
#define SET_NAME "neon"
#define SET_WHAT "NEON, vectors of 16 bytes"
#define VECTOR_BYTES 16
#define ROWS 6
#define STRIP 4
#define STRIPS 2
#define WIDE 2
#define SUMS 24
#define REGISTER "w"
#include "device/cpu/kernel_set.h"
#else
typedef int rcvi_kernels_neon_is_elsewhere;
#endif

/* The portable kernels: vectors of 16 bytes by the vector extensions of GNU C, for 16 registers. */
#define SET rcvi_kernels_portable
#define SET_NAME "portable"
#define SET_WHAT "C, vectors of 16 bytes"
#define VECTOR_BYTES 16
#define MAP_BYTES 16
/* Shape of the register tiles: kernels/product.h. */
#define ROWS 4
#define STRIP 2
#define STRIPS 2
#define WIDE 2
#define SUMS 12
#if defined(__aarch64__)
#define REGISTER "w"
#elif defined(__x86_64__)
#define REGISTER "x"
#else
#define REGISTER "m"
#endif
#define FUSED_FLOAT(sum, x, y) ((sum) + (x) * (y))
#define FUSED_DOUBLE(sum, x, y) ((sum) + (x) * (y))
#define FUSED_FLOATS(sum, x, y) ((sum) + (x) * (y))
#define FUSED_DOUBLES(sum, x, y) ((sum) + (x) * (y))
#define SCAN_VECTORS 8
#include "device/cpu/kernels/set.h"

/* Kernels of 64-bit ARM: vectors of 16 bytes, 32 registers. */
#if defined(__aarch64__)
#include <arm_neon.h>

#define SET rcvi_kernels_neon
#define SET_NAME "neon"
#define SET_WHAT "NEON, vectors of 16 bytes"
#define VECTOR_BYTES 16
#define MAP_BYTES 16
#define SET_HAS_NEON
/* Shape of the register tiles: kernels/product.h; measured on Neoverse V1 (docs/EXPERIMENTS.md). */
#define ROWS 6
#define STRIP 4
#define STRIPS 2
#define WIDE 2
#define SUMS 24
#define REGISTER "w"
#define FUSED_FLOAT(sum, x, y) (vector_float) vfmaq_n_f32((float32x4_t)(sum), (float32x4_t)(y), x)
#define FUSED_DOUBLE(sum, x, y) (vector_double) vfmaq_n_f64((float64x2_t)(sum), (float64x2_t)(y), x)
#define FUSED_FLOATS(sum, x, y) vfmaq_f32((float32x4_t)(sum), (float32x4_t)(x), (float32x4_t)(y))
#define FUSED_DOUBLES(sum, x, y) vfmaq_f64((float64x2_t)(sum), (float64x2_t)(x), (float64x2_t)(y))
#define SCAN_VECTORS 16
#include "device/cpu/kernels/set.h"
#else
typedef int rcvi_kernels_neon_is_elsewhere;
#endif

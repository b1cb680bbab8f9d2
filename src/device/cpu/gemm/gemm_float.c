/* The reference product in float. */
#include "device/cpu/gemm/gemm.h"

#define REAL float
#define GEMM rcvi_gemm_f32
#include "device/cpu/gemm/gemm_real.h"

/* The reference product in double. */
#include "device/cpu/gemm/gemm.h"

#define REAL double
#define GEMM rcvi_gemm_f64
#include "device/cpu/gemm/gemm_real.h"

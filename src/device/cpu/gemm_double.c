#include "device/cpu/gemm.h"

#define REAL double
#define GEMM rcvi_gemm_f64
#include "device/cpu/gemm_real.h"

#define REAL double
#define MATH(name) name
#define GEMM rcvi_gemm_f64
#define TAKE_STEP rcvi_take_double
#include "device/cpu/engine/step_real.h"

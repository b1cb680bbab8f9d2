#define REAL float
#define MATH(name) name##f
#define GEMM rcvi_gemm_f32
#define TAKE_STEP rcvi_cpu_step_float
#include "device/cpu/step_real.h"

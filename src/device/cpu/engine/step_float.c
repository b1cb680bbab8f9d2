#define REAL float
#define MATH(name) name##f
#define GEMM rcvi_gemm_f32
#define TAKE_STEP rcvi_take_float
#include "device/cpu/engine/step_real.h"

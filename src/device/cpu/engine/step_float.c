/* The reference code of all steps, in float. */
#define REAL float
#define MATH(name) name##f
#define GEMM rcvi_gemm_f32
#define RUN_STEP rcvi_run_step_float
#include "device/cpu/engine/step_real.h"

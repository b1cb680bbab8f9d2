/* The reference code of all steps, in double. */
#define REAL double
#define MATH(name) name
#define GEMM rcvi_gemm_f64
#define RUN_STEP rcvi_run_step_double
#include "device/cpu/engine/step_real.h"

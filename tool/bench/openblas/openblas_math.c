/* The arithmetic of the network on OpenBLAS, in float and double. */
#include "bench/openblas/openblas.h"

#include <string.h>

/* The compiler makes a version for each vector width, and the best one is chosen at run time. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* exp(r) for |r| up to ln 2 / 2, by its series. */
static inline float series_float(float r) {
    float sum = 1.f / 5040;
    sum = sum * r + 1.f / 720;
    sum = sum * r + 1.f / 120;
    sum = sum * r + 1.f / 24;
    sum = sum * r + 1.f / 6;
    sum = sum * r + 1.f / 2;
    sum = sum * r + 1;
    return sum * r + 1;
}

static inline double series_double(double r) {
    double sum = 1. / 6227020800;
    sum = sum * r + 1. / 479001600;
    sum = sum * r + 1. / 39916800;
    sum = sum * r + 1. / 3628800;
    sum = sum * r + 1. / 362880;
    sum = sum * r + 1. / 40320;
    sum = sum * r + 1. / 5040;
    sum = sum * r + 1. / 720;
    sum = sum * r + 1. / 120;
    sum = sum * r + 1. / 24;
    sum = sum * r + 1. / 6;
    sum = sum * r + 1. / 2;
    sum = sum * r + 1;
    return sum * r + 1;
}

/* Before a loop whose iterations do not depend on each other. */
#ifdef __clang__
#define NO_LOOP_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_LOOP_DEPENDENCE _Pragma("GCC ivdep")
#endif

#define REAL float
#define NAME(name) name##_float
#define GEMM openblas()->sgemm
#define BITS int32_t
#define EXPONENT_BIAS 127
#define MANTISSA_BITS 23
#define ROUNDING 12582912.f
#define LOWEST (-87.f)
#define HIGHEST 88.f
#define LN2_HIGH 0.693359375f
#define LN2_LOW (-2.12194440e-4f)
#include "bench/openblas/openblas_real.h"
#undef REAL
#undef NAME
#undef GEMM
#undef BITS
#undef EXPONENT_BIAS
#undef MANTISSA_BITS
#undef ROUNDING
#undef LOWEST
#undef HIGHEST
#undef LN2_HIGH
#undef LN2_LOW

#define REAL double
#define NAME(name) name##_double
#define GEMM openblas()->dgemm
#define BITS int64_t
#define EXPONENT_BIAS 1023
#define MANTISSA_BITS 52
#define ROUNDING 6755399441055744.
#define LOWEST (-708.)
#define HIGHEST 709.
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW 1.90821492927058770002e-10
#include "bench/openblas/openblas_real.h"

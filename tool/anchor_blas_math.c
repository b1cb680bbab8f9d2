/* The network by hand, in both types. */
#include "anchor_blas.h"

#include <cblas.h>
#include <string.h>

/* The compiler makes one version for each width of vectors and the best is taken at run time. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

#define HORNER7(r)                                                                                                     \
    (1 +                                                                                                               \
     r * (1 + r * (1.f / 2 + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r * (1.f / 720 + r * (1.f / 5040))))))))

#define REAL float
#define NAME(name) name##_float
#define GEMM cblas_sgemm
#define BITS int32_t
#define EXPONENT_BIAS 127
#define MANTISSA_BITS 23
#define ROUNDING 12582912.f
#define LOWEST (-87.f)
#define HIGHEST 88.f
#define LN2_HIGH 0.693359375f
#define LN2_LOW (-2.12194440e-4f)
#define SERIES(r) HORNER7(r)
#include "anchor_blas_real.h"
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
#undef SERIES

#define HORNER13(r)                                                                                                    \
    (1 +                                                                                                               \
     r * (1 + r * (1. / 2 +                                                                                            \
                   r * (1. / 6 +                                                                                       \
                        r * (1. / 24 +                                                                                 \
                             r * (1. / 120 +                                                                           \
                                  r * (1. / 720 +                                                                      \
                                       r * (1. / 5040 +                                                                \
                                            r * (1. / 40320 +                                                          \
                                                 r * (1. / 362880 +                                                    \
                                                      r * (1. / 3628800 + r * (1. / 39916800 +                         \
                                                                               r * (1. / 479001600 +                   \
                                                                                    r * (1. / 6227020800))))))))))))))

#define REAL double
#define NAME(name) name##_double
#define GEMM cblas_dgemm
#define BITS int64_t
#define EXPONENT_BIAS 1023
#define MANTISSA_BITS 52
#define ROUNDING 6755399441055744.
#define LOWEST (-708.)
#define HIGHEST 709.
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW 1.90821492927058770002e-10
#define SERIES(r) HORNER13(r)
#include "anchor_blas_real.h"

/* Reference products in portable C: C[m, n] (+)= op(A) op(B), row-major. A is [m, k] ([k, m] when transposed), B is [k, n] ([n, k]
 * when transposed); lda, ldb and ldc are leading dimensions in elements. The order of an element's sum depends only on k and the
 * transpositions, so the bits of a row do not depend on the number of rows. */
#ifndef RCVI_GEMM_H
#define RCVI_GEMM_H

#include <stdbool.h>
#include <stdint.h>

void rcvi_gemm_f32(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                   const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc);
void rcvi_gemm_f64(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda,
                   const double *b, int64_t ldb, bool accumulate, double *c, int64_t ldc);

#endif

/* Elementary functions of float vectors. Included once by each set. Expects MAP_BYTES; SET_HAS_NEON where arm_neon.h is available;
 * immintrin.h where there is AVX-512.
 *
 * Each lane depends on its own input alone. Largest errors, measured over every 509th of all floats, in units of the last place of
 * the result (of the smallest normal number for subnormal results), with and without fused multiply-adds: exp 1.25, sigmoid 2.5,
 * tanh 1.75, log 1, softplus 2 (tests/unit/cpu/test_kernels.c asserts these bounds). exp and sigmoid return subnormal numbers and
 * zero; tanh is exactly -1 or 1 where |x| >= 10; infinities and NaN give the limits of the real functions and NaN. */

typedef float real_vector __attribute__((vector_size(MAP_BYTES)));
typedef int32_t bits_vector __attribute__((vector_size(MAP_BYTES)));
typedef uint32_t count_vector __attribute__((vector_size(MAP_BYTES))); /* unsigned: overflow wraps */

#define SPLAT(x) ((real_vector){0} + (x))

static inline real_vector choose(bits_vector mask, real_vector yes, real_vector no) {
    return (real_vector)((mask & (bits_vector)yes) | (~mask & (bits_vector)no));
}

static inline real_vector magnitude(real_vector x) { return (real_vector)((bits_vector)x & 0x7fffffff); }

/* exp is 0 below and infinity above these. */
#define LEAST_EXPONENT (-104.0f)
#define MOST_EXPONENT 89.0f

#if defined(__AVX512F__) && MAP_BYTES == 64
#include "device/cpu/kernels/functions_avx512.h"
#else
/* Clamps that keep NaN. */
#if defined(SET_HAS_NEON)
static inline real_vector at_least(real_vector x, float least) {
    return (real_vector)vmaxq_f32((float32x4_t)x, vdupq_n_f32(least));
}
static inline real_vector at_most(real_vector x, float most) {
    return (real_vector)vminq_f32((float32x4_t)x, vdupq_n_f32(most));
}
#else
static inline real_vector at_least(real_vector x, float least) { return choose(x < least, SPLAT(least), x); }
static inline real_vector at_most(real_vector x, float most) { return choose(x > most, SPLAT(most), x); }
#endif

/* 2^n for -126 <= n <= 127. */
static inline real_vector power_of_two(bits_vector n) { return (real_vector)(((count_vector)n + 127) << 23); }

/* x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20; returns e^r - 1. */
static inline real_vector reduced_exp(real_vector x, bits_vector *n) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: a number added to it is rounded to an integer */
    real_vector shifted = x * 1.44269504f + shift;
    real_vector whole = shifted - shift;
    *n = (bits_vector)((count_vector)shifted - (count_vector)SPLAT(shift));
    real_vector r = x - whole * 0.693359375f - whole * -2.12194440e-4f; /* ln 2 in two parts; the first of 10 bits */
    real_vector square = r * r; /* two halves of the polynomial, independent of each other */
    real_vector high = r * 1.395062893e-03f + 8.368969895e-03f, low = r * 1.666651815e-01f + 0.5f;
    high = high * r + 4.166620225e-02f;
    return (high * square + low) * square + r;
}

static inline real_vector bounded_exp(real_vector x) {
    bits_vector n;
    real_vector near_one = 1.0f + reduced_exp(x, &n);
    bits_vector half = n >> 1; /* two factors, because 2^n may be subnormal */
    return near_one * power_of_two(half) * power_of_two((bits_vector)((count_vector)n - (count_vector)half));
}

static inline real_vector vector_exp(real_vector x) {
    return bounded_exp(at_most(at_least(x, LEAST_EXPONENT), MOST_EXPONENT));
}

static inline real_vector vector_sigmoid(real_vector x) {
    real_vector e = bounded_exp(at_least(-magnitude(x), LEAST_EXPONENT));
    return choose((bits_vector)x < 0, e, SPLAT(1.0f)) / (1.0f + e);
}

/* m / (m + 2) with m = e^2|x| - 1; where |x| is small, a polynomial. */
static inline real_vector vector_tanh(real_vector x) {
    const bits_vector sign = (bits_vector)x & INT32_MIN;
    real_vector y = magnitude(x), square = y * y;
    bits_vector small = y < 0.55f, n;
    y = at_most(y, 10.0f);
    real_vector m = reduced_exp(y + y, &n), scale = power_of_two(n);
    m = m * scale + (scale - 1.0f);
    real_vector high = square * -6.282463204e-03f + 2.107775025e-02f,
                low = square * 1.333260238e-01f + -3.333331943e-01f;
    high = high * square + -5.385385454e-02f;
    real_vector q = (high * (square * square) + low) * (square * y) + y;
    return (real_vector)((bits_vector)choose(small, q, m / (m + 2.0f)) | sign);
}
#endif

/* For finite x > 0, normal: x = 2^n (1 + f), sqrt 1/2 <= 1 + f < sqrt 2. */
static inline real_vector normal_log(real_vector x, real_vector exponent) {
    const uint32_t root = 0x3f3504f3; /* sqrt 1/2 */
    bits_vector n = (bits_vector)((count_vector)x - root) >> 23;
    real_vector f = (real_vector)((count_vector)x - ((count_vector)n << 23)) - 1.0f;
    exponent += __builtin_convertvector(n, real_vector);
    real_vector q = f * 6.746608019e-02f + -1.167565286e-01f;
    q = q * f + 1.188817844e-01f;
    q = q * f + -1.240558997e-01f;
    q = q * f + 1.421955079e-01f;
    q = q * f + -1.666799635e-01f;
    q = q * f + 2.000211924e-01f;
    q = q * f + -2.500000894e-01f;
    q = q * f + 3.333331347e-01f;
    real_vector square = f * f;
    real_vector rest = q * (square * f) + exponent * -2.12194440e-4f;
    return (rest - square * 0.5f) + f + exponent * 0.693359375f;
}

static inline real_vector vector_log(real_vector x) {
    const float least = 1.17549435e-38f; /* the smallest normal number */
    bits_vector small = x < least;
    real_vector y = normal_log(choose(small, x * 8388608.0f, x), choose(small, SPLAT(-23.0f), SPLAT(0.0f)));
    y = choose(x < INFINITY, y, x); /* the logarithm of infinity and NaN is the argument */
    y = choose(x == 0.0f, SPLAT(-INFINITY), y);
    return choose(x < 0.0f, SPLAT(NAN), y);
}

/* max(x, 0) + log(1 + e), e = exp -|x| <= 1; corrected for the rounding of 1 + e. */
static inline real_vector vector_softplus(real_vector x) {
    real_vector e = vector_exp(-magnitude(x)), sum = 1.0f + e;
    real_vector rest = normal_log(sum, SPLAT(0.0f)) + (e - (sum - 1.0f)) / sum;
    return choose(x > 0.0f, x, SPLAT(0.0f)) + rest;
}

static inline real_vector vector_sqrt(real_vector x) {
    for (size_t lane = 0; lane < MAP_BYTES / sizeof(float); lane++) x[lane] = sqrtf(x[lane]);
    return x;
}

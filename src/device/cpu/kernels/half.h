/* Conversions between vectors of floats and vectors of float16 or bfloat16: to nearest even, NaN stays NaN. Included once by each
 * set. Expects VECTOR_BYTES. */

enum { HALF_LANES = VECTOR_BYTES / 4 };
typedef float half_floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t half_words __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t half_bits __attribute__((vector_size(VECTOR_BYTES / 2)));

static inline half_words half_choose(half_words mask, half_words yes, half_words no) {
    return (mask & yes) | (~mask & no);
}

static inline half_floats from_bfloat16(half_bits x) {
    return (half_floats)(__builtin_convertvector(x, half_words) << 16);
}

static inline half_bits to_bfloat16(half_floats x) {
    half_words bits = (half_words)x, rounded = bits + 0x7fff + (bits >> 16 & 1);
    half_words is_nan = (half_words)((bits & 0x7fffffff) > 0x7f800000);
    return __builtin_convertvector(half_choose(is_nan, bits | 0x400000, rounded) >> 16, half_bits);
}

#if defined(__aarch64__)
#include <arm_neon.h>
static inline half_floats from_float16(half_bits x) { return (half_floats)vcvt_f32_f16((float16x4_t)x); }
static inline half_bits to_float16(half_floats x) { return (half_bits)vcvt_f16_f32((float32x4_t)x); }
#elif defined(__AVX512F__) && VECTOR_BYTES == 64
static inline half_floats from_float16(half_bits x) { return (half_floats)_mm512_cvtph_ps((__m256i)x); }
static inline half_bits to_float16(half_floats x) {
    return (half_bits)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__) && VECTOR_BYTES == 32
static inline half_floats from_float16(half_bits x) { return (half_floats)_mm256_cvtph_ps((__m128i)x); }
static inline half_bits to_float16(half_floats x) {
    return (half_bits)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}
#else
/* Multiplication by 2^112 converts the bias of the exponent, for subnormal numbers too; infinities and NaN have an exponent of
 * all ones in both formats. */
static inline half_floats from_float16(half_bits x) {
    half_words bits = __builtin_convertvector(x, half_words), magnitude = bits & 0x7fff;
    half_words moved = (half_words)((half_floats)(magnitude << 13) * 0x1p112f);
    half_words special = (half_words)(magnitude >= 0x7c00) & 0x7f800000;
    return (half_floats)(moved | special | (bits & 0x8000) << 16);
}

/* Below 2^-14, adding 1/2 rounds to multiples of 2^-24, which are then the last bits. From 65520 on the result is infinite. */
static inline half_bits to_float16(half_floats x) {
    half_words bits = (half_words)x, magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    half_words normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    half_words small = (half_words)((half_floats)magnitude + 0.5f) - 0x3f000000;
    half_words large =
        half_choose((half_words)(magnitude > 0x7f800000), magnitude >> 13 | 0x7e00, magnitude * 0 + 0x7c00);
    half_words value = half_choose((half_words)(magnitude < 113u << 23), small, normal);
    value = half_choose((half_words)(magnitude >= 0x477ff000), large, value);
    return __builtin_convertvector((value & 0x7fff) | sign, half_bits);
}
#endif

/* Scalar conversions between float and float16 (binary16): to nearest even, NaN stays NaN. Without branches, so that loops over them are
 * compiled to vectors. */
#ifndef RCVI_FLOAT16_H
#define RCVI_FLOAT16_H

#include "device/cpu/kernels/bfloat16.h"

static inline uint32_t bits_of_float(float value) {
    union {
        float value;
        uint32_t bits;
    } both = {value};
    return both.bits;
}

/* Multiplication by 2^112 converts the bias of the exponent, for subnormal numbers too; infinities and NaN have an exponent of all ones
 * in both formats. */
static inline float widen_float16(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu, moved = bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f);
    uint32_t special = magnitude >= 0x7c00 ? 0x7f800000u : 0;
    return float_of_bits(moved | special | (uint32_t)(half & 0x8000u) << 16);
}

/* Below 2^-14, adding 1/2 rounds to multiples of 2^-24, which are then the last bits. From 65520 on the result is infinite. */
static inline uint16_t round_float16(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
    uint32_t large = magnitude > 0x7f800000 ? magnitude >> 13 | 0x7e00 : 0x7c00;
    uint32_t result = magnitude < 113u << 23 ? small : normal;
    return (uint16_t)(((magnitude >= 0x477ff000 ? large : result) & 0x7fff) | sign);
}

#endif

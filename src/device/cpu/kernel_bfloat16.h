/* bfloat16 is the upper half of a float. Included once a set. */

static inline float float_of_bits(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
}

/* Nearest, ties to even; a NaN stays one. */
static inline uint16_t round_bfloat16(float x) {
    union {
        float value;
        uint32_t bits;
    } both = {x};
    uint32_t rounded = (both.bits + 0x7fff + (both.bits >> 16 & 1)) >> 16;
    return (uint16_t)((both.bits & 0x7fffffff) > 0x7f800000 ? both.bits >> 16 | 0x40 : rounded);
}

static inline void narrow(int64_t n, const float *from, uint16_t *to) {
    for (int64_t i = 0; i < n; i++) to[i] = round_bfloat16(from[i]);
}

static inline void widen(int64_t n, const uint16_t *from, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = float_of_bits((uint32_t)from[i] << 16);
}

/* Conversions between float and bfloat16, which is the upper half of a float. Included once by each set. */

static inline float float_of_bits(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
}

/* The result is in the upper half: rounded to nearest, ties to even; NaN stays NaN. */
static inline uint32_t rounded_bits(float x) {
    union {
        float value;
        uint32_t bits;
    } both = {x};
    uint32_t rounded = both.bits + 0x7fff + (both.bits >> 16 & 1);
    return x == x ? rounded : both.bits | 0x400000;
}

static inline uint16_t round_bfloat16(float x) { return (uint16_t)(rounded_bits(x) >> 16); }

/* Rounds two numbers; the first is in the lower half of the result. */
static inline uint32_t round_pair(float first, float second) {
    return rounded_bits(first) >> 16 | (rounded_bits(second) & 0xffff0000u);
}

static inline void narrow(int64_t n, const float *from, uint16_t *to) {
    for (int64_t i = 0; i < n; i++) to[i] = round_bfloat16(from[i]);
}

static inline void widen(int64_t n, const uint16_t *from, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = float_of_bits((uint32_t)from[i] << 16);
}

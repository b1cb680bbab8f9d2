/* exp, sigmoid and tanh of MANY vectors at once on 64-bit ARM: almost every instruction of one evaluation depends on the previous
 * one, so several evaluations are interleaved. 2^n is computed by a shift of the bits of a number to which n was added in the last
 * place. */

enum { MANY = 4, MANY_ELEMENTS = 4 * MANY };

#define EACH _Pragma("GCC unroll 8") for (int i = 0; i < MANY; i++)
#define ALL(x) vdupq_n_f32(x)

/* square = r^2 and rest, so that e^(sign r) = 1 + sign r + rest r^2 for |r| <= ln 2 / 2. */
static inline __attribute__((always_inline)) void many_exp_rest(const float32x4_t *r, const int sign,
                                                                float32x4_t *square, float32x4_t *rest) {
    float32x4_t high[MANY];
    EACH square[i] = vmulq_f32(r[i], r[i]);
    EACH high[i] = vfmaq_f32(ALL(8.368969895e-03f), r[i], ALL((float)sign * 1.395062893e-03f));
    EACH rest[i] = vfmaq_f32(ALL(0.5f), r[i], ALL((float)sign * 1.666651815e-01f));
    EACH high[i] =
        sign > 0 ? vfmaq_f32(ALL(4.166620225e-02f), high[i], r[i]) : vfmsq_f32(ALL(4.166620225e-02f), high[i], r[i]);
    EACH rest[i] = vfmaq_f32(rest[i], high[i], square[i]);
}

/* x = n ln 2 + r: replaces x by r; power = 2^(n + more). */
static inline __attribute__((always_inline)) void many_reduce(float32x4_t *x, float factor, int more,
                                                              float32x4_t *power) {
    const float shift = 12582912.0f + 127 + (float)more; /* 1.5 * 2^23, and the bias of the exponent */
    float32x4_t whole[MANY];
    EACH power[i] = vfmaq_f32(ALL(shift), x[i], ALL(factor * 1.44269504f));
    EACH whole[i] = vsubq_f32(power[i], ALL(shift));
    EACH x[i] = vmulq_f32(x[i], ALL(factor));
    EACH x[i] = vfmsq_f32(x[i], whole[i], ALL(0.693359375f));
    EACH x[i] = vfmsq_f32(x[i], whole[i], ALL(-2.12194440e-4f));
    EACH power[i] = vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(power[i]), 23));
}

/* exp of numbers up to 0, in place. 2^n is scaled by 2^64 in between, because it may be subnormal. */
static inline __attribute__((always_inline)) void many_exp(float32x4_t *x) {
    float32x4_t power[MANY], square[MANY], rest[MANY];
    EACH x[i] = vmaxq_f32(x[i], ALL(LEAST_EXPONENT));
    many_reduce(x, 1, 64, power);
    many_exp_rest(x, 1, square, rest);
    EACH x[i] = vfmaq_f32(x[i], rest[i], square[i]);
    EACH x[i] = vfmaq_f32(power[i], power[i], x[i]);
    EACH x[i] = vmulq_f32(x[i], ALL(0x1p-64f));
}

/* 2^n / (2^n + e^-r), where x = n ln 2 + r. 2^n is scaled by 2^64, because it may be subnormal. */
static inline __attribute__((always_inline)) void many_sigmoid(const float *from, float *to) {
    float32x4_t x[MANY], power[MANY], square[MANY], rest[MANY];
    EACH x[i] = vminq_f32(vmaxq_f32(vld1q_f32(from + 4 * i), ALL(LEAST_EXPONENT)), ALL(40.0f));
    many_reduce(x, 1, 64, power);
    many_exp_rest(x, -1, square, rest);
    EACH x[i] = vsubq_f32(ALL(1.0f), vfmsq_f32(x[i], rest[i], square[i]));
    EACH x[i] = vfmaq_f32(x[i], power[i], ALL(0x1p-64f));
    EACH x[i] = vmulq_f32(vdivq_f32(power[i], x[i]), ALL(0x1p-64f));
    EACH vst1q_f32(to + 4 * i, x[i]);
}

static inline __attribute__((always_inline)) void many_tanh(const float *from, float *to) {
    float32x4_t x[MANY], y[MANY], r[MANY], q[MANY], square[MANY], high[MANY], low[MANY];
    EACH x[i] = vld1q_f32(from + 4 * i);
    EACH y[i] = vminq_f32(vabsq_f32(x[i]), ALL(10.0f));
    EACH r[i] = y[i];
    many_reduce(r, 2, 0, q);
    many_exp_rest(r, 1, square, low);
    EACH r[i] = vfmaq_f32(r[i], low[i], square[i]); /* e^r - 1 */
    EACH q[i] = vfmaq_f32(vsubq_f32(q[i], ALL(1.0f)), r[i], q[i]);
    EACH q[i] = vdivq_f32(q[i], vaddq_f32(q[i], ALL(2.0f)));
    EACH square[i] = vmulq_f32(y[i], y[i]);
    EACH high[i] = vfmaq_f32(ALL(2.107775025e-02f), square[i], ALL(-6.282463204e-03f));
    EACH low[i] = vfmaq_f32(ALL(-3.333331943e-01f), square[i], ALL(1.333260238e-01f));
    EACH high[i] = vfmaq_f32(ALL(-5.385385454e-02f), high[i], square[i]);
    EACH low[i] = vfmaq_f32(low[i], high[i], vmulq_f32(square[i], square[i]));
    EACH low[i] = vfmaq_f32(y[i], low[i], vmulq_f32(square[i], y[i]));
    EACH q[i] = vbslq_f32(vcltq_f32(y[i], ALL(0.55f)), low[i], q[i]);
    EACH q[i] = vbslq_f32(vdupq_n_u32(0x80000000u), x[i], q[i]);
    EACH vst1q_f32(to + 4 * i, q[i]);
}

#undef EACH
#undef ALL

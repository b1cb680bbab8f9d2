/* Elements: sums, maxima, and floats as bfloat16. */
#include "comm/parts.h"

#include <string.h>

size_t rcvi_transfer_bytes(rcvi_transfer_type type) {
    static const size_t bytes[] = {[RCVI_TRANSFER_BYTES] = 1, [RCVI_TRANSFER_FLOAT] = 4, [RCVI_TRANSFER_DOUBLE] = 8};
    return bytes[type];
}

static void add_floats(float *restrict sum, const float *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] += more[i];
}

static void add_doubles(double *restrict sum, const double *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] += more[i];
}

/* What is not a number is larger than all that are. */
static void raise_floats(float *restrict most, const float *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) most[i] = more[i] > most[i] || more[i] != more[i] ? more[i] : most[i];
}

static void raise_doubles(double *restrict most, const double *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) most[i] = more[i] > most[i] || more[i] != more[i] ? more[i] : most[i];
}

void rcvi_transfer_combine(rcvi_transfer_kind kind, rcvi_transfer_type type, void *sum, const void *more,
                           int64_t count) {
    bool wide = type == RCVI_TRANSFER_DOUBLE;
    if (kind == RCVI_MAX_ALL && wide) raise_doubles(sum, more, count);
    if (kind == RCVI_MAX_ALL && !wide) raise_floats(sum, more, count);
    if (kind != RCVI_MAX_ALL && wide) add_doubles(sum, more, count);
    if (kind != RCVI_MAX_ALL && !wide) add_floats(sum, more, count);
}

/* ---- bfloat16 ---- */

static inline uint16_t narrow(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
}

static inline float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void rcvi_narrow(uint16_t *restrict to, const float *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = narrow(from[i]);
}

void rcvi_widen(float *restrict to, const uint16_t *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = widen(from[i]);
}

void rcvi_round(float *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) numbers[i] = widen(narrow(numbers[i]));
}

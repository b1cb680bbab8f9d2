/* Operations on elements: sums, maxima, and floats as bfloat16. */
#include "comm/internal.h"

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

/* NaN is larger than every number. */
static void max_floats(float *restrict most, const float *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) most[i] = more[i] > most[i] || more[i] != more[i] ? more[i] : most[i];
}

static void max_doubles(double *restrict most, const double *restrict more, int64_t count) {
    for (int64_t i = 0; i < count; i++) most[i] = more[i] > most[i] || more[i] != more[i] ? more[i] : most[i];
}

void rcvi_transfer_reduce(rcvi_transfer_kind kind, rcvi_transfer_type type, void *sum, const void *more,
                          int64_t count) {
    bool wide = type == RCVI_TRANSFER_DOUBLE;
    if (kind == RCVI_ALL_REDUCE_MAX && wide) max_doubles(sum, more, count);
    if (kind == RCVI_ALL_REDUCE_MAX && !wide) max_floats(sum, more, count);
    if (kind != RCVI_ALL_REDUCE_MAX && wide) add_doubles(sum, more, count);
    if (kind != RCVI_ALL_REDUCE_MAX && !wide) add_floats(sum, more, count);
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

void rcvi_to_bfloat16(uint16_t *restrict to, const float *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = narrow(from[i]);
}

void rcvi_from_bfloat16(float *restrict to, const uint16_t *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = widen(from[i]);
}

void rcvi_round_to_bfloat16(float *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) numbers[i] = widen(narrow(numbers[i]));
}

/* MT19937 (Matsumoto and Nishimura, 1998) with the conversions to uniform numbers of PyTorch's CPU generator. */
#include "base/random.h"

#include <math.h>

enum { WORDS = 624, SHIFT = 397 };

void rcvi_twister_seed(rcvi_twister *twister, uint64_t seed) {
    uint32_t word = (uint32_t)seed;
    twister->state[0] = word;
    for (uint32_t i = 1; i < WORDS; i++) {
        word = UINT32_C(1812433253) * (word ^ (word >> 30)) + i;
        twister->state[i] = word;
    }
    twister->index = WORDS;
}

static void refill(rcvi_twister *twister) {
    uint32_t *state = twister->state;
    for (int i = 0; i < WORDS; i++) {
        uint32_t joined = (state[i] & UINT32_C(0x80000000)) | (state[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
        state[i] = state[(i + SHIFT) % WORDS] ^ (joined >> 1) ^ (joined & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    twister->index = 0;
}

uint32_t rcvi_twister_next(rcvi_twister *twister) {
    if (twister->index >= WORDS) refill(twister);
    uint32_t word = twister->state[twister->index++];
    word ^= word >> 11;
    word ^= (word << 7) & UINT32_C(0x9d2c5680);
    word ^= (word << 15) & UINT32_C(0xefc60000);
    return word ^ (word >> 18);
}

/* PyTorch's builds compute this with a fused multiply-add, on the processors that have one: one rounding. */
float rcvi_uniform_float(rcvi_twister *twister, double from, double to) {
    float low = (float)from, width = (float)to - low;
    float unit = (float)(rcvi_twister_next(twister) & UINT32_C(0xffffff)) * 0x1p-24f;
    return fmaf(unit, width, low);
}

double rcvi_uniform_double(rcvi_twister *twister, double from, double to) {
    double width = to - from;
    uint64_t high = rcvi_twister_next(twister);
    uint64_t bits = high << 32 | rcvi_twister_next(twister);
    double unit = (double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
    return fma(unit, width, from);
}

double rcvi_hash_uniform(uint64_t seed, uint64_t index) {
    return (double)rcvi_hash_bits(rcvi_hash_key(seed), index) * 0x1p-53;
}

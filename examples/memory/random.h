/* Pseudorandom numbers (splitmix64), the same on every machine. */
#ifndef MEMORY_RANDOM_H
#define MEMORY_RANDOM_H

#include <stdint.h>

static inline uint64_t draw_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in low..high. */
static inline double draw_uniform(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(draw_bits(state) >> 11) * 0x1p-53);
}

#endif

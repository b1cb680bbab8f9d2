/* Random numbers: a Mersenne twister whose uniform numbers are those of PyTorch's CPU generator, and a hash for masks.
 */
#ifndef RCVI_RANDOM_H
#define RCVI_RANDOM_H

#include <stdint.h>

typedef struct {
    uint32_t state[624];
    int index;
} rcvi_twister;

void rcvi_twister_seed(rcvi_twister *twister, uint64_t seed);
uint32_t rcvi_twister_next(rcvi_twister *twister);
float rcvi_uniform_float(rcvi_twister *twister, double from, double to);
double rcvi_uniform_double(rcvi_twister *twister, double from, double to);

/* A uniform number in [0, 1) that depends on (seed, index) alone, for masks that are made twice. */
double rcvi_hash_uniform(uint64_t seed, uint64_t index);

#endif

/* Random numbers: a Mersenne twister with the uniform numbers of PyTorch's CPU generator, and a counter-based hash for masks. */
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

/* A uniform number in [0, 1) that depends on (seed, index) only, so that the backward pass can generate the mask of the forward pass again. */
double rcvi_hash_uniform(uint64_t seed, uint64_t index);

/* rcvi_hash_uniform in two parts, for many numbers of one seed: it is rcvi_hash_bits(rcvi_hash_key(seed), index) * 2^-53. */
static inline uint64_t rcvi_hash_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline uint64_t rcvi_hash_key(uint64_t seed) { return rcvi_hash_mix(seed + UINT64_C(0x9e3779b97f4a7c15)); }
static inline uint64_t rcvi_hash_bits(uint64_t key, uint64_t index) {
    return rcvi_hash_mix(key + index * UINT64_C(0x9e3779b97f4a7c15)) >> 11;
}

/* Position of an array [steps, batch, ...] in a larger one: its first step, its first sequence, and the number of sequences of the larger array. `total` 0: the
 * array is the whole. Masks are indexed by rows of the larger array, so that a shard has the masks of the whole. */
typedef struct {
    int64_t time, first, total;
} rcvi_shard;

/* Row of the larger array that row `row` of the shard is; the shard has `batch` sequences. */
static inline int64_t rcvi_shard_row(const rcvi_shard *shard, int64_t batch, int64_t row) {
    return shard->total ? (shard->time + row / batch) * shard->total + shard->first + row % batch : row;
}

#endif

/* A non-cryptographic 64-bit hash for files. Four independent lanes give instruction-level parallelism. Each step is a bijection in the lane and in
 * the word: changing a single word always changes the result. */
#include "base/base.h"

#include <string.h>

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static uint64_t step(uint64_t lane, uint64_t word) {
    return rotate((lane ^ word) * UINT64_C(0x9e3779b97f4a7c15), 31) + UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t word_at(const unsigned char *bytes, size_t length) {
    uint64_t word = 0;
    memcpy(&word, bytes, length < 8 ? length : 8);
    return word;
}

uint64_t rcvi_hash_chunk(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    uint64_t lanes[4] = {hash, hash + 1, hash + 2, hash + 3};
    size_t left = length;
    for (; left >= 32; left -= 32, at += 32) {
        for (int i = 0; i < 4; i++) lanes[i] = step(lanes[i], word_at(at + 8 * i, 8));
    }
    for (int i = 0; left > 0; i++) {
        size_t part = left < 8 ? left : 8;
        lanes[i] = step(lanes[i], word_at(at, part));
        at += part;
        left -= part;
    }
    hash = step(hash, length);
    for (int i = 0; i < 4; i++) hash = step(hash, lanes[i]);
    hash = (hash ^ hash >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

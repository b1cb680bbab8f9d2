/* A part of a sweep. `make check` runs every sweep in full in the release build and a part of it under the sanitizers, where the same
 * work takes four times as long. RECURVE_TEST_PART=K/N in the environment selects part K (from 0) of N; without it a sweep is whole.
 *
 *     size_t index = 0;
 *     for (each case)
 *         if (sample_takes(index++)) check(case);
 *
 * N consecutive indices have one case of each part. Which one that is differs from one such block to the next, so that the cases of a
 * part do not all have the same value of an inner axis. The N parts together are the whole sweep. */
#ifndef RECURVE_SAMPLE_H
#define RECURVE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    size_t part, parts; /* part < parts; 0 of 1: everything */
} sample_part;

/* Reads "K/N"; NULL is everything. A program that is given anything else ends, because it would check something else than asked. */
static inline sample_part sample_parse(const char *text) {
    sample_part part = {0, 1};
    char end;
    if (text && (sscanf(text, "%zu/%zu%c", &part.part, &part.parts, &end) != 2 || part.part >= part.parts)) {
        fprintf(stderr, "RECURVE_TEST_PART is '%s'; it must be K/N with K below N, such as 0/4\n", text);
        exit(2);
    }
    return part;
}

static inline bool sample_part_takes(sample_part part, size_t index) {
    uint64_t mixed =
        (uint64_t)(index / part.parts) * 0x9e3779b97f4a7c15u; /* a different rotation for every block of N */
    return (index + (size_t)(mixed >> 33)) % part.parts == part.part;
}

/* Whether the case with this index belongs to the part that the environment selects. */
static inline bool sample_takes(size_t index) {
    static sample_part part; /* .parts is 0 until the environment was read */
    if (part.parts == 0) part = sample_parse(getenv("RECURVE_TEST_PART"));
    return sample_part_takes(part, index);
}

/* Of a sweep that is a product of axes and too long as a whole: whether it takes this case, one of n. Any n consecutive values of `inner`
 * have one that meets a given `outer`. Give sums of the axes' indices: then every two values of different axes still meet, in the cases of a
 * third axis. The choice is always the same; a part of a sweep is a part of it. */
static inline bool sample_pairs(size_t n, size_t outer, size_t inner) { return (outer + inner) % n == 0; }

/* True where a part of a sweep is asked for, not all of it. */
static inline bool sample_is_partial(void) { return !sample_takes(0) || !sample_takes(1); }

/* What a sweep must have counted at least, where all of it counts `whole`: half of a part's share of that. */
static inline size_t sample_least(size_t whole) {
    size_t parts = sample_parse(getenv("RECURVE_TEST_PART")).parts;
    return parts == 1 ? whole : whole / parts / 2;
}

#endif

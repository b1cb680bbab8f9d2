/* Sequences sorted by their lengths in the device's memory, the longest first and those of one length in their order, as
 * rcvi_cuda_rows_sort does it on the host.
 *
 * A counting sort by one block, in phases with a barrier after each; every phase is a function of one thread, which tests run on the host.
 * Sequences are placed from the last one to the first, a tile of as many as there are threads at a time: each takes the last free place of its
 * length, behind those before it in the tile. That uses up the numbers in `alive`, which are then counted again. */
#ifndef RCVI_SORT_LENGTHS_H
#define RCVI_SORT_LENGTHS_H

#include <stdint.h>

#ifdef __CUDACC__
#define RCVI_OF_THREAD __device__ static inline
#define RCVI_COUNT_ONE(at) ((void)atomicAdd((unsigned long long *)(at), 1ull)) /* in any order: the sum is the same */
#else
#define RCVI_OF_THREAD static inline
#define RCVI_COUNT_ONE(at) ((void)++*(at))
#endif

enum { RCVI_SORT_THREADS = 256 };

typedef struct {
    int64_t steps, batch;
    const int64_t *given; /* [batch] the caller's lengths: outside of 1 .. steps they count as the nearest of these */
    int64_t *lengths;     /* [batch] in the order of rows; without `order`, in that of sequences */
    int64_t *order;       /* [batch] the sequence of each row; NULL: sequences are not sorted */
    int64_t *alive;       /* [steps] sequences that have this step; where sequences are sorted */
} rcvi_sorting;

/* What the threads of the block share. */
typedef struct {
    int64_t sums[RCVI_SORT_THREADS];   /* of each thread's part of the steps */
    int64_t tile[RCVI_SORT_THREADS];   /* lengths of a tile of sequences */
    int64_t places[RCVI_SORT_THREADS]; /* the first place after those that are free for a sequence's length */
} rcvi_sort_shared;

RCVI_OF_THREAD int64_t rcvi_clamp_length(const rcvi_sorting *s, int64_t sequence) {
    int64_t length = s->given[sequence];
    return length < 1 ? 1 : length > s->steps ? s->steps : length;
}

/* Sequences that are not sorted. */
RCVI_OF_THREAD void rcvi_sort_copy(const rcvi_sorting *s, int64_t sequence) {
    if (sequence < s->batch) s->lengths[sequence] = rcvi_clamp_length(s, sequence);
}

/* ---- counting: clear, count, sum_parts, sum ---- */

RCVI_OF_THREAD void rcvi_sort_clear(const rcvi_sorting *s, int thread) {
    for (int64_t t = thread; t < s->steps; t += RCVI_SORT_THREADS) s->alive[t] = 0;
}

/* Sequences whose last step this is. */
RCVI_OF_THREAD void rcvi_sort_count(const rcvi_sorting *s, int thread) {
    for (int64_t b = thread; b < s->batch; b += RCVI_SORT_THREADS)
        RCVI_COUNT_ONE(&s->alive[rcvi_clamp_length(s, b) - 1]);
}

/* The thread's part of the steps begins at thread * rcvi_sort_part. */
RCVI_OF_THREAD int64_t rcvi_sort_part(const rcvi_sorting *s) {
    return (s->steps + RCVI_SORT_THREADS - 1) / RCVI_SORT_THREADS;
}

RCVI_OF_THREAD void rcvi_sort_sum_parts(const rcvi_sorting *s, rcvi_sort_shared *shared, int thread) {
    int64_t part = rcvi_sort_part(s), sum = 0;
    for (int64_t t = thread * part; t < (thread + 1) * part && t < s->steps; t++) sum += s->alive[t];
    shared->sums[thread] = sum;
}

/* Now: sequences that have this step. */
RCVI_OF_THREAD void rcvi_sort_sum(const rcvi_sorting *s, const rcvi_sort_shared *shared, int thread) {
    int64_t part = rcvi_sort_part(s), first = thread * part, sum = 0;
    int64_t end = first + part < s->steps ? first + part : s->steps;
    for (int i = thread + 1; i < RCVI_SORT_THREADS; i++) sum += shared->sums[i];
    for (int64_t t = end - 1; t >= first; t--) s->alive[t] = sum += s->alive[t];
}

/* ---- placing a tile, which begins at sequence `first`: load, place, advance ---- */

RCVI_OF_THREAD void rcvi_sort_load(const rcvi_sorting *s, rcvi_sort_shared *shared, int64_t first, int thread) {
    int64_t length = first + thread < s->batch ? rcvi_clamp_length(s, first + thread) : 0;
    shared->tile[thread] = length;
    shared->places[thread] = length ? s->alive[length - 1] : 0;
}

/* Of the sequences of its length in the tile: those after it. */
RCVI_OF_THREAD int64_t rcvi_sort_after(const rcvi_sort_shared *shared, int thread) {
    int64_t after = 0, length = shared->tile[thread];
    for (int i = thread + 1; i < RCVI_SORT_THREADS; i++) after += shared->tile[i] == length;
    return after;
}

RCVI_OF_THREAD int rcvi_sort_is_first(const rcvi_sort_shared *shared, int thread) {
    int before = 0;
    for (int i = 0; i < thread; i++) before += shared->tile[i] == shared->tile[thread];
    return before == 0;
}

/* The first sequence of a length in the tile leaves its place as the end of those that are free. */
RCVI_OF_THREAD void rcvi_sort_place(const rcvi_sorting *s, const rcvi_sort_shared *shared, int64_t first, int thread) {
    int64_t length = shared->tile[thread];
    if (!length) return;
    int64_t place = shared->places[thread] - 1 - rcvi_sort_after(shared, thread);
    s->order[place] = first + thread;
    s->lengths[place] = length;
    if (rcvi_sort_is_first(shared, thread)) s->alive[length - 1] = place;
}

#undef RCVI_COUNT_ONE
#endif

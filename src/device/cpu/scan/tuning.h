/* Tuned numbers of scans. Measured on two Neoverse N1 cores (64 KB L1 and 1 MB L2 each, 32 MB shared; docs/EXPERIMENTS.md, "Linear
 * recurrences of few channels"). Measure again with `recurve bench --scan`. */
#ifndef RCVI_SCAN_TUNING_H
#define RCVI_SCAN_TUNING_H

enum {
    LINE_BYTES = 64,         /* bytes of a cache line */
    ROW_ALIGN = 128,         /* bytes: alignment of rows of scratch */
    TILE_BYTES = 4096,       /* bytes of an array in a tile: each array is read and written in long sequential runs */
    CHUNK_BYTES = 256 << 10, /* bytes of a and b of a chunk, so that a core's own cache holds them */
    MIN_CHUNK = 16,          /* steps of a chunk */
    MAX_CHUNK = 1024,        /* steps of a chunk */
    GUESSED_CHUNKS = 256,    /* chunks of a guessed scan; at least one chunk of each part of time is computed twice */
    GUESSED_CHUNK_ELEMENTS = 1024, /* elements of such a chunk, at least: a chunk costs a few function calls */
    SHARE_BYTES =
        16 << 10, /* bytes of a row for each thread: the hardware prefetches past the end of a thread's columns */
    COMPOSE_THREADS = 4,    /* threads from which composing chunks pays: each chunk is read and computed twice */
    THREAD_ELEMENTS = 16384 /* elements for each additional thread, at least */
};

#endif

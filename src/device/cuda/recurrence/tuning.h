/* Numbers of scans and recurrences that were found by measurement. How a scan is divided fixes the order of its sums, and so the bits.
 *
 * Measured on one NVIDIA H200 (132 multiprocessors). To measure again: `recurve bench --scan --device cuda` (every form and shape;
 * `scripts/bench-cuda.sh scan` keeps the numbers), `recurve bench --lengths auto --device cuda` and `scripts/bench-layers.sh` (cells).
 * docs/EXPERIMENTS.md, "Linear recurrences on a GPU", has what was tried. */
#ifndef RCVI_CUDA_RECURRENCE_TUNING_H
#define RCVI_CUDA_RECURRENCE_TUNING_H

/* ---- linear scans: scan_source.c ---- */

enum {
    RCVI_TUNED_SCAN_THREADS = 256,     /* of a block */
    RCVI_TUNED_SERIAL_THREADS = 64,    /* of a block of the forms serial and channels */
    RCVI_TUNED_SCAN_ELEMENTS = 32,     /* that a thread holds of each operand in registers */
    RCVI_TUNED_SCAN_STEPS = 16,        /* most steps of a thread: a bit each in a word, and registers for addresses */
    RCVI_TUNED_SCAN_LANES = 16,        /* threads along a row: rows of 256 bytes are read faster than rows of 128 */
    RCVI_TUNED_SCAN_LANES_FEW = 8,     /* where chains are few: tiles are longer, so fewer wait for each other */
    RCVI_TUNED_SCAN_WINDOW = 16,       /* tiles that a block looks back at, where chains are few */
    RCVI_TUNED_SCAN_BLOCKS = 2,        /* of a multiprocessor */
    RCVI_TUNED_SCAN_FEWEST_CHAINS = 2, /* up to here tiles are as large as a multiprocessor holds: */
    RCVI_TUNED_SCAN_FEWEST_THREADS = 512, /* threads of such a block, */
    RCVI_TUNED_SCAN_FEWEST_WINDOW = 32,   /* and tiles that it looks back at */
    RCVI_TUNED_SCAN_MANY_VECTORS = 1024,  /* vectors of channels a multiprocessor from which on the form is channels */
    RCVI_TUNED_SCAN_MANY_CHAINS = 3       /* chains are many from one for so many multiprocessors on */
};

/* ---- scans in waves: scan_source.c, scan_waves.c ---- */

enum {
    RCVI_TUNED_WAVES_AHEAD = 2, /* waves from the effect of a tile to its steps */
    RCVI_TUNED_WAVES_SLOTS = 8, /* waves whose words are kept */
    RCVI_TUNED_WAVES_LOOK = 12, /* words that are requested at once; more members form groups */
    RCVI_TUNED_WAVES_CROWD =
        96, /* members from which on fewer pieces are in flight, since their words share the queues of data */
    RCVI_TUNED_WAVES_BUSY_PART = 3 /* quarters of the multiprocessors that waves must keep busy to be chosen */
};

/* Pieces of shared memory, as rcvi_scan_pieces: as many as it holds, of each of two arrays, then of one. At most 48 KB a
 * multiprocessor are in flight: enough to keep memory busy, few enough not to delay words. */
#define RCVI_TUNED_WAVES_FORWARD                                                                                       \
    { .warps = 1, .steps = 32, .early = 27, .flight = 6, .crowded = 5 }
#define RCVI_TUNED_WAVES_BACKWARD                                                                                      \
    { .warps = 2, .steps = 64, .early = 10, .late = 6, .flight = 3, .crowded = 2 }

/* ---- recurrences of cells: recurrence.c ---- */

enum {
    RCVI_TUNED_RECURRENCE_WORDS = 32, /* words of 4 bytes that a thread of a scan has in flight */
    RCVI_TUNED_NEWTON_THREADS = 256,
    RCVI_TUNED_NEWTON_STEPS = 4,    /* positions of a thread */
    RCVI_TUNED_NEWTON_LANES = 16,   /* threads along a row at most */
    RCVI_TUNED_NEWTON_CHANNELS = 8, /* of a block at least, where vectors allow: 32 bytes of a row */
    RCVI_TUNED_NEWTON_BLOCKS = 2,   /* of a multiprocessor, where there are enough channels */
    RCVI_TUNED_LOOP_THREADS = 64,
    RCVI_TUNED_LOOP_WORDS = 48,     /* words of 4 bytes that a thread of a loop has in flight */
    RCVI_TUNED_LOOP_STEPS = 8,      /* most positions of a thread in flight */
    RCVI_TUNED_LOOP_FULL = 512,     /* threads of a multiprocessor from which on a thread takes several channels */
    RCVI_TUNED_LOOP_POSITIONS = 32, /* of a thread where iterations are independent */
    RCVI_TUNED_SUM_THREADS = 128    /* of a block that adds up the sums of tiles */
};

#endif

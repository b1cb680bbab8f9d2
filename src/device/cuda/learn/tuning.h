/* Numbers of learning on a GPU that were found by measurement. Slices of sums fix their order, and so the bits.
 *
 * Measured on one NVIDIA H200 (132 multiprocessors). To measure again: `recurve bench` does not cover the output layer; train Zaremba's
 * medium and large models (`recurve train --preset`, docs/TRAINING.md) and compare tokens per second; docs/EXPERIMENTS.md has the
 * strips that were tried. Plain C and C++. */
#ifndef RCVI_CUDA_LEARN_TUNING_H
#define RCVI_CUDA_LEARN_TUNING_H

enum {
    /* The output layer: head.cu, head.c. */
    RCVI_TUNED_HEAD_THREADS = 512,    /* of a block of a row, at most */
    RCVI_TUNED_HEAD_AHEAD = 4,        /* independent accesses of a thread in flight */
    RCVI_TUNED_HEAD_BLOCKS = 768,     /* blocks that fill the GPU */
    RCVI_TUNED_HEAD_SLICE_ROWS = 4,   /* rows of a slice at least */
    RCVI_TUNED_HEAD_SLICES = 64,      /* slices of rows at most */
    RCVI_TUNED_HEAD_FEW_CLASSES = 64, /* with fewer classes, dweight is not cut */
    RCVI_TUNED_HEAD_CHUNK = 32 << 20, /* bytes of float32 logits from which on rows are taken in four chunks */

    /* The lean output layer: lean.c. */
    RCVI_TUNED_STRIP = 64,               /* strips are multiples of so many classes */
    RCVI_TUNED_STRIP_BYTES = 28 << 20,   /* bytes of a strip, about; as many again in spare memory */
    RCVI_TUNED_LEAN_WORKSPACE = 8 << 20, /* bytes of workspace at most */

    /* Tables, masks and rounding: learn.cu. The update: update.cu. */
    RCVI_TUNED_TABLE_AHEAD = 4,   /* rows of a thread in flight */
    RCVI_TUNED_ROUND_ROWS = 16,   /* rows of a block */
    RCVI_TUNED_UPDATE_BLOCKS = 8, /* blocks of a multiprocessor */

    /* Copies from the host: learn.c. */
    RCVI_TUNED_RING_HALF = 1 << 20 /* bytes of half of the ring of pinned memory */
};

#endif

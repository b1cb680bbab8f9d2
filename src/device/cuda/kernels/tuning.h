/* Numbers of the fixed kernels that were found by measurement. Slices of sums fix their order, and so the bits.
 *
 * Measured on one NVIDIA H200 (132 multiprocessors). To measure again: `scripts/bench-cuda.sh 'headline|medium|large'`, with
 * RECURVE_ONLY unset; a kernel's own time is seen by nsys or ncu on `recurve bench --device cuda`. Plain C and C++. */
#ifndef RCVI_CUDA_KERNELS_TUNING_H
#define RCVI_CUDA_KERNELS_TUNING_H

enum {
    /* Copies and other elementwise kernels: kernels.cu, move.cu, tile.cu, split.cu. */
    RCVI_TUNED_EACH_BLOCKS = 8192, /* blocks of a launch at most */
    RCVI_TUNED_EACH_WIDE =
        1 << 21,                /* elements from which on a thread writes eight 16-bit elements at once, else four */
    RCVI_TUNED_COPY_PIECES = 4, /* pieces of 16 bytes that a thread has in flight */
    RCVI_TUNED_ADD_ROWS = 4,    /* rows that a thread of rcvi_cuda_store_or_add has in flight */
    RCVI_TUNED_MOVE_SIDE = 64,  /* rows and columns of a tile of a move */
    RCVI_TUNED_TILE_PIECES = 2, /* pieces of 16 bytes of a thread of rcvi_cuda_tile */
    RCVI_TUNED_SPLIT_BLOCKS = 1 << 16, /* blocks of a launch at most */

    /* Sums: reduce.cu. */
    RCVI_TUNED_SUM_ROW = 1024,          /* elements from which on a row is summed by a block, not by a warp */
    RCVI_TUNED_SUM_SLICE_ROWS = 64,     /* rows of a slice at least, where there are several */
    RCVI_TUNED_SUM_SLICES = 128,        /* slices at most */
    RCVI_TUNED_SUM_SLICE_COLUMNS = 128, /* columns of a block, with accesses of 4 elements */
    RCVI_TUNED_SUM_BLOCKS = 1024,       /* blocks that fill the GPU */
    RCVI_TUNED_SUM_FEW_BLOCKS = 64 /* with fewer, latency is the limit: narrower accesses and more blocks are faster */
};

#endif

/* Numbers of the engine and of the kernels of maps that were found by measurement. Tile shapes fix the order of sums, and so the bits.
 *
 * Measured on one NVIDIA H200 (132 multiprocessors). To measure again: `scripts/bench-cuda.sh 'headline|medium|large|layernorm'`, and
 * the rungs one by one with `scripts/bench-cuda.sh ladder`. docs/EXPERIMENTS.md, "Tiles of products on a GPU", has what was tried. */
#ifndef RCVI_CUDA_ENGINE_TUNING_H
#define RCVI_CUDA_ENGINE_TUNING_H

enum {
    /* Multiply-adds from which on a product outside of the time loop is the library's: some microseconds of work. */
    RCVI_TUNED_LIBRARY_PRODUCT = 1 << 28,

    /* Kernels with products: stages of shared memory (6, 8 and 12 differ by 1%); warps that multiply, and warps that copy. */
    RCVI_TUNED_STAGES = 6,
    RCVI_TUNED_CONSUMERS = 8,
    RCVI_TUNED_PRODUCERS = 4,
    /* Columns of all products of a tile: of 64 rows on tensor cores, and of any other tile. */
    RCVI_TUNED_TILE_COLUMNS_WIDE = 128,
    RCVI_TUNED_TILE_COLUMNS = 64,
    /* Blocks that a tile's width must leave, in quarters of the number of multiprocessors: in general, and for tiles of 32 rows on
     * tensor cores, whose time is that of reading weights. */
    RCVI_TUNED_LEAST_BLOCKS = 3,
    RCVI_TUNED_LEAST_BLOCKS_FEW_ROWS = 1,

    /* Maps with sums over features: threads of a block, where vectors allow; two blocks then fit a multiprocessor. */
    RCVI_TUNED_ROW_THREADS = 256,

    /* Elements of the largest copy, or fill with zeros, that shares a launch with others. */
    RCVI_TUNED_SHARED_MOVE = 1 << 18,

    /* Launches in all graphs of a run: one takes 5.5 KB of the GPU's memory and 6 KB of the host's. */
    RCVI_TUNED_GRAPH_NODES = 4096
};

#endif

/* Tuned numbers of the persistent kernels: all of them, with unit and source.
 *
 * All were measured on an NVIDIA H200 (compute capability 9.0, 132 processors, 227 KB of shared memory a block). After changing one,
 * measure again with `scripts/bench-cuda.sh PATTERN`, which runs `recurve bench` on the shapes of its table and writes
 * bench/results/cuda-NVIDIA-H200.json; the column PATTERN names the rows that react most. Times of single instructions and of an exchange
 * between blocks come from microbenchmarks; docs/EXPERIMENTS.md has their tables. `git log -S NAME` finds the commit of an older value by
 * the name that it had then.
 *
 *   value                        PATTERN         what it decides
 *   ALTERNATING_*, *_SLICE       wide|large      whether a slice is cut into two tiles that alternate
 *   *_REGISTERS                  headline|single how many weights stay in registers (ptxas must not spill)
 *   RING_*, GROUP_*, STREAM_*    headline|large  bytes of shared memory for copies of operands
 *   COST_*                       wide|large      the depth split, by a model of one iteration
 *   CLUSTER_*                    single          size and depth split of clusters, by a model of one iteration */
#ifndef RCVI_CUDA_PERSISTENT_TUNING_H
#define RCVI_CUDA_PERSISTENT_TUNING_H

enum {
    /* ---- tiles: rows of the batch ---- */
    RCVI_TUNED_TILE_ROWS = 64,              /* most rows of a tile: wgmma of 64 columns runs at the full rate */
    RCVI_TUNED_SPLIT_COLUMNS = 96,          /* most columns of an MMA (rows of a tile times depth splits) */
    RCVI_TUNED_CLUSTER_COLUMNS = 64,        /* the same for one pipe of a cluster's block */
    RCVI_TUNED_ALTERNATING_ROWS = 32,       /* least rows of each of two tiles that alternate */
    RCVI_TUNED_ALTERNATING_SPLIT_ROWS = 16, /* the same where depth is split */
    RCVI_TUNED_WARP_MMA_SLICE = 24,         /* most rows of a slice that is cut into tiles of 8 rows, which alternate */
    RCVI_TUNED_POLLING_BLOCKS = 64, /* most blocks both of whose copy threads poll the same counter, tiles of 8 rows */
    RCVI_TUNED_ROW_SPAN = 16,       /* most elements of a row that a thread has in a map by rows */
    RCVI_TUNED_DEPTH_SPLITS = 8,    /* most depth splits; in a cluster RCVI_TUNED_CLUSTER_SPLITS */
    RCVI_TUNED_CLUSTER_SPLITS = 16,

    /* ---- registers of a thread ---- */
    RCVI_TUNED_MMA_REGISTERS = 216,           /* of a thread that multiplies and computes maps (setmaxnreg) */
    RCVI_TUNED_MMA_ONLY_REGISTERS = 184,      /* of one that only multiplies: a map warpgroup has the maps */
    RCVI_TUNED_CLUSTER_REGISTERS = 240,       /* of a thread of a cluster's block, which has 256 threads */
    RCVI_TUNED_CLUSTER_EXACT_REGISTERS = 255, /* the same with float32 FMA, where weights in shared memory cost time */
    RCVI_TUNED_OTHER_REGISTERS = 44,          /* for everything but weights, sums and what maps read */
    RCVI_TUNED_MMA_ONLY_OTHER_REGISTERS = 30, /* the same in a thread that only multiplies */
    RCVI_TUNED_EXACT_REGISTERS = 16,          /* for operands of FMA, besides the sums */
    RCVI_TUNED_WARP_MMA_REGISTERS = 24,       /* for sums and operands of mma.sync */
    RCVI_TUNED_WARP_MMA_PART_REGISTERS = 64,  /* the same where a float32 is three bfloat16 */

    /* ---- bytes of shared memory ---- */
    RCVI_TUNED_RING_BYTES = 48 << 10,             /* a pipe's ring gains nothing from more */
    RCVI_TUNED_RING_STEP_BYTES = 16 << 10,        /* differences below this do not show in a time step */
    RCVI_TUNED_ALTERNATING_RING_BYTES = 32 << 10, /* least ring of a pipe for tiles that alternate */
    RCVI_TUNED_GROUP_BYTES = 16 << 10,            /* most bytes of one bulk copy */
    RCVI_TUNED_STREAM_GROUP_BYTES = 32 << 10,     /* the same where it also brings weights */
    RCVI_TUNED_STREAM_RING_BYTES = 34 << 10       /* least ring of a pipe that streams weights, if there is so much */
};

/* ---- model of an iteration, in cycles ---- */

#define RCVI_TUNED_COST_WARP_MMA 8.7          /* an mma.sync of one pipe while both multiply; one warp alone: 17 */
#define RCVI_TUNED_COST_WGMMA_COLUMN 0.53     /* a wgmma, for each of its columns */
#define RCVI_TUNED_COST_LEAST_WGMMA 13.0      /* a wgmma of 16 columns or fewer */
#define RCVI_TUNED_COST_STREAMED_CHUNK 150.0  /* a chunk of weights that is copied in every time step */
#define RCVI_TUNED_COST_BLOCK 4.0             /* a block that increments the counter */
#define RCVI_TUNED_COST_L2_BYTES 2600.0       /* bytes a cycle from the L2 cache to all processors */
#define RCVI_TUNED_COST_SMALL_L2_BYTES 9000.0 /* the same for tiles of 8 rows, whose copies are mostly hidden */
#define RCVI_TUNED_CLUSTER_LEAST_WGMMA 17.0   /* in a cluster: a wgmma of 32 columns or fewer */
#define RCVI_TUNED_CLUSTER_NETWORK_BYTES 16.0 /* bytes a cycle that a block receives from its cluster */
#define RCVI_TUNED_CLUSTER_SHARED_BYTES 128.0 /* bytes a cycle that a processor reads from its shared memory */

/* Clusters of 16, 8, 4 blocks that an H200 of 132 processors runs at once (cudaOccupancyMaxActiveClusters); of 2 blocks: 66. */
enum {
    RCVI_TUNED_CLUSTERS_OF_16 = 7,
    RCVI_TUNED_CLUSTERS_OF_8 = 15,
    RCVI_TUNED_CLUSTERS_OF_4 = 30,
    RCVI_TUNED_PROCESSORS = 132
};

#endif

/* Tuned numbers of the CPU engine. The machines are those of docs/EXPERIMENTS.md: Xeon, a Sapphire Rapids core (48 KB L1, 2 MB L2);
 * ARM, a Neoverse V1 core (64 KB L1, 1 MB L2). A number without a machine has no recorded measurement. Measure again with
 * scripts/bench-cpu.sh, which times whole networks. */
#ifndef RCVI_ENGINE_TUNING_H
#define RCVI_ENGINE_TUNING_H

enum {
    /* Blocks of a map with products (map.c). */
    TILE_ELEMENTS = 4096, /* elements of a product of a block, at most (or one panel of columns) */
    MIN_ROWS = 24,        /* rows of a block, at least, where the map has so many */
    MAX_ROWS = 192,       /* rows of a block, at most */
    MAX_COLUMNS_BEYOND_CACHE =
        256,             /* columns of a block, at most, where the matrices exceed half of a core's cache (Xeon) */
    SCRATCH_ALIGN = 128, /* bytes: alignment of areas of the scratch, two cache lines */

    /* Left operands are packed (map_product.c) for products of at least so many rows and panels (ARM: the forward pass of the
     * headline shape went from 76% to 81% of the peak). */
    PACK_MIN_ROWS = 12,
    PACK_MIN_PANELS = 4,

    /* Elements of a scratch slot of a map's instructions (compile.c). With 1,024 instead of 512 elements, forward passes take
     * 0-3% and training 2-5% less time on the Xeon, the same time on ARM. Maps of more than MANY_SLOTS slots have shorter ones,
     * so that all slots together take less cache. */
    SLOT_ELEMENTS = 1024,
    SLOT_ELEMENTS_MANY = 256,
    MANY_SLOTS = 20
};

#endif

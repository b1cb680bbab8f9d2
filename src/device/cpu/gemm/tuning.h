/* Block sizes of large products (matmul.c). Measured on a Sapphire Rapids core (48 KB L1, 2 MB L2) and a Neoverse V1 core (64 KB
 * L1, 1 MB L2) where docs/EXPERIMENTS.md names them; the other numbers have no recorded measurement. Measure again with
 * `recurve bench --gemm`. */
#ifndef RCVI_GEMM_TUNING_H
#define RCVI_GEMM_TUNING_H

enum {
    LINE_BYTES = 64,
    DEPTH_BYTES =
        2048, /* bytes of one column of a block of k (KC); 4 KB: 14-20% slower for gradients (Sapphire Rapids) */
    COLUMN_BYTES = 1 << 20,   /* bytes of a packed block of b (KC times NC) */
    BLOCK_ROWS = 48,          /* rows of a block of a (MC) */
    ROUNDED_ROWS = 128,       /* rows of a block of a that is rounded to bfloat16 */
    KEPT_BYTES = 5 << 18,     /* bytes of all rounded rows of a, at most, to keep them for all blocks of columns */
    ROW_UNIT = 8,             /* rows are divided among threads and blocks at multiples of this */
    ROUNDED_UNIT = 32,        /* the same for blocks of rounded rows */
    UNPACKED_ROWS = 8,        /* rows, at most, to read b unpacked */
    TRANSPOSED_COLUMNS = 256, /* columns of a block of c where c^T is computed */
    COPY_PANELS = 4,          /* a is packed if it is multiplied with at least so many panels; 2: no gain */
    PACK_COST = 8             /* time to pack an element, in multiply-adds, for the division among threads */
};

#endif

/* Transposition of bfloat16, and of float with rounding to bfloat16. Included once by each set, after kernels/product.h for bfloat16
 * with groups of two k, whose units (pairs) it moves. */

enum { NARROW_PAIRS = 16, NARROW_ROWS = 256 }; /* pairs of k and rows of a block; a block stays in L1 */
enum { NARROW_AHEAD = 16 };                    /* prefetch distance, in k */

/* pairs[p, i] = elements 2 p and 2 p + 1 of row i, for `rows` rows; zero from `depth` on. */
static void narrow_pairs(int64_t rows, int64_t depth, const float *from, int64_t from_row,
                         unit_bfloat16 pairs[][NARROW_ROWS]) {
    for (int64_t k = 0; k < 2 * NARROW_PAIRS; k += 2) {
        unit_bfloat16 *to = pairs[k / 2];
        for (int64_t ahead = k + NARROW_AHEAD; ahead < k + NARROW_AHEAD + 2 && ahead < depth; ahead++) {
            for (int64_t i = 0; i < rows; i += 16) __builtin_prefetch(from + ahead * from_row + i);
        }
        const float *first = from + (k < depth ? k : 0) * from_row;
        if (k + 1 < depth) {
            for (int64_t i = 0; i < rows; i++) to[i] = round_pair(first[i], first[i + from_row]);
        } else {
            for (int64_t i = 0; i < rows; i++) to[i] = k < depth ? round_pair(first[i], 0) : 0;
        }
    }
}

/* As narrow_pairs, from bfloat16. */
static void join_pairs(int64_t rows, int64_t depth, const uint16_t *from, int64_t from_row,
                       unit_bfloat16 pairs[][NARROW_ROWS]) {
    for (int64_t k = 0; k < 2 * NARROW_PAIRS; k += 2) {
        unit_bfloat16 *to = pairs[k / 2];
        for (int64_t ahead = k + NARROW_AHEAD; ahead < k + NARROW_AHEAD + 2 && ahead < depth; ahead++) {
            for (int64_t i = 0; i < rows; i += 32) __builtin_prefetch(from + ahead * from_row + i);
        }
        const uint16_t *first = from + (k < depth ? k : 0) * from_row;
        if (k + 1 < depth) {
            for (int64_t i = 0; i < rows; i++) to[i] = first[i] | (uint32_t)first[i + from_row] << 16;
        } else {
            for (int64_t i = 0; i < rows; i++) to[i] = k < depth ? first[i] : 0;
        }
    }
}

static void transpose_pairs(int64_t rows, unit_bfloat16 pairs[][NARROW_ROWS], unit_bfloat16 *to, int64_t to_row) {
    int64_t i = 0;
    for (; i + UNITS <= rows; i += UNITS) {
        for (int p = 0; p < NARROW_PAIRS; p += UNITS)
            transpose_bfloat16(&pairs[p][i], NARROW_ROWS, to + i * to_row + p, to_row);
    }
    for (; i < rows; i++) {
        for (int p = 0; p < NARROW_PAIRS; p++) to[i * to_row + p] = pairs[p][i];
    }
}

/* `from` is bfloat16 where is_narrow, else float. */
static inline __attribute__((always_inline)) void transpose_rows(int64_t rows, int64_t depth, const void *from,
                                                                 const bool is_narrow, int64_t from_row, uint16_t *to,
                                                                 int64_t to_row) {
    unit_bfloat16 pairs[NARROW_PAIRS][NARROW_ROWS] __attribute__((aligned(64)));
    for (int64_t row = 0; row < rows; row += NARROW_ROWS) {
        int64_t count = rows - row < NARROW_ROWS ? rows - row : NARROW_ROWS;
        for (int64_t k = 0; k < depth; k += 2 * NARROW_PAIRS) {
            if (is_narrow)
                join_pairs(count, depth - k, (const uint16_t *)from + k * from_row + row, from_row, pairs);
            else
                narrow_pairs(count, depth - k, (const float *)from + k * from_row + row, from_row, pairs);
            transpose_pairs(count, pairs, (unit_bfloat16 *)(to + row * to_row + k), to_row / 2);
        }
    }
}

static void narrow_transposed(int64_t rows, int64_t depth, const float *from, int64_t from_row, uint16_t *to,
                              int64_t to_row) {
    transpose_rows(rows, depth, from, false, from_row, to, to_row);
}

static void transpose_narrow(int64_t rows, int64_t depth, const uint16_t *from, int64_t from_row, uint16_t *to,
                             int64_t to_row) {
    transpose_rows(rows, depth, from, true, from_row, to, to_row);
}

/* Packing of the right operand b for one type: the first part of kernels/product.h, which lists the macros that this expects and
 * defines the layout of a panel. */

/* A unit: GROUP consecutive elements (k) of a column, UNIT_BYTES bytes, which are moved together. */
#if UNIT_BYTES == 4
typedef uint32_t NAME(unit) __attribute__((may_alias));
#else
typedef uint64_t NAME(unit) __attribute__((may_alias));
#endif
#define UNITS (BYTES / UNIT_BYTES)
typedef NAME(unit) NAME(units) __attribute__((vector_size(BYTES)));
typedef NAME(unit) NAME(loose_units) __attribute__((vector_size(BYTES), aligned(UNIT_BYTES), may_alias));

/* Shuffles that interleave the lower, or the upper, halves of two vectors. */
#if UNITS == 2
#define LOWER 0, 2
#define UPPER 1, 3
#elif UNITS == 4
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#elif UNITS == 8
#define LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (NAME(units)){__VA_ARGS__})
#endif

/* One step of a transposition of UNITS vectors of UNITS lanes. Interleaving vectors i and i + UNITS / 2 rotates the bits of the
 * index (row, lane) by one position; after log2(UNITS) steps rows and lanes are exchanged. */
#define SHUFFLE_ROWS(from, to)                                                                                         \
    _Pragma("GCC unroll 16") for (int i = 0; i < UNITS / 2; i++) {                                                     \
        (to)[2 * i] = SHUFFLE((from)[i], (from)[i + UNITS / 2], LOWER);                                                \
        (to)[2 * i + 1] = SHUFFLE((from)[i], (from)[i + UNITS / 2], UPPER);                                            \
    }

/* to[UNITS, UNITS] = from[UNITS, UNITS] transposed. */
static inline __attribute__((always_inline)) void NAME(transpose)(const NAME(unit) * from, int64_t from_row,
                                                                  NAME(unit) * to, int64_t to_row) {
    NAME(units) x[UNITS], y[UNITS];
    _Pragma("GCC unroll 16") for (int i = 0; i < UNITS; i++) x[i] = *(const NAME(loose_units) *)(from + i * from_row);
    SHUFFLE_ROWS(x, y)
#if UNITS == 2
    _Pragma("GCC unroll 16") for (int i = 0; i < UNITS; i++) x[i] = y[i];
#else
    SHUFFLE_ROWS(y, x)
#endif
#if UNITS >= 8
    SHUFFLE_ROWS(x, y)
#if UNITS >= 16
    SHUFFLE_ROWS(y, x)
#else
    _Pragma("GCC unroll 16") for (int i = 0; i < UNITS; i++) x[i] = y[i];
#endif
#endif
    _Pragma("GCC unroll 16") for (int i = 0; i < UNITS; i++) * (NAME(loose_units) *)(to + i * to_row) = x[i];
}

enum { NAME(pack_block) = 32 }; /* k of a block, a multiple of GROUP: a block of a strip stays in L1 */

/* Packs GROUP rows of a strip, interleaved. */
static inline __attribute__((always_inline)) void NAME(pack_rows)(const SOURCE *restrict from, int64_t step,
                                                                  ELEMENT *restrict to) {
#if GROUP == 1
    (void)step;
    for (int j = 0; j < WIDTH; j++) to[j] = from[j];
#else /* bfloat16 */
    typedef uint32_t pair __attribute__((may_alias));
    pair *pairs = (pair *)to;
    for (int j = 0; j < WIDTH; j++) {
        pairs[j * (GROUP / 2)] = round_pair(from[j], from[step + j]);
        if (GROUP == 4) pairs[j * 2 + 1] = round_pair(from[2 * step + j], from[3 * step + j]);
    }
#endif
}

/* Packs one block of k of a strip whose rows are contiguous in memory; pads up to `filled` steps with zeros. */
static void NAME(pack_along)(int64_t columns, int64_t steps, int64_t filled, const SOURCE *from, int64_t step,
                             ELEMENT *to) {
    int64_t whole = columns == WIDTH ? steps / GROUP * GROUP : 0;
    for (int64_t k = 0; k < whole; k += GROUP) NAME(pack_rows)(from + k * step, step, to + k * WIDTH);
    for (int64_t k = whole; k < filled; k += GROUP) {
        SOURCE rows[GROUP][WIDTH];
        for (int g = 0; g < GROUP; g++) {
            for (int64_t j = 0; j < WIDTH; j++)
                rows[g][j] = j < columns && k + g < steps ? from[(k + g) * step + j] : 0;
        }
        NAME(pack_rows)(rows[0], WIDTH, to + k * WIDTH);
    }
}

/* Packs one block of k of a strip whose columns are contiguous: copies column by column, then transposes. */
static void NAME(pack_across)(int64_t columns, int64_t steps, int64_t filled, const SOURCE *from, int64_t step,
                              int64_t column, ELEMENT *to) {
    ELEMENT block[WIDTH][NAME(pack_block)] __attribute__((aligned(64)));
    const int64_t row = NAME(pack_block) / GROUP;
    for (int64_t j = 0; j < WIDTH; j++) {
        int64_t valid = j < columns ? steps : 0;
        const SOURCE *source = j < columns ? from + j * column : from;
        if (step == 1 && valid == NAME(pack_block)) {
            for (int k = 0; k < NAME(pack_block); k++) block[j][k] = ROUND(source[k]);
            continue;
        }
        for (int64_t k = 0; k < NAME(pack_block); k++) block[j][k] = k < valid ? ROUND(source[k * step]) : 0;
    }
    const NAME(unit) *in = (const void *)block;
    NAME(unit) *out = (void *)to;
    int64_t u = 0;
    for (; u + UNITS <= filled / GROUP; u += UNITS) {
        for (int64_t j = 0; j < WIDTH; j += UNITS) NAME(transpose)(in + j * row + u, row, out + u * WIDTH + j, WIDTH);
    }
    for (; u < filled / GROUP; u++) {
        for (int64_t j = 0; j < WIDTH; j++) out[u * WIDTH + j] = in[j * row + u];
    }
}

/* Packs the block of k that begins at `begin`, of a strip of `columns` valid columns. */
static void NAME(pack_block_of)(int64_t columns, int64_t depth, int64_t begin, const SOURCE *from, int64_t step,
                                int64_t column, ELEMENT *to) {
    int64_t filled = (depth + FILL - 1) / FILL * FILL - begin, steps = depth - begin;
    if (filled > NAME(pack_block)) filled = NAME(pack_block);
    if (steps > NAME(pack_block)) steps = NAME(pack_block);
    if (column == 1) {
        NAME(pack_along)(columns, steps, filled, from + begin * step, step, to + begin * WIDTH);
    } else {
        NAME(pack_across)(columns, steps, filled, from + begin * step, step, column, to + begin * WIDTH);
    }
}

/* Blocks are packed in the order in which they lie in memory. */
static void NAME(pack)(int64_t columns, int64_t depth, const void *from, int64_t step, int64_t column, int64_t first,
                       int64_t end, void *to) {
    const SOURCE *source = from;
    int64_t filled = (depth + FILL - 1) / FILL * FILL;
    int64_t blocks = (depth + NAME(pack_block) - 1) / NAME(pack_block), strips = (end - first) * STRIPS;
    for (int64_t i = 0; i < blocks * strips; i++) {
        int64_t block = column == 1 ? i / strips : i % blocks, strip = column == 1 ? i % strips : i / blocks;
        int64_t j = (first * STRIPS + strip) * WIDTH;
        int64_t valid = columns - j < 0 ? 0 : columns - j < WIDTH ? columns - j : WIDTH;
        NAME(pack_block_of)
        (valid, depth, block * NAME(pack_block), valid ? source + j * column : source, step, column,
         (ELEMENT *)to + j * filled);
    }
}

#undef SHUFFLE_ROWS
#undef SHUFFLE
#undef LOWER
#undef UPPER

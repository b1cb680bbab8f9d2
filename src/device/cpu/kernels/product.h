/* Packing and products of one type, from one template of a register tile. Included once a type, without a guard on purpose.
 * Expects
 *
 *   TYPE          the suffix of all names
 *   SCALAR        type of an element of c, and of the accumulators
 *   SOURCE        type of an element of the matrix that is packed
 *   OPERAND       type of one step over k: GROUP elements of a row of a, and as many of a column of b
 *   GROUP, FILL   k is packed in groups of GROUP, and padded with zeros to a multiple of FILL
 *   UNIT_BYTES    bytes of a group
 *   BYTES         bytes of a vector
 *   ROWS, STRIP   the register tile: at most ROWS rows (4, 6 or 12) times STRIP vectors of columns (2 or 4; a strip)
 *   STRIPS, WIDE  strips in a panel; for at most WIDE rows (2 or 6) one tile covers all strips of a panel
 *   MULTIPLY_ADD  (sum, one operand of a, a vector of operands of b)
 *   ROUND         SOURCE to ELEMENT, the type of an element of a packed matrix
 *
 * A packed panel is [STRIPS][depth / GROUP][STRIP * LANES columns][GROUP]. */

#define JOIN_(x, y) x##_##y
#define JOIN(x, y) JOIN_(x, y)
#define NAME(x) JOIN(x, TYPE)
#define LANES ((int)(BYTES / sizeof(SCALAR)))
#define WIDTH (STRIP * LANES)
#define PANEL (STRIPS * WIDTH)

typedef SCALAR NAME(vector) __attribute__((vector_size(BYTES)));
typedef SCALAR NAME(loose_vector) __attribute__((vector_size(BYTES), aligned(sizeof(SCALAR)), may_alias));
typedef OPERAND NAME(operands) __attribute__((vector_size(BYTES)));
typedef OPERAND NAME(loose_operands) __attribute__((vector_size(BYTES), aligned(sizeof(OPERAND)), may_alias));
typedef OPERAND NAME(operand) __attribute__((may_alias));

#include "device/cpu/kernels/pack.h"

#ifndef PACK_ONLY

/* ---- register tiles ------------------------------------------------------------------------------------------------------- */

/* Arguments of a microkernel. All lanes of all vectors but the last are stored; of the last one, lanes skip .. valid - 1. */
typedef struct {
    int64_t depth; /* k, in operands */
    const NAME(operand) * a;
    int64_t a_stride; /* leading dimension: from row to row, or, where a is transposed, from k to k */
    int64_t k;        /* number of k before this block, where a is packed */
    const NAME(operand) * b;
    int64_t b_step, b_strip; /* from k to k, and from a strip to the next */
    const SCALAR *start;     /* initial values of the sums, or NULL: zeros */
    int64_t start_row;
    SCALAR *c;
    int64_t c_row;
    int skip, valid;
    const char *next; /* prefetch address: each step prefetches a line here and one next_half bytes further */
    int64_t next_step, next_half; /* bytes */
} NAME(job);

/* Copy the last, partial vector of each row between memory and a buffer of whole vectors. */
static __attribute__((noinline)) void NAME(load_part)(const NAME(job) * job, int rows, const SCALAR *c, SCALAR *sums) {
    for (int i = 0; i < rows; i++, c += job->start_row, sums += LANES) {
        for (int l = 0; l < LANES; l++) sums[l] = l >= job->skip && l < job->valid ? c[l] : 0;
    }
}

static __attribute__((noinline)) void NAME(store_part)(const NAME(job) * job, int rows, SCALAR *c, const SCALAR *sums) {
    for (int i = 0; i < rows; i++, c += job->c_row, sums += LANES) {
        for (int l = job->skip; l < job->valid; l++) c[l] = sums[l];
    }
}

/* One step over k: `rows` operands of a times `vectors` vectors of b. */
#define STEP_OVER_K(k)                                                                                                 \
    do {                                                                                                               \
        NAME(operands) y[STRIP * STRIPS];                                                                              \
        _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) {                                                   \
            y[v] = *(const NAME(loose_operands) *)(b + (k)*b_step + v / STRIP * b_strip + v % STRIP * LANES);          \
        }                                                                                                              \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) {                                                      \
            OPERAND x = (a[i / 3] + i % 3 * a_row)[(k)*a_step];                                                        \
            IN_VECTOR_REGISTER(x);                                                                                     \
            _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) {                                               \
                sums[i][v] = MULTIPLY_ADD(sums[i][v], x, y[v]);                                                        \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
/* Advances the addresses once for several steps, each in one register: any other instruction uses an issue slot that a
 * multiply-add could use. */
#define ADVANCE_ROWS(group, steps)                                                                                     \
    if (rows > 3 * (group)) {                                                                                          \
        a[group] += (steps)*a_step;                                                                                    \
        __asm__("" : "+r"(a[group]));                                                                                  \
    }
#define ADVANCE(steps)                                                                                                 \
    do {                                                                                                               \
        b += (steps)*b_step;                                                                                           \
        __asm__("" : "+r"(b));                                                                                         \
        ADVANCE_ROWS(0, steps)                                                                                         \
        ADVANCE_ROWS(1, steps)                                                                                         \
        ADVANCE_ROWS(2, steps)                                                                                         \
        ADVANCE_ROWS(3, steps)                                                                                         \
    } while (0)

/* Loops over the fewest tiles of at most `most` rows each, of nearly equal size, larger ones first; `count` is the rows of one. */
#define EACH_TILE(rows, most, count)                                                                                   \
    for (int64_t tiles = ((rows) + (most)-1) / (most), fewer = (rows) / tiles, tile_index = 0, count;                  \
         tile_index < tiles && ((count) = fewer + (tile_index < (rows)-fewer * tiles), true); tile_index++)

/* Packed a: [tile][depth][rows of the tile]. kernels/product_neon.h has a layout of its own. */
#if defined(SET_HAS_NEON) && GROUP == 1
#include "device/cpu/kernels/product_neon.h"
#else
#define PACKED_A_ROW 1
#define PACKED_A_STEP(rows) (rows)
#define PACKED_A_FILL 1
#endif

/* The microkernel: c[rows, vectors * LANES]. All arguments but the job are compile-time constants where this is inlined. Rows of a
 * are addressed relative to every third row, which saves registers. */
static inline __attribute__((always_inline)) void NAME(tile)(const NAME(job) * job, const int rows, const int vectors,
                                                             const bool transposed, const bool packed,
                                                             const bool a_packed) {
    NAME(vector) sums[ROWS][STRIP * STRIPS];
    const int64_t a_row = a_packed ? PACKED_A_ROW : transposed ? 1 : job->a_stride;
    const int64_t a_step = a_packed ? PACKED_A_STEP(rows) : transposed ? job->a_stride : 1;
    const int64_t b_step = packed ? WIDTH : job->b_step, b_strip = job->b_strip;
    const NAME(operand) * a[4], *b = job->b;
    const char *next = job->next;
    const int64_t next_step = job->next_step, next_half = job->next_half;
    _Pragma("GCC unroll 16") for (int i = 0; i < rows; i += 3) {
        a[i / 3] = job->a + (a_packed ? job->k * rows : 0) + i * a_row;
    }
    const bool part = job->skip > 0 || job->valid < LANES;
    SCALAR last[ROWS][LANES], *c = job->c;
    if (job->start) {
        const SCALAR *start = job->start;
        if (part) NAME(load_part)(job, rows, start + (vectors - 1) * LANES, last[0]);
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++, start += job->start_row) {
            _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) {
                const SCALAR *from = v == vectors - 1 && part ? last[i] : start + v * LANES;
                sums[i][v] = *(const NAME(loose_vector) *)from;
            }
        }
    } else {
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++) {
            _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) sums[i][v] = (NAME(vector)){0};
        }
    }
#if defined(SET_HAS_NEON) && GROUP == 1
    (void)next, (void)next_step, (void)next_half;
    int64_t done = job->depth < (transposed ? 2 : LANES) ? 0
                   : transposed                          ? NAME(across)(job, rows, vectors, packed, sums)
                                                         : NAME(along)(job, rows, vectors, packed, a_packed, sums);
    int64_t left = job->depth - done;
    _Pragma("GCC unroll 16") for (int i = 0; i < rows; i += 3) a[i / 3] += done * (a_packed ? rows : a_step);
    b += done * b_step;
#else
    int64_t left = job->depth;
    _Pragma("GCC unroll 1") for (; left >= 4; left -= 4) {
        STEP_OVER_K(0);
        STEP_OVER_K(1);
        STEP_OVER_K(2);
        STEP_OVER_K(3);
        if (packed && vectors <= STRIP) { /* prefetching costs more than it gains where a tile has few rows */
            __builtin_prefetch(next, 0, 2);
            __builtin_prefetch(next + 64, 0, 2);
            __builtin_prefetch(next + next_half, 0, 2);
            __builtin_prefetch(next + next_half + 64, 0, 2);
            next += 4 * next_step;
        }
        ADVANCE(4);
    }
#endif
    _Pragma("GCC unroll 1") for (; left > 0; left--) {
        STEP_OVER_K(0);
        ADVANCE(1);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++, c += job->c_row) {
        _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) {
            SCALAR *to = v == vectors - 1 && part ? last[i] : c + v * LANES;
            *(NAME(loose_vector) *)to = sums[i][v];
        }
    }
    if (part) NAME(store_part)(job, rows, job->c + (vectors - 1) * LANES, last[0]);
}

#define TILE(kind, transposed, packed, a_packed, rows, vectors)                                                        \
    static __attribute__((noinline)) void NAME(kind##_##rows##_##vectors)(const NAME(job) * job) {                     \
        NAME(tile)(job, rows, vectors, transposed, packed, a_packed);                                                  \
    }
#define WIDE_TILE(kind, transposed, packed, a_packed, rows)                                                            \
    static __attribute__((noinline)) void NAME(kind##_wide_##rows)(const NAME(job) * job) {                            \
        NAME(tile)(job, rows, STRIP * STRIPS, transposed, packed, a_packed);                                           \
    }
#define TILE_NAME(kind, rows, vectors) NAME(kind##_##rows##_##vectors),
#define WIDE_NAME(kind, rows) NAME(kind##_wide_##rows),

#if STRIP == 2
#define EACH_VECTOR(x, ...) x(__VA_ARGS__, 1) x(__VA_ARGS__, 2)
#else
#define EACH_VECTOR(x, ...) x(__VA_ARGS__, 1) x(__VA_ARGS__, 2) x(__VA_ARGS__, 3) x(__VA_ARGS__, 4)
#endif
#define ROWS_4(each, x, ...)                                                                                           \
    each(x, __VA_ARGS__, 1) each(x, __VA_ARGS__, 2) each(x, __VA_ARGS__, 3) each(x, __VA_ARGS__, 4)
#define ROWS_6(each, x, ...) ROWS_4(each, x, __VA_ARGS__) each(x, __VA_ARGS__, 5) each(x, __VA_ARGS__, 6)
#define ROWS_12(each, x, ...)                                                                                          \
    ROWS_6(each, x, __VA_ARGS__)                                                                                       \
    each(x, __VA_ARGS__, 7) each(x, __VA_ARGS__, 8) each(x, __VA_ARGS__, 9) each(x, __VA_ARGS__, 10)                   \
        each(x, __VA_ARGS__, 11) each(x, __VA_ARGS__, 12)
#if ROWS == 4
#define EACH_ROW ROWS_4
#elif ROWS == 6
#define EACH_ROW ROWS_6
#else
#define EACH_ROW ROWS_12
#endif
#if WIDE == 2
#define EACH_WIDE(x, ...) x(__VA_ARGS__, 1) x(__VA_ARGS__, 2)
#else
#define EACH_WIDE(x, ...)                                                                                              \
    x(__VA_ARGS__, 1) x(__VA_ARGS__, 2) x(__VA_ARGS__, 3) x(__VA_ARGS__, 4) x(__VA_ARGS__, 5) x(__VA_ARGS__, 6)
#endif

typedef struct {
    void (*tiles[ROWS * STRIP])(const NAME(job) *); /* index (r - 1) * STRIP + v - 1: r rows, v vectors */
    void (*wide[WIDE])(const NAME(job) *);          /* index r - 1: r rows, a whole panel */
    bool transposed, a_packed, b_unpacked;          /* a is transposed; a is packed; b is not packed */
} NAME(family);

#define FAMILY(kind, transposed, packed, a_packed)                                                                     \
    EACH_ROW(EACH_VECTOR, TILE, kind, transposed, packed, a_packed)                                                    \
    EACH_WIDE(WIDE_TILE, kind, transposed, packed, a_packed)                                                           \
    static const NAME(family) NAME(kind##_family) = {                                                                  \
        {EACH_ROW(EACH_VECTOR, TILE_NAME, kind)}, {EACH_WIDE(WIDE_NAME, kind)}, transposed, a_packed, !(packed)};

FAMILY(packed, false, true, false)
#if GROUP == 1
FAMILY(transposed, true, true, false)
FAMILY(unpacked, false, false, false)
FAMILY(a_packed, false, true, true)
#endif

#if GROUP == 1 && !defined(SET_HAS_NEON)
/* Rows are adjacent in memory, and k is strided: each k is read once for all tiles. */
static void NAME(pack_a_transposed)(int64_t rows, int64_t depth, const void *a, int64_t a_step, void *to) {
    enum { COPIED = ROWS > 8 ? 8 : 4 };
    const SCALAR *from = a;
    for (int64_t k = 0; k < depth; k++, from += a_step) {
        const SCALAR *x = from;
        SCALAR *tile = to;
        EACH_TILE(rows, ROWS, count) {
            SCALAR *out = tile + k * count;
            if (count >= COPIED) { /* two copies that may overlap: 1 to 2 times COPIED elements */
                memcpy(out, x, COPIED * sizeof *out);
                memcpy(out + count - COPIED, x + count - COPIED, COPIED * sizeof *out);
            } else {
                for (int64_t i = 0; i < count; i++) out[i] = x[i];
            }
            tile += count * depth;
            x += count;
        }
    }
}
#endif

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Multiplies all rows with `vectors` vectors of columns, within a strip or a whole panel, over a block of k. */
static void NAME(multiply_rows)(const NAME(family) * family, NAME(job) job, int64_t a_row, int64_t rows, int vectors) {
    int64_t most = vectors > STRIP ? WIDE : ROWS;
    EACH_TILE(rows, most, count) {
        (vectors > STRIP ? family->wide[count - 1] : family->tiles[(count - 1) * STRIP + vectors - 1])(&job);
        job.next += job.depth * job.next_step;
        job.a += count * a_row;
        job.c += count * job.c_row;
        if (job.start) job.start += count * job.start_row;
    }
}

/* Bytes of a block of k of a strip that several tiles of rows read: 128 KB (from L2) with AVX-512, where blocks of k cost more
 * than they gain (Sapphire Rapids, docs/EXPERIMENTS.md), else 32 KB (from L1). Measure again: `recurve bench --gemm`. */
#if defined(__AVX512F__)
enum { NAME(strip_bytes) = 131072 };
#else
enum { NAME(strip_bytes) = 32768 };
#endif

/* As multiply_rows, over all k, in blocks of k where several tiles of rows read a strip. Sums continue from c, so the blocks do not
 * change the bits. */
static void NAME(multiply_columns)(const NAME(family) * family, const NAME(job) * all, int64_t a_row, int64_t rows,
                                   int vectors) {
    NAME(job) job = *all;
    int64_t most = vectors > STRIP ? WIDE : ROWS, left = all->depth;
    int64_t block = rows <= most ? left : (int64_t)(NAME(strip_bytes) / (WIDTH * sizeof(OPERAND)));
    bool transposed = family->transposed;
    for (; left > 0; left -= job.depth) {
        job.depth = left < block ? left : block;
        NAME(multiply_rows)(family, job, a_row, rows, vectors);
        job.start = job.c;
        job.start_row = job.c_row;
        job.a += transposed ? job.depth * job.a_stride : family->a_packed ? 0 : job.depth;
        job.k += job.depth;
        job.b += family->b_unpacked ? job.depth * job.b_step : job.depth * WIDTH;
        job.next += (rows + most - 1) / most * job.depth * job.next_step;
    }
}

/* Distributes the prefetch of the next panel evenly over the steps of all tiles. */
static void NAME(set_prefetch)(NAME(job) * job, int64_t rows, int64_t columns, const void *panel, const void *next) {
    int64_t tiles = (rows + ROWS - 1) / ROWS * ((columns + WIDTH - 1) / WIDTH);
    int64_t half = PANEL * job->depth * (int64_t)sizeof(OPERAND) / 2;
    job->next = next ? next : panel;
    job->next_half = next ? half : 0;
    job->next_step = next ? (half + tiles * job->depth - 1) / (tiles * job->depth) : 0;
#if defined(SET_HAS_NEON) && GROUP == 1
    job->next_step *=
        rows > 2 * ROWS ? 2 : 0; /* one prefetch stream instead of two; none for few rows, which run faster without */
#endif
}

/* Multiplies all rows with columns first .. first + columns - 1 of a packed panel. */
static void NAME(multiply_panel)(const NAME(family) * family, NAME(job) * job, int64_t a_row, int64_t rows,
                                 int64_t columns, const NAME(operand) * panel, int64_t first, const void *next) {
    int64_t end = first + columns, strip = job->depth * WIDTH, tiles = (rows + ROWS - 1) / ROWS;
    SCALAR *c = job->c;
    const SCALAR *start = job->start;
    job->b_strip = strip;
    if (rows <= WIDE && first == 0 && columns > PANEL - LANES) {
        job->b = panel;
        job->valid = (int)(columns - (PANEL - LANES));
        family->wide[rows - 1](job);
        return;
    }
    NAME(set_prefetch)(job, rows, columns, panel, next);
    for (int64_t j = first, next_strip; j < end; j = next_strip) {
        next_strip = (j / WIDTH + 1) * WIDTH;
        int64_t used = (next_strip < end ? next_strip : end) - j, vectors = (used + LANES - 1) / LANES;
        job->valid = (int)(used - (vectors - 1) * LANES);
        job->b = panel + j / WIDTH * strip + j % WIDTH;
        job->c = c + j - first;
        job->start = start ? start + j - first : NULL;
        NAME(multiply_columns)(family, job, a_row, rows, (int)vectors);
        job->next += tiles * job->depth * job->next_step; /* as multiply_columns advanced its copy */
    }
}

static void NAME(product)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                          int64_t first, const void *start, int64_t start_row, void *c, int64_t c_row,
                          const void *next) {
    NAME(job)
    job = {.depth = (depth + FILL - 1) / FILL * FILL / GROUP,
           .a = a,
           .a_stride = a_row / GROUP,
           .start = start,
           .start_row = start_row,
           .c = c,
           .c_row = c_row};
#if GROUP == 1
    if (a_row == RCVI_PACKED_A) {
        int64_t filled = (depth + PACKED_A_FILL - 1) / PACKED_A_FILL * PACKED_A_FILL;
        NAME(multiply_panel)(&NAME(a_packed_family), &job, filled, rows, columns, panel, first, next);
        return;
    }
#endif
    NAME(multiply_panel)(&NAME(packed_family), &job, a_row / GROUP, rows, columns, panel, first, next);
}

#if GROUP == 1
static void NAME(product_transposed)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_step,
                                     const void *panel, int64_t first, const void *start, int64_t start_row, void *c,
                                     int64_t c_row, const void *next) {
    NAME(job)
    job = {.depth = depth, .a = a, .a_stride = a_step, .start = start, .start_row = start_row, .c = c, .c_row = c_row};
    NAME(multiply_panel)(&NAME(transposed_family), &job, 1, rows, columns, panel, first, next);
}

/* Fewer columns than a vector has lanes: the rows of b are loaded element by element. */
static void NAME(narrow_columns)(const NAME(job) * job, int64_t rows, int columns) {
    for (int64_t i = 0; i < rows; i++) {
        NAME(vector) sum = {0};
        SCALAR *c = job->c + i * job->c_row;
        for (int j = 0; j < columns && job->start; j++) sum[j] = job->start[i * job->start_row + j];
        for (int64_t k = 0; k < job->depth; k++) {
            NAME(operands) y = {0};
            for (int j = 0; j < columns; j++) y[j] = job->b[k * job->b_step + j];
            sum = MULTIPLY_ADD(sum, job->a[i * job->a_stride + k], y);
        }
        for (int j = 0; j < columns; j++) c[j] = sum[j];
    }
}

/* The last columns, where they do not fill a vector, are computed by a vector that overlaps the columns before them; only its last
 * lanes are stored. */
static void NAME(product_unpacked)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row,
                                   const void *b, int64_t b_step, bool accumulate, void *c, int64_t c_row) {
    const NAME(operand) *from = b;
    NAME(job)
    job = {.depth = depth,
           .a = a,
           .a_stride = a_row,
           .b = b,
           .b_step = b_step,
           .b_strip = WIDTH,
           .start_row = c_row,
           .c = c,
           .c_row = c_row,
           .valid = LANES};
    if (accumulate) job.start = job.c;
    if (columns < LANES) {
        NAME(narrow_columns)(&job, rows, (int)columns);
        return;
    }
    int64_t most = rows <= WIDE ? PANEL : WIDTH, j = 0;
    for (int64_t count; j + LANES <= columns; j += count) {
        count = columns - j >= most ? most : columns - j >= WIDTH ? WIDTH : (columns - j) / LANES * LANES;
        job.b = from + j;
        job.c = (SCALAR *)c + j;
        job.start = accumulate ? job.c : NULL;
        NAME(multiply_columns)(&NAME(unpacked_family), &job, a_row, rows, (int)(count / LANES));
    }
    if (j == columns) return;
    job.skip = (int)(LANES - (columns - j));
    job.b = from + columns - LANES;
    job.c = (SCALAR *)c + columns - LANES;
    job.start = accumulate ? job.c : NULL;
    NAME(multiply_columns)(&NAME(unpacked_family), &job, a_row, rows, 1);
}
#endif

#undef EACH_TILE
#undef PACKED_A_ROW
#undef PACKED_A_STEP
#undef PACKED_A_FILL
#undef STEP_OVER_K
#undef ADVANCE_ROWS
#undef ADVANCE
#undef TILE
#undef WIDE_TILE
#undef TILE_NAME
#undef WIDE_NAME
#undef EACH_VECTOR
#undef ROWS_4
#undef ROWS_6
#undef ROWS_12
#undef EACH_ROW
#undef EACH_WIDE
#undef FAMILY
#endif

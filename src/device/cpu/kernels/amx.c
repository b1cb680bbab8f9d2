/* bfloat16 products of x86-64 with AMX: tile registers of 16 rows of 64 bytes. A tile of b is 32 k, in pairs, of 16 columns; b is
 * packed in that layout, so a strip of 16 columns is its tiles one after another. A tile of a is up to 16 rows of 32 k.
 *
 * Four tiles (0 to 3) accumulate: two blocks of rows times two strips, or one block of rows times four strips. Tiles 4 and 5 hold
 * a, tiles 6 and 7 hold b. Accumulators start with the values of `start`. */
/* clang before version 17 names what it compiles for in another way than GCC */
#if (defined(__AMX_BF16__) && defined(__AMX_TILE__)) || (defined(__AMXBF16__) && defined(__AMXTILE__))
#include "device/cpu/kernels/kernels.h"

#include <string.h>

#include "device/cpu/kernels/bfloat16.h"

#define TYPE bfloat16
#define SCALAR float
#define SOURCE float
#define OPERAND uint32_t
#define ELEMENT uint16_t
#define GROUP 2
#define FILL 32
#define UNIT_BYTES 4
#define BYTES 64
#define STRIP 1
#define STRIPS 4
#define ROUND(x) round_bfloat16(x)
#define PACK_ONLY
#include "device/cpu/kernels/product.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 16, TILE_ELEMENTS = 512 /* of b */ };

#define TILE_LOAD(tile, from, stride)                                                                                  \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, to, stride)                                                                                   \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)
#define TILE_PRODUCT(sum, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #sum)

/* ---- tile configuration ---------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;

/* Rows of the tiles 0, 1 and 4, and of 2, 3 and 5. */
static void configure(int upper, int lower) {
    configuration shape = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shape.row_bytes[tile] = 64;
        shape.rows[tile] = TILE_ROWS;
    }
    shape.rows[0] = shape.rows[1] = shape.rows[4] = (uint8_t)upper;
    shape.rows[2] = shape.rows[3] = shape.rows[5] = (uint8_t)lower;
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}

static void begin(void) { configure(TILE_ROWS, TILE_ROWS); }
static void end(void) { __asm__ volatile("tilerelease"); }

/* ---- products ------------------------------------------------------------------------------------------------------ */

/* A product of rows of a with strips of a panel. */
typedef struct {
    const rcvi_product_term *terms;
    int term_count;
    int64_t row, strip; /* first row and first strip */
    const float *start; /* start and c point to that row and strip; NULL: zeros */
    int64_t start_row;
    float *c;
    int64_t c_row, columns;
} job;

/* Valid columns of a strip. */
static int64_t width_of(const job *job, int64_t strip) {
    int64_t left = job->columns - strip * TILE_COLUMNS;
    return left < TILE_COLUMNS ? left : TILE_COLUMNS;
}

/* Tiles of c at the right edge, of less than 16 columns, go through a padded copy. */
static const float *padded_copy(int rows, const float *from, int64_t from_row, int64_t width, float *copy) {
    memset(copy, 0, sizeof(float) * TILE_ROWS * TILE_COLUMNS);
    for (int i = 0; i < rows; i++) memcpy(copy + i * TILE_COLUMNS, from + i * from_row, (size_t)width * sizeof(float));
    return copy;
}

static void copy_out(const job *job, int rows, float *c, int64_t width, const float *copy) {
    for (int i = 0; i < rows; i++) memcpy(c + i * job->c_row, copy + i * TILE_COLUMNS, (size_t)width * sizeof(float));
}

static const float *start_of(const job *job, int64_t down, int64_t strip_index) {
    return job->start + down * job->start_row + strip_index * TILE_COLUMNS;
}

#define LOAD_START(tile, down, count, strip_index)                                                                     \
    do {                                                                                                               \
        if (!job->start) {                                                                                             \
            TILE_ZERO(tile);                                                                                           \
        } else if (width_of(job, strip_index) == TILE_COLUMNS) {                                                       \
            TILE_LOAD(tile, start_of(job, down, strip_index), job->start_row * 4);                                     \
        } else {                                                                                                       \
            const float *from = start_of(job, down, strip_index);                                                      \
            TILE_LOAD(tile, padded_copy(count, from, job->start_row, width_of(job, strip_index), copy), 64);           \
        }                                                                                                              \
    } while (0)

#define STORE_SUM(tile, down, count, strip_index)                                                                      \
    do {                                                                                                               \
        float *to = job->c + (down)*job->c_row + (strip_index)*TILE_COLUMNS;                                           \
        if (width_of(job, strip_index) == TILE_COLUMNS) {                                                              \
            TILE_STORE(tile, to, job->c_row * 4);                                                                      \
        } else {                                                                                                       \
            TILE_STORE(tile, copy, 64);                                                                                \
            copy_out(job, count, to, width_of(job, strip_index), copy);                                                \
        }                                                                                                              \
    } while (0)

static int64_t tiles_of(const rcvi_product_term *term) { return (term->depth + FILL - 1) / FILL; }
static const uint16_t *rows_of(const job *job, const rcvi_product_term *term) {
    return (const uint16_t *)term->a + job->row * term->a_row;
}
static const uint16_t *strip_of(const job *job, const rcvi_product_term *term) {
    return (const uint16_t *)term->panel + job->strip * tiles_of(term) * TILE_ELEMENTS;
}

/* The microkernel of two blocks of rows times `strips` strips (1 or 2). */
static inline __attribute__((always_inline)) void two_blocks(const job *job, int upper, int lower, const int strips) {
    float copy[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    LOAD_START(0, 0, upper, 0);
    LOAD_START(2, upper, lower, 0);
    if (strips > 1) {
        LOAD_START(1, 0, upper, 1);
        LOAD_START(3, upper, lower, 1);
    }
    for (const rcvi_product_term *term = job->terms; term < job->terms + job->term_count; term++) {
        const int64_t tiles = tiles_of(term), stride = term->a_row * 2, strip = tiles * TILE_ELEMENTS;
        const uint16_t *above = rows_of(job, term), *below = above + upper * term->a_row, *b = strip_of(job, term);
        for (int64_t k = 0; k < tiles; k++, above += FILL, below += FILL, b += TILE_ELEMENTS) {
            TILE_LOAD(4, above, stride);
            TILE_LOAD(6, b, 64);
            TILE_PRODUCT(0, 4, 6);
            TILE_LOAD(5, below, stride);
            TILE_PRODUCT(2, 5, 6);
            if (strips > 1) {
                TILE_LOAD(7, b + strip, 64);
                TILE_PRODUCT(1, 4, 7);
                TILE_PRODUCT(3, 5, 7);
            }
        }
    }
    STORE_SUM(0, 0, upper, 0);
    STORE_SUM(2, upper, lower, 0);
    if (strips > 1) {
        STORE_SUM(1, 0, upper, 1);
        STORE_SUM(3, upper, lower, 1);
    }
}

/* The microkernel of one block of rows times `strips` strips (1 to 4). */
static inline __attribute__((always_inline)) void one_block(const job *job, int rows, const int strips) {
    float copy[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    LOAD_START(0, 0, rows, 0);
    if (strips > 1) LOAD_START(1, 0, rows, 1);
    if (strips > 2) LOAD_START(2, 0, rows, 2);
    if (strips > 3) LOAD_START(3, 0, rows, 3);
    for (const rcvi_product_term *term = job->terms; term < job->terms + job->term_count; term++) {
        const int64_t tiles = tiles_of(term), stride = term->a_row * 2, strip = tiles * TILE_ELEMENTS;
        const uint16_t *a = rows_of(job, term), *b = strip_of(job, term);
        for (int64_t k = 0; k < tiles; k++, a += FILL, b += TILE_ELEMENTS) {
            TILE_LOAD(4, a, stride);
            TILE_LOAD(6, b, 64);
            TILE_PRODUCT(0, 4, 6);
            if (strips > 1) {
                TILE_LOAD(7, b + strip, 64);
                TILE_PRODUCT(1, 4, 7);
            }
            if (strips > 2) {
                TILE_LOAD(6, b + 2 * strip, 64);
                TILE_PRODUCT(2, 4, 6);
            }
            if (strips > 3) {
                TILE_LOAD(7, b + 3 * strip, 64);
                TILE_PRODUCT(3, 4, 7);
            }
        }
    }
    STORE_SUM(0, 0, rows, 0);
    if (strips > 1) STORE_SUM(1, 0, rows, 1);
    if (strips > 2) STORE_SUM(2, 0, rows, 2);
    if (strips > 3) STORE_SUM(3, 0, rows, 3);
}

static void multiply_one_block(const job *job, int rows, int64_t strips) {
    switch (strips) {
    case 1: one_block(job, rows, 1); break;
    case 2: one_block(job, rows, 2); break;
    case 3: one_block(job, rows, 3); break;
    default: one_block(job, rows, 4); break;
    }
}

static void multiply_two_blocks(job job, int upper, int lower, int64_t strips) {
    for (; strips > 0; strips -= 2) {
        if (strips > 1) {
            two_blocks(&job, upper, lower, 2);
        } else {
            two_blocks(&job, upper, lower, 1);
        }
        job.strip += 2;
        if (job.start) job.start += 2 * TILE_COLUMNS;
        job.c += 2 * TILE_COLUMNS;
        job.columns -= 2 * TILE_COLUMNS;
    }
}

/* Divides the rows evenly into the fewest blocks. The tiles are configured for 16 rows on entry and on return. */
static void product_terms(int64_t rows, int64_t columns, const rcvi_product_term *terms, int term_count, int64_t first,
                          const void *start, int64_t start_row, void *c, int64_t c_row) {
    const int64_t strips = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    job job = {.terms = terms,
               .term_count = term_count,
               .strip = first / TILE_COLUMNS,
               .start = start,
               .start_row = start_row,
               .c = c,
               .c_row = c_row,
               .columns = columns};
    int set_upper = TILE_ROWS, set_lower = TILE_ROWS;
    for (int64_t left = rows, blocks = (rows + TILE_ROWS - 1) / TILE_ROWS; blocks > 0; blocks -= 2) {
        int upper = (int)((left + blocks - 1) / blocks);
        int lower = blocks > 1 ? (int)((left - upper + blocks - 2) / (blocks - 1)) : upper;
        if (upper != set_upper || lower != set_lower) configure(upper, lower);
        set_upper = upper;
        set_lower = lower;
        if (blocks > 1) {
            multiply_two_blocks(job, upper, lower, strips);
        } else {
            multiply_one_block(&job, upper, strips);
        }
        int64_t done = blocks > 1 ? upper + lower : upper;
        job.row += done;
        if (job.start) job.start += done * start_row;
        job.c += done * c_row;
        left -= done;
    }
    if (set_upper != TILE_ROWS || set_lower != TILE_ROWS) configure(TILE_ROWS, TILE_ROWS);
}

static void product(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                    int64_t first, const void *start, int64_t start_row, void *c, int64_t c_row, const void *next) {
    (void)next; /* the hardware prefetcher alone is faster (docs/EXPERIMENTS.md) */
    const rcvi_product_term term = {depth, a, a_row, panel};
    product_terms(rows, columns, &term, 1, first, start, start_row, c, c_row);
}

static double peak(int64_t repeats) {
    uint16_t small[TILE_ELEMENTS] __attribute__((aligned(64)));
    for (int i = 0; i < TILE_ELEMENTS; i++) small[i] = 0x3800; /* 2^-15 */
    TILE_LOAD(6, small, 64);
    TILE_LOAD(7, small, 64);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_ZERO(4);
    TILE_ZERO(5);
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
        TILE_PRODUCT(0, 6, 7);
        TILE_PRODUCT(1, 6, 7);
        TILE_PRODUCT(2, 6, 7);
        TILE_PRODUCT(3, 6, 7);
        TILE_PRODUCT(4, 6, 7);
        TILE_PRODUCT(5, 6, 7);
    }
    return 2.0 * 6 * TILE_ROWS * TILE_COLUMNS * FILL * (double)repeats;
}

const rcvi_kernels rcvi_kernels_amx = {
    .name = "amx",
    .what = "AVX-512, bfloat16 by tiles (AMX)",
    .products = {[RCVI_KERNEL_BFLOAT16] = {.panel = PANEL,
                                           .grain = TILE_COLUMNS,
                                           .group = FILL,
                                           .pack = pack_bfloat16,
                                           .product = product,
                                           .product_terms = product_terms}},
    .peak = {[RCVI_KERNEL_BFLOAT16] = peak},
    .begin = begin,
    .end = end,
};
#else
typedef int rcvi_kernels_amx_is_elsewhere;
#endif

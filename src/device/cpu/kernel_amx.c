/* x86-64 with AMX: tiles of 16 rows of 64 bytes. A tile of b is 32 k, in pairs, of 16 columns; it is packed as it is
 * loaded, so a strip of 16 columns is its tiles one after another. A tile of a is as many rows as there are, of 32 k.
 *
 * Two blocks of rows meet two strips in four tiles of sums (0 to 3), or one block of rows four strips. Tiles 4 and 5
 * hold a, 6 and 7 b. Sums start at c where it is accumulated. */
#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#include "device/cpu/kernels.h"

#include <string.h>

#include "device/cpu/kernel_bfloat16.h"

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
#include "device/cpu/kernel_product.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 16, TILE_ELEMENTS = 512 /* of b */ };

#define TILE_LOAD(tile, from, stride)                                                                                  \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, to, stride)                                                                                   \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)
#define TILE_PRODUCT(sum, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #sum)

/* ---- the shape of the tiles ---------------------------------------------------------------------------------------- */

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

typedef struct {
    int64_t tiles; /* over k */
    const uint16_t *a;
    int64_t a_row;
    const uint16_t *b;
    bool accumulate;
    float *c;
    int64_t c_row, columns;
    const char *next; /* to be brought near: so many lines with every tile over k */
    int64_t next_lines;
} job;

static float *corner(const job *job, int64_t row, int64_t strip) {
    return job->c + row * job->c_row + strip * TILE_COLUMNS;
}

/* Columns of a strip that are there. */
static int64_t width_of(const job *job, int64_t strip) {
    int64_t left = job->columns - strip * TILE_COLUMNS;
    return left < TILE_COLUMNS ? left : TILE_COLUMNS;
}

/* A tile of c that is narrower than a tile goes through a copy. */
static const float *filled(const job *job, int rows, const float *c, int64_t width, float *copy) {
    memset(copy, 0, sizeof(float) * TILE_ROWS * TILE_COLUMNS);
    for (int i = 0; i < rows; i++) memcpy(copy + i * TILE_COLUMNS, c + i * job->c_row, (size_t)width * sizeof(float));
    return copy;
}

static void take_out(const job *job, int rows, float *c, int64_t width, const float *copy) {
    for (int i = 0; i < rows; i++) memcpy(c + i * job->c_row, copy + i * TILE_COLUMNS, (size_t)width * sizeof(float));
}

#define START(tile, row, count, strip)                                                                                 \
    do {                                                                                                               \
        if (!job->accumulate) {                                                                                        \
            TILE_ZERO(tile);                                                                                           \
        } else if (width_of(job, strip) == TILE_COLUMNS) {                                                             \
            TILE_LOAD(tile, corner(job, row, strip), job->c_row * 4);                                                  \
        } else {                                                                                                       \
            TILE_LOAD(tile, filled(job, count, corner(job, row, strip), width_of(job, strip), copy), 64);              \
        }                                                                                                              \
    } while (0)

#define FINISH(tile, row, count, strip)                                                                                \
    do {                                                                                                               \
        if (width_of(job, strip) == TILE_COLUMNS) {                                                                    \
            TILE_STORE(tile, corner(job, row, strip), job->c_row * 4);                                                 \
        } else {                                                                                                       \
            TILE_STORE(tile, copy, 64);                                                                                \
            take_out(job, count, corner(job, row, strip), width_of(job, strip), copy);                                 \
        }                                                                                                              \
    } while (0)

static inline const char *bring_near(const char *next, int64_t lines) {
    for (int64_t i = 0; i < lines; i++, next += 64) __builtin_prefetch(next, 0, 2);
    return next;
}

/* Two blocks of rows, `strips` strips (1 or 2). */
static inline __attribute__((always_inline)) void two_blocks(const job *job, int upper, int lower, const int strips) {
    float copy[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    const uint16_t *above = job->a, *below = job->a + upper * job->a_row, *b = job->b;
    const int64_t stride = job->a_row * 2, strip = job->tiles * TILE_ELEMENTS;
    START(0, 0, upper, 0);
    START(2, upper, lower, 0);
    if (strips > 1) {
        START(1, 0, upper, 1);
        START(3, upper, lower, 1);
    }
    const char *next = job->next;
    for (int64_t k = 0; k < job->tiles; k++, above += FILL, below += FILL, b += TILE_ELEMENTS) {
        next = bring_near(next, job->next_lines);
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
    FINISH(0, 0, upper, 0);
    FINISH(2, upper, lower, 0);
    if (strips > 1) {
        FINISH(1, 0, upper, 1);
        FINISH(3, upper, lower, 1);
    }
}

/* One block of rows, `strips` strips (1 to 4). */
static inline __attribute__((always_inline)) void one_block(const job *job, int rows, const int strips) {
    float copy[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    const uint16_t *a = job->a, *b = job->b;
    const int64_t stride = job->a_row * 2, strip = job->tiles * TILE_ELEMENTS;
    START(0, 0, rows, 0);
    if (strips > 1) START(1, 0, rows, 1);
    if (strips > 2) START(2, 0, rows, 2);
    if (strips > 3) START(3, 0, rows, 3);
    const char *next = job->next;
    for (int64_t k = 0; k < job->tiles; k++, a += FILL, b += TILE_ELEMENTS) {
        next = bring_near(next, job->next_lines);
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
    FINISH(0, 0, rows, 0);
    if (strips > 1) FINISH(1, 0, rows, 1);
    if (strips > 2) FINISH(2, 0, rows, 2);
    if (strips > 3) FINISH(3, 0, rows, 3);
}

static void single(const job *job, int rows, int64_t strips) {
    switch (strips) {
    case 1: one_block(job, rows, 1); break;
    case 2: one_block(job, rows, 2); break;
    case 3: one_block(job, rows, 3); break;
    default: one_block(job, rows, 4); break;
    }
}

static void paired(const job *all, int upper, int lower, int64_t strips) {
    for (int64_t s = 0; s < strips; s += 2) {
        job job = *all;
        job.b += s * job.tiles * TILE_ELEMENTS;
        job.c += s * TILE_COLUMNS;
        job.columns -= s * TILE_COLUMNS;
        job.next += s / 2 * job.tiles * job.next_lines * 64;
        if (strips - s > 1) {
            two_blocks(&job, upper, lower, 2);
        } else {
            two_blocks(&job, upper, lower, 1);
        }
    }
}

/* Rows are spread evenly over as few blocks as can be. The tiles have 16 rows before and after. */
static void product(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                    int64_t first, bool accumulate, void *c, int64_t c_row, const void *next) {
    const int64_t tiles = (depth + FILL - 1) / FILL, strips = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    job job = {.tiles = tiles,
               .a = a,
               .a_row = a_row,
               .b = (const uint16_t *)panel + first * tiles * FILL,
               .accumulate = accumulate,
               .c = c,
               .c_row = c_row,
               .columns = columns};
    int set_upper = TILE_ROWS, set_lower = TILE_ROWS;
    /* a round over k brings its share of the next panel: pairs of blocks have a round for each pair of strips */
    int64_t pairs = (rows + TILE_ROWS - 1) / TILE_ROWS / 2, pair_rounds = (strips + 1) / 2;
    int64_t rounds = pairs * pair_rounds + (rows + TILE_ROWS - 1) / TILE_ROWS % 2;
    job.next = next;
    job.next_lines = next ? (PANEL * FILL * 2 / 64 + rounds - 1) / rounds : 0;
    for (int64_t left = rows, blocks = (rows + TILE_ROWS - 1) / TILE_ROWS; blocks > 0; blocks -= 2) {
        int upper = (int)((left + blocks - 1) / blocks);
        int lower = blocks > 1 ? (int)((left - upper + blocks - 2) / (blocks - 1)) : upper;
        if (upper != set_upper || lower != set_lower) configure(upper, lower);
        set_upper = upper;
        set_lower = lower;
        if (blocks > 1) {
            paired(&job, upper, lower, strips);
        } else {
            single(&job, upper, strips);
        }
        int64_t done = blocks > 1 ? upper + lower : upper;
        job.a += done * a_row;
        job.c += done * c_row;
        job.next += (blocks > 1 ? pair_rounds : 1) * tiles * job.next_lines * 64;
        left -= done;
    }
    if (set_upper != TILE_ROWS || set_lower != TILE_ROWS) configure(TILE_ROWS, TILE_ROWS);
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
    .products = {[RCVI_KERNEL_BFLOAT16] = {PANEL, TILE_COLUMNS, FILL, pack_bfloat16, product, NULL, NULL}},
    .peak = {[RCVI_KERNEL_BFLOAT16] = peak},
    .begin = begin,
    .end = end,
};
#else
typedef int rcvi_kernels_amx_is_elsewhere;
#endif

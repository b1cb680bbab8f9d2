/* bfloat16 products of 64-bit ARM with the bfloat16 extension. BFMMLA multiplies two rows of a with two columns of b over four k;
 * an accumulator holds [row 0, row 1][column 0, column 1]. b is packed in groups of four k: two columns fill a vector. */
#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "device/cpu/kernels/kernels.h"

#include <arm_neon.h>
#include <string.h>

#include "device/cpu/kernels/bfloat16.h"

/* A strip is STRIP vectors of four columns. The register tile is PAIRS pairs of rows times a strip, or one pair times a panel. */
enum { PAIRS = 3, STRIP_COLUMNS = 16, PANEL_COLUMNS = 32 };

#define TYPE bfloat16
#define SCALAR float
#define SOURCE float
#define OPERAND uint64_t
#define ELEMENT uint16_t
#define GROUP 4
#define FILL 4
#define UNIT_BYTES 8
#define BYTES 16
#define STRIP 4
#define STRIPS 2
#define ROUND(x) round_bfloat16(x)
#define PACK_ONLY
#include "device/cpu/kernels/product.h"

typedef struct {
    int64_t groups; /* of k */
    const bfloat16_t *a;
    int64_t a_row;
    const bfloat16_t *b;
    int64_t b_strip;
    const float *start; /* initial values of the sums, or NULL */
    int64_t start_row;
    float *c;
    int64_t c_row;
    int valid; /* columns of the last vector */
} job;

/* Stores vector v of row r; `last`: it is the last vector of the row and may be partial. */
static inline __attribute__((always_inline)) void store(const job *job, int r, int v, float32x4_t sum, bool last) {
    float *c = job->c + r * job->c_row + 4 * v;
    const float *start = job->start ? job->start + r * job->start_row + 4 * v : NULL;
    if (!last || job->valid == 4) {
        vst1q_f32(c, start ? vaddq_f32(vld1q_f32(start), sum) : sum);
        return;
    }
    float lanes[4];
    vst1q_f32(lanes, sum);
    for (int l = 0; l < job->valid; l++) c[l] = start ? start[l] + lanes[l] : lanes[l];
}

/* The microkernel: c[rows, 4 * vectors]. An odd last row is paired with itself. */
static inline __attribute__((always_inline)) void tile(const job *job, const int rows, const int vectors) {
    float32x4_t sums[PAIRS][4 * STRIP];
    const bfloat16_t *a = job->a, *b = job->b;
    const int pairs = (rows + 1) / 2;
    _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++) {
        _Pragma("GCC unroll 16") for (int v = 0; v < 2 * vectors; v++) sums[p][v] = vdupq_n_f32(0);
    }
    _Pragma("GCC unroll 2") for (int64_t group = 0; group < job->groups; group++) {
        bfloat16x8_t x[PAIRS];
        _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++) {
            const bfloat16_t *even = a + 2 * p * job->a_row, *odd = 2 * p + 1 < rows ? even + job->a_row : even;
            x[p] = vcombine_bf16(vld1_bf16(even), vld1_bf16(odd));
        }
        _Pragma("GCC unroll 16") for (int v = 0; v < 2 * vectors; v++) {
            bfloat16x8_t y = vld1q_bf16(b + v / (2 * STRIP) * job->b_strip + v % (2 * STRIP) * 8);
            _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++) sums[p][v] = vbfmmlaq_f32(sums[p][v], x[p], y);
        }
        a += GROUP;
        b += GROUP * STRIP_COLUMNS;
    }
    _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++) {
        _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++) {
            float64x2_t left = vreinterpretq_f64_f32(sums[p][2 * v]), right = vreinterpretq_f64_f32(sums[p][2 * v + 1]);
            store(job, 2 * p, v, vreinterpretq_f32_f64(vzip1q_f64(left, right)), v == vectors - 1);
            if (2 * p + 1 < rows)
                store(job, 2 * p + 1, v, vreinterpretq_f32_f64(vzip2q_f64(left, right)), v == vectors - 1);
        }
    }
}

#define TILE(rows, vectors)                                                                                            \
    static __attribute__((noinline)) void tile_##rows##_##vectors(const job *job) { tile(job, rows, vectors); }
/* clang-format off */
TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(1, 4) TILE(1, 8)
TILE(2, 1) TILE(2, 2) TILE(2, 3) TILE(2, 4) TILE(2, 8)
TILE(3, 1) TILE(3, 2) TILE(3, 3) TILE(3, 4)
TILE(4, 1) TILE(4, 2) TILE(4, 3) TILE(4, 4)
TILE(5, 1) TILE(5, 2) TILE(5, 3) TILE(5, 4)
TILE(6, 1) TILE(6, 2) TILE(6, 3) TILE(6, 4)
/* clang-format on */

#define NAMES(rows)                                                                                                    \
    { tile_##rows##_1, tile_##rows##_2, tile_##rows##_3, tile_##rows##_4 }
            static void (*const tiles[2 * PAIRS][STRIP])(const job *) = {NAMES(1), NAMES(2), NAMES(3),
                                                                         NAMES(4), NAMES(5), NAMES(6)};

/* Multiplies all rows with `vectors` vectors of columns, in tiles of nearly equal numbers of pairs. */
static void multiply_columns(job job, int64_t rows, int vectors) {
    for (int64_t blocks = (rows + 2 * PAIRS - 1) / (2 * PAIRS); blocks > 0; blocks--) {
        int64_t count = ((rows + 1) / 2 + blocks - 1) / blocks * 2;
        if (count > rows) count = rows;
        if (count < 1) break;
        (vectors > STRIP ? count == 1 ? tile_1_8 : tile_2_8 : tiles[count - 1][vectors - 1])(&job);
        job.a += count * job.a_row;
        job.c += count * job.c_row;
        if (job.start) job.start += count * job.start_row;
        rows -= count;
    }
}

static void product(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                    int64_t first, const void *start, int64_t start_row, void *c, int64_t c_row,
                    const void *next_panel) {
    (void)next_panel; /* software prefetch did not make this faster */
    const int64_t groups = (depth + GROUP - 1) / GROUP, strip = groups * GROUP * STRIP_COLUMNS, end = first + columns;
    job job = {.groups = groups, .a = a, .a_row = a_row, .b_strip = strip, .start_row = start_row, .c_row = c_row};
    for (int64_t j = first, next; j < end; j = next) {
        next = rows <= 2 && j == 0 && end > PANEL_COLUMNS - 4 ? PANEL_COLUMNS : (j / STRIP_COLUMNS + 1) * STRIP_COLUMNS;
        int64_t used = (next < end ? next : end) - j, vectors = (used + 3) / 4;
        job.valid = (int)(used - (vectors - 1) * 4);
        job.b = (const bfloat16_t *)panel + j / STRIP_COLUMNS * strip + j % STRIP_COLUMNS * GROUP;
        job.c = (float *)c + j - first;
        job.start = start ? (const float *)start + j - first : NULL;
        multiply_columns(job, rows, (int)vectors);
    }
}

static double peak(int64_t repeats) {
    enum { sums_count = 24 };
    float32x4_t sums[sums_count];
    bfloat16x8_t x = vreinterpretq_bf16_u16(vdupq_n_u16(0x3800)); /* 2^-15 */
    _Pragma("GCC unroll 32") for (int i = 0; i < sums_count; i++) sums[i] = vdupq_n_f32(0);
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
        _Pragma("GCC unroll 32") for (int i = 0; i < sums_count; i++) {
            __asm__ volatile("" : "+w"(x));
            sums[i] = vbfmmlaq_f32(sums[i], x, x);
        }
    }
    _Pragma("GCC unroll 32") for (int i = 0; i < sums_count; i++) __asm__ volatile("" : : "w"(sums[i]));
    return 2.0 * 2 * 2 * GROUP * sums_count * (double)repeats;
}

const rcvi_kernels rcvi_kernels_neon_bf16 = {
    .name = "neon-bf16",
    .what = "NEON, bfloat16 by BFMMLA",
    .products = {[RCVI_KERNEL_BFLOAT16] =
                     {.panel = PANEL_COLUMNS, .grain = 4, .group = GROUP, .pack = pack_bfloat16, .product = product}},
    .peak = {[RCVI_KERNEL_BFLOAT16] = peak},
};
#else
typedef int rcvi_kernels_neon_bf16_is_elsewhere;
#endif

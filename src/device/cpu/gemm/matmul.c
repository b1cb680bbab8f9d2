/* Large products in blocks, BLIS style. One of three algorithms by the size of m; all give the same bits:
 *
 *   general       for each block of k and of columns: b is packed into panels; for each block of rows: a is packed where that pays
 *                 (or rounded, for bfloat16), and multiplied with the panels one after another
 *   unpacked b    few rows and b not transposed: b is read where it is
 *   transposed c  few rows and b transposed: c^T = b a^T, so that the small operand is packed
 *
 * Blocks are sized for the caches: a panel of one block of k for L1, a block of a and one of b for L2. */
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/gemm/tuning.h"

#include <math.h>
#include <string.h>

typedef enum { GENERAL, UNPACKED_B, TRANSPOSED_C } algorithm;

typedef struct {
    const rcvi_kernels *kernels;
    const rcvi_product_kernels *products;
    const rcvi_matmul *matmul;
    algorithm algorithm;
    int64_t size;       /* bytes of an element of a, b and c */
    int64_t operand;    /* bytes of an element of what the kernels multiply */
    int64_t depth;      /* k of a block; the last one may be smaller */
    int64_t columns;    /* columns of a packed block */
    int64_t row_stride; /* leading dimension of a copied block of a */
    int64_t rows;       /* rows of a block of a, at most */
    int64_t kept_rows;  /* rows of a that stay rounded in scratch for all blocks of columns */
} job;

/* Offsets in bytes of the areas of a member's scratch: packed panels, a block of a, rows of a transposed, a panel of b widened to
 * float. */
typedef struct {
    int64_t packed, block, rows, wide, total;
} scratch_layout;

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

static const char *at(const void *base, int64_t elements, int64_t size) { return (const char *)base + elements * size; }
static char *at_out(void *base, int64_t elements, int64_t size) { return (char *)base + elements * size; }

/* A leading dimension of an odd number of cache lines, so that rows begin at different sets of a cache. */
static int64_t odd_lines(int64_t elements, int64_t size) {
    return (divide_up(elements * size, LINE_BYTES) | 1) * LINE_BYTES / size;
}

static algorithm choose_algorithm(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) return GENERAL;
    if (matmul->transpose_b) return matmul->m <= job->products->panel ? TRANSPOSED_C : GENERAL;
    return matmul->m <= UNPACKED_ROWS ? UNPACKED_B : GENERAL;
}

static job prepare(const rcvi_kernels *kernels, const rcvi_matmul *matmul) {
    job job = {.kernels = kernels, .products = &kernels->products[matmul->type], .matmul = matmul};
    job.size = matmul->type == RCVI_KERNEL_DOUBLE ? 8 : 4;
    job.operand = matmul->type == RCVI_KERNEL_BFLOAT16 ? 2 : job.size;
    int64_t unit = LINE_BYTES / job.operand;
    int64_t blocks = max(1, divide_up(matmul->k, DEPTH_BYTES / job.operand));
    job.depth = max(unit, round_up(divide_up(matmul->k, blocks), unit));
    job.columns = max(1, COLUMN_BYTES / (job.depth * job.operand) / job.products->panel) * job.products->panel;
    job.row_stride = odd_lines(job.depth, job.operand);
    job.rows = BLOCK_ROWS;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) {
        job.rows = ROUNDED_ROWS;
        if (matmul->n > job.columns) job.kept_rows = max(job.rows, KEPT_BYTES / (job.row_stride * job.operand));
    }
    job.algorithm = choose_algorithm(&job);
    return job;
}

/* Rows of a block of a, if `rows` rows are divided evenly. */
static int64_t block_rows(const job *job, int64_t rows) {
    int64_t unit = job->operand < job->size ? ROUNDED_UNIT : ROW_UNIT;
    return round_up(divide_up(rows, divide_up(rows, job->rows)), unit);
}

/* ---- division among members ------------------------------------------------------------------------------------------ */

static void cut(int64_t extent, int64_t unit, int64_t index, int64_t count, int64_t *first, int64_t *length) {
    int64_t units = divide_up(extent, unit);
    int64_t begin = min(extent, units * index / count * unit);
    *first = begin;
    *length = min(extent, units * (index + 1) / count * unit) - begin;
}

/* Chooses the grid of members whose largest share costs least: its multiply-adds, and the packing of its operands. */
rcvi_matmul_part rcvi_matmul_cut(const rcvi_matmul *matmul, int64_t grain, int member, int members) {
    int64_t row_unit = matmul->m >= (int64_t)ROW_UNIT * members ? ROW_UNIT : 1;
    int64_t best = 1;
    double least_cost = INFINITY;
    for (int64_t across = 1; across <= members; across++) {
        if (members % across != 0) continue;
        double rows = (double)(divide_up(divide_up(matmul->m, row_unit), members / across) * row_unit);
        double columns = (double)(divide_up(divide_up(matmul->n, grain), across) * grain);
        double cost = rows * columns + PACK_COST * (rows + columns);
        if (cost > least_cost) continue;
        least_cost = cost;
        best = across;
    }
    rcvi_matmul_part part;
    cut(matmul->m, row_unit, member / best, members / best, &part.row, &part.rows);
    cut(matmul->n, grain, member % best, best, &part.column, &part.columns);
    return part;
}

/* Bytes of one packed panel. */
static int64_t panel_size(const job *job, int64_t depth) {
    return rcvi_packed_elements(job->products, job->products->panel, depth) * job->operand;
}

/* ---- operands ------------------------------------------------------------------------------------------------------ */

/* Rows of op(a) over a block of k, as the kernels read them: data with leading dimension stride (or RCVI_PACKED_A). */
typedef struct {
    const void *data;
    int64_t stride;
    bool transposed;
} operand;

static inline void transpose_elements(int64_t rows, int64_t columns, const char *from, int64_t from_row, int64_t size,
                                      char *to, int64_t to_row) {
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + (i * to_row + j) * size, from + (j * from_row + i) * size, (size_t)size);
    }
}

/* to[rows, columns] = from[columns, rows] transposed. */
static void transpose(int64_t rows, int64_t columns, const void *from, int64_t from_row, int64_t size, void *to,
                      int64_t to_row) {
    if (size == 4)
        transpose_elements(rows, columns, from, from_row, 4, to, to_row);
    else
        transpose_elements(rows, columns, from, from_row, 8, to, to_row);
}

/* to[i, p] = op(a)[row + i, step + p], rounded to bfloat16 and padded with zeros; leading dimension row_stride. */
static void round_rows(const job *job, const void *a, int64_t row, int64_t rows, int64_t step, int64_t depth,
                       uint16_t *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t lda = matmul->lda, filled = round_up(depth, job->products->group);
    int64_t first = matmul->transpose_a ? step * lda + row : row * lda + step;
    const float *wide = matmul->narrow_a ? NULL : (const float *)a + first;
    const uint16_t *narrow = matmul->narrow_a ? (const uint16_t *)a + first : NULL;
    if (matmul->transpose_a) {
        if (narrow)
            job->kernels->transpose_narrow(rows, depth, narrow, lda, to, job->row_stride);
        else
            job->kernels->narrow_transposed(rows, depth, wide, lda, to, job->row_stride);
        return;
    }
    for (int64_t i = 0; i < rows; i++, to += job->row_stride) {
        if (narrow)
            memcpy(to, narrow + i * lda, (size_t)depth * sizeof *to);
        else
            job->kernels->narrow(depth, wide + i * lda, to);
        memset(to + depth, 0, (size_t)(filled - depth) * sizeof *to);
    }
}

/* Packs or rounds rows of op(a) into `block`, or returns them where they are. `columns`: columns of c that are computed from them,
 * which decides whether packing pays. */
static operand prepare_rows(const job *job, const void *a, int64_t row, int64_t rows, int64_t step, int64_t depth,
                            int64_t columns, char *block) {
    const rcvi_matmul *matmul = job->matmul;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) {
        round_rows(job, a, row, rows, step, depth, (uint16_t *)(void *)block);
        return (operand){block, job->row_stride, false};
    }
    bool transposed = matmul->transpose_a;
    int64_t lda = matmul->lda * job->size;
    const char *from = at(a, transposed ? step * matmul->lda + row : row * matmul->lda + step, job->size);
    if (columns < COPY_PANELS * job->products->panel || rows < ROW_UNIT)
        return (operand){from, matmul->lda, transposed};
    void (*pack_a)(int64_t, int64_t, const void *, int64_t, void *) =
        transposed ? job->products->pack_a_transposed : job->products->pack_a;
    if (pack_a) {
        pack_a(rows, depth, from, matmul->lda, block);
        return (operand){block, RCVI_PACKED_A, false};
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(block + i * job->row_stride * job->size, from + i * lda, (size_t)(depth * job->size));
    return (operand){block, job->row_stride, false};
}

/* ---- general ------------------------------------------------------------------------------------------------------- */

/* c[rows, columns] (+)= rows of a times columns column .. of packed panels, the first of which begins at column `base`. */
static void multiply_block(const job *job, const operand *rows_of_a, int64_t rows, int64_t depth, const void *panels,
                           int64_t base, int64_t column, int64_t columns, bool accumulate, char *c) {
    const rcvi_product_kernels *products = job->products;
    int64_t panel_bytes = panel_size(job, depth);
    int64_t ldc = job->matmul->ldc, end = column + columns;
    while (column < end) {
        int64_t index = (column - base) / products->panel, first = (column - base) % products->panel;
        int64_t width = min(products->panel - first, end - column);
        const char *panel = (const char *)panels + index * panel_bytes;
        const char *next = column + width < end ? panel + panel_bytes : NULL;
        (rows_of_a->transposed ? products->product_transposed
                               : products->product)(rows, width, depth, rows_of_a->data, rows_of_a->stride, panel,
                                                    first, accumulate ? c : NULL, ldc, c, ldc, next);
        c += width * job->size;
        column += width;
    }
}

static void pack_b(const job *job, const void *b, int64_t column, int64_t columns, int64_t step, int64_t depth,
                   int64_t first, int64_t end, void *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t down = matmul->transpose_b ? 1 : matmul->ldb, along = matmul->transpose_b ? matmul->ldb : 1;
    job->products->pack(columns, depth, at(b, step * down + column * along, job->size), down, along, first, end, to);
}

/* Packs b that is stored in bfloat16, panel by panel, through `wide`, [depth, panel] floats. */
static void pack_narrow_b(const job *job, const uint16_t *b, int64_t column, int64_t columns, int64_t step,
                          int64_t depth, float *wide, char *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, bytes = panel_size(job, depth);
    bool transposed = matmul->transpose_b;
    for (int64_t done = 0; done < columns; done += panel, to += bytes) {
        int64_t width = min(panel, columns - done), lines = transposed ? width : depth,
                length = transposed ? depth : width;
        int64_t first = transposed ? (column + done) * matmul->ldb + step : step * matmul->ldb + column + done;
        for (int64_t i = 0; i < lines; i++) job->kernels->widen(length, b + first + i * matmul->ldb, wide + i * length);
        job->products->pack(width, depth, wide, transposed ? 1 : length, transposed ? length : 1, 0, 1, to);
    }
}

/* Multiplies one block of k: for each block of columns, for each block of rows. */
static void multiply_k_block(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, int64_t step,
                             const char *packed, void *c, char *scratch, const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t height = block_rows(job, part->rows), depth = min(job->depth, matmul->k - step);
    int64_t last_column = part->column + part->columns, last_row = part->row + part->rows;
    bool keep = part->rows <= job->kept_rows;
    for (int64_t column = part->column; column < last_column; column += job->columns) {
        int64_t columns = min(job->columns, last_column - column);
        const char *panels = packed ? packed : scratch + layout->packed;
        if (!packed && matmul->narrow_b)
            pack_narrow_b(job, b, column, columns, step, depth, (float *)(void *)(scratch + layout->wide),
                          scratch + layout->packed);
        else if (!packed)
            pack_b(job, b, column, columns, step, depth, 0, divide_up(columns, job->products->panel),
                   scratch + layout->packed);
        for (int64_t row = part->row; row < last_row; row += height) {
            int64_t rows = min(height, last_row - row);
            char *block = scratch + layout->block + (keep ? (row - part->row) * job->row_stride * job->operand : 0);
            operand rows_of_a = {block, job->row_stride, false};
            if (!keep || column == part->column)
                rows_of_a = prepare_rows(job, a, row, rows, step, depth, columns, block);
            multiply_block(job, &rows_of_a, rows, depth, panels, packed ? 0 : column, column, columns,
                           matmul->accumulate || step > 0, at_out(c, row * matmul->ldc + column, job->size));
        }
    }
}

/* `packed`: all of b, packed by rcvi_matmul_pack_share, or NULL. */
static void multiply_general(const job *job, const rcvi_matmul_part *part, const void *a, const void *b,
                             const char *packed, void *c, char *scratch, const scratch_layout *layout) {
    int64_t bytes = divide_up(job->matmul->n, job->products->panel) * panel_size(job, job->depth);
    for (int64_t step = 0, i = 0; step < job->matmul->k; step += job->depth, i++)
        multiply_k_block(job, part, a, b, step, packed ? packed + i * bytes : NULL, c, scratch, layout);
}

/* ---- few rows ------------------------------------------------------------------------------------------------------ */

static void multiply_unpacked(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, void *c,
                              char *scratch, const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    for (int64_t step = 0; step < matmul->k; step += job->depth) {
        int64_t depth = min(job->depth, matmul->k - step);
        const void *rows = at(a, part->row * matmul->lda + step, job->size);
        int64_t stride = matmul->lda;
        if (matmul->transpose_a) {
            stride = job->depth;
            rows = scratch + layout->rows;
            transpose(part->rows, depth, at(a, step * matmul->lda + part->row, job->size), matmul->lda, job->size,
                      scratch + layout->rows, stride);
        }
        job->products->product_unpacked(part->rows, part->columns, depth, rows, stride,
                                        at(b, step * matmul->ldb + part->column, job->size), matmul->ldb,
                                        matmul->accumulate || step > 0,
                                        at_out(c, part->row * matmul->ldc + part->column, job->size), matmul->ldc);
    }
}

/* Computes c^T[columns, rows] of the part in scratch, then transposes it to c; with one row c^T is c itself. */
static void multiply_transposed(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, void *c,
                                char *scratch, const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t down = matmul->transpose_a ? matmul->lda : 1, along = matmul->transpose_a ? 1 : matmul->lda;
    int64_t panel_bytes = panel_size(job, job->depth);
    for (int64_t step = 0, i = 0; step < matmul->k; step += job->depth, i++)
        job->products->pack(part->rows, min(job->depth, matmul->k - step),
                            at(a, step * down + part->row * along, job->size), down, along, 0, 1,
                            scratch + layout->packed + i * panel_bytes);
    bool direct = part->rows == 1;
    int64_t transposed_row = direct ? 1 : part->rows, last = part->column + part->columns;
    for (int64_t column = part->column; column < last; column += TRANSPOSED_COLUMNS) {
        int64_t columns = min(TRANSPOSED_COLUMNS, last - column);
        char *corner = at_out(c, part->row * matmul->ldc + column, job->size);
        char *transposed = direct ? corner : scratch + layout->block;
        if (matmul->accumulate && !direct)
            transpose(columns, part->rows, corner, matmul->ldc, job->size, transposed, transposed_row);
        for (int64_t step = 0, i = 0; step < matmul->k; step += job->depth, i++)
            job->products->product(
                columns, part->rows, min(job->depth, matmul->k - step), at(b, column * matmul->ldb + step, job->size),
                matmul->ldb, scratch + layout->packed + i * panel_bytes, 0,
                matmul->accumulate || step > 0 ? transposed : NULL, transposed_row, transposed, transposed_row, NULL);
        if (!direct) transpose(part->rows, columns, transposed, transposed_row, job->size, corner, matmul->ldc);
    }
}

/* ---- shares -------------------------------------------------------------------------------------------------------- */

static scratch_layout lay_out(const job *job, algorithm algorithm, bool packed) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t pack_bytes = 0, block = 0, rows = 0, wide = 0;
    switch (algorithm) {
    case GENERAL:
        if (!packed && matmul->narrow_b) wide = job->products->panel * job->depth * (int64_t)sizeof(float);
        if (!packed)
            pack_bytes = divide_up(min(job->columns, matmul->n), job->products->panel) * panel_size(job, job->depth);
        block = job->operand *
                (job->operand < job->size
                     ? min(round_up(matmul->m, ROUNDED_UNIT), max(job->rows, job->kept_rows)) * job->row_stride
                     : BLOCK_ROWS * job->row_stride);
        break;
    case UNPACKED_B:
        if (matmul->transpose_a) rows = UNPACKED_ROWS * job->depth * job->size;
        break;
    case TRANSPOSED_C:
        pack_bytes = divide_up(matmul->k, job->depth) * panel_size(job, job->depth);
        block = TRANSPOSED_COLUMNS * matmul->m * job->size;
        break;
    }
    scratch_layout layout = {.packed = 0};
    layout.block = round_up(pack_bytes, RCVI_MATMUL_ALIGN);
    layout.rows = layout.block + round_up(block, RCVI_MATMUL_ALIGN);
    layout.wide = layout.rows + round_up(rows, RCVI_MATMUL_ALIGN);
    layout.total = layout.wide + round_up(wide, RCVI_MATMUL_ALIGN);
    return layout;
}

static int64_t lines(int64_t bytes) { return round_up(bytes, RCVI_MATMUL_ALIGN); }

/* Upper bounds of the scratch of this product and of all products of fewer rows or less k. Fewer rows may select another
 * algorithm, and less k may be divided into deeper blocks (bfloat16: 1168 into two of 608, 1022 into one of 1024). `job` has the
 * deepest block. */
static int64_t general_scratch(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, one = panel_size(job, job->depth), row = job->row_stride * job->operand;
    int64_t packed = max(one, min(COLUMN_BYTES, divide_up(matmul->n, panel) * one));
    int64_t block = BLOCK_ROWS * row, wide = matmul->narrow_b ? panel * job->depth * (int64_t)sizeof(float) : 0;
    if (job->operand < job->size)
        block = min(round_up(matmul->m, ROUNDED_UNIT) * row, max(job->rows * row, KEPT_BYTES));
    return lines(packed) + lines(block) + lines(wide);
}

static int64_t few_rows_scratch(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, unit = LINE_BYTES / job->operand;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) return 0;
    if (!matmul->transpose_b) return matmul->transpose_a ? lines(UNPACKED_ROWS * job->depth * job->size) : 0;
    int64_t blocks = divide_up(matmul->k, DEPTH_BYTES / job->operand), depth = matmul->k + max(1, blocks) * unit;
    return lines(panel_size(job, depth)) + lines(TRANSPOSED_COLUMNS * min(matmul->m, panel) * job->size);
}

int64_t rcvi_matmul_scratch(const rcvi_kernels *kernels, const rcvi_matmul *matmul, int members) {
    (void)members;
    job job = prepare(kernels, matmul);
    job.depth = min(round_up(max(matmul->k, 1), LINE_BYTES / job.operand), DEPTH_BYTES / job.operand);
    job.row_stride = odd_lines(job.depth, job.operand);
    return max(general_scratch(&job), few_rows_scratch(&job));
}

/* True if there is anything to multiply. With k = 0 the product is zero, which is written here. */
static bool is_not_empty(const job *job, const rcvi_matmul_part *part, void *c) {
    const rcvi_matmul *matmul = job->matmul;
    if (part->rows == 0 || part->columns == 0) return false;
    if (matmul->k > 0) return true;
    for (int64_t i = 0; i < part->rows && !matmul->accumulate; i++)
        memset(at_out(c, (part->row + i) * matmul->ldc + part->column, job->size), 0,
               (size_t)(part->columns * job->size));
    return false;
}

void rcvi_matmul_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *b, void *c,
                       int member, int members, void *scratch) {
    job job = prepare(kernels, matmul);
    rcvi_matmul_part part = rcvi_matmul_cut(matmul, job.products->grain, member, members);
    if (!is_not_empty(&job, &part, c)) return;
    scratch_layout layout = lay_out(&job, job.algorithm, false);
    switch (job.algorithm) {
    case GENERAL: multiply_general(&job, &part, a, b, NULL, c, scratch, &layout); break;
    case UNPACKED_B: multiply_unpacked(&job, &part, a, b, c, scratch, &layout); break;
    case TRANSPOSED_C: multiply_transposed(&job, &part, a, b, c, scratch, &layout); break;
    }
}

int64_t rcvi_matmul_packed_bytes(const rcvi_kernels *kernels, const rcvi_matmul *matmul) {
    job job = prepare(kernels, matmul);
    return divide_up(matmul->k, job.depth) * divide_up(matmul->n, job.products->panel) * panel_size(&job, job.depth);
}

void rcvi_matmul_pack_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *b, int member,
                            int members, void *packed) {
    job job = prepare(kernels, matmul);
    int64_t first, count, bytes = divide_up(matmul->n, job.products->panel) * panel_size(&job, job.depth);
    cut(divide_up(matmul->n, job.products->panel), 1, member, members, &first, &count);
    for (int64_t step = 0, i = 0; step < matmul->k; step += job.depth, i++)
        pack_b(&job, b, 0, matmul->n, step, min(job.depth, matmul->k - step), first, first + count,
               (char *)packed + i * bytes);
}

void rcvi_matmul_packed_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *packed,
                              void *c, int member, int members, void *scratch) {
    job job = prepare(kernels, matmul);
    rcvi_matmul_part part = rcvi_matmul_cut(matmul, job.products->grain, member, members);
    if (!is_not_empty(&job, &part, c)) return;
    scratch_layout layout = lay_out(&job, GENERAL, true);
    multiply_general(&job, &part, a, NULL, packed, c, scratch, &layout);
}

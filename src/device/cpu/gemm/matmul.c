/* Three ways to the same bits, by the size of m:
 *
 *   general   for each block of columns and of k: b is packed; for each block of rows: a is brought close together where
 *             that pays (or rounded, for bfloat16), and meets the packed panels one after another
 *   plain     few rows and b not transposed: b is used where it lies
 *   swapped   few rows and b transposed: c^T = b a^T, so that the small operand is the one that is packed
 *
 * Blocks are sized for the caches: a panel of one block of k for the first level, a block of a and one of b for the
 * second. */
#include "device/cpu/gemm/matmul.h"

#include <math.h>
#include <string.h>

enum {
    DEPTH_BYTES = 2048,     /* of one column of a block of k */
    COLUMN_BYTES = 1 << 20, /* of a packed block of b */
    ROWS = 48,              /* of a block of a */
    NARROWED_ROWS = 128,    /* of one that is rounded */
    KEPT_BYTES = 5 << 18,   /* of all rows of a, to be rounded once only */
    ROW_UNIT = 8,           /* rows are cut at multiples of this */
    NARROWED_UNIT = 32,     /* blocks of them, where they are rounded */
    PLAIN_ROWS = 8,         /* at most, for the plain way */
    SWAPPED_COLUMNS = 256,  /* of c that the swapped way takes at once */
    COPY_PANELS = 4,        /* of columns, from which on a is copied */
    LINE_BYTES = 64
};

typedef enum { GENERAL, PLAIN, SWAPPED } way;

typedef struct {
    const rcvi_kernels *kernels;
    const rcvi_product_kernels *products;
    const rcvi_matmul *matmul;
    way way;
    int64_t size;       /* bytes of an element of a, b and c */
    int64_t operand;    /* bytes of an element of what the kernels multiply */
    int64_t depth;      /* of a block of k; the last one may be smaller */
    int64_t columns;    /* of a packed block */
    int64_t row_stride; /* elements from row to row of a copied block of a */
    int64_t rows;       /* of a block of a, at most */
    int64_t kept_rows;  /* of a, that can be kept while blocks of columns meet them */
} job;

/* Parts of a member's scratch, in bytes: packed panels, a block of a, rows of a turned, a panel of b widened. */
typedef struct {
    int64_t packed, block, rows, wide, total;
} scratch_layout;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

static const char *at(const void *base, int64_t elements, int64_t size) { return (const char *)base + elements * size; }
static char *at_out(void *base, int64_t elements, int64_t size) { return (char *)base + elements * size; }

/* Elements of a row that takes an odd number of cache lines, so that rows start at different sets of a cache. */
static int64_t odd_lines(int64_t elements, int64_t size) {
    return (divide_up(elements * size, LINE_BYTES) | 1) * LINE_BYTES / size;
}

static way choose(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) return GENERAL;
    if (matmul->transpose_b) return matmul->m <= job->products->panel ? SWAPPED : GENERAL;
    return matmul->m <= PLAIN_ROWS ? PLAIN : GENERAL;
}

static job prepare(const rcvi_kernels *kernels, const rcvi_matmul *matmul) {
    job job = {.kernels = kernels, .products = &kernels->products[matmul->type], .matmul = matmul};
    job.size = matmul->type == RCVI_KERNEL_DOUBLE ? 8 : 4;
    job.operand = matmul->type == RCVI_KERNEL_BFLOAT16 ? 2 : job.size;
    int64_t unit = LINE_BYTES / job.operand;
    int64_t blocks = most(1, divide_up(matmul->k, DEPTH_BYTES / job.operand));
    job.depth = most(unit, round_up(divide_up(matmul->k, blocks), unit));
    job.columns = most(1, COLUMN_BYTES / (job.depth * job.operand) / job.products->panel) * job.products->panel;
    job.row_stride = odd_lines(job.depth, job.operand);
    job.rows = ROWS;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) {
        job.rows = NARROWED_ROWS;
        if (matmul->n > job.columns) job.kept_rows = most(job.rows, KEPT_BYTES / (job.row_stride * job.operand));
    }
    job.way = choose(&job);
    return job;
}

/* Rows of the blocks of a into which `rows` are cut. */
static int64_t block_rows(const job *job, int64_t rows) {
    int64_t unit = job->operand < job->size ? NARROWED_UNIT : ROW_UNIT;
    return round_up(divide_up(rows, divide_up(rows, job->rows)), unit);
}

/* ---- the cut over members ------------------------------------------------------------------------------------------ */

static void cut(int64_t extent, int64_t unit, int64_t index, int64_t count, int64_t *first, int64_t *length) {
    int64_t units = divide_up(extent, unit);
    int64_t begin = least(extent, units * index / count * unit);
    *first = begin;
    *length = least(extent, units * (index + 1) / count * unit) - begin;
}

/* Of all grids of `members`, the one whose largest share takes least: its products, and what it brings together. */
rcvi_matmul_part rcvi_matmul_cut(const rcvi_matmul *matmul, int64_t grain, int member, int members) {
    enum { BRING = 8 }; /* products in whose time an element is packed */
    int64_t row_unit = matmul->m >= (int64_t)ROW_UNIT * members ? ROW_UNIT : 1;
    int64_t best = 1;
    double least_cost = INFINITY;
    for (int64_t across = 1; across <= members; across++) {
        if (members % across != 0) continue;
        double rows = (double)(divide_up(divide_up(matmul->m, row_unit), members / across) * row_unit);
        double columns = (double)(divide_up(divide_up(matmul->n, grain), across) * grain);
        double cost = rows * columns + BRING * (rows + columns);
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

/* Some rows of op(a) over a block of k, as a kernel takes them. */
typedef struct {
    const void *data;
    int64_t stride;
    bool transposed;
} operand;

static inline void turn_elements(int64_t rows, int64_t columns, const char *from, int64_t from_row, int64_t size,
                                 char *to, int64_t to_row) {
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + (i * to_row + j) * size, from + (j * from_row + i) * size, (size_t)size);
    }
}

/* to[rows, columns] = from[columns, rows] transposed. */
static void turn(int64_t rows, int64_t columns, const void *from, int64_t from_row, int64_t size, void *to,
                 int64_t to_row) {
    if (size == 4)
        turn_elements(rows, columns, from, from_row, 4, to, to_row);
    else
        turn_elements(rows, columns, from, from_row, 8, to, to_row);
}

/* to[i, p] = op(a)[row + i, step + p], rounded and filled up with zeros. */
static void narrow(const job *job, const void *a, int64_t row, int64_t rows, int64_t step, int64_t depth,
                   uint16_t *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t lda = matmul->lda, filled = round_up(depth, job->products->group);
    int64_t first = matmul->transpose_a ? step * lda + row : row * lda + step;
    const float *wide = matmul->narrow_a ? NULL : (const float *)a + first;
    const uint16_t *ready = matmul->narrow_a ? (const uint16_t *)a + first : NULL;
    if (matmul->transpose_a) {
        if (ready)
            job->kernels->turn_narrow(rows, depth, ready, lda, to, job->row_stride);
        else
            job->kernels->narrow_transposed(rows, depth, wide, lda, to, job->row_stride);
        return;
    }
    for (int64_t i = 0; i < rows; i++, to += job->row_stride) {
        if (ready)
            memcpy(to, ready + i * lda, (size_t)depth * sizeof *to);
        else
            job->kernels->narrow(depth, wide + i * lda, to);
        memset(to + depth, 0, (size_t)(filled - depth) * sizeof *to);
    }
}

/* `columns`: how many of c the operand will meet, which decides whether it is worth copying as it lies. */
static operand bring(const job *job, const void *a, int64_t row, int64_t rows, int64_t step, int64_t depth,
                     int64_t columns, char *block) {
    const rcvi_matmul *matmul = job->matmul;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) {
        narrow(job, a, row, rows, step, depth, (uint16_t *)(void *)block);
        return (operand){block, job->row_stride, false};
    }
    bool transposed = matmul->transpose_a;
    int64_t lda = matmul->lda * job->size;
    const char *from = at(a, transposed ? step * matmul->lda + row : row * matmul->lda + step, job->size);
    if (columns < COPY_PANELS * job->products->panel || rows < ROW_UNIT)
        return (operand){from, matmul->lda, transposed};
    void (*arrange)(int64_t, int64_t, const void *, int64_t, void *) =
        transposed ? job->products->arrange_transposed : job->products->arrange;
    if (arrange) {
        arrange(rows, depth, from, matmul->lda, block);
        return (operand){block, RCVI_ARRANGED, false};
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(block + i * job->row_stride * job->size, from + i * lda, (size_t)(depth * job->size));
    return (operand){block, job->row_stride, false};
}

/* ---- general ------------------------------------------------------------------------------------------------------- */

/* Rows of c against columns `column` .. of packed panels, whose first column is `base`. */
static void meet(const job *job, const operand *rows_of_a, int64_t rows, int64_t depth, const void *panels,
                 int64_t base, int64_t column, int64_t columns, bool accumulate, char *c) {
    const rcvi_product_kernels *products = job->products;
    int64_t panel_bytes = panel_size(job, depth);
    int64_t ldc = job->matmul->ldc, end = column + columns;
    while (column < end) {
        int64_t index = (column - base) / products->panel, first = (column - base) % products->panel;
        int64_t width = least(products->panel - first, end - column);
        const char *panel = (const char *)panels + index * panel_bytes;
        const char *next = column + width < end ? panel + panel_bytes : NULL;
        (rows_of_a->transposed ? products->product_transposed
                               : products->product)(rows, width, depth, rows_of_a->data, rows_of_a->stride, panel,
                                                    first, accumulate ? c : NULL, ldc, c, ldc, next);
        c += width * job->size;
        column += width;
    }
}

static void pack(const job *job, const void *b, int64_t column, int64_t columns, int64_t step, int64_t depth,
                 int64_t first, int64_t end, void *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t down = matmul->transpose_b ? 1 : matmul->ldb, along = matmul->transpose_b ? matmul->ldb : 1;
    job->products->pack(columns, depth, at(b, step * down + column * along, job->size), down, along, first, end, to);
}

/* The same of b in bfloat16, by way of `wide`, [depth, panel] floats: a panel at a time. */
static void pack_narrow(const job *job, const uint16_t *b, int64_t column, int64_t columns, int64_t step, int64_t depth,
                        float *wide, char *to) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, bytes = panel_size(job, depth);
    bool turned = matmul->transpose_b;
    for (int64_t done = 0; done < columns; done += panel, to += bytes) {
        int64_t width = least(panel, columns - done), lines = turned ? width : depth, length = turned ? depth : width;
        int64_t first = turned ? (column + done) * matmul->ldb + step : step * matmul->ldb + column + done;
        for (int64_t i = 0; i < lines; i++) job->kernels->widen(length, b + first + i * matmul->ldb, wide + i * length);
        job->products->pack(width, depth, wide, turned ? 1 : length, turned ? length : 1, 0, 1, to);
    }
}

/* One block of k: its columns in blocks, and of each the rows in blocks. */
static void general_step(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, int64_t step,
                         const char *packed, void *c, char *scratch, const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t height = block_rows(job, part->rows), depth = least(job->depth, matmul->k - step);
    int64_t last_column = part->column + part->columns, last_row = part->row + part->rows;
    bool keep = part->rows <= job->kept_rows;
    for (int64_t column = part->column; column < last_column; column += job->columns) {
        int64_t columns = least(job->columns, last_column - column);
        const char *panels = packed ? packed : scratch + layout->packed;
        if (!packed && matmul->narrow_b)
            pack_narrow(job, b, column, columns, step, depth, (float *)(void *)(scratch + layout->wide),
                        scratch + layout->packed);
        else if (!packed)
            pack(job, b, column, columns, step, depth, 0, divide_up(columns, job->products->panel),
                 scratch + layout->packed);
        for (int64_t row = part->row; row < last_row; row += height) {
            int64_t rows = least(height, last_row - row);
            char *block = scratch + layout->block + (keep ? (row - part->row) * job->row_stride * job->operand : 0);
            operand rows_of_a = {block, job->row_stride, false};
            if (!keep || column == part->column) rows_of_a = bring(job, a, row, rows, step, depth, columns, block);
            meet(job, &rows_of_a, rows, depth, panels, packed ? 0 : column, column, columns,
                 matmul->accumulate || step > 0, at_out(c, row * matmul->ldc + column, job->size));
        }
    }
}

/* `packed`: the whole of b packed before, or NULL. */
static void general(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, const char *packed,
                    void *c, char *scratch, const scratch_layout *layout) {
    int64_t bytes = divide_up(job->matmul->n, job->products->panel) * panel_size(job, job->depth);
    for (int64_t step = 0, i = 0; step < job->matmul->k; step += job->depth, i++)
        general_step(job, part, a, b, step, packed ? packed + i * bytes : NULL, c, scratch, layout);
}

/* ---- few rows ------------------------------------------------------------------------------------------------------ */

static void plain(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, void *c, char *scratch,
                  const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    for (int64_t step = 0; step < matmul->k; step += job->depth) {
        int64_t depth = least(job->depth, matmul->k - step);
        const void *rows = at(a, part->row * matmul->lda + step, job->size);
        int64_t stride = matmul->lda;
        if (matmul->transpose_a) {
            stride = job->depth;
            rows = scratch + layout->rows;
            turn(part->rows, depth, at(a, step * matmul->lda + part->row, job->size), matmul->lda, job->size,
                 scratch + layout->rows, stride);
        }
        job->products->product_plain(part->rows, part->columns, depth, rows, stride,
                                     at(b, step * matmul->ldb + part->column, job->size), matmul->ldb,
                                     matmul->accumulate || step > 0,
                                     at_out(c, part->row * matmul->ldc + part->column, job->size), matmul->ldc);
    }
}

/* c^T[columns, rows] of the part, by way of `turned`; where it is one row, c^T lies in memory as c does. */
static void swapped(const job *job, const rcvi_matmul_part *part, const void *a, const void *b, void *c, char *scratch,
                    const scratch_layout *layout) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t down = matmul->transpose_a ? matmul->lda : 1, along = matmul->transpose_a ? 1 : matmul->lda;
    int64_t panel_bytes = panel_size(job, job->depth);
    for (int64_t step = 0, i = 0; step < matmul->k; step += job->depth, i++)
        job->products->pack(part->rows, least(job->depth, matmul->k - step),
                            at(a, step * down + part->row * along, job->size), down, along, 0, 1,
                            scratch + layout->packed + i * panel_bytes);
    bool direct = part->rows == 1;
    int64_t turned_row = direct ? 1 : part->rows, last = part->column + part->columns;
    for (int64_t column = part->column; column < last; column += SWAPPED_COLUMNS) {
        int64_t columns = least(SWAPPED_COLUMNS, last - column);
        char *corner = at_out(c, part->row * matmul->ldc + column, job->size);
        char *turned = direct ? corner : scratch + layout->block;
        if (matmul->accumulate && !direct)
            turn(columns, part->rows, corner, matmul->ldc, job->size, turned, turned_row);
        for (int64_t step = 0, i = 0; step < matmul->k; step += job->depth, i++)
            job->products->product(
                columns, part->rows, least(job->depth, matmul->k - step), at(b, column * matmul->ldb + step, job->size),
                matmul->ldb, scratch + layout->packed + i * panel_bytes, 0,
                matmul->accumulate || step > 0 ? turned : NULL, turned_row, turned, turned_row, NULL);
        if (!direct) turn(part->rows, columns, turned, turned_row, job->size, corner, matmul->ldc);
    }
}

/* ---- shares -------------------------------------------------------------------------------------------------------- */

static scratch_layout lay_out(const job *job, way way, bool packed) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t pack_bytes = 0, block = 0, rows = 0, wide = 0;
    switch (way) {
    case GENERAL:
        if (!packed && matmul->narrow_b) wide = job->products->panel * job->depth * (int64_t)sizeof(float);
        if (!packed)
            pack_bytes = divide_up(least(job->columns, matmul->n), job->products->panel) * panel_size(job, job->depth);
        block = job->operand *
                (job->operand < job->size
                     ? least(round_up(matmul->m, NARROWED_UNIT), most(job->rows, job->kept_rows)) * job->row_stride
                     : ROWS * job->row_stride);
        break;
    case PLAIN:
        if (matmul->transpose_a) rows = PLAIN_ROWS * job->depth * job->size;
        break;
    case SWAPPED:
        pack_bytes = divide_up(matmul->k, job->depth) * panel_size(job, job->depth);
        block = SWAPPED_COLUMNS * matmul->m * job->size;
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

/* Of fewer rows another way may be chosen, and less depth may be cut into deeper blocks (1168 of bfloat16 into two of 608, 1022 into one of
 * 1024): so each part is bounded over all of them. `job` has the deepest block. */
static int64_t most_general(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, one = panel_size(job, job->depth), row = job->row_stride * job->operand;
    int64_t packed = most(one, least(COLUMN_BYTES, divide_up(matmul->n, panel) * one));
    int64_t block = ROWS * row, wide = matmul->narrow_b ? panel * job->depth * (int64_t)sizeof(float) : 0;
    if (job->operand < job->size)
        block = least(round_up(matmul->m, NARROWED_UNIT) * row, most(job->rows * row, KEPT_BYTES));
    return lines(packed) + lines(block) + lines(wide);
}

static int64_t most_of_few_rows(const job *job) {
    const rcvi_matmul *matmul = job->matmul;
    int64_t panel = job->products->panel, unit = LINE_BYTES / job->operand;
    if (matmul->type == RCVI_KERNEL_BFLOAT16) return 0;
    if (!matmul->transpose_b) return matmul->transpose_a ? lines(PLAIN_ROWS * job->depth * job->size) : 0;
    int64_t blocks = divide_up(matmul->k, DEPTH_BYTES / job->operand), depth = matmul->k + most(1, blocks) * unit;
    return lines(panel_size(job, depth)) + lines(SWAPPED_COLUMNS * least(matmul->m, panel) * job->size);
}

int64_t rcvi_matmul_scratch(const rcvi_kernels *kernels, const rcvi_matmul *matmul, int members) {
    (void)members;
    job job = prepare(kernels, matmul);
    job.depth = least(round_up(most(matmul->k, 1), LINE_BYTES / job.operand), DEPTH_BYTES / job.operand);
    job.row_stride = odd_lines(job.depth, job.operand);
    return most(most_general(&job), most_of_few_rows(&job));
}

/* Whether there is anything to multiply; a product over no k is zero. */
static bool begin(const job *job, const rcvi_matmul_part *part, void *c) {
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
    if (!begin(&job, &part, c)) return;
    scratch_layout layout = lay_out(&job, job.way, false);
    switch (job.way) {
    case GENERAL: general(&job, &part, a, b, NULL, c, scratch, &layout); break;
    case PLAIN: plain(&job, &part, a, b, c, scratch, &layout); break;
    case SWAPPED: swapped(&job, &part, a, b, c, scratch, &layout); break;
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
        pack(&job, b, 0, matmul->n, step, least(job.depth, matmul->k - step), first, first + count,
             (char *)packed + i * bytes);
}

void rcvi_matmul_packed_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *packed,
                              void *c, int member, int members, void *scratch) {
    job job = prepare(kernels, matmul);
    rcvi_matmul_part part = rcvi_matmul_cut(matmul, job.products->grain, member, members);
    if (!begin(&job, &part, c)) return;
    scratch_layout layout = lay_out(&job, GENERAL, true);
    general(&job, &part, a, NULL, packed, c, scratch, &layout);
}

/* Tests of the CPU's kernels: every set that this machine has, every type, against sums in double. */
#include "sample.h"
#include "test.h"

#include "device/cpu/kernels/kernels.h"

#include <math.h>

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}
static double random_number(void) { return random_bits() * 0x1p-31 - 1; }

static const char *const type_names[] = {"float", "double", "bfloat16"};

static float widened(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The definition of rounding to bfloat16: the nearer of the two neighbours, or the even one for ties. */
static uint16_t rounded(float x) {
    uint32_t bits = bits_of(x), below = bits >> 16, rest = bits & 0xffff;
    if (isnan(x)) return (uint16_t)(below | 0x40);
    return (uint16_t)(below + (rest > 0x8000 || (rest == 0x8000 && (below & 1))));
}

static size_t result_size(int type) { return type == RCVI_KERNEL_DOUBLE ? sizeof(double) : sizeof(float); }
static size_t operand_size(int type) { return type == RCVI_KERNEL_BFLOAT16 ? sizeof(uint16_t) : result_size(type); }

static double get(int type, const void *from, int64_t i) {
    return type == RCVI_KERNEL_DOUBLE ? ((const double *)from)[i] : ((const float *)from)[i];
}
static void put(int type, void *to, int64_t i, double x) {
    if (type == RCVI_KERNEL_DOUBLE) {
        ((double *)to)[i] = x;
    } else {
        ((float *)to)[i] = (float)x;
    }
}

/* Allocates exactly so many bytes, so that a sanitizer reports an access to the first byte after them. */
static void *allocate_exactly(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* One product: operands, their packed and rounded forms, and the sums in double with the sums of magnitudes. */
typedef struct {
    const rcvi_kernels *set;
    int type;
    const rcvi_product_kernels *kernels;
    int64_t rows, columns, depth;
    int64_t filled, a_row, a_step, b_step;
    void *a;            /* [rows, a_row]; bfloat16: rounded, padded with zeros to `filled` */
    void *a_transposed; /* [depth, a_step] */
    void *b;            /* [depth, b_step], of the source type */
    void *b_turned;     /* [columns, depth] */
    void *packed;
    void *a_memory;       /* the allocation of a */
    double *sums, *sizes; /* [rows, columns] */
} problem;

static double operand_of(const problem *p, double x) {
    return p->type == RCVI_KERNEL_BFLOAT16 ? widened(rounded((float)x)) : x;
}

static void make_a(problem *p) {
    size_t size = operand_size(p->type), align = p->type == RCVI_KERNEL_BFLOAT16 ? 64 : size;
    int64_t used = (p->rows - 1) * p->a_row + p->filled;
    p->a_memory = NULL;
    if (align == 64) {
        assert_int_equal(posix_memalign(&p->a_memory, 64, (size_t)used * size), 0);
        p->a = p->a_memory;
    } else {
        p->a = p->a_memory = allocate_exactly((size_t)used * size);
    }
    memset(p->a, 0, (size_t)used * size);
    p->a_transposed =
        allocate_exactly(((size_t)(p->depth - 1) * (size_t)p->a_step + (size_t)p->rows) * result_size(p->type));
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t k = 0; k < p->depth; k++) {
            float x = (float)random_number();
            put(p->type, p->a_transposed, k * p->a_step + i, x);
            if (p->type == RCVI_KERNEL_BFLOAT16) {
                ((uint16_t *)p->a)[i * p->a_row + k] = rounded(x);
            } else {
                put(p->type, p->a, i * p->a_row + k, x);
            }
        }
    }
}

static void problem_new(problem *p, const rcvi_kernels *set, int type, int64_t rows, int64_t columns, int64_t depth) {
    const rcvi_product_kernels *kernels = &set->products[type];
    *p = (problem){.set = set, .type = type, .kernels = kernels, .rows = rows, .columns = columns, .depth = depth};
    p->filled = (depth + kernels->group - 1) / kernels->group * kernels->group;
    p->a_row = type == RCVI_KERNEL_BFLOAT16 ? (p->filled + 31) / 32 * 32 + 32 : depth + rows % 3;
    p->a_step = rows + depth % 3;
    p->b_step = columns + depth % 2;
    make_a(p);
    size_t size = result_size(type);
    p->b = allocate_exactly(((size_t)(depth - 1) * (size_t)p->b_step + (size_t)columns) * size);
    p->b_turned = allocate_exactly((size_t)columns * (size_t)depth * size);
    p->packed = allocate_exactly((size_t)rcvi_packed_elements(kernels, columns, depth) * operand_size(type));
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t j = 0; j < columns; j++) {
            float x = (float)random_number();
            put(type, p->b, k * p->b_step + j, x);
            put(type, p->b_turned, j * depth + k, x);
        }
    }
    p->sums = allocate_exactly((size_t)(rows * columns) * sizeof(double));
    p->sizes = allocate_exactly((size_t)(rows * columns) * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < depth; k++) {
                double term = operand_of(p, get(type, p->a_transposed, k * p->a_step + i)) *
                              operand_of(p, get(type, p->b, k * p->b_step + j));
                sum += term;
                magnitude += fabs(term);
            }
            p->sums[i * columns + j] = sum;
            p->sizes[i * columns + j] = magnitude;
        }
    }
}

static void problem_free(problem *p) {
    free(p->a_memory);
    free(p->a_transposed);
    free(p->b);
    free(p->b_turned);
    free(p->packed);
    free(p->sums);
    free(p->sizes);
}

/* Packs in two parts, from b or from its transpose. */
static void pack(problem *p, bool turned) {
    size_t bytes = (size_t)rcvi_packed_elements(p->kernels, p->columns, p->depth) * operand_size(p->type);
    int64_t panels = (p->columns + p->kernels->panel - 1) / p->kernels->panel, half = panels / 2;
    memset(p->packed, 0xff, bytes); /* NaN, so that an element that packing does not write is detected */
    const void *from = turned ? p->b_turned : p->b;
    int64_t step = turned ? 1 : p->b_step, column = turned ? p->depth : 1;
    p->kernels->pack(p->columns, p->depth, from, step, column, half, panels, p->packed);
    p->kernels->pack(p->columns, p->depth, from, step, column, 0, half, p->packed);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

enum { GUARD = 5 };

/* c: [rows, columns + GUARD], exactly up to the last row's last column. */
typedef struct {
    void *c;
    int64_t c_row, elements;
} result;

static const double guard = 1234.5, before = 0.75;

static void result_new(const problem *p, result *r, bool accumulate) {
    r->c_row = p->columns + GUARD;
    r->elements = (p->rows - 1) * r->c_row + p->columns;
    r->c = allocate_exactly((size_t)r->elements * result_size(p->type));
    for (int64_t e = 0; e < r->elements; e++) {
        put(p->type, r->c, e, e % r->c_row >= p->columns ? guard : accumulate ? before : NAN);
    }
}

static void check(const problem *p, const result *r, bool accumulate, const char *what) {
    /* Each of depth additions rounds once (the products too where they are not fused). */
    double unit = p->type == RCVI_KERNEL_DOUBLE ? 0x1p-53 : 0x1p-24;
    for (int64_t e = 0; e < r->elements; e++) {
        int64_t i = e / r->c_row, j = e % r->c_row;
        double found = get(p->type, r->c, e);
        if (j >= p->columns) {
            if (found != guard) fail_msg("%s %s: wrote behind row %d", p->set->name, what, (int)i);
            continue;
        }
        double start = accumulate ? before : 0, expected = start + p->sums[i * p->columns + j];
        double bound = ((double)p->filled + 3) * unit * (p->sizes[i * p->columns + j] + start) + 1e-37;
        if (!(fabs(found - expected) <= bound)) {
            fail_msg("%s %s %s: rows %d columns %d depth %d accumulate %d: (%d, %d) is %.9g, not %.9g", p->set->name,
                     type_names[p->type], what, (int)p->rows, (int)p->columns, (int)p->depth, accumulate, (int)i,
                     (int)j, found, expected);
        }
    }
}

static void check_same(const problem *p, const result *r, const result *s, const char *what) {
    for (int64_t i = 0; i < p->rows; i++) {
        size_t size = result_size(p->type);
        size_t at = (size_t)(i * r->c_row) * size;
        if (memcmp((char *)r->c + at, (char *)s->c + at, (size_t)p->columns * size) != 0) {
            fail_msg("%s %s: rows %d columns %d depth %d: row %d has other bits %s", p->set->name, type_names[p->type],
                     (int)p->rows, (int)p->columns, (int)p->depth, (int)i, what);
        }
    }
}

/* ---- products by panels --------------------------------------------------------------------------------------------- */

/* Multiplies rows i .. with columns of a panel, with a, or its transpose, packed. */
static void multiply_packed_a(const problem *p, bool transposed, int64_t i, int64_t rows, int64_t columns,
                              const void *panel, int64_t first, bool accumulate, void *c, int64_t c_row) {
    size_t of = operand_size(p->type);
    void *a_packed = allocate_exactly((size_t)(rows * ((p->depth + 3) / 4 * 4)) * of);
    if (transposed)
        p->kernels->pack_a_transposed(rows, p->depth, (const char *)p->a_transposed + (size_t)i * of, p->a_step,
                                      a_packed);
    else
        p->kernels->pack_a(rows, p->depth, (const char *)p->a + (size_t)(i * p->a_row) * of, p->a_row, a_packed);
    p->kernels->product(rows, columns, p->depth, a_packed, RCVI_PACKED_A, panel, first, accumulate ? c : NULL, c_row, c,
                        c_row, NULL);
    free(a_packed);
}

typedef enum { ROW_MAJOR, TRANSPOSED, PACKED_A, PACKED_A_TRANSPOSED } form_of_a;

/* Multiplies `block` rows and `piece` columns at a time; `piece` is a multiple of grain, or a whole panel. */
static void multiply(const problem *p, const result *r, form_of_a form, bool accumulate, int64_t block, int64_t piece) {
    const rcvi_product_kernels *kernels = p->kernels;
    size_t size = result_size(p->type), of = operand_size(p->type);
    for (int64_t j = 0; j < p->columns; j += kernels->panel) {
        const void *panel = (const char *)p->packed + (size_t)(j * p->filled) * of;
        int64_t width = p->columns - j < kernels->panel ? p->columns - j : kernels->panel;
        for (int64_t first = 0; first < width; first += piece) {
            int64_t columns = width - first < piece ? width - first : piece;
            for (int64_t i = 0; i < p->rows; i += block) {
                int64_t rows = p->rows - i < block ? p->rows - i : block;
                void *c = (char *)r->c + (size_t)(i * r->c_row + j + first) * size;
                if (form == PACKED_A || form == PACKED_A_TRANSPOSED) {
                    multiply_packed_a(p, form == PACKED_A_TRANSPOSED, i, rows, columns, panel, first, accumulate, c,
                                      r->c_row);
                } else if (form == TRANSPOSED) {
                    kernels->product_transposed(rows, columns, p->depth, (const char *)p->a_transposed + (size_t)i * of,
                                                p->a_step, panel, first, accumulate ? c : NULL, r->c_row, c, r->c_row,
                                                rows % 2 ? p->packed : NULL);
                } else {
                    kernels->product(rows, columns, p->depth, (const char *)p->a + (size_t)(i * p->a_row) * of,
                                     p->a_row, panel, first, accumulate ? c : NULL, r->c_row, c, r->c_row,
                                     rows % 2 ? p->packed : NULL);
                }
            }
        }
    }
}

static void try_problem(const rcvi_kernels *set, int type, int64_t rows, int64_t columns, int64_t depth) {
    problem p;
    problem_new(&p, set, type, rows, columns, depth);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        result whole, other;
        pack(&p, accumulate);
        result_new(&p, &whole, accumulate);
        multiply(&p, &whole, ROW_MAJOR, accumulate, rows, p.kernels->panel);
        check(&p, &whole, accumulate, "product");

        struct {
            int64_t block, piece;
            form_of_a form;
            const char *what;
        } ways[] = {{1, p.kernels->panel, ROW_MAJOR, "when each row is alone"},
                    {rows, p.kernels->grain, ROW_MAJOR, "when columns are cut at each grain"},
                    {3, 3 * p.kernels->grain, ROW_MAJOR, "when cut at rows and grains"},
                    {rows, p.kernels->panel, TRANSPOSED, "when a is transposed"},
                    {5, 2 * p.kernels->grain, TRANSPOSED, "when a is transposed and cut"},
                    {rows, p.kernels->panel, PACKED_A, "when a is a_packed"},
                    {7, 2 * p.kernels->grain, PACKED_A, "when a is a_packed and cut"},
                    {rows, p.kernels->panel, PACKED_A_TRANSPOSED, "when a is transposed and a_packed"},
                    {7, 2 * p.kernels->grain, PACKED_A_TRANSPOSED, "when a is transposed, a_packed and cut"}};
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            if (ways[way].form == TRANSPOSED && !p.kernels->product_transposed) continue;
            if (ways[way].form == PACKED_A && !p.kernels->pack_a) continue;
            if (ways[way].form == PACKED_A_TRANSPOSED && !p.kernels->pack_a_transposed) continue;
            pack(&p, !accumulate);
            result_new(&p, &other, accumulate);
            multiply(&p, &other, ways[way].form, accumulate, ways[way].block, ways[way].piece);
            check(&p, &other, accumulate, ways[way].what);
            check_same(&p, &whole, &other, ways[way].what);
            free(other.c);
        }
        if (p.kernels->product_unpacked) {
            result_new(&p, &other, accumulate);
            p.kernels->product_unpacked(rows, columns, depth, p.a, p.a_row, p.b, p.b_step, accumulate, other.c,
                                        other.c_row);
            check(&p, &other, accumulate, "plain product");
            check_same(&p, &whole, &other, "when b is not packed");
            free(other.c);
        }
        free(whole.c);
    }
    problem_free(&p);
}

static void test_products(void **state) {
    (void)state;
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        if (set->begin) set->begin();
        for (int type = 0; type < RCVI_KERNEL_TYPES; type++) {
            int64_t panel = set->products[type].panel, grain = set->products[type].grain;
            assert_int_equal(panel % grain, 0);
            for (int64_t rows = 1; rows <= 20; rows++) {
                try_problem(set, type, rows, 2 * panel + 3, 1 + rows % 7);
                try_problem(set, type, rows, panel - 1 - rows % grain, 33 + rows);
            }
            for (int64_t columns = 1; columns <= 2 * panel + 3; columns += 1 + columns / 17) {
                try_problem(set, type, 1 + columns % 13, columns, 1 + columns % 9);
            }
            for (int64_t depth = 1; depth <= 70; depth++) try_problem(set, type, 1 + depth % 8, grain + 1, depth);
            try_problem(set, type, 64, panel + 3, 31);
            try_problem(set, type, 65, panel, 70);
            try_problem(set, type, 7, 2 * panel, 513);
            try_problem(set, type, 1, panel - grain, 513);
        }
        if (set->end) set->end();
    }
}

/* ---- sums with initial values --------------------------------------------------------------------------------------- */

enum { FROM_ZERO, FROM_ONE_ROW, FROM_ROWS, STARTS };

/* The sum of two products of one panel, by two calls of product or by one call of product_terms. */
static void add_two(const problem *p, int64_t j, const void *start, int64_t start_row, bool in_one_call,
                    const result *r) {
    int64_t panel = p->kernels->panel, width = p->columns - j < panel ? p->columns - j : panel;
    void *c = (char *)r->c + (size_t)j * result_size(p->type);
    rcvi_product_term term = {p->depth, p->a, p->a_row,
                              (const char *)p->packed + (size_t)(j * p->filled) * operand_size(p->type)};
    if (in_one_call) {
        p->kernels->product_terms(p->rows, width, (rcvi_product_term[]){term, term}, 2, 0, start, start_row, c,
                                  r->c_row);
        return;
    }
    p->kernels->product(p->rows, width, p->depth, p->a, p->a_row, term.panel, 0, start, start_row, c, r->c_row, NULL);
    p->kernels->product(p->rows, width, p->depth, p->a, p->a_row, term.panel, 0, c, r->c_row, c, r->c_row, NULL);
}

/* Checks that the bits are those of successive products on a copy of the initial values. */
static void try_start(const rcvi_kernels *set, int type, int64_t rows, int64_t columns, int64_t depth, int from) {
    problem p;
    problem_new(&p, set, type, rows, columns, depth);
    pack(&p, false);
    result copied;
    result_new(&p, &copied, false);
    int64_t start_row = from == FROM_ROWS ? columns + 1 : 0, panel = p.kernels->panel;
    int64_t elements = (rows - 1) * start_row + columns;
    char *start = allocate_exactly((size_t)elements * result_size(type));
    for (int64_t e = 0; e < elements; e++) put(type, start, e, (double)(e % 23) / 8 - 1);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            put(type, copied.c, i * copied.c_row + j, from == FROM_ZERO ? 0 : get(type, start, i * start_row + j));
    }
    for (int times = 0; times < 2; times++) multiply(&p, &copied, ROW_MAJOR, true, rows, panel);
    for (int in_one_call = 0; in_one_call < (p.kernels->product_terms ? 2 : 1); in_one_call++) {
        result direct;
        result_new(&p, &direct, false);
        for (int64_t j = 0; j < columns; j += panel)
            add_two(&p, j, from == FROM_ZERO ? NULL : start + (size_t)j * result_size(type), start_row, in_one_call,
                    &direct);
        check_same(&p, &copied, &direct,
                   in_one_call ? "when one call sums both products" : "when the start is elsewhere");
        free(direct.c);
    }
    free(start);
    free(copied.c);
    problem_free(&p);
}

static void starts(void **state) {
    (void)state;
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        if (set->begin) set->begin();
        for (int type = 0; type < RCVI_KERNEL_TYPES; type++) {
            int64_t panel = set->products[type].panel;
            for (int64_t rows = 1; rows <= 70; rows += 1 + rows / 9) {
                for (int from = 0; from < STARTS; from++)
                    try_start(set, type, rows, 2 * panel - rows % panel, 33 + rows, from);
            }
            try_start(set, type, 30, panel, 1100, FROM_ONE_ROW); /* several blocks of k */
        }
        if (set->end) set->end();
    }
}

/* ---- bfloat16 ------------------------------------------------------------------------------------------------------ */

static void roundings(void **state) {
    (void)state;
    enum { count = 65536 };
    uint16_t *all = allocate_exactly(count * sizeof *all), *back = allocate_exactly(count * sizeof *back);
    float *wide = allocate_exactly(count * sizeof *wide);
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        for (int i = 0; i < count; i++) all[i] = (uint16_t)i;
        set->widen(count, all, wide);
        set->narrow(count, wide, back);
        for (int i = 0; i < count; i++) {
            assert_int_equal(bits_of(wide[i]), (uint32_t)i << 16);
            assert_int_equal(back[i], isnan(wide[i]) ? i | 0x40 : i);
        }
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < count; i++) {
                uint32_t bits = random_bits();
                if (round < 2) bits = (bits & 0xffff0000u) | 0x8000; /* ties */
                if (round == 2) bits = (bits & 0xffff0000u) | 0x7fff | (bits & 1) << 15;
                if (round == 3) bits = (bits & 0x8000ffffu) | 0x7f7f0000u; /* just below overflow */
                if (round == 4) bits &= 0x807fffffu;                       /* subnormal */
                if (round == 5) bits |= 0x7f800000u;                       /* NaN */
                wide[i] = float_of(bits);
            }
            set->narrow(count - round, wide, back);
            for (int i = 0; i < count - round; i++) {
                if (back[i] != rounded(wide[i])) {
                    fail_msg("%s: %a becomes %04x, not %04x", set->name, wide[i], back[i], rounded(wide[i]));
                }
            }
        }
    }
    free(all);
    free(back);
    free(wide);
}

/* Checks the transposition, from float and from bfloat16: the same bits as without transposing, zeros up to a multiple of 32, and
 * nothing written after them. */
static void transposed_roundings(void **state) {
    (void)state;
    enum { rows_most = 300, filled_most = 96, pad = 5 };
    const int64_t sizes[][2] = {{1, 1}, {3, 33}, {16, 32}, {17, 31}, {47, 64}, {256, 2}, {290, 65}};
    uint16_t *to = allocate_exactly(rows_most * (filled_most + 2) * sizeof *to), one;
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int64_t rows = sizes[i][0], depth = sizes[i][1], step = rows + pad, filled = (depth + 31) / 32 * 32;
            size_t count = (size_t)((depth - 1) * step + rows);
            float *from = allocate_exactly(count * sizeof *from);
            uint16_t *rounded = allocate_exactly(count * sizeof *rounded);
            for (size_t e = 0; e < count; e++) from[e] = float_of(random_bits());
            set->narrow((int64_t)count, from, rounded);
            for (int64_t at = 0; at < 2 * rows_most * (filled_most + 2); at++) {
                int64_t place = at % (rows_most * (filled_most + 2)), row = place / (filled + 2),
                        k = place % (filled + 2);
                if (place == 0) memset(to, 0x77, rows_most * (filled_most + 2) * sizeof *to);
                if (at == 0) set->narrow_transposed(rows, depth, from, step, to, filled + 2);
                if (at > 0 && place == 0) set->transpose_narrow(rows, depth, rounded, step, to, filled + 2);
                one = row >= rows || k >= filled ? 0x7777 : 0;
                if (row < rows && k < depth) set->narrow(1, from + k * step + row, &one);
                if (to[place] != one)
                    fail_msg("%s: of %lld x %lld, row %lld at k %lld is %04x, not %04x", set->name, (long long)rows,
                             (long long)depth, (long long)row, (long long)k, to[place], one);
            }
            free(from);
            free(rounded);
        }
    }
    free(to);
}

/* ---- maps ---------------------------------------------------------------------------------------------------------- */

/* Error in units of the last place of a float; of the smallest normal number where the result is subnormal. */
static double error_in_ulp(float found, double expected) {
    if (isnan(expected)) return isnan(found) ? 0 : INFINITY;
    float near = (float)expected;
    if (isinf(near) || isinf(found)) return found == near ? 0 : fabs(expected) > 3.4028236e38 ? 1 : INFINITY;
    int exponent;
    frexp(expected, &exponent);
    return fabs(found - expected) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

typedef struct {
    rcvi_operation operation;
    double bound; /* in ulp, of float */
} promise;

/* The bounds that kernels/functions.h states; the other operations are exact or round once. */
static const promise promises[] = {
    {RCVI_EXP, 1.25}, {RCVI_SIGMOID, 2.5}, {RCVI_TANH, 1.75},       {RCVI_LOG, 1},           {RCVI_SOFTPLUS, 2},
    {RCVI_NEGATE, 0}, {RCVI_RELU, 0},      {RCVI_ABS, 0},           {RCVI_SQRT, 0.5001},     {RCVI_STEP, 0},
    {RCVI_SIGN, 0},   {RCVI_ADD, 0.5001},  {RCVI_SUBTRACT, 0.5001}, {RCVI_MULTIPLY, 0.5001}, {RCVI_DIVIDE, 0.5001},
    {RCVI_MIN, 0},    {RCVI_MAX, 0},
};

/* A signalling NaN as a quiet one: compilers may take one for the other (clang computes `x > 0 ? x : 0` as fmaxnm on ARM, which gives 0 for a quiet
 * NaN, as asked for, and a NaN for a signalling one). */
static float quiet_float_of(uint32_t bits) {
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return float_of(is_nan ? bits | 0x00400000 : bits);
}

static void float_maps(void **state) {
    (void)state;
    enum { stride = 509, chunk = 4099 };
    float *x = allocate_exactly(chunk * sizeof *x), *y = allocate_exactly(chunk * sizeof *y),
          *out = allocate_exactly(chunk * sizeof *out);
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        double worst[RCVI_OPERATION_COUNT] = {0};
        size_t index = 0;
        for (uint64_t at = 0; at <= UINT32_MAX; at += (uint64_t)stride * chunk) {
            if (!sample_takes(index++)) continue;
            for (int i = 0; i < chunk; i++) {
                x[i] = quiet_float_of((uint32_t)(at + (uint64_t)i * stride)); /* wraps round at the end */
                y[i] = quiet_float_of(random_bits());
            }
            for (size_t k = 0; k < sizeof promises / sizeof *promises; k++) {
                rcvi_operation operation = promises[k].operation;
                const rcvi_operation_info *info = &rcvi_operations[operation];
                set->map_float[operation](chunk, x, info->arguments == 2 ? y : NULL, out);
                for (int i = 0; i < chunk; i++) {
                    double error = error_in_ulp(out[i], info->evaluate(x[i], y[i]));
                    if (error > worst[operation]) worst[operation] = error;
                    if (!(error <= promises[k].bound)) {
                        fail_msg("%s %s(%.9g, %.9g) is %.9g, not %.9g: %g ulp", set->name, info->name, x[i], y[i],
                                 out[i], info->evaluate(x[i], y[i]), error);
                    }
                }
            }
        }
        print_message("%s: largest error in ulp: exp %.2f, sigmoid %.2f, tanh %.2f, log %.2f, softplus %.2f\n",
                      set->name, worst[RCVI_EXP], worst[RCVI_SIGMOID], worst[RCVI_TANH], worst[RCVI_LOG],
                      worst[RCVI_SOFTPLUS]);
    }
    free(x);
    free(y);
    free(out);
}

/* Checks any length, any position, and in place: the same bits as for one value alone. */
static void map_positions(void **state) {
    (void)state;
    enum { most = 70 };
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        for (int operation = 0; operation < RCVI_OPERATION_COUNT; operation++) {
            const rcvi_operation_info *info = &rcvi_operations[operation];
            assert_int_equal(info->elementwise, set->map_float[operation] != NULL);
            assert_int_equal(info->elementwise, set->map_double[operation] != NULL);
            if (!info->elementwise) continue;
            for (int type = 0; type < 2; type++) {
                rcvi_map_kernel map = type ? set->map_double[operation] : set->map_float[operation];
                size_t size = result_size(type);
                for (int n = 0; n <= most; n++) {
                    char *x = allocate_exactly((size_t)n * size), *y = allocate_exactly((size_t)n * size);
                    char *alone = allocate_exactly((size_t)n * size), *out = allocate_exactly((size_t)n * size);
                    for (int i = 0; i < n; i++) {
                        put(type, x, i, 9 * random_number());
                        put(type, y, i, 9 * random_number());
                        map(1, x + (size_t)i * size, y + (size_t)i * size, alone + (size_t)i * size);
                        double found = get(type, alone, i), expected = info->evaluate(get(type, x, i), get(type, y, i));
                        assert_true(isnan(expected) ? isnan(found)
                                                    : fabs(found - expected) <= (type ? 1e-15 : 4e-7) * fabs(expected));
                    }
                    map(n, x, info->arguments == 2 ? y : NULL, out);
                    assert_memory_equal(out, alone, (size_t)n * size);
                    for (int skip = 0; skip < 3 && skip < n; skip++) {
                        size_t at = (size_t)skip * size, bytes = (size_t)(n - skip) * size;
                        memset(out, 0, (size_t)n * size);
                        map(n - skip, x + at, y + at, out);
                        assert_memory_equal(out, alone + at, bytes);
                    }
                    memcpy(out, y, (size_t)n * size);
                    map(n, x, out, out);
                    assert_memory_equal(out, alone, (size_t)n * size);
                    map(n, x, y, x);
                    assert_memory_equal(x, alone, (size_t)n * size);
                    free(x);
                    free(y);
                    free(alone);
                    free(out);
                }
            }
        }
    }
}

/* Checks exp of differences up to 0 and their sum, of any length, in place: within 2 ulp of the exponential, zero below the smallest
 * number, and NaN for NaN. */
static void exponentials(void **state) {
    (void)state;
    enum { most = 150 };
    static const double odd[] = {0, -0.0, -104.5, -87.5, -95, -INFINITY, -1e30, NAN};
    for (size_t s = 0; s < rcvi_kernels_count(); s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        for (int n = 0; n <= 2 * most; n++) {
            int type = n & 1, count = n / 2;
            double less = 3 * random_number(), sum = 0, unit = type ? 0x1p-52 : 0x1p-23, least = type ? 0 : 0x1p-149;
            char *x = allocate_exactly((size_t)count * result_size(type)),
                 *out = allocate_exactly((size_t)count * result_size(type));
            if (!type) less = (float)less;
            for (int i = 0; i < count; i++) {
                double special = odd[i % 8];
                bool ends = i % 8 == 7 && count % 16 != 15; /* few cases with NaN, so that most sums are compared */
                put(type, x, i, less + (i % 3 == 0 && !ends ? special : -50 * fabs(random_number())));
            }
            double got = (type ? set->exp_sum_double : set->exp_sum_float)(count, less, x, out);
            for (int i = 0; i < count; i++) {
                double apart = get(type, x, i) - less, expected = exp(type ? apart : (double)(float)apart);
                double found = get(type, out, i);
                assert_true(isnan(expected) ? isnan(found) : fabs(found - expected) <= 2 * unit * expected + least);
                sum += found;
            }
            assert_true(isnan(sum) ? isnan(got) : fabs(got - sum) <= 64 * unit * sum);
            (type ? set->exp_sum_double : set->exp_sum_float)(count, less, x, x);
            assert_memory_equal(x, out, (size_t)count * result_size(type));
            free(x);
            free(out);
        }
    }
}

/* ---- sets ---------------------------------------------------------------------------------------------------------- */

static void sets(void **state) {
    (void)state;
    size_t count = rcvi_kernels_count();
    assert_true(count >= 1);
    assert_int_equal(rcv_kernels_count(), count);
    assert_string_equal(rcv_kernels_name(0), "portable");
    assert_null(rcv_kernels_name(count));
    assert_null(rcvi_kernels_at(count));
    assert_null(rcvi_kernels_find("abacus"));
    for (size_t s = 0; s < count; s++) {
        const rcvi_kernels *set = rcvi_kernels_at(s);
        assert_ptr_equal(rcvi_kernels_find(set->name), set);
        assert_non_null(set->what);
        print_message("%s: %s\n", set->name, set->what);
        if (set->begin) set->begin();
        for (int type = 0; type < RCVI_KERNEL_TYPES; type++) {
            const rcvi_product_kernels *kernels = &set->products[type];
            assert_non_null(kernels->pack);
            assert_non_null(kernels->product);
            assert_true(type == RCVI_KERNEL_BFLOAT16 || (kernels->product_transposed && kernels->product_unpacked));
            assert_true(kernels->panel > 0 && kernels->grain > 0 && kernels->group > 0);
            double once = set->peak[type](1);
            assert_true(once > 0);
            assert_true(set->peak[type](1000) == 1000 * once);
        }
        if (set->end) set->end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets),          cmocka_unit_test(test_products),        cmocka_unit_test(starts),
        cmocka_unit_test(roundings),     cmocka_unit_test(transposed_roundings), cmocka_unit_test(float_maps),
        cmocka_unit_test(map_positions), cmocka_unit_test(exponentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tests of large products: correct in every layout and division among members, the same bits in all of them, and nothing written
 * outside of c. */
#include "recurve_bench.h"
#include "sample.h"
#include "test.h"

#include "device/cpu/gemm/matmul.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 96, PAD = 3 };
static const double untouched = -77.125;

typedef struct {
    int64_t m, n, k;
} shape;

/* Blocks of k end at 256 (double), 512 (float) and 1024 (bfloat16); blocks of rows at 48, or 128. */
static const shape shapes[] = {{1, 1, 1},    {1, 37, 70},   {1, 300, 1030}, {3, 5, 600},    {7, 65, 129}, {8, 96, 256},
                               {9, 33, 515}, {16, 48, 512}, {17, 130, 513}, {40, 67, 1100}, {2, 1, 2049}, {200, 50, 64},
                               {395, 9, 33}, {64, 700, 20}, {13, 17, 1},    {12, 1, 7}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static uint64_t seed;

static double draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* Logical matrices, in double, whose elements are already rounded to the type of the product. */
typedef struct {
    shape shape;
    double *a, *b, *c; /* [m, k], [k, n], [m, n] */
} problem;

static double rounded(double value, rcvi_kernel_type type) {
    if (type == RCVI_KERNEL_DOUBLE) return value;
    return (double)(float)value;
}

static uint16_t to_bfloat16(double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double as_bfloat16(double value) {
    uint32_t bits = (uint32_t)to_bfloat16(value) << 16;
    float single;
    memcpy(&single, &bits, 4);
    return (double)single;
}

static problem make(shape shape, rcvi_kernel_type type, bool whole) {
    problem made = {.shape = shape};
    double **matrices[] = {&made.a, &made.b, &made.c};
    int64_t counts[] = {shape.m * shape.k, shape.k * shape.n, shape.m * shape.n};
    for (int i = 0; i < 3; i++) {
        *matrices[i] = malloc((size_t)counts[i] * sizeof(double));
        assert_non_null(*matrices[i]);
        for (int64_t j = 0; j < counts[i]; j++) (*matrices[i])[j] = whole ? floor(draw() * 3.5) : rounded(draw(), type);
    }
    return made;
}

static void free_matrices(problem *problem) {
    free(problem->a);
    free(problem->b);
    free(problem->c);
}

/* A matrix in memory, of double, float or bfloat16 by the bytes of an element, with `pad` elements between rows; the allocation ends
 * with its last element. */
static void *store(const double *from, int64_t rows, int64_t columns, bool transpose, int64_t pad, size_t bytes) {
    int64_t stored_rows = transpose ? columns : rows, stored_columns = transpose ? rows : columns;
    int64_t stride = stored_columns + pad, count = (stored_rows - 1) * stride + stored_columns;
    void *made = malloc((size_t)count * bytes);
    assert_non_null(made);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / stride, column = i % stride;
        double value = NAN;
        if (column < stored_columns) value = transpose ? from[column * columns + row] : from[row * columns + column];
        if (bytes == 8)
            ((double *)made)[i] = value;
        else if (bytes == 4)
            ((float *)made)[i] = (float)value;
        else
            ((uint16_t *)made)[i] = isnan(value) ? 0x7fc0 : to_bfloat16(value);
    }
    return made;
}

typedef struct {
    bool transpose_a, transpose_b, accumulate, packed, blas;
    bool narrow_a, narrow_b;
    int members;
    int64_t pad;
} manner;

static void *aligned(size_t bytes, void **memory) {
    *memory = malloc(bytes + RCVI_MATMUL_ALIGN);
    assert_non_null(*memory);
    return (char *)*memory + (RCVI_MATMUL_ALIGN - (uintptr_t)*memory % RCVI_MATMUL_ALIGN) % RCVI_MATMUL_ALIGN;
}

/* Runs all shares, in order or in reverse, each with scratch full of NaN. */
static void run_shares(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const manner *manner, const void *a,
                       const void *b, void *c) {
    void *memory, *packed_memory = NULL, *packed = NULL;
    size_t bytes = (size_t)rcvi_matmul_scratch(kernels, matmul, manner->members);
    char *scratch = aligned(bytes, &memory);
    if (kernels->begin) kernels->begin();
    if (manner->packed) {
        packed = aligned((size_t)rcvi_matmul_packed_bytes(kernels, matmul), &packed_memory);
        for (int i = 0; i < manner->members; i++)
            rcvi_matmul_pack_share(kernels, matmul, b, i, manner->members, packed);
    }
    for (int i = manner->members - 1; i >= 0; i--) {
        memset(scratch, 0xff, bytes);
        if (manner->blas)
            rcvi_matmul_blas_share(matmul, a, b, c, i, manner->members);
        else if (packed)
            rcvi_matmul_packed_share(kernels, matmul, a, packed, c, i, manner->members, scratch);
        else
            rcvi_matmul_share(kernels, matmul, a, b, c, i, manner->members, scratch);
    }
    if (kernels->end) kernels->end();
    free(memory);
    free(packed_memory);
}

/* Computes the product of the first `m` rows and `n` columns, returned in double; checks that memory around and between the rows is
 * unchanged. */
static double *compute(const rcvi_kernels *kernels, rcvi_kernel_type type, const problem *problem, int64_t m, int64_t n,
                       const manner *manner) {
    int64_t k = problem->shape.k, pad = manner->pad, ldc = n + pad;
    bool is_double = type == RCVI_KERNEL_DOUBLE;
    double *part_b = malloc((size_t)(k * n) * sizeof(double));
    assert_non_null(part_b);
    for (int64_t i = 0; i < k * n; i++) part_b[i] = problem->b[i / n * problem->shape.n + i % n];
    void *a = store(problem->a, m, k, manner->transpose_a, pad, manner->narrow_a ? 2 : is_double ? 8 : 4);
    void *b = store(part_b, k, n, manner->transpose_b, pad, manner->narrow_b ? 2 : is_double ? 8 : 4);
    int64_t size = is_double ? 8 : 4, count = 2 * GUARD + m * ldc;
    char *c = malloc((size_t)(count * size));
    double *out = malloc((size_t)(m * n) * sizeof(double));
    assert_non_null(c);
    assert_non_null(out);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i - GUARD;
        bool inside = at >= 0 && at < m * ldc && at % ldc < n;
        double value = !inside              ? untouched
                       : manner->accumulate ? problem->c[at / ldc * problem->shape.n + at % ldc]
                                            : NAN;
        if (is_double)
            ((double *)(void *)c)[i] = value;
        else
            ((float *)(void *)c)[i] = (float)value;
    }
    rcvi_matmul matmul = {.type = type,
                          .narrow_a = manner->narrow_a,
                          .narrow_b = manner->narrow_b,
                          .transpose_a = manner->transpose_a,
                          .transpose_b = manner->transpose_b,
                          .accumulate = manner->accumulate,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = (manner->transpose_a ? m : k) + pad,
                          .ldb = (manner->transpose_b ? k : n) + pad,
                          .ldc = ldc};
    run_shares(kernels, &matmul, manner, a, b, c + GUARD * size);
    for (int64_t i = 0; i < count; i++) {
        double value = is_double ? ((double *)(void *)c)[i] : (double)((float *)(void *)c)[i];
        int64_t at = i - GUARD;
        if (at >= 0 && at < m * ldc && at % ldc < n)
            out[at / ldc * n + at % ldc] = value;
        else if (value != untouched)
            fail_msg("element %lld around c was written", (long long)at);
    }
    free(part_b);
    free(a);
    free(b);
    free(c);
    return out;
}

static const char *const type_names[] = {"float", "double", "bfloat16"};

static void describe(char *text, size_t bytes, const rcvi_kernels *kernels, rcvi_kernel_type type, shape shape,
                     const manner *manner) {
    snprintf(text, bytes, "%s %s %lldx%lldx%lld a%s b%s%s%s, %d members", kernels->name, type_names[type],
             (long long)shape.m, (long long)shape.n, (long long)shape.k, manner->transpose_a ? "^T" : "",
             manner->transpose_b ? "^T" : "", manner->accumulate ? " accumulate" : "", manner->packed ? " packed" : "",
             manner->members);
}

/* Bound of the rounding errors of a sum of k products in order: (k + 2) units of the sum of magnitudes. */
static void compare(const problem *problem, rcvi_kernel_type type, const manner *manner, bool whole, const double *out,
                    const char *what) {
    shape s = problem->shape;
    double unit = whole ? 0 : type == RCVI_KERNEL_DOUBLE ? 0x1p-53 : 0x1p-24;
    for (int64_t i = 0; i < s.m; i++) {
        for (int64_t j = 0; j < s.n; j++) {
            double sum = manner->accumulate ? problem->c[i * s.n + j] : 0, magnitude = fabs(sum);
            for (int64_t p = 0; p < s.k; p++) {
                double x = problem->a[i * s.k + p], y = problem->b[p * s.n + j];
                if (type == RCVI_KERNEL_BFLOAT16) x = as_bfloat16(x), y = as_bfloat16(y);
                sum += x * y;
                magnitude += fabs(x * y);
            }
            /* Double is compared with itself in another order: twice the bound. */
            double bound = (type == RCVI_KERNEL_DOUBLE ? 2 : 1.001) * (double)(s.k + 2) * unit * magnitude;
            double got = out[i * s.n + j];
            if (!(fabs(got - sum) <= bound))
                fail_msg("%s: c[%lld, %lld] is %.17g, not %.17g", what, (long long)i, (long long)j, got, sum);
        }
    }
}

/* Whole numbers have exact sums; fractions must stay within the bound. Every layout, with and without packing. */
static void products_are_right(void **state) {
    (void)state;
    seed = 1;
    size_t index = 0;
    for (size_t set = 0; set < rcvi_kernels_count(); set++) {
        const rcvi_kernels *kernels = rcvi_kernels_at(set);
        for (int i = 0; i < SHAPES * RCVI_KERNEL_TYPES; i++) {
            rcvi_kernel_type type = (rcvi_kernel_type)(i % RCVI_KERNEL_TYPES);
            bool whole = i / RCVI_KERNEL_TYPES % 2 == 0;
            problem problem = make(shapes[i / RCVI_KERNEL_TYPES], type, whole);
            for (unsigned variant = 0; variant < 16; variant++) {
                if (!sample_takes(index++)) continue;
                manner manner = {.transpose_a = variant & 1,
                                 .transpose_b = variant & 2,
                                 .accumulate = variant & 4,
                                 .packed = variant & 8,
                                 .members = 1 + (int)variant % 3,
                                 .pad = variant % 5 == 0 ? 0 : PAD};
                char what[160];
                describe(what, sizeof what, kernels, type, problem.shape, &manner);
                double *out = compute(kernels, type, &problem, problem.shape.m, problem.shape.n, &manner);
                compare(&problem, type, &manner, whole, out, what);
                free(out);
            }
            free_matrices(&problem);
        }
    }
}

static void same_bits(const problem *problem, const double *all, int64_t m, int64_t n, const double *part,
                      const char *what) {
    for (int64_t i = 0; i < m; i++) {
        if (memcmp(part + i * n, all + i * problem->shape.n, (size_t)n * sizeof *part) != 0)
            fail_msg("%s: row %lld of the first %lld x %lld has other bits", what, (long long)i, (long long)m,
                     (long long)n);
    }
}

/* The bits of an element depend neither on members, nor on packing, nor on the layout of operands, nor on other rows and columns. */
static void bits_do_not_depend_on_the_cut(void **state) {
    (void)state;
    seed = 2;
    size_t index = 0;
    for (size_t set = 0; set < rcvi_kernels_count(); set++) {
        const rcvi_kernels *kernels = rcvi_kernels_at(set);
        for (int i = 0; i < SHAPES * RCVI_KERNEL_TYPES; i++) {
            rcvi_kernel_type type = (rcvi_kernel_type)(i % RCVI_KERNEL_TYPES);
            shape s = shapes[i / RCVI_KERNEL_TYPES];
            problem problem = make(s, type, false);
            manner plain = {.accumulate = i % 2, .members = 1};
            double *all = compute(kernels, type, &problem, s.m, s.n, &plain);
            for (unsigned variant = 0; variant < 24; variant++) {
                if (!sample_takes(index++)) continue;
                manner manner = {.transpose_a = variant & 1,
                                 .transpose_b = variant & 2,
                                 .packed = variant & 4,
                                 .accumulate = plain.accumulate,
                                 .members = 1 + (int)variant / 8,
                                 .pad = PAD};
                int64_t m = variant % 5 == 1 ? 1 : variant % 5 == 2 ? (s.m + 2) / 3 : s.m;
                int64_t n = variant % 7 == 1 ? 1 : variant % 7 == 2 ? (s.n + 1) / 2 : s.n;
                char what[160];
                describe(what, sizeof what, kernels, type, s, &manner);
                double *part = compute(kernels, type, &problem, m, n, &manner);
                same_bits(&problem, all, m, n, part, what);
                free(part);
            }
            free(all);
            free_matrices(&problem);
        }
    }
}

/* Operands stored in bfloat16 give the same bits as floats, which the product rounds. */
static void sources_may_be_bfloat16(void **state) {
    (void)state;
    seed = 5;
    size_t index = 0;
    for (size_t set = 0; set < rcvi_kernels_count(); set++) {
        const rcvi_kernels *kernels = rcvi_kernels_at(set);
        for (int i = 0; i < SHAPES; i++) {
            problem problem = make(shapes[i], RCVI_KERNEL_BFLOAT16, false);
            for (unsigned variant = 0; variant < 32; variant++) {
                if (!sample_takes(index++)) continue;
                manner manner = {.transpose_a = variant & 1,
                                 .transpose_b = variant & 2,
                                 .accumulate = i & 1,
                                 .packed = (variant & 12) == 4 && i % 2, /* a alone: b may be packed before */
                                 .members = 1 + (int)(variant >> 4) * 2,
                                 .pad = PAD};
                char what[160];
                describe(what, sizeof what, kernels, RCVI_KERNEL_BFLOAT16, shapes[i], &manner);
                double *wide = compute(kernels, RCVI_KERNEL_BFLOAT16, &problem, shapes[i].m, shapes[i].n, &manner);
                manner.narrow_a = variant & 4;
                manner.narrow_b = variant & 8;
                double *narrow = compute(kernels, RCVI_KERNEL_BFLOAT16, &problem, shapes[i].m, shapes[i].n, &manner);
                same_bits(&problem, wide, shapes[i].m, shapes[i].n, narrow, what);
                free(wide);
                free(narrow);
            }
            free_matrices(&problem);
        }
    }
}

/* Rows of a that are rounded once and multiplied with several blocks of columns: a = u w^T, b = x v^T. */
static void rounded_rows_are_kept(void **state) {
    (void)state;
    enum { M = 140, N = 530, K = 1024 };
    problem problem = make((shape){M, N, K}, RCVI_KERNEL_BFLOAT16, true);
    double all = 0;
    for (int k = 0; k < K; k++) {
        int w = k * 7 % 11 - 5, x = k * 5 % 13 - 6;
        all += w * x;
        for (int i = 0; i < M; i++) problem.a[i * K + k] = (i % 9 + 1) * w;
        for (int j = 0; j < N; j++) problem.b[k * N + j] = (j % 7 + 1) * x;
    }
    for (size_t set = 0; set < rcvi_kernels_count(); set++) {
        for (int variant = 0; variant < 2; variant++) {
            manner manner = {.transpose_a = variant, .packed = set % 2, .members = 1, .pad = PAD};
            double *out = compute(rcvi_kernels_at(set), RCVI_KERNEL_BFLOAT16, &problem, M, N, &manner);
            for (int i = 0; i < M * N; i++) {
                double expected = (i / N % 9 + 1) * (i % N % 7 + 1) * all;
                if (out[i] != expected)
                    fail_msg("%s: c[%d, %d] is %g, not %g", rcvi_kernels_at(set)->name, i / N, i % N, out[i], expected);
            }
            free(out);
        }
    }
    free_matrices(&problem);
}

/* Every element of c belongs to one member, and columns begin at multiples of the grain. */
static void cuts_cover_c_once(void **state) {
    (void)state;
    enum { M = 70, N = 90 };
    static unsigned char owners[M * N];
    for (int members = 1; members <= 12; members++) {
        for (int64_t m = 1; m <= M; m += 23) {
            for (int64_t n = 1; n <= N; n += 11) {
                rcvi_matmul matmul = {.m = m, .n = n, .k = 5};
                memset(owners, 0, sizeof owners);
                for (int member = 0; member < members; member++) {
                    rcvi_matmul_part part = rcvi_matmul_cut(&matmul, 4, member, members);
                    assert_true(part.columns == 0 || part.column % 4 == 0);
                    for (int64_t i = part.row; i < part.row + part.rows; i++)
                        for (int64_t j = part.column; j < part.column + part.columns; j++) owners[i * N + j]++;
                }
                for (int64_t i = 0; i < m * n; i++) assert_int_equal(owners[i / n * N + i % n], 1);
            }
        }
    }
}

static void no_depth_means_zero(void **state) {
    (void)state;
    const rcvi_kernels *kernels = rcvi_kernels_at(0);
    float c[6] = {1, 2, 3, 4, 5, 6}, none = 0;
    rcvi_matmul matmul = {.m = 2, .n = 2, .k = 0, .lda = 1, .ldb = 2, .ldc = 3, .accumulate = true};
    void *memory, *scratch = aligned((size_t)rcvi_matmul_scratch(kernels, &matmul, 1), &memory);
    rcvi_matmul_share(kernels, &matmul, &none, &none, c, 0, 1, scratch);
    assert_true(c[0] == 1 && c[4] == 5);
    matmul.accumulate = false;
    rcvi_matmul_share(kernels, &matmul, &none, &none, c, 0, 1, scratch);
    assert_true(c[0] == 0 && c[1] == 0 && c[2] == 3 && c[3] == 0 && c[4] == 0 && c[5] == 6);
    free(memory);
}

/* OpenBLAS has one thread while it is used, and the number it had when the last user has ended; in a child of fork() too. */
static void openblas_threads(void **state) {
    (void)state;
    rcv_openblas blas = RCV_INIT(rcv_openblas);
    if (rcv_openblas_open(&blas)) skip();
    int before = blas.get_threads();
    blas.set_threads(2);
    rcvi_blas_begin();
    rcvi_blas_begin();
    assert_int_equal(blas.get_threads(), 1);
    rcvi_blas_end();
    assert_int_equal(blas.get_threads(), 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rcvi_blas_begin();
        bool one = blas.get_threads() == 1;
        rcvi_blas_end();
        _exit(one && blas.get_threads() == 2 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    rcvi_blas_end();
    assert_int_equal(blas.get_threads(), 2);
    blas.set_threads(before);
}

static void openblas_agrees(void **state) {
    (void)state;
    rcv_openblas blas = RCV_INIT(rcv_openblas);
    if (rcv_openblas_open(&blas)) skip();
    seed = 3;
    const rcvi_kernels *kernels = rcvi_kernels_at(0);
    rcvi_blas_begin();
    for (int i = 0; i < SHAPES * 2; i++) {
        rcvi_kernel_type type = i % 2 ? RCVI_KERNEL_DOUBLE : RCVI_KERNEL_FLOAT;
        problem problem = make(shapes[i / 2], type, true);
        for (unsigned variant = 0; variant < 8; variant++) {
            manner manner = {.transpose_a = variant & 1,
                             .transpose_b = variant & 2,
                             .accumulate = variant & 4,
                             .blas = true,
                             .members = 1 + (int)variant % 3,
                             .pad = PAD};
            char what[160];
            describe(what, sizeof what, kernels, type, problem.shape, &manner);
            double *out = compute(kernels, type, &problem, problem.shape.m, problem.shape.n, &manner);
            compare(&problem, type, &manner, true, out, what);
            free(out);
        }
        free_matrices(&problem);
    }
    rcvi_blas_end();
    rcvi_matmul wide = {.m = (int64_t)1 << 31, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
    assert_false(rcvi_matmul_blas_fits(&wide));
    wide.m = 5;
    assert_true(rcvi_matmul_blas_fits(&wide));
    wide.type = RCVI_KERNEL_BFLOAT16;
    assert_false(rcvi_matmul_blas_fits(&wide));
    /* arguments that CBLAS would print a message about and not compute */
    const rcvi_matmul good = {
        .type = RCVI_KERNEL_DOUBLE, .transpose_a = true, .m = 4, .n = 5, .k = 6, .lda = 4, .ldb = 5, .ldc = 5};
    assert_true(rcvi_matmul_blas_fits(&good));
    for (int i = 0; i < 7; i++) {
        rcvi_matmul bad = good;
        if (i < 2) bad.lda = i ? 0 : 3;
        if (i == 2 || i == 3) bad.ldb = i == 2 ? 0 : 4;
        if (i == 4) bad.ldc = 4;
        if (i == 5) bad.transpose_a = false; /* then rows are of k */
        if (i == 6) bad.transpose_b = true;
        if (rcvi_matmul_blas_fits(&bad)) fail_msg("OpenBLAS is handed what it refuses: %d", i);
    }
}

/* ---- scratch ------------------------------------------------------------------------------------------------------ */

/* True if a product with scratch of so many bytes does not write after it. */
static bool stays_in_scratch(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *zeros, void *c,
                             char *area, int64_t bytes) {
    enum { UNTOUCHED = 0x5a, BEHIND = 1 << 16 };
    memset(area + bytes, UNTOUCHED, BEHIND);
    if (kernels->begin) kernels->begin();
    rcvi_matmul_share(kernels, matmul, zeros, zeros, c, 0, 1, area);
    if (kernels->end) kernels->end();
    int64_t same = 0;
    while (same < BEHIND && area[bytes + same] == UNTOUCHED) same++;
    return same == BEHIND;
}

/* A chunk of time at the end of a sequence, or the rows of one member, are less than what the scratch was allocated for; but the product
 * may use another algorithm, or deeper blocks. */
static void scratch_for_less(void **state) {
    (void)state;
    static const shape whole[] = {{100, 3, 1168}, {64, 1, 5000}, {60, 80, 530}, {40, 20, 2100}};
    static const int64_t depths[] = {31, 257, 512, 1022, 5000}, rows[] = {1, 9, 300};
    enum { AREA = 1 << 23, ELEMENTS = 1 << 21 };
    void *memory, *zeros = calloc(ELEMENTS, sizeof(double)), *c = calloc(ELEMENTS, sizeof(double));
    char *area = aligned(AREA, &memory);
    assert_true(zeros && c);
    size_t checked = 0;
    for (size_t i = 0; i < rcvi_kernels_count() * 3 * 16; i++) {
        const rcvi_kernels *kernels = rcvi_kernels_at(i / 48);
        rcvi_kernel_type type = (rcvi_kernel_type)(i / 16 % 3);
        bool narrow = type == RCVI_KERNEL_BFLOAT16 && i & 4;
        const shape *w = &whole[i & 3];
        for (size_t n = 0; n < 4 * 5 * 3; n++) {
            if (!sample_takes(60 * i + n)) continue;
            bool ta = n & 1, tb = n & 2;
            rcvi_matmul matmul = {.type = type,
                                  .narrow_a = narrow,
                                  .narrow_b = narrow && i & 8,
                                  .transpose_a = ta,
                                  .transpose_b = tb,
                                  .m = w->m,
                                  .n = w->n,
                                  .k = w->k};
            int64_t bytes = rcvi_matmul_scratch(kernels, &matmul, 1);
            matmul.m = rows[n / 20] < w->m ? rows[n / 20] : w->m;
            matmul.k = depths[n / 4 % 5] < w->k ? depths[n / 4 % 5] : w->k;
            matmul.lda = ta ? matmul.m : matmul.k;
            matmul.ldb = tb ? matmul.k : matmul.n;
            matmul.ldc = matmul.n;
            assert_true(bytes <= AREA / 2);
            if (!stays_in_scratch(kernels, &matmul, zeros, c, area, bytes))
                fail_msg("%s, type %d, %d%d: %lld x %lld x %lld needs more scratch than %lld x %lld", kernels->name,
                         (int)type, ta, tb, (long long)matmul.m, (long long)matmul.n, (long long)matmul.k,
                         (long long)w->m, (long long)w->k);
            checked++;
        }
    }
    print_message("%zu products\n", checked);
    free(memory);
    free(zeros);
    free(c);
}

/* ---- the public call --------------------------------------------------------------------------------------------- */

static void public_products(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    enum { M = 5, N = 70, K = 40 };
    static float a[M * K], b[K * N], other[K * N], c[M * N], expected[M * N];
    seed = 4;
    for (int i = 0; i < M * K; i++) a[i] = (float)floor(draw() * 3.5);
    for (int i = 0; i < K * N; i++) b[i] = (float)floor(draw() * 3.5);
    for (int i = 0; i < K * N; i++) other[i] = 1;
    for (int i = 0; i < M * N; i++) {
        expected[i] = 0;
        for (int p = 0; p < K; p++) expected[i] += a[i / N * K + p] * b[p * N + i % N];
    }
    const rcv_dtype types[] = {RCV_FLOAT32, RCV_BFLOAT16};
    for (int i = 0; i < 12; i++) {
        bool packed = i & 1;
        rcv_gemm_options options = RCV_INIT(rcv_gemm_options, .dtype = types[i / 2 % 2], .m = M, .n = N, .k = K,
                                            .packed_b = packed, .threads = i / 4);
        rcv_gemm *gemm;
        check_ok(rcv_gemm_new(context, &options, &gemm));
        check_fails(rcv_gemm_run(gemm, a, NULL, c), RCV_INVALID, "needs b");
        check_ok(rcv_gemm_run(gemm, a, b, c));
        assert_memory_equal(c, expected, sizeof c);
        check_ok(rcv_gemm_run(gemm, a, other, c));
        assert_int_equal(memcmp(c, expected, sizeof c) == 0, packed); /* the packed b is kept */
        if (packed) {
            check_ok(rcv_gemm_run(gemm, a, NULL, c));
            assert_memory_equal(c, expected, sizeof c);
            rcv_gemm_repack(gemm);
            check_fails(rcv_gemm_run(gemm, a, NULL, c), RCV_INVALID, "needs b");
            check_ok(rcv_gemm_run(gemm, a, other, c));
            assert_int_not_equal(memcmp(c, expected, sizeof c), 0);
        }
        rcv_gemm_free(gemm);
    }
    rcv_gemm_free(NULL);
    rcv_gemm_repack(NULL);
    test_context_end(&counter, context);
}

static void public_product_strides(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const double a[] = {1, 2, 9, 3, 4, 9}, b[] = {5, 6, 9, 9, 7, 8}; /* a^T stored [2, 2 of 3]; b^T [2, 2 of 4] */
    double c[] = {100, 200, 9, 300, 400};
    rcv_gemm_options options =
        RCV_INIT(rcv_gemm_options, .dtype = RCV_FLOAT64, .transpose_a = true, .transpose_b = true, .accumulate = true,
                 .m = 2, .n = 2, .k = 2, .lda = 3, .ldb = 4, .ldc = 3, .threads = 2);
    rcv_gemm *gemm;
    check_ok(rcv_gemm_new(context, &options, &gemm));
    check_ok(rcv_gemm_run(gemm, a, b, c));
    const double expected[] = {100 + 5 + 18, 200 + 7 + 24, 9, 300 + 10 + 24, 400 + 14 + 32};
    assert_memory_equal(c, expected, sizeof c);
    rcv_gemm_free(gemm);
    test_context_end(&counter, context);
}

static void public_errors(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const rcv_gemm_options good = RCV_INIT(rcv_gemm_options, .m = 4, .n = 3, .k = 2, .threads = 2);
    rcv_gemm *gemm = (void *)&counter;
    check_fails(rcv_gemm_new(NULL, &good, &gemm), RCV_INVALID, "not NULL");
    assert_null(gemm);
    check_fails(rcv_gemm_new(context, NULL, &gemm), RCV_INVALID, "not NULL");
    check_fails(rcv_gemm_new(context, &good, NULL), RCV_INVALID, "not NULL");
    check_fails(rcv_gemm_run(NULL, &good, &good, &counter), RCV_INVALID, "not NULL");
    struct {
        rcv_gemm_options options;
        const char *fragment;
    } wrong[] = {
        {{.m = 4, .n = 3, .k = 2, .dtype = RCV_INT32}, "not of int32"},
        {{.m = 0, .n = 3, .k = 2}, "not 0, 3 and 2"},
        {{.m = 4, .n = -3, .k = 2}, "not 4, -3 and 2"},
        {{.m = 4, .n = 3, .k = 0}, "not 4, 3 and 0"},
        {{.m = 4, .n = 3, .k = INT64_MAX}, "at least 1 and countable"},
        {{.m = 4, .n = 3, .k = 2, .threads = 1025}, "1 to 1024, not 1025"},
        {{.m = 4, .n = 3, .k = 2, .threads = -1}, "1 to 1024, not -1"},
        {{.m = 4, .n = 3, .k = 2, .lda = 1}, "lda is 1, but a row of a has 2 elements"},
        {{.m = 4, .n = 3, .k = 2, .lda = 3, .transpose_a = true}, "lda is 3, but a row of a has 4 elements"},
        {{.m = 4, .n = 3, .k = 2, .ldb = 2}, "ldb is 2, but a row of b has 3 elements"},
        {{.m = 4, .n = 3, .k = 2, .ldb = -5, .transpose_b = true}, "ldb is -5, but a row of b has 2 elements"},
        {{.m = 4, .n = 3, .k = 2, .ldc = 2}, "ldc is 2, but a row of c has 3 elements"},
        {{.m = (int64_t)1 << 40, .n = 3, .k = (int64_t)1 << 40}, "too large to be counted"},
        {{.m = (int64_t)1 << 40, .n = 3, .k = 2, .ldc = (int64_t)1 << 40}, "too large to be counted"},
        {{.m = 1, .n = (int64_t)1 << 40, .k = (int64_t)1 << 12, .transpose_b = true}, "too large to be counted"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].options.size = sizeof wrong[i].options;
        check_fails(rcv_gemm_new(context, &wrong[i].options, &gemm), RCV_INVALID, wrong[i].fragment);
        assert_null(gemm);
    }
    size_t fired = 0;
    for (size_t at = 1;; at++) {
        counter.fail_at = at;
        if (rcv_gemm_new(context, &good, &gemm) == RCV_OK) break;
        fired++;
        assert_null(gemm);
        assert_non_null(strstr(rcv_message(), "no memory"));
        assert_int_equal(counter.live, 1);
    }
    assert_int_equal(counter.failed, fired);
    assert_int_equal(fired, 3);
    counter.fail_at = 0;
    rcv_gemm_free(gemm);
    test_context_end(&counter, context);
}

static void forced_kernels(void **state) {
    (void)state;
    const float a[] = {1, 2}, b[] = {3, 4};
    for (size_t i = 0; i <= rcv_kernels_count(); i++) {
        const char *name = i < rcv_kernels_count() ? rcv_kernels_name(i) : "abacus";
        rcv_context_options choice = RCV_INIT(rcv_context_options, .kernels = name);
        rcv_context *context;
        check_ok(rcv_context_new(&choice, &context));
        rcv_gemm_options options = RCV_INIT(rcv_gemm_options, .m = 1, .n = 1, .k = 2, .threads = 1);
        rcv_gemm *gemm;
        double peak;
        if (i == rcv_kernels_count()) {
            check_fails(rcv_gemm_new(context, &options, &gemm), RCV_INVALID, "no kernels 'abacus'");
            check_fails(rcv_measure_peak(context, RCV_FLOAT32, 1, &peak), RCV_INVALID, "no kernels 'abacus'");
        } else {
            float c = 0;
            check_ok(rcv_gemm_new(context, &options, &gemm));
            check_ok(rcv_gemm_run(gemm, a, b, &c));
            assert_true(c == 11);
            rcv_gemm_free(gemm);
        }
        rcv_context_free(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),      cmocka_unit_test(bits_do_not_depend_on_the_cut),
        cmocka_unit_test(sources_may_be_bfloat16), cmocka_unit_test(rounded_rows_are_kept),
        cmocka_unit_test(cuts_cover_c_once),       cmocka_unit_test(no_depth_means_zero),
        cmocka_unit_test(openblas_agrees),         cmocka_unit_test(openblas_threads),
        cmocka_unit_test(scratch_for_less),        cmocka_unit_test(public_products),
        cmocka_unit_test(public_product_strides),  cmocka_unit_test(public_errors),
        cmocka_unit_test(forced_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

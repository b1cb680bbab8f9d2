/* Singular value decompositions by their properties, and of matrices whose singular values are known. */
#include "memory_faults.h"
#include "test.h"

#include "base/random.h"
#include "model/svd.h"

#include <float.h>
#include <math.h>

static const double TOLERANCE = 1e-12; /* relative to the largest singular value */

typedef struct {
    int64_t rows, cols, least;
    double *a, *s, *u, *v;
} decomposed;

static double *new_numbers(int64_t count) {
    double *numbers = calloc((size_t)count + 1, sizeof *numbers);
    assert_non_null(numbers);
    return numbers;
}

static decomposed make(int64_t rows, int64_t cols) {
    int64_t least = rows < cols ? rows : cols;
    return (decomposed){.rows = rows,
                        .cols = cols,
                        .least = least,
                        .a = new_numbers(rows * cols),
                        .s = new_numbers(least),
                        .u = new_numbers(rows * least),
                        .v = new_numbers(least * cols)};
}

static void drop(decomposed *d) {
    free(d->a);
    free(d->s);
    free(d->u);
    free(d->v);
}

static rcv_status decompose(rcv_context *context, decomposed *d) {
    return rcvi_svd(context, "test", d->rows, d->cols, d->a, d->s, d->u, d->v);
}

/* Numbers of a linear congruence in [-1, 1]. */
static double draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

/* The largest difference of `count` vectors from orthonormal ones: element i of vector k at vectors[i * down + k * across]. */
static double orthonormality(const double *vectors, int64_t count, int64_t length, int64_t down, int64_t across) {
    double worst = 0;
    for (int64_t p = 0; p < count; p++)
        for (int64_t q = p; q < count; q++) {
            double sum = p == q ? -1 : 0;
            for (int64_t i = 0; i < length; i++) sum += vectors[i * down + p * across] * vectors[i * down + q * across];
            worst = fmax(worst, fabs(sum));
        }
    return worst;
}

static void check_properties(const decomposed *d, const char *what) {
    double largest = d->least ? d->s[0] : 0, worst = 0;
    for (int64_t k = 0; k < d->least; k++)
        if (!(d->s[k] >= 0) || (k && d->s[k] > d->s[k - 1]))
            fail_msg("%s: singular value %d is %g", what, (int)k, d->s[k]);
    for (int64_t i = 0; i < d->rows; i++)
        for (int64_t j = 0; j < d->cols; j++) {
            double sum = 0;
            for (int64_t k = 0; k < d->least; k++)
                sum += d->u[i * d->least + k] * (d->s[k] / (largest > 0 ? largest : 1)) * d->v[k * d->cols + j];
            worst = fmax(worst, fabs(sum - d->a[i * d->cols + j] / (largest > 0 ? largest : 1)));
        }
    double of_u = orthonormality(d->u, d->least, d->rows, d->least, 1);
    double of_v = orthonormality(d->v, d->least, d->cols, 1, d->cols);
    if (worst > TOLERANCE || of_u > TOLERANCE || of_v > TOLERANCE)
        fail_msg("%s, [%d, %d]: A differs by %g, U by %g, V by %g", what, (int)d->rows, (int)d->cols, worst, of_u,
                 of_v);
}

static const int64_t shapes[][2] = {{1, 1},  {1, 7},   {7, 1},   {2, 2},   {3, 5},    {5, 3},
                                    {8, 40}, {40, 33}, {33, 40}, {64, 64}, {130, 70}, {70, 131}};
enum { SHAPES = sizeof shapes / sizeof *shapes, KINDS = 6 };
static const char *const kinds[KINDS] = {"random", "graded columns", "graded rows", "equal columns", "zero", "tiny"};

static double element(int kind, int64_t i, int64_t j, int64_t rows, int64_t cols, uint64_t *seed) {
    double x = draw(seed);
    if (kind == 1) return x * pow(10, -20. * (double)j / (double)cols);
    if (kind == 2) return x * pow(10, -20. * (double)i / (double)rows);
    if (kind == 3) return sin((double)i) + (double)(j % 3) * cos((double)i);
    if (kind == 4) return 0;
    return kind == 5 ? x * 1e-300 : x;
}

static void test_properties(void **state) {
    rcv_context *context = *state;
    uint64_t seed = 1;
    for (int i = 0; i < SHAPES * KINDS; i++) {
        int kind = i % KINDS;
        decomposed d = make(shapes[i / KINDS][0], shapes[i / KINDS][1]);
        for (int64_t k = 0; k < d.rows * d.cols; k++)
            d.a[k] = element(kind, k / d.cols, k % d.cols, d.rows, d.cols, &seed);
        check_ok(decompose(context, &d));
        check_properties(&d, kinds[kind]);
        int64_t rank = kind == 3 ? 2 : kind == 4 ? 0 : d.least;
        if (rank < d.least) assert_true(d.s[rank] <= TOLERANCE * d.s[0]);
        if (rank > 0 && rank <= d.least && kind != 1 && kind != 2) assert_true(d.s[rank - 1] > TOLERANCE * d.s[0]);
        drop(&d);
    }
}

/* The second difference matrix of n points has the eigenvalues 4 sin(k pi / (2 n + 2))^2, and bidiagonal [1, -1] of n columns and n + 1 rows
 * their square roots. */
static void test_known(void **state) {
    rcv_context *context = *state;
    const double pi = acos(-1);
    for (int wide = 0; wide < 2; wide++) {
        enum { N = 60 };
        decomposed d = wide ? make(N, N + 1) : make(N + 1, N);
        for (int64_t j = 0; j < N; j++) {
            d.a[j * d.cols + j] = 1;
            d.a[wide ? j * d.cols + j + 1 : (j + 1) * d.cols + j] = -1;
        }
        check_ok(decompose(context, &d));
        check_properties(&d, "differences");
        for (int k = 0; k < N; k++) assert_true(fabs(d.s[k] - 2 * sin((N - k) * pi / (2 * N + 2))) < TOLERANCE);
        drop(&d);
    }
}

/* A diagonal matrix from 1 to 1e-15: every value to nearly all digits, and of both ends of the range of numbers. */
static void test_diagonal(void **state) {
    rcv_context *context = *state;
    enum { N = 16 };
    const double scales[] = {1, 1e300, 1e-290};
    for (size_t c = 0; c < sizeof scales / sizeof *scales; c++) {
        decomposed d = make(N, N);
        for (int k = 0; k < N; k++) d.a[(N - 1 - k) * N + (k * 7) % N] = (k % 2 ? -1 : 1) * scales[c] * pow(10, -k);
        check_ok(decompose(context, &d));
        check_properties(&d, "diagonal");
        for (int k = 0; k < N; k++) assert_true(fabs(d.s[k] / (scales[c] * pow(10, -k)) - 1) < TOLERANCE);
        drop(&d);
    }
}

static void test_same_bits(void **state) {
    rcv_context *context = *state;
    uint64_t seed = 5;
    decomposed d = make(50, 30), e = make(50, 30);
    for (int64_t i = 0; i < 1500; i++) d.a[i] = e.a[i] = draw(&seed);
    check_ok(decompose(context, &d));
    check_ok(decompose(context, &e));
    assert_memory_equal(d.s, e.s, 30 * sizeof *d.s);
    assert_memory_equal(d.u, e.u, 1500 * sizeof *d.u);
    assert_memory_equal(d.v, e.v, 900 * sizeof *d.v);
    drop(&d);
    drop(&e);
}

static void test_not_finite(void **state) {
    rcv_context *context = *state;
    const double values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        decomposed d = make(4, 3);
        d.a[11] = values[i];
        check_fails(decompose(context, &d), RCV_INVALID, "the matrix test cannot be approximated");
        drop(&d);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    test_allocator allocator;
    test_allocator_init(&allocator);
    rcv_context_options options = RCV_INIT(rcv_context_options, .allocator = &allocator.allocator, .cache = "off");
    rcv_context *context;
    check_ok(rcv_context_new(&options, &context));
    decomposed d = make(6, 4);
    d.a[3] = 1;
    size_t live = allocator.live;
    memory_faults_begin(&allocator);
    rcv_status status = decompose(context, &d);
    memory_faults_stop(&allocator);
    assert_int_equal(status, allocator.failed ? RCV_NO_MEMORY : RCV_OK);
    assert_int_equal(allocator.live, live);
    rcv_context_free(context);
    drop(&d);
    assert_true(memory_faults_end(&allocator) >= sample_least(8));
}

static int open_context(void **state) {
    return rcv_context_new(&RCV_INIT(rcv_context_options, .cache = "off"), (rcv_context **)state) != RCV_OK;
}

static int close_context(void **state) {
    rcv_context_free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties), cmocka_unit_test(test_known),      cmocka_unit_test(test_diagonal),
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_not_finite), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}

/* Tests of the CPU device: the reference GEMM against the definition, networks in float against the same networks in double, and the
 * functions of the public header about devices. */
#include "device/cpu/gemm/gemm.h"
#include "probe.h"

#include <math.h>

enum { LARGEST = 37, SPARE = 3 };

static void fill_random(random_source *source, double *values, int count) {
    for (int i = 0; i < count; i++) values[i] = random_between(source, -1, 1);
}

/* Shapes up to LARGEST, in steps that cover whole tiles and remainders, all transpositions, leading dimensions greater than the rows.
 * The error of a sum of k products of numbers below 1 is at most k * k * epsilon. */
static void test_gemm(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 17, 32, LARGEST};
    enum { SIZES = sizeof sizes / sizeof *sizes, AREA = LARGEST * (LARGEST + SPARE) };
    random_source source = {1};
    for (int trial = 0; trial < 2 * 2 * 2 * SIZES * SIZES * SIZES; trial++) {
        bool ta = trial & 1, tb = trial & 2, accumulate = trial & 4;
        int m = sizes[trial / 8 % SIZES], n = sizes[trial / 8 / SIZES % SIZES], k = sizes[trial / 8 / SIZES / SIZES];
        int lda = (ta ? m : k) + SPARE, ldb = (tb ? k : n) + SPARE, ldc = n + SPARE;
        double a[AREA], b[AREA], c[AREA], before[AREA];
        float a_float[AREA], b_float[AREA], c_float[AREA];
        fill_random(&source, a, AREA);
        fill_random(&source, b, AREA);
        fill_random(&source, before, AREA);
        for (int i = 0; i < AREA; i++) {
            a[i] = a_float[i] = (float)a[i];
            b[i] = b_float[i] = (float)b[i];
            c[i] = before[i] = c_float[i] = (float)before[i];
        }
        rcvi_gemm_f64(ta, tb, m, n, k, a, lda, b, ldb, accumulate, c, ldc);
        rcvi_gemm_f32(ta, tb, m, n, k, a_float, lda, b_float, ldb, accumulate, c_float, ldc);
        for (int i = 0; i < LARGEST; i++) {
            for (int j = 0; j < ldc; j++) {
                double expected = before[i * ldc + j];
                if (i < m && j < n) {
                    expected = accumulate ? expected : 0;
                    for (int p = 0; p < k; p++)
                        expected += a[ta ? p * lda + i : i * lda + p] * b[tb ? j * ldb + p : p * ldb + j];
                }
                assert_true(fabs(c[i * ldc + j] - expected) < 2e-13);
                assert_true(fabs(c_float[i * ldc + j] - expected) < 1e-4);
            }
        }
    }
}

/* ---- float against double ---- */

typedef struct {
    float *values;
    const double *expected;
    int64_t count;
} pair;

static float *narrow(const double *values, int64_t count) {
    float *copy = malloc((size_t)count * sizeof *copy + 1);
    assert_non_null(copy);
    for (int64_t i = 0; i < count; i++) copy[i] = (float)values[i];
    return copy;
}

static pair poisoned(const double *expected, int64_t count) {
    pair p = {malloc((size_t)count * sizeof(float) + 1), expected, count};
    assert_non_null(p.values);
    for (int64_t i = 0; i < count; i++) p.values[i] = NAN;
    return p;
}

/* Float has 24 bits. A sum here has at most about 60 terms, in 12 successive steps, so errors of the order of 60 * 12 * 2^-24 = 4e-5 of
 * the largest element are expected; four times that is allowed. */
static void compare(const char *cell, const char *what, pair *p) {
    double scale = 1e-3, worst = 0;
    for (int64_t i = 0; i < p->count; i++) scale = fmax(scale, fabs(p->expected[i]));
    for (int64_t i = 0; i < p->count; i++)
        worst = fmax(worst, isfinite(p->values[i]) ? fabs(p->values[i] - p->expected[i]) : INFINITY);
    if (worst > 1.6e-4 * scale) fail_msg("%s: %s in float is off by %g of %g", cell, what, worst, scale);
    free(p->values);
}

static void compare_cell(const char *name, bool options) {
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    check_ok(rcv_cell_open(context, name, &cell));
    static const rcv_size proj[] = {{"proj", 10}}, heads[] = {{"heads", 2}};
    probe_config config = {.net = {.input = 19, .hidden = 24, .layers = 2, .bidirectional = options},
                           .steps = 6,
                           .batch = 5,
                           .lengths = options,
                           .resets = options,
                           .states = STATES_BOTH,
                           .seed = random_seed_of(name)};
    if (!strcmp(name, "lstm_proj")) config.net.sizes = proj, config.net.size_count = 1;
    if (!strcmp(name, "slstm")) config.net.sizes = heads, config.net.size_count = 1;
    probe p;
    probe_open(&p, cell, &config);
    probe_gradients(&p);

    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    rcv_plan_options plan_options = RCV_INIT(rcv_plan_options, .steps = config.steps, .batch = config.batch,
                                             .training = true, .lengths = options, .resets = options);
    check_ok(rcv_plan_new(p.net, &plan_options, &plan));
    check_ok(rcv_run_new(plan, &run));
    int64_t rows = config.steps * config.batch;
    float *parameters = narrow(p.parameters, p.parameter_count), *x = narrow(p.x, rows * config.net.input);
    float *dy = narrow(p.dy, rows * p.output);
    pair y = poisoned(p.y, rows * p.output), dx = poisoned(p.dx, rows * config.net.input);
    pair dparameters = poisoned(p.dparameters, p.parameter_count);
    void *initial[PROBE_MAX_STATES], *restart[PROBE_MAX_STATES] = {0}, *dfinal[PROBE_MAX_STATES];
    void *final[PROBE_MAX_STATES], *dinitial[PROBE_MAX_STATES];
    pair finals[PROBE_MAX_STATES], dinitials[PROBE_MAX_STATES];
    for (size_t s = 0; s < p.states; s++) {
        initial[s] = narrow(p.initial[s], p.state_count[s]);
        if (p.restart[s]) restart[s] = narrow(p.restart[s], p.state_count[s]);
        dfinal[s] = narrow(p.dfinal[s], p.state_count[s]);
        finals[s] = poisoned(p.final[s], p.state_count[s]);
        dinitials[s] = poisoned(p.dinitial[s], p.state_count[s]);
        final[s] = finals[s].values;
        dinitial[s] = dinitials[s].values;
    }
    rcv_forward forward = RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .lengths = options ? p.lengths : NULL,
                                   .resets = options ? p.resets : NULL, .initial = (const void *const *)initial,
                                   .restart = (const void *const *)restart, .y = y.values, .final = final);
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = dy, .dfinal = (const void *const *)dfinal, .dx = dx.values,
                                     .dinitial = dinitial, .dparameters = dparameters.values);
    check_ok(rcv_run_forward(run, &forward));
    check_ok(rcv_run_backward(run, &backward));
    compare(name, "y", &y);
    compare(name, "dx", &dx);
    compare(name, "dparameters", &dparameters);
    for (size_t s = 0; s < p.states; s++) {
        compare(name, "a final state", &finals[s]);
        compare(name, "an initial state's gradient", &dinitials[s]);
        free(initial[s]);
        free(restart[s]);
        free(dfinal[s]);
    }
    free(parameters);
    free(x);
    free(dy);
    rcv_run_free(run);
    rcv_plan_free(plan);
    probe_close(&p);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

static void test_float(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        compare_cell(rcv_builtin_name(i), false);
        compare_cell(rcv_builtin_name(i), true);
    }
}

/* ---- names and memory ---- */

static void test_memory(void **state) {
    (void)state;
    static const char *const names[] = {NULL, "cpu", "cpu:0"};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    size_t live = allocator.live;
    for (int i = 0; i < 3; i++) {
        const char text[] = "twelve bytes";
        char back[sizeof text] = "", *description = NULL;
        void *memory = NULL, *nothing = NULL;
        check_ok(rcv_device_describe(context, names[i], NULL));
        check_ok(rcv_device_describe(context, names[i], &description));
        assert_true(strlen(description) > 5);
        rcv_text_free(context, description);
        check_ok(rcv_memory_new(context, names[i], sizeof text, &memory));
        check_ok(rcv_memory_write(names[i], memory, text, sizeof text));
        check_ok(rcv_memory_read(names[i], back, memory, sizeof text));
        assert_string_equal(back, text);
        check_ok(rcv_memory_write(names[i], NULL, NULL, 0));
        check_fails(rcv_memory_write(names[i], NULL, text, 1), RCV_INVALID, "not NULL");
        check_fails(rcv_memory_read(names[i], back, NULL, 1), RCV_INVALID, "not NULL");
        rcv_memory_free(context, names[i], memory);
        rcv_memory_free(context, names[i], NULL);
        allocator.fail_at = 1;
        assert_int_equal(rcv_memory_new(context, names[i], 64, &nothing), RCV_NO_MEMORY);
        assert_null(nothing);
        check_fails(rcv_memory_new(context, names[i], 64, NULL), RCV_INVALID, "needs memory");
        check_fails(rcv_memory_new(NULL, names[i], 64, &nothing), RCV_INVALID, "needs context");
        check_fails(rcv_device_describe(NULL, names[i], NULL), RCV_INVALID, "needs context");
        assert_int_equal(allocator.live, live);
    }
    test_context_end(&allocator, context);
}

/* The CPU has no streams; waiting returns at once. */
static void test_streams(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    probe p;
    check_ok(rcv_cell_open(context, "gru", &cell));
    probe_open(&p, cell, &(probe_config){.net = {.input = 3, .hidden = 4}, .steps = 3, .batch = 2, .seed = 1});
    check_ok(rcv_run_set_stream(p.run, NULL));
    check_fails(rcv_run_set_stream(p.run, &p), RCV_UNSUPPORTED, "cpu has no streams");
    check_fails(rcv_run_set_stream(NULL, NULL), RCV_INVALID, "needs run");
    check_ok(rcv_run_wait(p.run));
    probe_gradients(&p);
    check_ok(rcv_run_wait(p.run));
    check_fails(rcv_run_wait(NULL), RCV_INVALID, "needs run");
    probe_close(&p);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm), cmocka_unit_test(test_float),
                                       cmocka_unit_test(test_memory), cmocka_unit_test(test_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

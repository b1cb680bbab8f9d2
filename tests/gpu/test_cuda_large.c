/* Tensors of more than 2^31 elements on a GPU, held against a few of their sequences on the CPU. It takes a GPU with 40 GB
 * and a minute, so only RECURVE_TEST_LARGE in the environment asks for it. */
#include "probe.h"

#include <cuda_runtime_api.h>
#include <math.h>

enum { SKIPPED = 77 };

typedef struct {
    rcv_context *context;
    rcv_net *net;
    int64_t steps, batch, input, hidden;
    float *parameters, *x;
} large_problem;

/* The same network on the CPU, of these two sequences alone: y as [steps, 2, hidden]. */
static double *compute_rows(const large_problem *l, const int64_t rows[2]) {
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = l->steps, .batch = 2, .dtype = RCV_FLOAT64, .schedule = "naive");
    int64_t parameters = rcv_net_parameter_elements(l->net);
    double *wide = malloc((size_t)parameters * sizeof *wide);
    double *x = malloc((size_t)(l->steps * 2 * l->input) * sizeof *x);
    double *y = malloc((size_t)(l->steps * 2 * l->hidden) * sizeof *y);
    assert_true(wide && x && y);
    for (int64_t i = 0; i < parameters; i++) wide[i] = l->parameters[i];
    for (int64_t i = 0; i < l->steps * 2; i++) {
        const float *from = l->x + (i / 2 * l->batch + rows[i % 2]) * l->input;
        for (int64_t k = 0; k < l->input; k++) x[i * l->input + k] = from[k];
    }
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check_ok(rcv_plan_new(l->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = wide, .x = x, .y = y)));
    rcv_run_free(run);
    rcv_plan_free(plan);
    free(wide);
    free(x);
    return y;
}

static void check_rows(const large_problem *l, const char *y, const int64_t rows[2], const double *want) {
    float *got = malloc((size_t)l->hidden * sizeof *got);
    double largest = 0, worst = 0;
    assert_non_null(got);
    for (int64_t i = 0; i < l->steps * 2 * l->hidden; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < l->steps * 2; i++) {
        int64_t start = (i / 2 * l->batch + rows[i % 2]) * l->hidden;
        check_ok(rcv_memory_read("cuda", got, y + start * 4, (size_t)l->hidden * sizeof *got));
        for (int64_t k = 0; k < l->hidden; k++) {
            double error = fabs(got[k] - want[i * l->hidden + k]);
            worst = fmax(worst, isfinite(got[k]) ? error : INFINITY);
        }
    }
    print_message("off by %g of %g\n", worst, largest);
    assert_true(worst <= 0.04 * largest);
    free(got);
}

/* Whatever lies between them is a number. */
static void check_all_finite(const char *y, int64_t count) {
    enum { PIECE = 1 << 24 };
    float *piece = malloc((size_t)PIECE * sizeof *piece);
    assert_non_null(piece);
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE, bad = 0;
        check_ok(rcv_memory_read("cuda", piece, y + at * 4, (size_t)n * sizeof *piece));
        for (int64_t i = 0; i < n; i++) bad += !isfinite(piece[i]);
        assert_int_equal(bad, 0);
    }
    free(piece);
}

static void run_large(const large_problem *l, const char *schedule, const int64_t rows[2], const double *want) {
    enum { GUARD = 4096 };
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = l->steps, .batch = l->batch, .dtype = RCV_BFLOAT16, .device = "cuda");
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    void *parameters = NULL, *x = NULL, *y = NULL;
    size_t parameter_bytes = (size_t)rcv_net_parameter_elements(l->net) * 4;
    size_t x_bytes = (size_t)(l->steps * l->batch * l->input) * 4,
           y_bytes = x_bytes / (size_t)l->input * (size_t)l->hidden;
    unsigned char guard[GUARD];
    options.schedule = schedule;
    check_ok(rcv_plan_new(l->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_memory_new(l->context, "cuda", parameter_bytes, &parameters));
    check_ok(rcv_memory_new(l->context, "cuda", x_bytes, &x));
    check_ok(rcv_memory_new(l->context, "cuda", y_bytes + GUARD, &y));
    check_ok(rcv_memory_write("cuda", parameters, l->parameters, parameter_bytes));
    check_ok(rcv_memory_write("cuda", x, l->x, x_bytes));
    assert_int_equal(cudaMemset(y, 0xff, y_bytes + GUARD), cudaSuccess); /* not a number */
    check_ok(rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .y = y)));
    check_ok(rcv_run_wait(run));
    check_rows(l, y, rows, want);
    check_all_finite(y, (int64_t)(y_bytes / 4));
    check_ok(rcv_memory_read("cuda", guard, (char *)y + y_bytes, GUARD));
    for (int i = 0; i < GUARD; i++) assert_int_equal(guard[i], 0xff);
    rcv_memory_free(l->context, "cuda", parameters);
    rcv_memory_free(l->context, "cuda", x);
    rcv_memory_free(l->context, "cuda", y);
    rcv_run_free(run);
    rcv_plan_free(plan);
}

static void test_large(void **state) {
    (void)state;
    large_problem l = {.steps = 600, .batch = 4096, .input = 8, .hidden = 1024};
    const int64_t rows[2] = {0, l.batch - 1}, x_count = l.steps * l.batch * l.input;
    test_allocator allocator;
    rcv_cell *cell = NULL;
    random_source source = {7};
    l.context = test_context(&allocator);
    check_ok(rcv_cell_open(l.context, "rnn_relu", &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = l.input, .hidden = l.hidden), &l.net));
    l.parameters = malloc((size_t)rcv_net_parameter_elements(l.net) * sizeof(float));
    l.x = malloc((size_t)x_count * sizeof(float));
    assert_true(l.parameters && l.x && l.steps * l.batch * l.hidden > INT64_C(1) << 31);
    check_ok(rcv_net_initialize(l.net, 3, RCV_FLOAT32, l.parameters));
    for (int64_t i = 0; i < x_count; i++) l.x[i] = (float)random_between(&source, -1, 1);
    double *want = compute_rows(&l, rows);
    run_large(&l, "combine+fuse+pack+graph", rows, want);
    run_large(&l, "combine(steps=all)+fuse+pack+graph", rows, want);
    run_large(&l, "combine(steps=all)+fuse", rows, want);
    free(want);
    free(l.x);
    free(l.parameters);
    rcv_net_free(l.net);
    rcv_cell_free(cell);
    test_context_end(&allocator, l.context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large)};
    rcv_context *context = NULL;
    if (!getenv("RECURVE_TEST_LARGE")) {
        print_message("skipped: tensors of more than 2^31 elements; RECURVE_TEST_LARGE=1 asks for them\n");
        return SKIPPED;
    }
    if (rcv_context_new(NULL, &context)) return 1;
    rcv_status status = rcv_device_describe(context, "cuda", NULL);
    if (status) print_message("skipped: %s\n", rcv_message());
    rcv_context_free(context);
    return status ? SKIPPED : cmocka_run_group_tests(tests, NULL, NULL);
}

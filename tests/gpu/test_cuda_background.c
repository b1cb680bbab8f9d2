/* Searches beside a caller on a GPU: the first plan of cells and types, its replacement between two calls on the caller's stream, captures of the
 * caller while kernels are compiled and plans are timed, reserves of both versions, plans that are freed while they search. */
#include "gpu.h"
#include "reserves.h"
#include "scratch.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>

#define check_cuda(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t check_error_ = (call);                                                                             \
        if (check_error_ != cudaSuccess) fail_msg("%s: %s", #call, cudaGetErrorString(check_error_));                  \
    } while (0)

static const config middle = {"lstm", {.input = 48, .hidden = 64, .layers = 2}, 24, 16, false, false, true};

static void open_on_gpu(problem *p, const config *c) {
    open_problem(p, c, 1);
    p->device = "cuda";
}

static rcv_plan_options in_background(const problem *p, rcv_dtype dtype, bool training) {
    rcv_plan_options o = options_of(p, dtype, training, NULL);
    o.effort = RCV_BACKGROUND;
    return o;
}

static bool refuse(void *user) {
    (void)user;
    return false;
}

/* First plans, whose search is stopped at once, against the oracle: nothing is compiled for them. */
static void test_first_plans(void **state) {
    (void)state;
    static const config configs[] = {
        {"lstm", {.input = 40, .hidden = 72, .layers = 2}, 9, 20, false, false, true},
        {"gru", {.input = 19, .hidden = 45, .layers = 2, .bidirectional = true}, 8, 9, true, false, true},
        {"lstm_layernorm", {.input = 24, .hidden = 40}, 7, 5, true, true, true},
        {"sru", {.input = 32, .hidden = 64, .layers = 2}, 30, 6, false, true, true},
        {"slstm", {.input = 16, .hidden = 24, .layers = 2}, 1, 1, false, false, false},
        {RCV_SOURCE_DIR "/tests/support/cells/decay.cell", {.input = 16, .hidden = 24}, 6, 3, false, false, true}};
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_FLOAT16, RCV_TFLOAT32, RCV_FLOAT64};
    for (size_t i = 0; i < 10 * sizeof configs / sizeof *configs; i++) {
        problem p;
        rcv_plan *plan = NULL;
        results oracle, got;
        double worst = 0;
        bool training = i % 2;
        rcv_dtype dtype = dtypes[i / 2 % 5];
        open_on_gpu(&p, &configs[i / 10]);
        run_oracle(&p, training, &oracle);
        rcv_plan_options options = in_background(&p, dtype, training);
        options.go_on = refuse;
        check_ok(rcv_plan_new(p.net, &options, &plan));
        if (!strstr(rcv_plan_string(plan), "interpret")) fail_msg("the first plan is %s", rcv_plan_string(plan));
        run_plan(&p, plan, dtype, training, &got);
        compare(&p, dtype, rcv_plan_string(plan), &got, &oracle, &worst);
        check_fails(rcv_plan_wait(plan), RCV_STOPPED, "planning was stopped");
        rcv_plan_free(plan);
        drop(&oracle);
        drop(&got);
        close_problem(&p);
    }
}

/* Calls on the caller's stream until the plan was replaced, and a few after that: every result is near the oracle's. */
static void test_replaced(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16};
    for (int i = 0; i < 4; i++) {
        problem p;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        results oracle, got;
        cudaStream_t stream;
        double worst = 0;
        bool training = i % 2;
        open_on_gpu(&p, &middle);
        run_oracle(&p, training, &oracle);
        rcv_plan_options options = in_background(&p, dtypes[i / 2], training);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        check_ok(rcv_run_set_stream(run, stream));
        int calls[2] = {0, 0};
        for (int after = 0; after < 4; after += rcv_run_version(run) == 2) {
            data d;
            open_data(&d, &p, dtypes[i / 2]);
            check_ok(rcv_run_forward(run, &d.forward));
            if (training) check_ok(rcv_run_backward(run, &d.backward));
            check_ok(rcv_run_wait(run));
            close_data(&d, training, &got);
            compare(&p, dtypes[i / 2], rcv_plan_string(plan), &got, &oracle, &worst);
            drop(&got);
            calls[rcv_run_version(run) - 1]++;
            if (calls[0] == 1) assert_int_equal(rcv_run_version(run), 1);
        }
        check_ok(rcv_plan_wait(plan));
        print_message("%d calls by the first plan, then %s\n", calls[0], rcv_plan_string(plan));
        rcv_run_free(run);
        check_cuda(cudaStreamDestroy(stream));
        rcv_plan_free(plan);
        drop(&oracle);
        close_problem(&p);
    }
}

/* The caller captures calls again and again while the search compiles and times: no capture becomes invalid, and every graph gives the bits of
 * the call. */
static void test_captures(void **state) {
    (void)state;
    enum { LEAST = 20 };
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    cudaStream_t stream;
    data d;
    open_on_gpu(&p, &middle);
    rcv_plan_options options = in_background(&p, RCV_BFLOAT16, true);
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_ok(rcv_run_set_stream(run, stream));
    open_data(&d, &p, RCV_BFLOAT16);
    size_t bytes = sizeof(float) * (size_t)p.x_count;
    void *want = malloc(bytes), *got = malloc(bytes);
    assert_true(want && got);
    char *first = strdup(rcv_plan_string(plan));
    check_ok(rcv_run_forward(run, &d.forward));
    check_ok(rcv_run_backward(run, &d.backward));
    check_ok(rcv_run_wait(run));
    check_ok(rcv_memory_read("cuda", want, d.dx, bytes));
    int captures = 0;
    for (; captures < LEAST || !strcmp(rcv_plan_string(plan), first); captures++) {
        cudaGraph_t graph;
        cudaGraphExec_t pass;
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        check_ok(rcv_run_forward(run, &d.forward));
        check_ok(rcv_run_backward(run, &d.backward));
        check_cuda(cudaStreamEndCapture(stream, &graph));
        check_cuda(cudaGraphInstantiate(&pass, graph, 0));
        check_cuda(cudaGraphLaunch(pass, stream));
        check_cuda(cudaStreamSynchronize(stream));
        check_ok(rcv_memory_read("cuda", got, d.dx, bytes));
        if (memcmp(want, got, bytes)) fail_msg("capture %d differs from the call", captures);
        check_cuda(cudaGraphExecDestroy(pass));
        check_cuda(cudaGraphDestroy(graph));
        assert_int_equal(rcv_run_version(run), 1);
        if (captures > 100000) fail_msg("the search did not end");
    }
    print_message("%d captures during the search\n", captures);
    check_ok(rcv_plan_wait(plan));
    free(first);
    free(want);
    free(got);
    close_data(&d, true, NULL);
    rcv_run_free(run);
    check_cuda(cudaStreamDestroy(stream));
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Forward calls of both versions with reserves of their own, then their backward calls from the last to the first. */
static void test_reserves(void **state) {
    (void)state;
    enum { CALLS = 6, SECOND = 3 };
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    results want[2][RESERVE_CALLS], got;
    reserved_call calls[CALLS];
    config c = middle;
    c.lengths = true;
    c.net.dropout = 0.3;
    open_on_gpu(&p, &c);
    rcv_plan_options options = in_background(&p, RCV_FLOAT32, true);
    options.reserve = true;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    char *first = strdup(rcv_plan_string(plan));
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < CALLS; k++) {
        if (k == SECOND) {
            check_ok(rcv_plan_wait(plan));
            check_ok(rcv_run_update(run));
            assert_int_equal(rcv_run_version(run), 1 + (strcmp(rcv_plan_string(plan), first) != 0));
        }
        open_call(&calls[k], &p, RCV_FLOAT32, plan, k);
        check_ok(rcv_run_forward(run, &calls[k].d.forward));
        calls[k].d.forward.version = rcv_run_version(run);
    }
    for (int k = CALLS; k-- > 0;) {
        calls[k].d.backward.forward = &calls[k].d.forward;
        check_ok(rcv_run_backward(run, &calls[k].d.backward));
    }
    check_ok(rcv_run_wait(run));
    run_one_by_one(&p, RCV_FLOAT32, first, want[0]);
    run_one_by_one(&p, RCV_FLOAT32, rcv_plan_string(plan), want[1]);
    for (int k = 0; k < CALLS; k++) {
        close_call(&calls[k], &got);
        check_equal(k < SECOND ? first : rcv_plan_string(plan), k, &want[k >= SECOND][k], &got);
        drop(&got);
    }
    for (int k = 0; k < 2 * RESERVE_CALLS; k++) drop(&want[k / RESERVE_CALLS][k % RESERVE_CALLS]);
    free(first);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Plans freed at once, while kernels are compiled, while plans are timed. */
static void test_freed(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        problem p;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        data d;
        config c = middle;
        c.net.hidden += 8 * i; /* of other kernels than before */
        open_on_gpu(&p, &c);
        rcv_plan_options options = in_background(&p, RCV_BFLOAT16, true);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_BFLOAT16);
        for (int k = 0; k < 200 * i; k++) {
            check_ok(rcv_run_forward(run, &d.forward));
            check_ok(rcv_run_backward(run, &d.backward));
            check_ok(rcv_run_wait(run));
        }
        close_data(&d, true, NULL);
        rcv_run_free(run);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_plans), cmocka_unit_test(test_replaced),
                                       cmocka_unit_test(test_captures), cmocka_unit_test(test_reserves),
                                       cmocka_unit_test(test_freed)};
    return has_gpu() ? cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down) : SKIPPED;
}

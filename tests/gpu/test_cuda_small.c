/* Plans with another plan for calls of few sequences, on a GPU: which plan makes a call, packed parameters, reserves, captures by the caller. */
#include "gpu.h"
#include "small_batches.h"

#include <cuda_runtime_api.h>

#define check_cuda(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t check_error_ = (call);                                                                             \
        if (check_error_ != cudaSuccess) fail_msg("%s: %s", #call, cudaGetErrorString(check_error_));                  \
    } while (0)

static const config layers = {"lstm", {.input = 48, .hidden = 64, .layers = 2}, 12, 20, true, false, true};
static const config plain = {"gru", {.input = 40, .hidden = 56, .layers = 2}, 9, 18, false, true, true};

static const plan_pair pairs[] = {{"combine(steps=all)+fuse+pack+merge+persistent+streams(2)+graph",
                                   "combine+fuse+pack+wavefront+merge+persistent+graph"},
                                  {"combine+fuse+pack+wavefront+merge+persistent+graph", NULL},
                                  {"combine(steps=all)+fuse+interpret+graph", "combine+fuse+pack+graph"},
                                  {"naive+graph", "combine(steps=all)+fuse+pack+merge+persistent+graph"}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void open_on_gpu(problem *p, const config *c) {
    open_problem(p, c, 1);
    p->device = "cuda";
}

static void test_calls(void **state) {
    (void)state;
    const config *configs[] = {&layers, &plain};
    for (int i = 0; i < 2 * PAIRS; i++) {
        problem p;
        rcv_dtype dtype = i / 2 % 2 ? RCV_FLOAT32 : RCV_BFLOAT16;
        open_on_gpu(&p, configs[i % 2]);
        check_pair(&p, dtype, &pairs[i / 2]);
        check_pair_reserves(&p, dtype, &pairs[i / 2]);
        close_problem(&p);
    }
}

/* A graph of the caller's with calls of both plans. */
static void test_capture(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t pass;
    data d[2];
    results want, got;
    config c = plain;
    c.resets = false;
    open_on_gpu(&p, &c);
    rcv_plan_options o = pair_options(&p, RCV_FLOAT32, &pairs[0]);
    check_ok(rcv_plan_new(p.net, &o, &plan));
    check_ok(rcv_run_new(plan, &run));
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_ok(rcv_run_set_stream(run, stream));
    run_apart(&p, RCV_FLOAT32, &pairs[0], p.c.steps, 3, &want);
    for (int i = 0; i < 2; i++) open_data(&d[i], &p, RCV_FLOAT32);
    d[1].forward.batch = 3;
    for (int i = 0; i < 2; i++) {
        check_ok(rcv_run_forward(run, &d[i].forward));
        check_ok(rcv_run_backward(run, &d[i].backward));
    }
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 2; i++) {
        check_ok(rcv_run_forward(run, &d[i].forward));
        check_ok(rcv_run_backward(run, &d[i].backward));
    }
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiate(&pass, graph, 0));
    check_cuda(cudaMemset(d[1].dparameters, 1, sizeof(float) * (size_t)p.parameter_count));
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaGraphLaunch(pass, stream));
    check_cuda(cudaStreamSynchronize(stream));
    close_data(&d[0], true, NULL);
    close_data(&d[1], true, &got);
    check_equal("a captured call of few sequences", 0, &want, &got);
    drop(&want);
    drop(&got);
    check_cuda(cudaGraphExecDestroy(pass));
    check_cuda(cudaGraphDestroy(graph));
    rcv_run_free(run);
    check_cuda(cudaStreamDestroy(stream));
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Both plans are searched for beside the caller, who makes calls of both meanwhile. */
static void test_search(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    results oracle, got;
    double worst = 0;
    open_on_gpu(&p, &plain);
    run_oracle(&p, true, &oracle);
    rcv_plan_options o = options_of(&p, RCV_BFLOAT16, true, NULL);
    o.effort = RCV_BACKGROUND;
    o.small_batch = 4;
    check_ok(rcv_plan_new(p.net, &o, &plan));
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < 40; k++) {
        data d;
        open_data(&d, &p, RCV_BFLOAT16);
        check_ok(call_at(&d, run, true, p.c.steps, k % 2 ? 1 + k % 4 : p.c.batch));
        close_data(&d, true, &got);
        if (k % 2 == 0) compare(&p, RCV_BFLOAT16, rcv_plan_string(plan), &got, &oracle, &worst);
        drop(&got);
        if (k == 20) check_ok(rcv_plan_wait(plan));
    }
    print_message("%s; of few sequences %s\n", rcv_plan_string(plan), rcv_plan_string(rcv_plan_small(plan)));
    rcv_run_free(run);
    rcv_plan_free(plan);
    drop(&oracle);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_capture),
                                       cmocka_unit_test(test_search)};
    return has_gpu() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}

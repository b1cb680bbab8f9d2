/* Two stages of a pipeline on two streams of one GPU: chunk k of the first beside chunk k - 1 of the second. What they compute is what the whole
 * network computes; and on the GPU's own clock the two together take less time than one after the other. */
#include "probe.h"

#include "device/device.h"
#include "net/net.h"

#include <cuda_runtime_api.h>
#include <math.h>

enum { CHUNKS = 8, CHUNK = 16, BATCH = 16, SIZE = 256, STEPS = CHUNKS * CHUNK, ROW = BATCH * SIZE, TIMES = 9 };

static void check_cuda(cudaError_t error) {
    if (error != cudaSuccess) fail_msg("%s", cudaGetErrorString(error));
}

/* Layers of the network as one stage: its states, and a stream of its own. */
typedef struct {
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    cudaStream_t stream;
    float *parameters, *out; /* [STEPS, BATCH, SIZE] */
    float *states[2][2];     /* before and after a chunk, alternating */
} stage;

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    float *x; /* the GPU's */
    stage stages[2];
    cudaEvent_t done[CHUNKS], begin, end;
} world;

static float *reserve(size_t count, const float *from) {
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, count * sizeof *from));
    check_cuda(cudaMemset(memory, 0, count * sizeof *from));
    if (from) check_cuda(cudaMemcpy(memory, from, count * sizeof *from, cudaMemcpyHostToDevice));
    return memory;
}

static void open_stage(world *w, int index, const float *parameters) {
    stage *s = &w->stages[index];
    const rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = CHUNK, .batch = BATCH, .device = "cuda",
                                              .schedule = "combine+fuse+pack+graph");
    check_ok(rcvi_net_slice(w->net, index, 1, &s->net));
    check_ok(rcv_plan_new(s->net, &options, &s->plan));
    check_ok(rcv_run_new(s->plan, &s->run));
    check_cuda(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    s->parameters = reserve((size_t)rcv_net_parameter_elements(s->net), parameters + rcvi_layer_start(w->net, index));
    s->out = reserve((size_t)STEPS * ROW, NULL);
    for (int i = 0; i < 4; i++) s->states[i / 2][i % 2] = reserve(ROW, NULL);
}

static void open_world(world *w) {
    static float x[STEPS * ROW];
    random_source source = {5};
    *w = (world){0};
    check_ok(rcv_context_new(NULL, &w->context));
    check_ok(rcv_cell_open(w->context, "lstm", &w->cell));
    check_ok(rcv_net_new(w->cell, &RCV_INIT(rcv_net_options, .input = SIZE, .hidden = SIZE, .layers = 2), &w->net));
    float *parameters = calloc((size_t)rcv_net_parameter_elements(w->net), sizeof *parameters);
    assert_non_null(parameters);
    check_ok(rcv_net_initialize(w->net, 1, RCV_FLOAT32, parameters));
    for (int i = 0; i < STEPS * ROW; i++) x[i] = (float)random_between(&source, -1, 1);
    w->x = reserve((size_t)STEPS * ROW, x);
    for (int i = 0; i < 2; i++) open_stage(w, i, parameters);
    for (int k = 0; k < CHUNKS; k++) check_cuda(cudaEventCreateWithFlags(&w->done[k], cudaEventDisableTiming));
    check_cuda(cudaEventCreate(&w->begin));
    check_cuda(cudaEventCreate(&w->end));
    free(parameters);
}

static void close_world(world *w) {
    for (int i = 0; i < 2; i++) {
        stage *s = &w->stages[i];
        rcv_run_free(s->run);
        rcv_plan_free(s->plan);
        rcv_net_free(s->net);
        cudaFree(s->parameters);
        cudaFree(s->out);
        for (int k = 0; k < 4; k++) cudaFree(s->states[k / 2][k % 2]);
        cudaStreamDestroy(s->stream);
    }
    for (int k = 0; k < CHUNKS; k++) cudaEventDestroy(w->done[k]);
    cudaEventDestroy(w->begin);
    cudaEventDestroy(w->end);
    cudaFree(w->x);
    rcv_net_free(w->net);
    rcv_cell_free(w->cell);
    rcv_context_free(w->context);
}

/* Chunk k of a stage, on its stream or on the first one's. */
static void run_chunk(world *w, int index, int k, cudaStream_t stream) {
    stage *s = &w->stages[index];
    const float *from = index ? w->stages[0].out : w->x;
    const void *before[] = {s->states[k % 2][0], s->states[k % 2][1]};
    void *behind[] = {s->states[(k + 1) % 2][0], s->states[(k + 1) % 2][1]};
    const rcv_forward data = RCV_INIT(rcv_forward, .parameters = s->parameters, .x = from + (size_t)k * CHUNK * ROW,
                                      .initial = k ? before : NULL, .y = s->out + (size_t)k * CHUNK * ROW,
                                      .final = behind, .same_parameters = true);
    check_ok(rcv_run_set_stream(s->run, stream));
    check_ok(rcv_run_forward(s->run, &data));
}

/* Milliseconds, by the GPU's clock, from before the first chunk to after the last. */
static float run_all(world *w, bool apart) {
    cudaStream_t first = w->stages[0].stream, second = apart ? w->stages[1].stream : first;
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaEventRecord(w->begin, first));
    for (int k = 0; k < CHUNKS; k++) {
        run_chunk(w, 0, k, first);
        check_cuda(cudaEventRecord(w->done[k], first));
        check_cuda(cudaStreamWaitEvent(second, w->done[k], 0));
        run_chunk(w, 1, k, second);
    }
    check_cuda(cudaEventRecord(w->end, second));
    check_cuda(cudaEventSynchronize(w->end));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, w->begin, w->end));
    return milliseconds;
}

static void fetch(const world *w, float *y) {
    check_cuda(cudaMemcpy(y, w->stages[1].out, (size_t)STEPS * ROW * sizeof *y, cudaMemcpyDeviceToHost));
}

static void test_stages_overlap(void **state) {
    (void)state;
    static float together[STEPS * ROW], one[STEPS * ROW];
    world w;
    open_world(&w);
    run_all(&w, true); /* kernels are loaded, graphs captured */
    run_all(&w, false);
    run_all(&w, true);
    fetch(&w, together);
    run_all(&w, false);
    fetch(&w, one);
    assert_memory_equal(together, one, sizeof one);
    float least[2] = {INFINITY, INFINITY};
    for (int i = 0; i < 2 * TIMES; i++) least[i % 2] = fminf(least[i % 2], run_all(&w, i % 2));
    print_message("one after the other %.3f ms, side by side %.3f ms: %.2f of it\n", least[0], least[1],
                  least[1] / least[0]);
    assert_true(least[1] < 0.85f * least[0]);
    close_world(&w);
}

int main(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        print_message("skipped: what needs a GPU: there is none\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* When a pass is captured, and which graph a pass replays, without a GPU: captures and launches are counted instead. */
#include "cuda_programs.h"
#include "device/cuda/engine/worker.h"
#include "generator.h"

static struct {
    int captured, launched, replayed, open; /* captures, passes step by step, replays; graphs that are not destroyed */
    int updated;                            /* graphs that were changed in place of new ones */
    int streams;                            /* of the last pass step by step */
    bool capturing, running, refuses;       /* a capture is open; the call before is running; updates fail */
    int relaxed;                            /* modes exchanged and not exchanged back */
    size_t nodes;                           /* of the next capture */
    const void *signal;                     /* of the pass that was captured or launched last */
    const void *replay;                     /* the graph that was replayed last */
    char graphs[10000];                     /* their handles, */
    const void *of[10000];                  /* and the signals that they have */
} fake;

static rcv_status note_launch(rcvi_worker *w, const rcvi_binding *binding) {
    if (!fake.capturing) fake.launched++;
    fake.streams = w->streams.count;
    fake.signal = binding->signal;
    return RCV_OK;
}

static cudaError_t begin_capture(void) {
    assert_false(fake.capturing);
    fake.capturing = true;
    return cudaSuccess;
}

static cudaError_t end_capture(cudaGraph_t *graph) {
    assert_true(fake.capturing && (size_t)fake.captured < sizeof fake.graphs);
    fake.capturing = false;
    *graph = (cudaGraph_t)(void *)&fake.graphs[fake.captured];
    return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t *made, const cudaGraph_t graph) {
    *made = (cudaGraphExec_t)(void *)graph;
    fake.of[fake.captured++] = fake.signal;
    fake.open++;
    return cudaSuccess;
}

static cudaError_t update(cudaGraphExec_t graph) {
    if (fake.refuses) return cudaErrorGraphExecUpdateFailure;
    fake.of[(const char *)(void *)graph - fake.graphs] = fake.signal;
    fake.captured++;
    fake.updated++;
    return cudaSuccess;
}

static cudaError_t count_nodes(size_t *count) {
    *count = fake.nodes;
    return cudaSuccess;
}

static cudaError_t exchange(enum cudaStreamCaptureMode *mode) {
    fake.relaxed += *mode == cudaStreamCaptureModeRelaxed ? 1 : -1;
    *mode = *mode == cudaStreamCaptureModeRelaxed ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeRelaxed;
    return cudaSuccess;
}

static cudaError_t query(void) {
    assert_int_equal(fake.relaxed, 1);
    return fake.running ? cudaErrorNotReady : cudaSuccess;
}

static cudaError_t destroy(cudaGraphExec_t graph) {
    assert_non_null(graph);
    fake.open--;
    return cudaSuccess;
}

static cudaError_t replay(cudaGraphExec_t graph) {
    fake.replayed++;
    fake.replay = graph;
    return cudaSuccess;
}

#define rcvi_cuda_launch(W, FIRST, END, BINDING, SCRATCH, STREAM)                                                      \
    ((void)(FIRST), (void)(END), (void)(SCRATCH), (void)(STREAM), note_launch(W, BINDING))
#define cudaStreamBeginCapture(STREAM, MODE) begin_capture()
#define cudaStreamEndCapture(STREAM, GRAPH) end_capture(GRAPH)
#define cudaGraphInstantiate(MADE, GRAPH, FLAGS) instantiate(MADE, GRAPH)
#define cudaGraphExecUpdate(MADE, GRAPH, RESULT) ((void)(GRAPH), (void)(RESULT), update(MADE))
#define cudaGraphGetNodes(GRAPH, NODES, COUNT) ((void)(GRAPH), count_nodes(COUNT))
#define cudaThreadExchangeStreamCaptureMode exchange
#define cudaEventQuery(EVENT) ((void)(EVENT), query())
#define cudaGetLastError() cudaSuccess
#define cudaGraphDestroy(GRAPH) ((void)(GRAPH))
#define cudaGraphExecDestroy destroy
#define cudaGraphLaunch(GRAPH, STREAM) ((void)(STREAM), replay(GRAPH))
#include "device/cuda/engine/graph.c" /* instead of the library's */

/* ---- a run ---- */

typedef struct {
    problem p;
    rcvi_program program;
    rcvi_engine engine;
    rcvi_worker worker;
    rcvi_binding binding;
    bool restart[16];
} subject;

static void open_subject(subject *s) {
    static const config c = {"lstm", {.input = 4, .hidden = 4, .layers = 1}, 9, 6, false, false, true};
    *s = (subject){0};
    memset(&fake, 0, sizeof fake);
    open_problem(&s->p, &c, 1);
    assert_true(write_program(&s->p, true, "combine+fuse+pack+graph", &s->program));
    rcvi_engine *e = &s->engine;
    *e = (rcvi_engine){.program = &s->program, .context = s->program.pool.context};
    rcvi_pool_init(&e->pool, e->context);
    rcvi_worker *w = &s->worker;
    *w = (rcvi_worker){.engine = e, .context = e->context, .streams.count = 4, .called = true};
    fake.nodes = 20;
    w->key_count = rcvi_cuda_key_count(&s->program);
    w->buffers = rcvi_pool_new(&e->pool, s->program.buffer_count, sizeof *w->buffers);
    w->key = rcvi_pool_new(&e->pool, w->key_count, sizeof *w->key);
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) w->graphs[i].key = rcvi_pool_new(&e->pool, w->key_count, sizeof *w->key);
    assert_false(e->pool.failed);
    s->binding = (rcvi_binding){.program = &s->program, .restart_is_initial = s->restart};
}

static void close_subject(subject *s) {
    rcvi_cuda_drop_graphs(&s->worker);
    assert_int_equal(fake.open, 0);
    rcvi_pool_free(&s->engine.pool);
    rcvi_program_free(&s->program);
    close_problem(&s->p);
}

static void run_pass(subject *s, int64_t steps, bool backward) {
    size_t first = backward ? s->program.forward_count : 0;
    s->program.sizes.steps = steps;
    check_ok(rcvi_cuda_launch_graph(&s->worker, first, backward ? s->program.step_count : s->program.forward_count,
                                    &s->binding, NULL, NULL));
    assert_int_equal(fake.relaxed, 0);
}

/* A forward pass of so many steps. */
static void pass(subject *s, int64_t steps) { run_pass(s, steps, false); }

/* ---- tests ---- */

/* Communicate steps copy from the address of the signal, which is in the graph: another address is another graph. */
static void test_signal(void **state) {
    (void)state;
    subject s;
    uint64_t signals[4] = {0}, values[2] = {0};
    open_subject(&s);
    s.binding.signals = signals;
    for (int i = 0; i < 8; i++) {
        s.binding.signal = &values[i % 2];
        pass(&s, 5);
        if (i < 2) continue;
        assert_int_equal(fake.replayed, i - 1);
        assert_ptr_equal(fake.of[(const char *)fake.replay - fake.graphs], &values[i % 2]);
    }
    assert_int_equal(fake.captured, 2);
    close_subject(&s);
}

/* Launched on one stream at first, captured when it comes again, then replayed. */
static void test_second(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    pass(&s, 5);
    assert_true(fake.launched == 1 && fake.captured == 0 && fake.streams == 1);
    for (int i = 1; i < 5; i++) {
        pass(&s, 5);
        assert_true(fake.launched == 1 && fake.captured == 1 && fake.replayed == i && fake.streams == 4);
    }
    s.binding.captures_at_once = true;
    pass(&s, 6);
    assert_true(fake.launched == 1 && fake.captured == 2);
    close_subject(&s);
}

/* What comes again later than so many passes is not captured, whether those before it were launched or replayed. */
static void test_late(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        int between = RCVI_SEEN_PASSES - 2 + i % 3;
        subject s;
        open_subject(&s);
        for (int k = 0; k < 3 && i >= 3; k++) pass(&s, 100);
        fake.captured = fake.launched = 0;
        pass(&s, 5);
        for (int k = 0; k < between; k++) pass(&s, i < 3 ? 6 + k : 100);
        pass(&s, 5);
        assert_int_equal(fake.captured, between < RCVI_SEEN_PASSES);
        assert_int_equal(fake.launched, (between < RCVI_SEEN_PASSES ? 1 : 2) + (i < 3 ? between : 0));
        close_subject(&s);
    }
}

/* Calls of many lengths: fewer captures than replays, although most lengths come again at some time. */
static void test_many_sizes(void **state) {
    (void)state;
    random_source random = {7};
    subject s;
    open_subject(&s);
    for (int i = 0; i < 1000; i++) pass(&s, 5 + random_below(&random, 40) + random_below(&random, 40));
    print_message("%d captures, %d replays, %d passes step by step\n", fake.captured, fake.replayed, fake.launched);
    assert_int_equal(fake.replayed + fake.launched, 1000);
    assert_true(2 * fake.captured < fake.replayed);
    assert_true(fake.open <= RCVI_MAX_GRAPHS);
    close_subject(&s);
}

/* Where the GPU is busy with the call before, passes are captured at once; not where there was none. */
static void test_busy(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    fake.running = true;
    s.worker.called = false;
    pass(&s, 5);
    assert_true(fake.launched == 1 && fake.captured == 0);
    s.worker.called = true;
    for (int i = 1; i < 10; i++) {
        pass(&s, 5 + i);
        assert_true(fake.launched == 1 && fake.captured == i && fake.replayed == i && fake.streams == 4);
    }
    fake.running = false;
    pass(&s, 50);
    assert_true(fake.launched == 2 && fake.captured == 9);
    close_subject(&s);
}

/* Where there are as many graphs as a run keeps, the oldest of the same pass is changed; where that is refused, it is made anew. */
static void test_update(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    fake.running = true;
    run_pass(&s, 3, true);
    for (int i = 1; i < RCVI_MAX_GRAPHS; i++) pass(&s, i);
    assert_true(fake.open == RCVI_MAX_GRAPHS && fake.updated == 0);
    for (int i = 0; i < 100; i++) pass(&s, 1000 + i);
    assert_true(fake.open == RCVI_MAX_GRAPHS && fake.updated == 100);
    int captured = fake.captured;
    run_pass(&s, 3, true); /* the other pass has its graph still */
    pass(&s, 1099);
    assert_int_equal(fake.captured, captured);
    run_pass(&s, 4, true);
    assert_int_equal(fake.updated, 101);
    fake.refuses = true;
    pass(&s, 2000);
    assert_true(fake.open == RCVI_MAX_GRAPHS && fake.updated == 101 && fake.captured == captured + 2);
    fake.refuses = false;
    fake.nodes = 21; /* one node more than the graphs have that are there */
    pass(&s, 3000);
    assert_true(fake.open == RCVI_MAX_GRAPHS && fake.updated == 101 && fake.captured == captured + 3);
    close_subject(&s);
}

/* A pass of many launches has few graphs, or one alone. */
static void test_many_nodes(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    fake.running = true;
    for (int i = 0; i < 100; i++) {
        fake.nodes = i < 90 ? (size_t)(100 + 40 * i) : RCVI_TUNED_GRAPH_NODES + 1;
        pass(&s, i);
        assert_true(s.worker.graph_nodes <= RCVI_TUNED_GRAPH_NODES || (fake.open == 1 && i >= 90));
    }
    assert_int_equal(fake.launched, 0);
    fake.nodes = 1000;
    pass(&s, 200);
    assert_true(fake.open == 1 && s.worker.graph_nodes == 1000);
    close_subject(&s);
    assert_int_equal(s.worker.graph_nodes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signal),    cmocka_unit_test(test_second),
                                       cmocka_unit_test(test_late),      cmocka_unit_test(test_many_sizes),
                                       cmocka_unit_test(test_busy),      cmocka_unit_test(test_update),
                                       cmocka_unit_test(test_many_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

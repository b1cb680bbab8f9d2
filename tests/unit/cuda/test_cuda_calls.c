/* What a call of a run enqueues around its launches, and on which streams, without a GPU: seeds and lengths, waits, cleared memory. */
#include "cuda_programs.h"
#include "cuda_streams.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"

enum { MOST_RECORDS = 64 };
typedef enum { CLEARED, SENT, SORTED, LAUNCHED } action;

/* What was enqueued since `forget`. */
static struct {
    struct {
        action what;
        const void *stream, *at;
        history before;
    } records[MOST_RECORDS];
    int count;
    const void *captured;           /* the stream that the caller captures */
    bool pending;                   /* what was enqueued last is not done */
    int finished, dropped, resized; /* waits for all calls, drops of all graphs, changes of the vendor's batch */
    int64_t batch;                  /* for which the vendor's kernels are */
} seen;

static void note(action what, const void *at, const void *stream) {
    assert_true(seen.count < MOST_RECORDS);
    seen.records[seen.count].what = what;
    seen.records[seen.count].at = at;
    seen.records[seen.count].stream = stream;
    seen.records[seen.count++].before = *history_of(stream);
}

static cudaError_t note_clear(void *at, int value, size_t bytes, cudaStream_t stream) {
    assert_true(value == 0 && bytes > 0);
    note(CLEARED, at, stream);
    return cudaSuccess;
}

static cudaError_t note_send(const void *at, const void *stream) {
    note(SENT, at, stream);
    return cudaSuccess;
}

static cudaError_t note_sort(cudaStream_t stream, const rcvi_sorting *sorting) {
    note(SORTED, sorting->lengths, stream);
    return cudaSuccess;
}

/* Its launches are one more on the stream, numbered as that stream. */
static rcv_status note_launch(rcvi_worker *w, cudaStream_t stream) {
    note(LAUNCHED, w, stream);
    ptrdiff_t number = (const char *)stream - fake.handles;
    history_of(stream)->seen[number]++;
    return RCV_OK;
}

static cudaError_t is_capturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = stream == seen.captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static cudaError_t finish(void) { return seen.finished++, cudaSuccess; }

/* What the vendor frees, nothing uses any more. */
static rcv_status resize_vendor(rcvi_sizes sizes) {
    seen.resized++;
    assert_true(seen.dropped == seen.resized && seen.finished >= seen.resized - 1);
    seen.batch = sizes.batch;
    return RCV_OK;
}

#define cudaMemsetAsync note_clear
#define cudaMemcpyAsync(TO, FROM, BYTES, KIND, STREAM) ((void)(FROM), (void)(BYTES), note_send(TO, STREAM))
#define cudaStreamIsCapturing is_capturing
#define cudaEventQuery(EVENT) ((void)(EVENT), seen.pending ? cudaErrorNotReady : cudaSuccess)
#define cudaThreadExchangeStreamCaptureMode(MODE) ((void)(MODE), cudaSuccess)
#define rcvi_cuda_send_values(STREAM, FROM, COUNT, TO) ((void)(FROM), (void)(COUNT), note_send(TO, STREAM))
#define rcvi_cuda_sort_lengths note_sort
#define rcvi_cuda_launch(W, FIRST, END, BINDING, SCRATCH, STREAM) ((void)(END), (void)(SCRATCH), note_launch(W, STREAM))
#define rcvi_cuda_launch_graph(W, FIRST, END, BINDING, SCRATCH, STREAM)                                                \
    ((void)(END), (void)(SCRATCH), note_launch(W, STREAM))
#define rcvi_cuda_finish(W) ((void)(W), finish())
#define rcvi_cuda_drop_graphs(W) ((void)(W), seen.dropped++)
#define rcvi_cudnn_must_compile(VENDOR, SIZES) ((void)(VENDOR), seen.batch != (SIZES).batch)
#define rcvi_cudnn_resize(VENDOR, SIZES) ((void)(VENDOR), resize_vendor(SIZES))
#define rcvi_cuda_enter(ORDINAL, BEFORE) ((void)(ORDINAL), *(BEFORE) = 0, RCV_OK)
#define rcvi_cuda_leave(BEFORE) ((void)(BEFORE))
#define rcvi_cuda_resize_loops(W, SIZES) ((void)(SIZES))
#include "device/cuda/engine/run.c" /* instead of the library's */

/* ---- a run ---- */

typedef struct {
    problem p;
    rcvi_program program;
    rcvi_engine engine;
    rcvi_worker worker;
    void **buffers; /* [buffers] the caller's */
    bool restart[16];
    int64_t seed;
    uint64_t seed_at;
    char memory[4096]; /* of the GPU, which nobody reads */
    void *streams[2];  /* the caller's */
} subject;

/* A network with dropout and lengths, whose run passes something from call to call. */
static void open_subject(subject *s, bool device_lengths) {
    static const config c = {"gru", {.input = 4, .hidden = 4, .layers = 2, .dropout = 0.5}, 5, 3, true, false, true};
    *s = (subject){0};
    open_problem(&s->p, &c, 1);
    rcv_plan_options options = options_of(&s->p, RCV_FLOAT32, true, "combine(steps=all)+fuse+pack+graph");
    options.device_lengths = device_lengths;
    assert_true(write_with(s->p.net, &options, &s->program));
    rcvi_engine *e = &s->engine;
    *e = (rcvi_engine){.program = &s->program, .context = s->program.pool.context, .exchange_bytes = 8};
    rcvi_pool_init(&e->pool, e->context);
    check_ok(rcvi_cuda_find_layout(e));
    e->seed = 8;
    e->lengths = 16;
    e->rows_order = 64;
    e->alive = 128;
    rcvi_worker *w = &s->worker;
    *w = (rcvi_worker){.engine = e, .context = e->context};
    w->views = rcvi_pool_new(&e->pool, s->program.step_count, sizeof *w->views);
    w->buffers = rcvi_pool_new(&e->pool, s->program.buffer_count, sizeof *w->buffers);
    s->buffers = rcvi_pool_new(&e->pool, s->program.buffer_count, sizeof *s->buffers);
    if (e->sorts && !device_lengths) check_ok(rcvi_cuda_rows_open(e->context, &s->program, &w->rows));
    assert_false(e->pool.failed);
    memset(&fake, 0, sizeof fake);
    memset(&seen, 0, sizeof seen);
    static int64_t lengths[3] = {5, 4, 1};
    for (size_t b = 0; b < s->program.buffer_count; b++)
        s->buffers[b] =
            s->program.buffers[b].role == RCVI_LENGTHS ? (void *)lengths : (void *)((uintptr_t)(b + 1) << 20);
    for (int i = 0; i < 2; i++) s->streams[i] = fake_handle();
    w->done = fake_handle();
}

static void close_subject(subject *s) {
    rcvi_cuda_rows_close(s->engine.context, &s->worker.rows);
    rcvi_pool_free(&s->engine.pool);
    rcvi_program_free(&s->program);
    close_problem(&s->p);
}

static rcvi_binding bind_to(subject *s, void *stream) {
    return (rcvi_binding){.program = &s->program,
                          .buffers = s->buffers,
                          .kept = s->memory,
                          .restart_is_initial = s->restart,
                          .stream = stream};
}

static rcv_status call(subject *s, bool backward, const rcvi_binding *binding) {
    size_t forward = s->program.forward_count;
    seen.count = 0;
    return rcvi_cuda_run(&s->worker, backward ? forward : 0, backward ? s->program.step_count : forward, binding,
                         s->memory);
}

static int count_of(action what) {
    int found = 0;
    for (int i = 0; i < seen.count; i++) found += seen.records[i].what == what;
    return found;
}

/* ---- tests ---- */

/* Memory is cleared on the stream that is given, after the call before, and before the next one, wherever these are. */
static void test_clear(void **state) {
    (void)state;
    subject s;
    char gradients[64];
    open_subject(&s, false);
    const rcvi_binding first = bind_to(&s, s.streams[0]), second = bind_to(&s, s.streams[1]);
    check_ok(call(&s, false, &first));
    assert_int_equal(count_of(CLEARED), 1); /* what passes from call to call, in the first one */
    seen.count = 0;
    check_ok(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[1]));
    assert_int_equal(seen.count, 1);
    assert_true(seen.records[0].what == CLEARED && seen.records[0].at == gradients);
    assert_ptr_equal(seen.records[0].stream, s.streams[1]);
    assert_int_equal(seen.records[0].before.seen[0], 1); /* the launches of the call before */
    assert_ptr_equal(s.worker.last, s.streams[1]);
    int waits = fake.waits;
    check_ok(call(&s, false, &first));
    assert_int_equal(fake.waits, waits + 1);
    check_ok(call(&s, true, &second));
    close_subject(&s);
}

/* The first call of a run may be one that clears. */
static void test_clear_first(void **state) {
    (void)state;
    subject s;
    char gradients[64];
    open_subject(&s, false);
    check_ok(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[0]));
    assert_int_equal(seen.count, 2);
    assert_ptr_equal(seen.records[1].at, gradients);
    const rcvi_binding binding = bind_to(&s, s.streams[0]);
    check_ok(call(&s, false, &binding));
    assert_int_equal(count_of(CLEARED), 0);
    close_subject(&s);
}

/* Into the caller's capture only the clearing is enqueued; no event of earlier work is waited for. */
static void test_clear_captured(void **state) {
    (void)state;
    subject s;
    char gradients[64];
    open_subject(&s, false);
    seen.captured = s.streams[0];
    check_fails(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[0]), RCV_INVALID,
                "first call cannot be captured");
    seen.captured = NULL;
    const rcvi_binding binding = bind_to(&s, s.streams[0]);
    check_ok(call(&s, false, &binding));
    seen.captured = s.streams[0];
    seen.count = 0;
    check_ok(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[0]));
    assert_true(seen.count == 1 && fake.waits == 0 && s.worker.captured);
    seen.captured = s.streams[1]; /* a run that was called on another stream: what it enqueued there must be done */
    seen.pending = true;
    check_fails(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[1]), RCV_INVALID,
                "is not done");
    seen.pending = false;
    check_ok(rcvi_cuda_clear(&s.worker, gradients, sizeof gradients, s.memory, s.streams[1]));
    assert_true(seen.count == 2 && fake.waits == 0);
    close_subject(&s);
}

/* A forward call sends its seed and lengths; one that only prepares sends neither, since those of the forward call whose backward call it
 * belongs to are in what is kept. */
static void test_prepares(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool captured = i % 2, device_lengths = i / 2;
        subject s;
        open_subject(&s, device_lengths);
        rcvi_binding binding = bind_to(&s, s.streams[0]);
        binding.seed_at = &s.seed_at;
        check_ok(call(&s, false, &binding));
        assert_true(count_of(SENT) >= 1 && count_of(SENT) + count_of(SORTED) >= 2);
        s.worker.lengths_sent = true; /* as the trainer does before a captured call */
        seen.captured = captured ? s.streams[0] : NULL;
        check_ok(call(&s, false, &binding));
        assert_true(count_of(SENT) >= 1 && count_of(LAUNCHED) == 1);
        binding.only_prepares = true;
        check_ok(call(&s, false, &binding));
        assert_int_equal(count_of(SENT) + count_of(SORTED), 0);
        assert_int_equal(count_of(LAUNCHED), 1);
        close_subject(&s);
    }
}

/* A vendor's kernels for another batch replace those before: no graph that uses these is left, and none is captured without its kernels. */
static void test_vendor(void **state) {
    (void)state;
    subject s;
    char vendor;
    open_subject(&s, true);
    s.worker.vendor = (rcvi_cudnn *)(void *)&vendor;
    rcvi_binding binding = bind_to(&s, s.streams[0]);
    binding.seed_at = &s.seed_at;
    for (int i = 0; i < 4; i++) {
        s.program.sizes.batch = i < 2 ? 3 : i - 1;
        check_ok(call(&s, false, &binding));
        assert_int_equal(seen.batch, s.program.sizes.batch);
    }
    assert_true(seen.resized == 3 && seen.dropped == 3 && seen.finished == 2);
    s.program.sizes.batch = 3;
    seen.captured = s.streams[0];
    check_fails(call(&s, false, &binding), RCV_INVALID, "cannot be captured");
    s.program.sizes.batch = 2;
    check_ok(call(&s, false, &binding));
    seen.captured = NULL;
    check_ok(call(&s, false, &binding));
    s.program.sizes.batch = 3;
    check_fails(call(&s, false, &binding), RCV_UNSUPPORTED, "captured call");
    assert_true(seen.resized == 3 && seen.dropped == 3);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vendor), cmocka_unit_test(test_clear),
                                       cmocka_unit_test(test_clear_first), cmocka_unit_test(test_clear_captured),
                                       cmocka_unit_test(test_prepares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Runs on a GPU: streams, threads, addresses that change, what the caller leaves out, memory that is not there. */
#include "gpu.h"
#include "planned.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define check_cuda(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t check_error_ = (call);                                                                             \
        if (check_error_ != cudaSuccess) fail_msg("%s gave %s", #call, cudaGetErrorString(check_error_));              \
    } while (0)

static const config middle = {"lstm", {.input = 24, .hidden = 40, .layers = 2}, 6, 10, true, true, true};
static const config plain = {"gru", {.input = 24, .hidden = 40, .layers = 2}, 6, 10, false, false, true};

static const char *const plans[] = {"combine+fuse+pack+wavefront+merge+graph", "combine(steps=2)+fuse+streams(4)",
                                    "combine+fuse+pack", "naive+graph",
                                    "combine(steps=all)+fuse+merge+interpret+graph"};
enum { PLANS = sizeof plans / sizeof *plans };

static void open_on_gpu(problem *p, const config *c) {
    open_problem(p, c, 1);
    p->device = "cuda";
    p->restart = c->resets;
}

static rcv_plan *pinned(const problem *p, rcv_dtype dtype, const char *schedule) {
    rcv_plan_options options = options_of(p, dtype, true, schedule);
    rcv_plan *plan = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    return plan;
}

static void both_passes(rcv_run *run, const data *d) {
    check_ok(rcv_run_forward(run, &d->forward));
    check_ok(rcv_run_backward(run, &d->backward));
}

/* ---- streams ---- */

typedef struct {
    atomic_bool is_open, is_over;
} gate;

/* Holds its stream until the gate is opened, or for ten seconds. */
static void hold(void *user) {
    gate *g = user;
    for (int i = 0; i < 10000 && !atomic_load(&g->is_open); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&g->is_over, true);
}

/* Calls return while the stream is held up; what follows on the stream finds their results. */
static void check_stream(const problem *p, rcv_dtype dtype, const char *schedule, const results *want) {
    rcv_plan *plan = pinned(p, dtype, schedule);
    rcv_run *run = NULL;
    cudaStream_t stream;
    data first, second;
    results got;
    gate g = {false, false};
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_run_set_stream(run, stream));
    open_data(&first, p, dtype);
    open_data(&second, p, dtype);
    both_passes(run, &first);
    check_ok(rcv_run_wait(run));
    check_cuda(cudaLaunchHostFunc(stream, hold, &g));
    both_passes(run, &first);
    both_passes(run, &second);
    bool returned = !atomic_load(&g.is_over);
    atomic_store(&g.is_open, true);
    check_cuda(cudaStreamSynchronize(stream));
    if (!returned) fail_msg("%s waits for the stream", schedule);
    close_data(&first, true, NULL);
    close_data(&second, true, &got);
    compare(p, dtype, schedule, &got, want, &(double){0});
    drop(&got);
    check_ok(rcv_run_set_stream(run, NULL));
    rcv_run_free(run);
    rcv_plan_free(plan);
    check_cuda(cudaStreamDestroy(stream));
}

static void test_streams(void **state) {
    (void)state;
    const config *configs[] = {&middle, &plain};
    for (int c = 0; c < 2; c++) {
        problem p;
        results want;
        open_on_gpu(&p, configs[c]);
        run_oracle(&p, true, &want);
        /* CUDA holds some thousand launches of a stream that does not advance, then launching waits: naive has more than that. */
        for (int i = 0; i < PLANS; i++) {
            if (strncmp(plans[i], "naive", 5) != 0)
                check_stream(&p, i % 2 ? RCV_BFLOAT16 : RCV_FLOAT32, plans[i], &want);
        }
        drop(&want);
        close_problem(&p);
    }
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 8 };

typedef struct {
    problem p;
    data d;
    const char *schedule;
    rcv_status status;
    char message[256];
} worker;

static rcv_status work_with(worker *w, cudaStream_t stream) {
    rcv_plan_options options = options_of(&w->p, RCV_FLOAT32, true, w->schedule);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    rcv_status status = rcv_plan_new(w->p.net, &options, &plan);
    if (!status) status = rcv_run_new(plan, &run);
    if (!status) status = rcv_run_set_stream(run, stream);
    for (int round = 0; round < ROUNDS && !status; round++) {
        w->d.forward.same_parameters = round > 1;
        status = rcv_run_forward(run, &w->d.forward);
        if (!status) status = rcv_run_backward(run, &w->d.backward);
    }
    if (!status) status = rcv_run_wait(run);
    if (status) snprintf(w->message, sizeof w->message, "%s", rcv_message());
    rcv_run_free(run);
    rcv_plan_free(plan);
    return status;
}

/* No assertions here: they jump. */
static void *work(void *user) {
    worker *w = user;
    cudaStream_t stream;
    w->status = RCV_INVALID;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return NULL;
    w->status = work_with(w, stream);
    cudaStreamDestroy(stream);
    return NULL;
}

/* Contexts and streams of their own, all at once. */
static void test_threads(void **state) {
    (void)state;
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        open_on_gpu(&workers[i].p, i % 2 ? &plain : &middle);
        open_data(&workers[i].d, &workers[i].p, RCV_FLOAT32);
        workers[i].schedule = plans[i];
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        results got, want;
        if (w->status) fail_msg("%s: %s", w->schedule, w->message);
        run_oracle(&w->p, true, &want);
        close_data(&w->d, true, &got);
        compare(&w->p, RCV_FLOAT32, w->schedule, &got, &want, &(double){0});
        drop(&got);
        drop(&want);
        close_problem(&w->p);
    }
}

/* ---- persistent kernels ---- */

enum { MANY_LAUNCHES = 10000, OTHER_EVERY = 3 };

/* A stream with a run of a plan on it, and its data. */
typedef struct {
    cudaStream_t stream;
    rcv_plan *plan;
    rcv_run *run;
    data d;
} lane;

static void open_lane(lane *l, const problem *p, const char *schedule) {
    l->plan = pinned(p, RCV_BFLOAT16, schedule);
    check_cuda(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
    check_ok(rcv_run_new(l->plan, &l->run));
    check_ok(rcv_run_set_stream(l->run, l->stream));
    open_data(&l->d, p, RCV_BFLOAT16);
}

static void close_lane(lane *l, results *got) {
    check_ok(rcv_run_wait(l->run));
    check_ok(rcv_run_set_stream(l->run, NULL));
    close_data(&l->d, true, got);
    rcv_run_free(l->run);
    rcv_plan_free(l->plan);
    check_cuda(cudaStreamDestroy(l->stream));
}

/* Blocks wait for each other: that must end, and end the same, whatever else is on the GPU: launches of another plan, and other
 * persistent kernels. */
static void test_persistent(void **state) {
    (void)state;
    static const char schedule[] = "combine+fuse+pack+wavefront+merge+persistent+graph";
    static const config shape = {"lstm", {.input = 72, .hidden = 72, .layers = 2}, 6, 20, false, false, true};
    problem p;
    results want, first, last, beside[2];
    lane alone, main_lane, others[2];
    open_on_gpu(&p, &shape);
    rcv_plan_options options = options_of(&p, RCV_BFLOAT16, true, schedule);
    rcv_plan *plan = NULL;
    if (rcv_plan_new(p.net, &options, &plan) == RCV_UNSUPPORTED) {
        print_message("skipped: %s\n", rcv_message());
        close_problem(&p);
        return;
    }
    rcv_plan_free(plan);
    run_oracle(&p, true, &want);
    open_lane(&alone, &p, schedule);
    both_passes(alone.run, &alone.d);
    close_lane(&alone, &first);
    compare(&p, RCV_BFLOAT16, schedule, &first, &want, &(double){0});
    open_lane(&main_lane, &p, schedule);
    open_lane(&others[0], &p, "combine+fuse+pack");
    open_lane(&others[1], &p, "combine(steps=all)+fuse+pack+persistent");
    for (int i = 0; i < MANY_LAUNCHES / 2; i++) {
        both_passes(main_lane.run, &main_lane.d);
        if (i % OTHER_EVERY == 0) both_passes(others[i / OTHER_EVERY % 2].run, &others[i / OTHER_EVERY % 2].d);
    }
    close_lane(&main_lane, &last);
    check_same_bits(schedule, &first, &last);
    for (int i = 0; i < 2; i++) {
        close_lane(&others[i], &beside[i]);
        compare(&p, RCV_BFLOAT16, "beside it", &beside[i], &want, &(double){0});
        drop(&beside[i]);
    }
    drop(&first);
    drop(&last);
    drop(&want);
    close_problem(&p);
}

/* Calls of one sequence and of all, in turns: the dynamic algorithm compiles kernels for each batch, and graphs of others are not replayed. */
static void alternate_batches(rcv_run *run, data *set) {
    static const int64_t batches[] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        set->forward.batch = batches[i];
        both_passes(run, set);
    }
}

/* Runs of cuDNN at once and one after the other: a finished run passes its handle to the next. */
static void test_vendor(void **state) {
    (void)state;
    static const char *const strings[] = {"vendor+graph", "vendor(algorithm=1)+graph", "vendor(algorithm=2)+graph",
                                          "vendor(algorithm=3)"};
    enum { RUNS = 4 };
    problem p;
    results want, got;
    open_on_gpu(&p, &plain);
    run_oracle(&p, true, &want);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, strings[i]);
        rcv_plan *plan = NULL;
        rcv_run *runs[RUNS] = {NULL};
        data sets[RUNS];
        if (rcv_plan_new(p.net, &options, &plan)) {
            print_message("%s\n", rcv_message());
            continue;
        }
        for (int k = 0; k < RUNS; k++) {
            if (k == 2) rcv_run_free(runs[0]); /* there are never three */
            if (k == 3) rcv_run_free(runs[2]);
            open_data(&sets[k], &p, RCV_FLOAT32);
            check_ok(rcv_run_new(plan, &runs[k]));
            alternate_batches(runs[k], &sets[k]);
        }
        check_ok(rcv_run_wait(runs[1]));
        check_ok(rcv_run_wait(runs[3]));
        rcv_run_free(runs[1]);
        rcv_run_free(runs[3]);
        rcv_plan_free(plan);
        for (int k = 0; k < RUNS; k++) {
            close_data(&sets[k], true, &got);
            compare(&p, RCV_FLOAT32, strings[i], &got, &want, &(double){0});
            drop(&got);
        }
    }
    drop(&want);
    close_problem(&p);
}

/* ---- calls ---- */

/* More sets of addresses than a run keeps graphs for, one after the other and then again. */
static void test_addresses(void **state) {
    (void)state;
    enum { SETS = 20, EACH = 2 }; /* graphs of both passes; the second call of a set captures them */
    problem p;
    open_on_gpu(&p, &middle);
    for (int i = 0; i < PLANS; i++) {
        rcv_plan *plan = pinned(&p, RCV_BFLOAT16, plans[i]);
        rcv_run *run = NULL;
        data sets[SETS];
        results first, other;
        check_ok(rcv_run_new(plan, &run));
        for (int k = 0; k < SETS; k++) open_data(&sets[k], &p, RCV_BFLOAT16);
        for (int k = 0; k < 2 * EACH * SETS; k++) both_passes(run, &sets[k / EACH % SETS]);
        check_ok(rcv_run_wait(run));
        close_data(&sets[0], true, &first);
        for (int k = 1; k < SETS; k++) {
            close_data(&sets[k], true, &other);
            check_same_bits(plans[i], &first, &other);
            drop(&other);
        }
        drop(&first);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    close_problem(&p);
}

static const double *find(const results *r, const char *name, int64_t *count) {
    for (int i = 0; i < r->count; i++) {
        if (strcmp(r->names[i], name)) continue;
        *count = r->counts[i];
        return r->values[i];
    }
    fail_msg("there is no %s", name);
    return NULL;
}

/* Gradients of two calls added up are twice those of one. */
static void test_accumulate(void **state) {
    (void)state;
    problem p;
    open_on_gpu(&p, &plain);
    for (int i = 0; i < PLANS; i++) {
        rcv_plan *plan = pinned(&p, RCV_FLOAT32, plans[i]);
        rcv_run *run = NULL;
        data one, two;
        results single, twice;
        check_ok(rcv_run_new(plan, &run));
        open_data(&one, &p, RCV_FLOAT32);
        open_data(&two, &p, RCV_FLOAT32);
        both_passes(run, &one);
        for (int call = 0; call < 2; call++) {
            two.backward.accumulate = call;
            both_passes(run, &two);
        }
        check_ok(rcv_run_wait(run));
        close_data(&one, true, &single);
        close_data(&two, true, &twice);
        int64_t count = 0;
        const double *once = find(&single, "dparameters", &count), *sum = find(&twice, "dparameters", &count);
        double largest = 0;
        for (int64_t k = 0; k < count; k++) largest = fmax(largest, fabs(once[k]));
        for (int64_t k = 0; k < count; k++) assert_true(fabs(sum[k] - 2 * once[k]) <= 2e-5 * largest);
        drop(&single);
        drop(&twice);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    close_problem(&p);
}

/* Parameters that change in place are seen by the next call that does not say they are the same. */
static void test_parameters(void **state) {
    (void)state;
    problem p, q;
    results want, got;
    open_on_gpu(&p, &plain);
    open_on_gpu(&q, &plain);
    for (int64_t i = 0; i < q.parameter_count; i++) q.parameters[i] = (float)(0.5 * p.parameters[i] + 0.01);
    run_oracle(&q, true, &want);
    for (int i = 0; i < PLANS; i++) {
        rcv_plan *plan = pinned(&q, RCV_FLOAT32, plans[i]);
        rcv_run *run = NULL;
        data before, after;
        open_data(&before, &p, RCV_FLOAT32);
        open_data(&after, &q, RCV_FLOAT32);
        check_ok(rcv_run_new(plan, &run));
        before.forward.same_parameters = true; /* which a first call may say */
        both_passes(run, &before);
        both_passes(run, &after);
        after.forward.same_parameters = true;
        both_passes(run, &after);
        check_ok(rcv_run_wait(run));
        close_data(&before, true, NULL);
        close_data(&after, true, &got);
        compare(&q, RCV_FLOAT32, plans[i], &got, &want, &(double){0});
        drop(&got);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    drop(&want);
    close_problem(&p);
    close_problem(&q);
}

/* dx in the memory of y is as in its own; in that of dy, which is read, it is refused. */
static void test_in_place(void **state) {
    (void)state;
    static const config square = {"lstm", {.input = 40, .hidden = 40, .layers = 2}, 6, 10, false, false, true};
    problem p;
    open_on_gpu(&p, &square);
    for (int i = 0; i < PLANS; i++) {
        rcv_plan *plan = pinned(&p, RCV_FLOAT32, plans[i]);
        rcv_run *run = NULL;
        data apart, together;
        results want, got;
        size_t bytes = (size_t)p.x_count * sizeof(float);
        check_ok(rcv_run_new(plan, &run));
        open_data(&apart, &p, RCV_FLOAT32);
        open_data(&together, &p, RCV_FLOAT32);
        both_passes(run, &apart);
        check_ok(rcv_run_forward(run, &together.forward));
        together.backward.dx = together.dy;
        check_fails(rcv_run_backward(run, &together.backward), RCV_INVALID, "dx overlaps dy");
        together.backward.dx = together.y;
        check_ok(rcv_run_backward(run, &together.backward));
        check_ok(rcv_run_wait(run));
        check_cuda(cudaMemcpy(together.dx, together.y, bytes, cudaMemcpyDeviceToDevice));
        check_cuda(cudaMemcpy(together.y, apart.y, bytes, cudaMemcpyDeviceToDevice));
        check_cuda(cudaDeviceSynchronize());
        close_data(&apart, true, &want);
        close_data(&together, true, &got);
        check_same_bits(plans[i], &want, &got);
        drop(&want);
        drop(&got);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    close_problem(&p);
}

/* What is left out is not written, and the rest is as with it. */
static void test_optional(void **state) {
    (void)state;
    problem p;
    open_on_gpu(&p, &middle);
    for (int i = 0; i < PLANS; i++) {
        rcv_plan *plan = pinned(&p, RCV_FLOAT32, plans[i]);
        rcv_run *run = NULL;
        data d, bare;
        results whole, part;
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_FLOAT32);
        open_data(&bare, &p, RCV_FLOAT32);
        both_passes(run, &d);
        bare.forward.final = NULL;
        bare.backward.dx = NULL;
        bare.backward.dinitial = bare.backward.drestart = NULL;
        both_passes(run, &bare);
        check_ok(rcv_run_forward(run, &bare.forward));
        check_ok(rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = bare.dy))); /* nothing to write at all */
        check_ok(rcv_run_wait(run));
        close_data(&d, true, &whole);
        close_data(&bare, true, &part);
        for (int r = 0; r < whole.count; r++) {
            bool given = !strcmp(whole.names[r], "y") || !strcmp(whole.names[r], "dparameters");
            for (int64_t k = 0; k < whole.counts[r]; k++)
                assert_true(given ? part.values[r][k] == whole.values[r][k] : isnan(part.values[r][k]) != 0);
        }
        drop(&whole);
        drop(&part);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    close_problem(&p);
}

static void test_misaligned(void **state) {
    (void)state;
    problem p;
    data d;
    rcv_run *run = NULL;
    open_on_gpu(&p, &plain);
    rcv_plan *plan = pinned(&p, RCV_FLOAT32, plans[0]);
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, &p, RCV_FLOAT32);
    rcv_forward forward = d.forward;
    forward.x = (char *)d.x + 4;
    check_fails(rcv_run_forward(run, &forward), RCV_INVALID, "x does not lie at a multiple of 16 bytes");
    check_fails(rcv_run_backward(run, &d.backward), RCV_INVALID, "forward call before it");
    both_passes(run, &d);
    check_ok(rcv_run_wait(run));
    close_data(&d, true, NULL);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* ---- memory ---- */

static size_t free_bytes(size_t *total) {
    size_t left = 0, all = 0;
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaMemGetInfo(&left, &all));
    if (total) *total = all;
    return left;
}

static void check_works(const problem *p) {
    results want, got;
    run_oracle(p, true, &want);
    run_pinned(p, RCV_FLOAT32, true, plans[0], &got);
    compare(p, RCV_FLOAT32, plans[0], &got, &want, &(double){0});
    drop(&want);
    drop(&got);
}

/* A run for which there is no memory: the sentence has the bytes, nothing is lost, and all works as before. */
static void test_no_memory(void **state) {
    (void)state;
    static const char *const strings[] = {"combine+fuse+pack", "combine(steps=8)+fuse", "naive"};
    problem p;
    size_t total = 0;
    open_on_gpu(&p, &plain);
    check_works(&p);
    free_bytes(&total);
    int64_t batch = 4096, steps = (int64_t)(3 * (total / 4) / (size_t)(batch * plain.net.hidden));
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, strings[i]);
        rcv_plan *plan = NULL;
        rcv_run *run = (rcv_run *)&p;
        options.batch = batch;
        options.steps = steps;
        check_ok(rcv_plan_new(p.net, &options, &plan));
        size_t live = p.allocator.live, left = free_bytes(NULL);
        check_fails(rcv_run_new(plan, &run), RCV_NO_MEMORY, "bytes are needed on the GPU");
        assert_null(run);
        unsigned long long bytes = strtoull(rcv_message(), NULL, 10);
        assert_true(bytes > total && bytes <= rcv_plan_bytes(plan));
        assert_int_equal(p.allocator.live, live);
        assert_true(free_bytes(NULL) >= left); /* a driver short of memory may give some of its own back */
        rcv_plan_free(plan);
    }
    void *memory = &p;
    check_fails(rcv_memory_new(p.context, "cuda", 2 * total, &memory), RCV_NO_MEMORY, "bytes are needed on the GPU");
    assert_null(memory);
    check_works(&p);
    close_problem(&p);
}

/* Plans and runs give back what they take; modules of kernels come and go in blocks of the driver's. */
static void test_leaks(void **state) {
    (void)state;
    enum { TIMES = 12, SPARE = 16 << 20 };
    static const config large = {"lstm", {.input = 64, .hidden = 64, .layers = 2}, 100, 64, false, false, true};
    problem p;
    results r;
    open_on_gpu(&p, &large);
    size_t left = 0, bytes = 0;
    for (int i = 0; i < TIMES; i++) {
        rcv_plan *plan = pinned(&p, RCV_BFLOAT16, plans[i % PLANS]);
        if (rcv_plan_bytes(plan) > bytes) bytes = rcv_plan_bytes(plan);
        run_plan(&p, plan, RCV_BFLOAT16, true, &r);
        rcv_plan_free(plan);
        drop(&r);
        if (i == PLANS - 1) left = free_bytes(NULL);
    }
    assert_true(bytes > SPARE / 4);
    assert_true(free_bytes(NULL) + SPARE >= left);
    close_problem(&p);
}

/* ---- calls that are captured ---- */

static const config random_rows = {"gru", {.input = 24, .hidden = 40, .layers = 2, .dropout = 0.5}, 6, 10, true, false,
                                   true};

/* Writes a seed and lengths to the device, on the stream. */
static void send_call(const problem *p, data *d, uint64_t *seed_at, uint64_t seed, int64_t shift) {
    int64_t *lengths = malloc((size_t)p->c.batch * sizeof *lengths);
    assert_non_null(lengths);
    for (int64_t b = 0; b < p->c.batch; b++) lengths[b] = (p->lengths[b] + shift * (b + 1)) % (p->c.steps + 3) - 1;
    check_ok(rcv_memory_write("cuda", d->lengths, lengths, (size_t)p->c.batch * sizeof *lengths));
    check_ok(rcv_memory_write("cuda", seed_at, &seed, sizeof seed));
    free(lengths);
}

/* A forward and a backward call, captured once, replayed with another seed and other lengths: the bits are those of calls. The seed changes
 * between the two passes, and the backward pass does not see it. */
static void check_replays(const problem *p, const char *schedule) {
    enum { TIMES = 3 };
    rcv_plan_options options = options_of(p, RCV_FLOAT32, true, schedule);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    cudaStream_t stream;
    cudaGraph_t graphs[2];
    cudaGraphExec_t passes[2];
    void *seed_at = NULL;
    data d;
    int64_t count = p->x_count;
    float *want = malloc(sizeof(float) * (size_t)(TIMES * count)), *got = malloc(sizeof(float) * (size_t)count);
    assert_true(want && got);
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_ok(rcv_run_set_stream(run, stream));
    check_ok(rcv_memory_new(p->context, "cuda", sizeof(uint64_t), &seed_at));
    open_data(&d, p, RCV_FLOAT32);
    d.forward.seed_at = seed_at;
    int64_t *given = NULL;
    size_t bytes = (size_t)p->c.batch * sizeof *given;
    given = malloc(bytes);
    assert_non_null(given);
    check_ok(rcv_memory_read("cuda", given, d.lengths, bytes));
    for (int i = 0; i < TIMES; i++) {
        send_call(p, &d, seed_at, 7 + (uint64_t)i, i);
        check_ok(rcv_run_forward(run, &d.forward));
        check_cuda(cudaStreamSynchronize(stream));
        send_call(p, &d, seed_at, 99, i);
        check_ok(rcv_run_backward(run, &d.backward));
        check_cuda(cudaStreamSynchronize(stream));
        check_ok(rcv_memory_read("cuda", want + i * count, d.dx, sizeof(float) * (size_t)count));
    }
    for (int pass = 0; pass < 2; pass++) {
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        check_ok(pass ? rcv_run_backward(run, &d.backward) : rcv_run_forward(run, &d.forward));
        check_cuda(cudaStreamEndCapture(stream, &graphs[pass]));
        check_cuda(cudaGraphInstantiate(&passes[pass], graphs[pass], 0));
    }
    for (int i = TIMES; i-- > 0;) {
        send_call(p, &d, seed_at, 7 + (uint64_t)i, i);
        check_cuda(cudaGraphLaunch(passes[0], stream));
        check_cuda(cudaStreamSynchronize(stream));
        send_call(p, &d, seed_at, 99, i);
        check_cuda(cudaGraphLaunch(passes[1], stream));
        check_cuda(cudaStreamSynchronize(stream));
        check_ok(rcv_memory_read("cuda", got, d.dx, sizeof(float) * (size_t)count));
        if (memcmp(got, want + i * count, sizeof(float) * (size_t)count))
            fail_msg("%s: replay %d differs from the call", schedule, i);
    }
    assert_true(memcmp(want, want + count, sizeof(float) * (size_t)count) != 0);
    check_ok(rcv_memory_write("cuda", d.lengths, given, bytes));
    for (int pass = 0; pass < 2; pass++) {
        check_cuda(cudaGraphExecDestroy(passes[pass]));
        check_cuda(cudaGraphDestroy(graphs[pass]));
    }
    rcv_run_free(run);
    check_cuda(cudaStreamDestroy(stream));
    rcv_memory_free(p->context, "cuda", seed_at);
    close_data(&d, true, NULL);
    rcv_plan_free(plan);
    free(given);
    free(want);
    free(got);
}

static void test_replays(void **state) {
    (void)state;
    static const char *const replayed[] = {"combine+fuse+pack+merge+graph",
                                           "combine(steps=2)+fuse+streams(4)",
                                           "combine+fuse+pack",
                                           "naive+graph",
                                           "combine(steps=all)+fuse+merge+interpret+graph",
                                           "combine(steps=all)+fuse+pack+merge+persistent+graph"};
    problem p;
    open_on_gpu(&p, &random_rows);
    p.device_lengths = true;
    for (size_t i = 0; i < sizeof replayed / sizeof *replayed; i++) check_replays(&p, replayed[i]);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),  cmocka_unit_test(test_accumulate), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_in_place),   cmocka_unit_test(test_optional),   cmocka_unit_test(test_misaligned),
        cmocka_unit_test(test_streams),    cmocka_unit_test(test_threads),    cmocka_unit_test(test_vendor),
        cmocka_unit_test(test_persistent), cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_leaks),
        cmocka_unit_test(test_replays)};
    return has_gpu() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}

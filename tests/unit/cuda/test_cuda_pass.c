/* On which streams a program's steps are launched, and what they wait for, without a GPU: every two launches that touch the same bytes, of which one writes, are in the
 * order of the program, whatever was held back; and what nothing on the way waits for is beside the loops. */
#include "cuda_programs.h"
#include "cuda_streams.h"
#include "device/cuda/engine/pass.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

static rcv_status take_members(const rcvi_cuda_pass *pass, const rcvi_cuda_due *members, int count, int stream_index,
                               cudaStream_t stream);
static rcv_status take_loop(const rcvi_worker *worker, const rcvi_persistent *loop, cudaEvent_t begun,
                            cudaStream_t stream);
#define rcvi_cuda_launch_members take_members
#define rcvi_persistent_launch(WORKER, LOOP, SCRATCH, BEGUN, STREAM)                                                   \
    ((void)(SCRATCH), take_loop(WORKER, LOOP, BEGUN, STREAM))
#define rcvi_cuda_recurrences_launch(WORKER, LIST, SIZED, AROUND, SCRATCH, STREAM)                                     \
    ((void)(AROUND), (void)(STREAM), RCV_INVALID)
#define rcvi_cuda_round_inputs(PASS, STREAM) ((void)(PASS), (void)(STREAM), RCV_OK)
#define cudaMemsetAsync(AT, VALUE, BYTES, STREAM) ((void)(STREAM), cudaErrorUnknown)
#include "device/cuda/engine/pass.c"
#include "device/cuda/engine/streams.c" /* instead of the library's */

/* ---- launches ---- */

enum { MOST_LAUNCHES = 3000 };

/* A step, or a loop as one kernel, with what it touches. */
typedef struct {
    int step;       /* of the program */
    bool is_inside; /* of a loop that is launched step by step: in the order of launches */
    size_t first, count;
} part;

typedef struct {
    part parts[RCVI_MOST_STEPS];
    int part_count, stream;
    bool is_loop;
    int64_t number; /* of the launch on its stream, from 1 */
    history before;
} record;

static struct {
    record records[MOST_LAUNCHES];
    int count;
    rcvi_touch touches[64 * MOST_LAUNCHES];
    size_t touch_count;
} seen;

static record *add_record(int stream_index, cudaStream_t stream) {
    assert_true(seen.count < MOST_LAUNCHES && seen.touch_count + 4 * RCVI_MAX_TOUCHES < 64 * MOST_LAUNCHES);
    history *now = history_of(stream);
    record *made = &seen.records[seen.count++];
    *made = (record){.stream = stream_index, .before = *now};
    made->number = ++now->seen[stream_index];
    return made;
}

static rcv_status take_members(const rcvi_cuda_pass *pass, const rcvi_cuda_due *members, int count, int stream_index,
                               cudaStream_t stream) {
    record *made = add_record(stream_index, stream);
    for (int m = 0; m < count; m++) {
        bool product = members[m].step->kind == RCVI_STEP_GEMM;
        if (product && rcvi_cuda_goes_beside(pass->engine, members[m].index))
            assert_true(stream_index > 0); /* it has room there */
        size_t found = find_touches(pass, &members[m], seen.touches + seen.touch_count, RCVI_MAX_TOUCHES);
        made->parts[made->part_count++] = (part){.step = (int)(members[m].step - pass->engine->program->steps),
                                                 .is_inside = pass->inside,
                                                 .first = seen.touch_count,
                                                 .count = found};
        seen.touch_count += found;
    }
    return RCV_OK;
}

static bool is_in_loop(const rcvi_program *program, int step) {
    bool found = false;
    for (int i = 0; i < step; i++)
        found |= program->steps[i].kind == RCVI_STEP_LOOP && i + program->steps[i].loop.body >= step;
    return found;
}

static rcv_status take_loop(const rcvi_worker *worker, const rcvi_persistent *loop, cudaEvent_t begun,
                            cudaStream_t stream) {
    const rcvi_program *program = worker->engine->program;
    const rcvi_cuda_pass pass = {.worker = (rcvi_worker *)worker, .engine = worker->engine, .program = program};
    *history_of(begun) = *history_of(stream);
    record *made = add_record(0, stream);
    size_t found = find_loop_touches(&pass, (size_t)loop->loop, seen.touches + seen.touch_count);
    made->is_loop = true;
    made->parts[made->part_count++] = (part){
        .step = loop->loop, .is_inside = is_in_loop(program, loop->loop), .first = seen.touch_count, .count = found};
    seen.touch_count += found;
    return RCV_OK;
}

static bool is_over(const record *a, const record *b) { return b->before.seen[a->stream] >= a->number; }

/* Of two launches, which must be over before the other begins: -1 the first, 1 the second, 0 neither. */
static int order_between(const record *a, const record *b) {
    int order = 0;
    for (int i = 0; i < a->part_count; i++) {
        for (int k = 0; k < b->part_count; k++) {
            const part *x = &a->parts[i], *y = &b->parts[k];
            if (!rcvi_touches_conflict(seen.touches + x->first, x->count, seen.touches + y->first, y->count)) continue;
            int found = x->step == y->step || (x->is_inside && y->is_inside) || x->step < y->step ? -1 : 1;
            assert_true(order == 0 || order == found);
            order = found;
        }
    }
    return order;
}

/* ---- a program ---- */

typedef struct {
    rcvi_engine engine;
    rcvi_worker worker;
    cudaStream_t stream; /* the caller's */
} subject;

static void open_subject(subject *s, const rcvi_program *program) {
    rcvi_engine *e = &s->engine;
    *s = (subject){.engine = {.program = program, .context = program->pool.context}};
    rcvi_pool_init(&e->pool, e->context);
    check_ok(rcvi_cuda_find_layout(e));
    e->kernels = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->kernels);
    rcvi_persistent *loops = rcvi_pool_new(&e->pool, program->step_count, sizeof *loops);
    rcvi_worker *w = &s->worker;
    *w = (rcvi_worker){.engine = e, .context = e->context, .persistent = e->persistent};
    for (int i = 0; i < 2; i++) w->absent[i].externals = rcvi_pool_new(&e->pool, program->external_count, sizeof(bool));
    w->views = rcvi_pool_new(&e->pool, program->step_count, sizeof *w->views);
    w->buffers = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *w->buffers);
    w->needed = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *w->needed);
    for (int i = 0; i < 2; i++) w->dead[i] = rcvi_pool_new(&e->pool, program->step_count, sizeof *w->dead[i]);
    assert_false(e->pool.failed);
    for (size_t i = 0; i < program->step_count; i++) {
        e->ready[i].kernel = (int)i; /* no two maps are one launch */
        e->kernels[i].shape.members = 1;
        loops[i].loop = (int)i;
        if (rcvi_program_is_persistent(program, i)) e->persistent[i] = &loops[i];
    }
    check_ok(rcvi_cuda_order(e));
    uintptr_t at = 1 << 20;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool arena = buffer->role == RCVI_ARENA;
        if (!arena) at += (uintptr_t)buffer->count * 8 + 4096;
        w->buffers[b] = (void *)(arena ? ((uintptr_t)1 << 40) + buffer->arena_offset : at);
        if (!arena) at += (uintptr_t)buffer->count * 8;
    }
    memset(&fake, 0, sizeof fake);
    s->stream = fake_handle();
    for (int i = 0; i < 2; i++) w->begun[i] = fake_handle();
    check_ok(rcvi_streams_open(e->context, e->streams, &w->streams));
}

static void close_subject(subject *s) {
    rcvi_streams_close(s->engine.context, &s->worker.streams);
    rcvi_free(s->engine.context, s->engine.groups);
    rcvi_pool_free(&s->engine.pool);
}

/* What a pass has beside its loops. */
typedef struct {
    size_t gradients, made, others;
} besides;

static void count_beside(const rcvi_program *program, const record *other, besides *b) {
    for (int i = 0; i < other->part_count; i++) {
        const rcvi_step *step = &program->steps[other->parts[i].step];
        if (step->when == RCVI_WHEN_PARAMETERS_CHANGED)
            b->made++;
        else if (step->kind == RCVI_STEP_GEMM && program->buffers[step->out.buffer].role == RCVI_DPARAMETERS)
            b->gradients++;
        else
            b->others++;
    }
}

/* Launches one pass and checks it; the caller's stream then waits for all of it. */
static void check_pass(subject *s, bool backward, bool overwrite, bool same, besides *b) {
    static const bool restart[16];
    const rcvi_program *program = s->engine.program;
    const rcvi_binding binding = {.program = program,
                                  .buffers = s->worker.buffers,
                                  .restart_is_initial = restart,
                                  .overwrite = overwrite,
                                  .same_parameters = same};
    size_t first = backward ? program->forward_count : 0, end = backward ? program->step_count : program->forward_count;
    seen.count = 0;
    seen.touch_count = 0;
    check_ok(rcvi_cuda_launch(&s->worker, first, end, &binding, (char *)((uintptr_t)1 << 44), s->stream));
    for (int i = 0; i < seen.count; i++) {
        const record *a = &seen.records[i];
        assert_true(history_of(s->stream)->seen[a->stream] >= a->number);
        for (int k = i + 1; k < seen.count; k++) {
            const record *c = &seen.records[k];
            int order = order_between(a, c);
            if ((order < 0 && !is_over(a, c)) || (order > 0 && !is_over(c, a)))
                fail_msg("%s: steps %d and %d meet, but neither waits for the other as it should",
                         program->options.schedule, a->parts[0].step, c->parts[0].step);
            if (a->is_loop != c->is_loop && !is_over(a, c) && !is_over(c, a))
                count_beside(program, a->is_loop ? c : a, b);
        }
    }
}

/* Every step that is due is launched once outside of loops. */
static void check_once(const rcvi_program *program, size_t first, size_t end) {
    int *times = calloc(program->step_count, sizeof *times);
    assert_non_null(times);
    for (int i = 0; i < seen.count; i++) {
        for (int k = 0; k < seen.records[i].part_count; k++) {
            const part *p = &seen.records[i].parts[k];
            assert_true(p->is_inside || ++times[p->step] == 1);
            assert_true((size_t)p->step >= first && (size_t)p->step < end);
        }
    }
    for (size_t i = first; i < end; i++) {
        bool gradient = program->steps[i].kind == RCVI_STEP_GEMM &&
                        program->buffers[program->steps[i].out.buffer].role == RCVI_DPARAMETERS;
        if (gradient && !is_in_loop(program, (int)i)) assert_int_equal(times[i], 1);
    }
    free(times);
}

static const char *const plans[] = {
    "combine(steps=all)+fuse+pack+merge+persistent+streams(2)",
    "combine(steps=all)+fuse+pack+merge+persistent+streams(4)+graph",
    "combine(steps=all)+fuse+pack+persistent+streams(3)",
    "combine+fuse+pack+wavefront+merge+persistent+streams(4)",
    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+streams(3)",
    "combine(steps=3)+fuse+pack+persistent+streams(2)",
    "combine(steps=3)+fuse+pack+recompute(every=3)+persistent+streams(2)",
    "combine(steps=all)+fuse+pack+merge+streams(4)",
    "combine(steps=3)+fuse+streams(3)",
};

/* Both passes of all these networks, gradients stored or added, parameters changed or not. */
static void test_order(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_BFLOAT16, RCV_FLOAT32};
    size_t checked = 0;
    besides all = {0, 0, 0};
    for (int i = 0; i < GPU_CONFIGS * (int)(sizeof plans / sizeof *plans) * 4; i++) {
        config c = gpu_configs[i / 4 % GPU_CONFIGS];
        const char *plan = plans[i / 4 / GPU_CONFIGS];
        problem p;
        rcvi_program program;
        subject s;
        c.lengths = false; /* then launches depend on these */
        open_problem(&p, &c, 1);
        rcv_plan_options options = options_of(&p, dtypes[i % 2], true, plan);
        gpu_alone = i / 2 % 2;
        bool written = write_with(p.net, &options, &program);
        gpu_alone = 0;
        if (written) {
            open_subject(&s, &program);
            check_pass(&s, false, true, i % 3 == 0, &all);
            check_pass(&s, true, i % 3 != 1, i % 3 == 0, &all);
            check_once(&program, program.forward_count, program.step_count);
            close_subject(&s);
            rcvi_program_free(&program);
            checked += 2;
        }
        close_problem(&p);
    }
    print_message("%zu passes; beside loops %zu gradients, %zu matrices, %zu others\n", checked, all.gradients,
                  all.made, all.others);
    assert_true(checked > 400);
}

/* Of layers one after the other: the products of a layer's gradients are beside the loop of the layer below, and the matrices of every layer
 * but the first are made beside a loop. */
static void test_beside(void **state) {
    (void)state;
    static const config deep = {"lstm", {.input = 12, .hidden = 12, .layers = 3, .dropout = 0.5}, 7, 20, 0, 0, true};
    for (int streams = 2; streams <= 4; streams++) {
        char plan[80];
        besides forward = {0, 0, 0}, backward = {0, 0, 0}, later = {0, 0, 0};
        problem p;
        rcvi_program program;
        subject s;
        snprintf(plan, sizeof plan, "combine(steps=all)+fuse+pack+merge+persistent+streams(%d)", streams);
        open_problem(&p, &deep, 1);
        rcv_plan_options options = options_of(&p, RCV_BFLOAT16, true, plan);
        gpu_alone = 1;
        assert_true(write_with(p.net, &options, &program));
        gpu_alone = 0;
        open_subject(&s, &program);
        check_pass(&s, false, true, false, &forward);
        check_pass(&s, true, true, false, &backward);
        assert_true(forward.made >= 2 * 5 && forward.gradients == 0); /* a matrix for x, four for h */
        assert_true(backward.made >= 2 * 4 && backward.gradients >= 2 * 2);
        check_pass(&s, false, true, true, &later);
        assert_int_equal(later.made, 0);
        close_subject(&s);
        rcvi_program_free(&program);
        close_problem(&p);
    }
}

/* Steps that are launched in a pass. */
static int count_launched(void) {
    int launched = 0;
    for (int i = 0; i < seen.count; i++) launched += seen.records[i].part_count;
    return launched;
}

/* Steps whose result the caller left out are left out in every training call, not only in the first one. */
static void test_dead_steps(void **state) {
    (void)state;
    static const config c = {"lstm", {.input = 12, .hidden = 12, .layers = 2}, 5, 4, 0, 0, true};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        int launched[2][3], all[2];
        besides b = {0, 0, 0};
        problem p;
        rcvi_program program;
        subject s;
        open_problem(&p, &c, 1);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, plans[i]);
        assert_true(write_with(p.net, &options, &program));
        open_subject(&s, &program);
        for (int pass = 0; pass < 2; pass++) {
            check_pass(&s, pass, true, false, &b);
            all[pass] = count_launched();
        }
        for (size_t k = 0; k < program.buffer_count; k++) {
            rcvi_role role = program.buffers[k].role;
            if (role == RCVI_FINAL || role == RCVI_DINITIAL) s.worker.buffers[k] = NULL;
        }
        for (int call = 0; call < 3; call++) {
            for (int pass = 0; pass < 2; pass++) {
                check_pass(&s, pass, true, false, &b);
                launched[pass][call] = count_launched();
            }
        }
        for (int pass = 0; pass < 2; pass++) {
            assert_true(launched[pass][0] < all[pass]);
            for (int call = 1; call < 3; call++) assert_int_equal(launched[pass][call], launched[pass][0]);
        }
        close_subject(&s);
        rcvi_program_free(&program);
        close_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_beside),
                                       cmocka_unit_test(test_dead_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

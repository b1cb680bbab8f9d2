/* The planner's timing of candidates on a GPU, with a fake device that computes nothing and keeps its calls until they are waited for: which
 * candidates are timed, by which of their calls, and what becomes of those that fail. */
#include "fake_device.h"

#include <math.h>

enum { MOST_PLANS = 32, NAME = 96, HEADER = 64 };

static struct {
    struct {
        char plan[NAME];
        int calls; /* forward passes */
    } records[MOST_PLANS];
    size_t count;
    double seconds;                       /* of a call */
    const char *fast;                     /* the plan, or all that contain this, that is faster */
    double gain;                          /* how many times */
    size_t scratch;                       /* bytes that it takes beside what others take */
    double capturing;                     /* seconds more of its first call, and of its second in inference */
    double waiting;                       /* seconds of waiting for calls, however many */
    double queued;                        /* seconds of calls that are not waited for yet */
    int calls, asked;                     /* of all plans; whether to go on */
    int allowed;                          /* answers of yes; 0: always */
    const char *next;                     /* the plan that is a little faster than the rest */
    const char *bad;                      /* the plan that fails */
    int at;                               /* from this call of it on; 0: when it is opened */
    bool unnoticed;                       /* until it is waited for */
    rcv_status status;                    /* with which it is not opened */
    bool persistent;                      /* it takes persistent kernels */
    size_t most;                          /* bytes that may be had in one piece; 0: any number */
    size_t pieces;                        /* of memory in use */
    size_t live, highest;                 /* bytes of them, and the most at once */
    size_t search_memory;                 /* of a search beside a caller; 0: none is there */
    int batches;                          /* calls of `compile` */
    size_t compiled;                      /* engines of all of them */
    size_t loads;                         /* engines that were loaded */
    size_t default_copies, stream_copies; /* to the device's memory, on its default stream and on the trials' stream */
    int kernels;                          /* of an engine; `compile` asks before each whether to go on */
    const char *unloaded;                 /* plans that contain this are refused when they are loaded */
    const char *no_compiler;
} fake;

struct rcvi_worker {
    const rcvi_program *program;
    int calls;
};

/* ---- the device ---- */

static rcv_status describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine) {
    (void)context, (void)ordinal, (void)dtype;
    *machine = (rcvi_machine){.threads = threads,
                              .panel = 1,
                              .grain = 1,
                              .group = 8,
                              .kernels = "fake_90",
                              .vendor = "a library",
                              .no_compiler = fake.no_compiler,
                              .gpu = true,
                              .max_sum_columns = 1024};
    return RCV_OK;
}

static bool is_bad(const rcvi_program *program) { return fake.bad && !strcmp(program->options.schedule, fake.bad); }

static rcv_status open_worker(const rcvi_engine *engine, rcvi_worker **worker) {
    if (is_bad(engine->program) && !fake.at) return rcvi_fail(fake.status, "this one has no room");
    *worker = rcvi_new(engine->program->net->context, 1, sizeof **worker);
    if (!*worker) return RCV_NO_MEMORY;
    (*worker)->program = engine->program;
    return RCV_OK;
}

/* A chip that keeps no weights, unless a test says otherwise. */
static rcv_status prepare(const rcvi_program *program, rcvi_engine **engine) {
    if (program->rungs.persistent && !fake.persistent)
        return rcvi_fail(RCV_UNSUPPORTED, "this one has no time loop in one kernel");
    return prepare_nothing(program, engine);
}

static bool compile_ahead(rcvi_engine *const *engines, size_t count, bool (*go_on)(void *user), void *user) {
    fake.batches++;
    fake.compiled += count;
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < fake.kernels; k++) {
            if (go_on && !go_on(user)) return false;
        }
        for (size_t j = 0; j < i; j++) assert_ptr_not_equal(engines[i], engines[j]);
        assert_non_null(engines[i]->program);
    }
    return true;
}

static rcv_status load(rcvi_engine *engine) {
    fake.loads++;
    if (fake.unloaded && strstr(engine->program->options.schedule, fake.unloaded))
        return rcvi_fail(RCV_UNSUPPORTED, "this one does not fit on the chip");
    return RCV_OK;
}

static size_t scratch_of(const rcvi_engine *engine) {
    return fake.fast && !strcmp(engine->program->options.schedule, fake.fast) ? fake.scratch : 0;
}

static void close_worker(rcvi_worker *worker) { rcvi_free(worker->program->net->context, worker); }

static int *calls_of(const char *plan) {
    for (size_t i = 0; i < fake.count; i++) {
        if (!strcmp(fake.records[i].plan, plan)) return &fake.records[i].calls;
    }
    assert_true(fake.count < MOST_PLANS);
    snprintf(fake.records[fake.count].plan, NAME, "%s", plan);
    fake.records[fake.count].calls = 0;
    return &fake.records[fake.count++].calls;
}

static double seconds_of(const char *plan) {
    if (fake.fast && strstr(plan, fake.fast)) return fake.seconds / fake.gain;
    return fake.next && !strcmp(plan, fake.next) ? fake.seconds / 1.1 : fake.seconds;
}

static bool has_failed(const rcvi_worker *worker) { return is_bad(worker->program) && worker->calls >= fake.at; }

static rcv_status run(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    (void)end, (void)binding, (void)scratch;
    const char *plan = worker->program->options.schedule;
    if (first) return RCV_OK; /* the backward pass takes no time */
    *calls_of(plan) += 1;
    fake.calls++;
    worker->calls++;
    if (has_failed(worker) && !fake.unnoticed) return rcvi_fail(RCV_INVALID, "this one cannot be launched");
    fake.queued += seconds_of(plan);
    if (worker->calls <= 2 - worker->program->options.training && fake.fast && strstr(plan, fake.fast))
        clock_seconds += fake.capturing;
    return RCV_OK;
}

static rcv_status wait_for(rcvi_worker *worker) {
    clock_seconds += fake.queued + fake.waiting;
    fake.queued = 0;
    return has_failed(worker) ? rcvi_fail(RCV_UNSUPPORTED, "this one failed behind our backs") : RCV_OK;
}

static rcv_status allocate(int ordinal, size_t bytes, void **memory) {
    (void)ordinal;
    size_t *piece = fake.most && bytes > fake.most ? NULL : malloc(HEADER + bytes + 1);
    *memory = NULL;
    if (!piece) return rcvi_fail(RCV_NO_MEMORY, "the device has no %zu bytes", bytes);
    *piece = bytes;
    *memory = (char *)piece + HEADER;
    fake.pieces++;
    fake.live += bytes;
    if (fake.live > fake.highest) fake.highest = fake.live;
    return RCV_OK;
}

static void give_back(int ordinal, void *memory) {
    (void)ordinal;
    assert_true(memory && fake.pieces > 0);
    size_t *piece = (size_t *)(void *)((char *)memory - HEADER);
    fake.pieces--;
    fake.live -= *piece;
    free(piece);
}

static rcv_status copy(int ordinal, void *to, const void *from, size_t bytes) {
    (void)ordinal;
    memcpy(to, from, bytes);
    fake.default_copies++;
    return RCV_OK;
}

static char trial_stream;

static rcv_status new_stream(int ordinal, void **stream) {
    (void)ordinal;
    *stream = &trial_stream;
    return RCV_OK;
}

static void free_stream(int ordinal, void *stream) {
    (void)ordinal;
    assert_ptr_equal(stream, &trial_stream);
}

static rcv_status copy_on(int ordinal, void *to, const void *from, size_t bytes, void *stream) {
    (void)ordinal;
    assert_ptr_equal(stream, &trial_stream);
    memcpy(to, from, bytes);
    fake.stream_copies++;
    return RCV_OK;
}

static const rcvi_memory memory = {.allocate = allocate,
                                   .release = give_back,
                                   .write = copy,
                                   .read = copy,
                                   .new_stream = new_stream,
                                   .free_stream = free_stream,
                                   .write_on = copy_on};
static const rcvi_device device = {.name = "fake",
                                   .describe = describe,
                                   .prepare = prepare,
                                   .load = load,
                                   .compile = compile_ahead,
                                   .release = release_nothing,
                                   .scratch_bytes = scratch_of,
                                   .extra_bytes = no_bytes,
                                   .open = open_worker,
                                   .close = close_worker,
                                   .run = run,
                                   .wait = wait_for,
                                   .memory = &memory};

/* ---- searching ---- */

/* Calls of half a millisecond, all alike. */
static void alike(void) {
    memset(&fake, 0, sizeof fake);
    fake.seconds = 5e-4;
    fake.gain = 1;
    fake.waiting = 1e-5;
    fake.status = RCV_UNSUPPORTED;
}

static bool is_patient(void *user) {
    (void)user;
    return ++fake.asked <= fake.allowed || !fake.allowed;
}

static rcv_status search(const problem *p, rcv_effort effort, bool training, rcv_plan **plan) {
    rcv_plan_options options = options_of(p, RCV_FLOAT32, training, NULL);
    options.effort = effort;
    options.go_on = is_patient;
    rcvi_problem described = {.net = p->net, .options = &options, .device = &device};
    check_ok(describe(p->context, 0, options.dtype, 1, &described.machine));
    options.search_memory = fake.search_memory;
    described.in_background = fake.search_memory > 0;
    fake.count = 0;
    fake.calls = fake.asked = 0;
    *plan = NULL;
    return rcvi_plan_search(&described, plan);
}

/* The plan that a fresh context chooses; free it with done. */
static rcv_plan *found(problem *p, const config *c, rcv_effort effort, bool training) {
    rcv_plan *plan = NULL;
    open_problem(p, c, 1);
    check_ok(search(p, effort, training, &plan));
    assert_int_equal(fake.pieces, 0);
    return plan;
}

/* The candidates' strings, in the order in which they are offered. */
static size_t list(const config *c, bool training, char strings[MOST_PLANS][NAME]) {
    problem p;
    alike();
    rcv_plan *plan = found(&p, c, RCV_ESTIMATE, training);
    size_t count = rcv_plan_candidate_count(plan);
    assert_true(count >= 8 && count <= MOST_PLANS);
    for (size_t i = 0; i < count; i++) snprintf(strings[i], NAME, "%s", rcv_plan_candidate(plan, i)->schedule);
    assert_int_equal(fake.calls, 0);
    done(&p, plan);
    return count;
}

/* Launches step by step are estimated at many times a persistent kernel. */
static const config thin = {"lstm", {.input = 32, .hidden = 32, .layers = 2}, 400, 1, false, false, false};

static bool is_choice(const char *plan) { return strstr(plan, "choice=") != NULL; }
static bool is_vendor(const char *plan) { return !strncmp(plan, "vendor", 6); }

/* ---- plans for which nothing is compiled ---- */

/* The first plan applies, is written and is interpreted, with a graph unless that would be very long. */
static void check_first_plan(const problem *p, const rcv_plan_options *options) {
    rcvi_problem described = {.net = p->net, .options = options, .device = &device};
    rcvi_rungs rungs;
    rcv_plan *plan = NULL;
    check_ok(describe(p->context, 0, options->dtype, 1, &described.machine));
    assert_true(rcvi_schedule_first_rungs(p->net, options, &described.machine, &rungs));
    assert_true(rungs.interpret && rungs.graph == (options->steps < 2000));
    check_ok(rcvi_plan_make(&described, &rungs, &plan));
    for (size_t i = 0; i < plan->program.step_count; i++) {
        const rcvi_step *step = &plan->program.steps[i];
        if (step->kind == RCVI_STEP_MAP) assert_int_equal(step->map->product_count, 0);
        assert_int_not_equal(step->kind, RCVI_STEP_PACK);
    }
    rcv_plan_free(plan);
    described.machine.gpu = false;
    assert_false(rcvi_schedule_first_rungs(p->net, options, &described.machine, &rungs));
}

/* Where kernels can be compiled no candidate is interpreted; else all but the vendor's are. Rungs that compile kernels are then not offered,
 * not even to be refused. */
static void test_interpreted(void **state) {
    (void)state;
    static const config configs[] = {
        {"lstm", {.input = 32, .hidden = 32, .layers = 2}, 40, 16, false, false, false},
        {"gru", {.input = 16, .hidden = 32, .layers = 1}, 40, 16, true, true, true},
        {"lstm_layernorm", {.input = 16, .hidden = 32, .layers = 2, .bidirectional = true}, 20, 4, true, false, true},
        {"sru", {.input = 32, .hidden = 32, .layers = 3}, 30000, 1, false, false, false},
    };
    for (int i = 0; i < 16; i++) {
        bool training = i % 2, compiles = i / 2 % 2;
        problem p;
        alike();
        fake.no_compiler = compiles ? NULL : "there is no compiler here";
        rcv_plan *plan = found(&p, &configs[i / 4], RCV_ESTIMATE, training);
        size_t interpreted = 0, others = 0;
        for (size_t k = 0; k < rcv_plan_candidate_count(plan); k++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, k);
            if (is_vendor(c->schedule)) continue;
            bool own = strstr(c->schedule, "interpret") != NULL;
            if (own) assert_int_equal(c->status, RCV_OK);
            interpreted += own;
            others += !own;
        }
        if (compiles) assert_true(interpreted == 0 && others > 3);
        if (!compiles) assert_true(interpreted > 3 && others == 0);
        rcv_plan_options options = options_of(&p, i % 3 ? RCV_FLOAT32 : RCV_BFLOAT16, training, NULL);
        check_first_plan(&p, &options);
        done(&p, plan);
    }
}

/* ---- which plan is chosen ---- */

/* Whichever is 10% faster is found, although its first calls take longer than all others together; exhaustively all are
 * timed, each in many calls. */
static void test_fastest(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE};
    char strings[MOST_PLANS][NAME];
    for (int n = 0; n < 4; n++) {
        bool training = n % 2, all = n / 2;
        size_t count = list(&middle, training, strings), won = 0;
        for (size_t i = 0; i < count; i++) {
            problem p;
            alike();
            fake.persistent = true;
            fake.fast = strings[i];
            fake.gain = all && i % 2 ? 2 : 1.1;
            fake.capturing = 0.02;
            rcv_plan *plan = found(&p, &middle, efforts[n / 2], training);
            const rcv_candidate *own = candidate_of(plan, strings[i]);
            size_t timed = 0, considered = rcv_plan_candidate_count(plan);
            for (size_t k = 0; k < considered; k++) {
                const rcv_candidate *c = rcv_plan_candidate(plan, k);
                timed += c->seconds > 0;
                if (c->seconds > 0) assert_true(*calls_of(c->schedule) >= 5);
                if (c->seconds > 0) assert_float_equal(c->seconds, seconds_of(c->schedule), 2e-5);
                if (all) assert_true(*calls_of(c->schedule) >= 12);
            }
            assert_true(all ? timed == considered && considered > count : timed >= 6);
            if (own->seconds > 0) assert_string_equal(rcv_plan_string(plan), strings[i]);
            won += own->seconds > 0;
            done(&p, plan);
        }
        assert_true(all ? won == count : won >= 6);
    }
}

/* A plan that is three times as slow is dropped after its first calls; one that is a little slower, after a round. */
static void test_slower(void **state) {
    (void)state;
    static const double gains[] = {5, 1.5, 1.1};
    int calls[2][3], winner = 0;
    for (int i = 0; i < 6; i++) {
        problem p;
        alike();
        fake.fast = "combine+fuse+pack+wavefront+merge+graph";
        fake.gain = gains[i % 3];
        rcv_plan *plan = found(&p, &middle, i / 3 ? RCV_EXHAUSTIVE : RCV_MEASURE, false);
        assert_string_equal(rcv_plan_string(plan), fake.fast);
        calls[i / 3][i % 3] = *calls_of("combine(steps=all)+fuse+pack+graph");
        winner = *calls_of(fake.fast);
        done(&p, plan);
    }
    assert_true(calls[0][0] == 3 && calls[1][0] == 3); /* two to warm, and one */
    assert_true(calls[0][0] < calls[0][1] && calls[0][1] < calls[0][2]);
    assert_true(calls[1][1] > calls[0][2] && calls[1][1] == calls[1][2] && calls[1][2] <= winner);
}

/* What is 3% faster is taken, but not where others do with less memory; what is 5% faster always is. Naive takes least of all by
 * itself, a vendor's library more than it says. */
static void test_thrift(void **state) {
    (void)state;
    static const struct {
        double gain, memory; /* how many times its own */
        bool wins;
    } cases[] = {{1.03, 1, true}, {1.03, 1.1, true}, {1.03, 2, false}, {1.05, 2, true}, {1.05, 10, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        problem p;
        alike();
        fake.seconds = 1e-2;
        fake.fast = "naive";
        rcv_plan *plan = found(&p, &middle, RCV_EXHAUSTIVE, true);
        assert_string_equal(rcv_plan_string(plan), "naive");
        fake.scratch = (size_t)((cases[i].memory - 1) * (double)rcv_plan_bytes(plan));
        done(&p, plan);
        fake.gain = cases[i].gain;
        plan = found(&p, &middle, RCV_EXHAUSTIVE, true);
        assert_int_equal(!strcmp(rcv_plan_string(plan), fake.fast), cases[i].wins);
        done(&p, plan);
    }
}

/* Where the time is over, those that are close to the fastest are called again all the same, and others are not; nor is the
 * fastest where none is close. */
static void test_close(void **state) {
    (void)state;
    static const double gains[] = {1.05, 1.2};
    for (int i = 0; i < 2; i++) {
        problem p;
        alike();
        fake.seconds = 0.02;
        fake.fast = "combine+fuse+pack+wavefront+merge+graph";
        fake.gain = gains[i];
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        assert_string_equal(rcv_plan_string(plan), fake.fast);
        if (i == 0) assert_true(*calls_of(fake.fast) > 3 && *calls_of("vendor+graph") > 3);
        if (i == 1) assert_true(*calls_of(fake.fast) == 3 && *calls_of("vendor+graph") == 3);
        done(&p, plan);
    }
}

/* Where waiting is dear, a sample of several calls shows their own time. */
static void test_waiting(void **state) {
    (void)state;
    problem p;
    alike();
    fake.seconds = 2e-5;
    fake.waiting = 2e-5;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    assert_true(candidate_of(plan, rcv_plan_string(plan))->seconds < 2.2e-5);
    done(&p, plan);
}

/* ---- which plans are tried ---- */

/* Where the time is over with the first one, the others are left out, but not what the model knows little of. */
static void test_late(void **state) {
    (void)state;
    problem p;
    alike();
    fake.seconds = 0.2;
    fake.fast = "vendor(algorithm=2)";
    fake.gain = 1.5;
    double begin = clock_seconds;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    size_t own = 0, vendors = 0;
    for (size_t k = 0; k < fake.count; k++) {
        bool vendor = is_vendor(fake.records[k].plan);
        vendors += vendor;
        own += !vendor;
    }
    assert_int_equal(own, 1);
    assert_int_equal(vendors, 3); /* the static one is for fewer rows */
    assert_true(clock_seconds - begin < 6);
    assert_true(is_vendor(rcv_plan_string(plan)) && strstr(rcv_plan_string(plan), "algorithm=2"));
    assert_int_equal(rcv_wisdom_count(p.context), 1);
    done(&p, plan);
}

/* What a library takes is not taken off the time of the others. */
static void test_shares(void **state) {
    (void)state;
    problem p;
    size_t own = 0;
    alike();
    fake.seconds = 0.03;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    for (size_t k = 0; k < fake.count; k++) own += !is_vendor(fake.records[k].plan);
    assert_true(own > 1);
    done(&p, plan);
}

/* Nor is what it takes to compile a kernel that serves this shape alone. */
static void test_compiling(void **state) {
    (void)state;
    size_t own[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        problem p;
        alike();
        fake.persistent = true;
        fake.fast = i ? "persistent" : "combine+fuse+pack+wavefront+merge+graph";
        fake.gain = 1;
        fake.capturing = 1;
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        for (size_t k = 0; k < fake.count; k++)
            own[i] += !is_vendor(fake.records[k].plan) && !strstr(fake.records[k].plan, "persistent");
        done(&p, plan);
    }
    assert_true(own[0] < own[1]);
}

/* The same where the model says that all are slow. */
static void test_long(void **state) {
    (void)state;
    static const config endless = {"lstm", {.input = 4, .hidden = 4, .layers = 2}, 30000, 2, false, false, false};
    problem p;
    alike();
    rcv_plan *plan = found(&p, &endless, RCV_MEASURE, false);
    size_t own = 0, vendors = 0, slow = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        bool vendor = is_vendor(c->schedule);
        slow += !vendor && c->estimate > 0.1;
        vendors += vendor && c->seconds > 0 && c->estimate > 0.1;
        own += !vendor && c->seconds > 0;
    }
    assert_true(slow > 2);
    assert_int_equal(own, 1);
    assert_int_equal(vendors, 4);
    done(&p, plan);
}

/* A vendor's library is timed second; algorithms of products are not varied for plans that are much slower than it. */
static void test_order(void **state) {
    (void)state;
    static const double gains[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        problem p;
        size_t choices = 0;
        alike();
        fake.fast = "vendor";
        fake.gain = gains[i];
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        assert_false(is_vendor(fake.records[0].plan));
        for (int k = 1; k < 4; k++) assert_true(is_vendor(fake.records[k].plan));
        for (size_t k = 4; k < fake.count; k++) {
            assert_false(is_vendor(fake.records[k].plan));
            choices += is_choice(fake.records[k].plan);
        }
        assert_true(i ? choices == 0 : choices > 0);
        done(&p, plan);
    }
}

/* In training one call warms up what the model says is slow. */
static void test_slow(void **state) {
    (void)state;
    static const config steps[] = {{"lstm", {.input = 4, .hidden = 4, .layers = 1}, 2000, 2, false, false, false},
                                   {"lstm", {.input = 4, .hidden = 4, .layers = 1}, 60, 2, false, false, false}};
    for (int i = 0; i < 4; i++) {
        problem p;
        alike();
        fake.fast = "vendor+graph";
        fake.gain = 10;
        rcv_plan *plan = found(&p, &steps[i / 2], RCV_MEASURE, i % 2);
        const rcv_candidate *other = candidate_of(plan, "combine(steps=all)+fuse+graph");
        assert_true(other->seconds > 0 && (other->estimate > 0.02) == (i < 2));
        assert_int_equal(*calls_of(other->schedule), i == 1 ? 2 : 3);
        done(&p, plan);
    }
}

/* Another choice of products is tried where the plan with the first one is near the best. */
static void test_choices(void **state) {
    (void)state;
    static const double gains[] = {1, 1.05, 1.3};
    for (int i = 0; i < 3; i++) {
        problem p;
        size_t choices = 0, offered = 0;
        alike();
        fake.fast = "pack";
        fake.gain = gains[i];
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        for (size_t k = 0; k < rcv_plan_candidate_count(plan); k++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, k);
            if (!is_choice(c->schedule)) continue;
            offered++;
            choices += *calls_of(c->schedule) > 0;
        }
        assert_true(offered > 1);
        assert_int_equal(choices, i < 2 ? offered : 0);
        done(&p, plan);
    }
}

/* ---- failures ---- */

static void check_refused(const rcv_plan *plan, const char *sentence) {
    const rcv_candidate *refused = candidate_of(plan, fake.bad);
    assert_int_equal(refused->status, RCV_UNSUPPORTED);
    if (!strstr(refused->reason, sentence)) fail_msg("\"%s\" has no \"%s\"", refused->reason, sentence);
    assert_false(refused->chosen);
    assert_true(strcmp(rcv_plan_string(plan), fake.bad));
    assert_true(candidate_of(plan, rcv_plan_string(plan))->chosen);
}

/* Who fails is refused with its sentence, whenever that happens, and of the others the fastest is chosen. */
static void test_failing(void **state) {
    (void)state;
    static const int calls[] = {0, 0, 1, 2, 3, 4, 5, 7, 8, 12};
    for (int i = 0; i < 40; i++) {
        problem p;
        alike();
        bool all = i / 10 % 2;
        fake.fast = "combine+fuse+pack+wavefront+merge+graph";
        fake.gain = 1.2; /* so that others stay */
        fake.bad = fake.fast;
        fake.next = "combine(steps=all)+fuse+pack+graph";
        fake.at = calls[i % 10];
        fake.status = i % 10 ? RCV_UNSUPPORTED : RCV_NO_MEMORY; /* that of the device */
        fake.unnoticed = i / 20;
        rcv_plan *plan = found(&p, &middle, all ? RCV_EXHAUSTIVE : RCV_MEASURE, false);
        check_refused(plan, !fake.at ? "no room" : fake.unnoticed ? "behind our backs" : "cannot be launched");
        assert_string_equal(rcv_plan_string(plan), fake.next);
        done(&p, plan);
    }
}

/* ---- trials beside a caller ---- */

/* Compares the trials of two plans beside a caller whose lengths are in the device's memory. */
static double compare_beside(const problem *p, const char *a, const char *b) {
    const char *const strings[] = {a, b};
    rcv_plan *plans[2];
    double ratio = -1;
    rcv_plan_options options = options_of(p, RCV_FLOAT32, true, NULL);
    options.device_lengths = true;
    rcvi_problem q = {.net = p->net, .options = &options, .device = &device, .in_background = true};
    check_ok(describe(p->context, 0, options.dtype, 1, &q.machine));
    for (int i = 0; i < 2; i++) {
        rcvi_rungs rungs;
        check_ok(rcvi_rungs_read(strings[i], &rungs));
        check_ok(rcvi_plan_make(&q, &rungs, &plans[i]));
    }
    check_ok(rcvi_compare_plans(&q, plans[0], plans[1], &ratio));
    for (int i = 0; i < 2; i++) rcv_plan_free(plans[i]);
    assert_int_equal(fake.pieces, 0);
    return ratio;
}

/* Trials beside a caller copy nothing on the default stream, for which the caller's streams would wait. A launch that is refused is no time. */
static void test_beside(void **state) {
    (void)state;
    static const config ragged = {"lstm", {.input = 8, .hidden = 8, .layers = 2}, 40, 4, true, false, false};
    for (int at = 0; at < 4; at++) {
        problem p;
        alike();
        fake.fast = "naive";
        fake.gain = 2;
        fake.bad = at ? "combine+fuse" : NULL;
        fake.at = at;
        open_problem(&p, &ragged, 1);
        double ratio = compare_beside(&p, "combine+fuse", "naive"),
               inverse = compare_beside(&p, "naive", "combine+fuse");
        if (!at) assert_true(ratio > 1.5 && inverse > 0 && inverse < 0.7);
        if (at) assert_true(isinf(ratio) && inverse == 0);
        assert_true(fake.default_copies == 0 && fake.stream_copies > 4);
        close_problem(&p);
    }
}

/* A plan whose memory the device does not have is refused; those that need less go on. */
static void test_no_memory(void **state) {
    (void)state;
    problem p;
    alike();
    fake.persistent = true;
    rcv_plan *plan = found(&p, &middle, RCV_EXHAUSTIVE, false);
    size_t most = 0, least = SIZE_MAX;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (is_vendor(c->schedule)) continue;
        if (c->bytes > most) most = c->bytes;
        if (c->bytes < least) least = c->bytes;
    }
    assert_true(least < most);
    done(&p, plan);
    fake.most = (least + most) / 2;
    plan = found(&p, &middle, RCV_EXHAUSTIVE, false);
    size_t refused = 0, timed = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        assert_true(c->status ? c->status == RCV_UNSUPPORTED && c->seconds == 0 : c->seconds > 0);
        if (c->status) assert_non_null(strstr(c->reason, "the device has no "));
        refused += c->status != RCV_OK;
        timed += c->seconds > 0;
    }
    assert_true(refused > 0 && timed > 4);
    done(&p, plan);
}

/* ---- stopping, remembering ---- */

/* Stopped at any question, nothing is learnt and nothing kept, on the host or on the device. */
static void test_stopped(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int i = 0; i < 4; i++) {
        problem p;
        bool training = i % 2;
        alike();
        rcv_plan *plan = found(&p, &middle, efforts[i / 2], training);
        int asked = fake.asked, calls = fake.calls;
        assert_true(asked > (int)rcv_plan_candidate_count(plan) + 10);
        done(&p, plan);
        open_problem(&p, &middle, 1);
        size_t live = p.allocator.live;
        for (fake.allowed = asked - 1; fake.allowed > 0; fake.allowed -= 1 + fake.allowed / 16) {
            check_fails(search(&p, efforts[i / 2], training, &plan), RCV_STOPPED, "planning was stopped after");
            assert_null(plan);
            assert_int_equal(fake.asked, fake.allowed + 1);
            assert_int_equal(fake.calls == calls,
                             fake.allowed == asked - 1); /* go_on is called after the last call, too */
            assert_int_equal(p.allocator.live, live);
            assert_int_equal(fake.pieces, 0);
            assert_int_equal(rcv_wisdom_count(p.context), 0);
        }
        close_problem(&p);
    }
}

/* ---- compiling ---- */

static double least_estimate(const rcv_plan *plan) {
    double least = INFINITY;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (!c->status && !is_vendor(c->schedule)) least = fmin(least, c->estimate);
    }
    return least;
}

/* Candidates that may be used; with `near`, those that the model does not rule out. */
static size_t count_usable(const rcv_plan *plan, bool near) {
    size_t count = 0;
    double most = near ? 6 * least_estimate(plan) : INFINITY;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        bool recomputes = strstr(c->schedule, "recompute") != NULL;
        count += !c->status && (is_vendor(c->schedule) || c->estimate <= most) && !(near && recomputes);
    }
    return count;
}

/* Kernels of all candidates that may be timed are compiled at once, and those of no other. */
static void test_together(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 3; e++) {
        problem p;
        alike();
        fake.persistent = true;
        rcv_plan *plan = found(&p, &thin, efforts[e], true);
        size_t near = count_usable(plan, true), all = count_usable(plan, false);
        assert_true(near > 10 && near < all);
        assert_int_equal(fake.loads, e == 0 ? 1 : e == 1 ? near : all);
        assert_int_equal(fake.batches, e > 0);
        assert_int_equal(fake.compiled, e == 0 ? 0 : fake.loads);
        done(&p, plan);
    }
}

/* Plans that the device refuses when it loads them: each has its sentence, and what only their estimates had ruled out is timed. */
static void test_unloaded(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 2; e++) {
        problem p;
        alike();
        fake.persistent = true;
        fake.unloaded = "persistent";
        rcv_plan *plan = found(&p, &thin, efforts[e], true);
        size_t refused = 0, count = rcv_plan_candidate_count(plan);
        for (size_t i = 0; i < count; i++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, i);
            if (!strstr(c->schedule, "persistent")) continue;
            assert_int_equal(c->status, RCV_UNSUPPORTED);
            assert_string_equal(c->reason, "this one does not fit on the chip");
            assert_true(c->bytes == 0 && c->seconds == 0 && !c->chosen);
            refused++;
        }
        assert_true(refused > 5);
        size_t usable = count_usable(plan, efforts[e] == RCV_MEASURE);
        assert_int_equal(fake.loads, refused + usable);
        assert_int_equal(fake.compiled, fake.loads);
        assert_int_equal(fake.batches, efforts[e] == RCV_MEASURE ? 2 : 1); /* some were ruled out at first */
        done(&p, plan);
    }
}

/* Compiling is stopped by a no, whichever kernel it comes before: no plan, and nothing is timed or left. */
static void test_stopped_compiling(void **state) {
    (void)state;
    problem p;
    alike();
    fake.kernels = 3;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    int candidates = (int)rcv_plan_candidate_count(plan), kernels = 3 * (int)fake.compiled;
    assert_true(kernels > 20);
    done(&p, plan);
    open_problem(&p, &middle, 1);
    size_t live = p.allocator.live;
    for (int n = 0; n < kernels; n += 1 + n / 4) {
        fake.allowed = candidates + n;
        check_fails(search(&p, RCV_MEASURE, false, &plan), RCV_STOPPED, "planning was stopped after 0 trials");
        assert_null(plan);
        assert_int_equal(fake.asked, fake.allowed + 1);
        assert_int_equal(fake.calls, 0);
        assert_int_equal(p.allocator.live, live);
    }
    close_problem(&p);
}

/* Beside a caller, trials that are open take at most the memory of trials together: others are closed. What is
 * too large alone is not timed, and then nothing is to be remembered. */
static void test_room(void **state) {
    (void)state;
    problem p;
    alike();
    fake.capturing = 0.01;
    fake.fast = "combine(steps=16)+fuse+pack+wavefront+merge+graph";
    fake.gain = 1.2;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false), *beside = NULL;
    size_t all = fake.highest, largest = 0, timed = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (c->seconds > 0 && c->bytes > largest) largest = c->bytes;
        timed += c->seconds > 0;
    }
    done(&p, plan);
    assert_true(timed > 4 && all > 4 * largest);
    for (int room = 3; room > 1; room--) { /* with 2, the data leaves no room for some */
        open_problem(&p, &middle, 1);
        fake.highest = 0;
        fake.search_memory = (size_t)room * largest - largest / 2;
        check_ok(search(&p, RCV_MEASURE, false, &beside));
        assert_true(fake.highest > 0 && fake.highest <= fake.search_memory);
        if (room == 3) assert_string_equal(rcv_plan_string(beside), fake.fast);
        assert_int_equal(beside->is_memorable, room == 3);
        assert_int_equal(rcv_wisdom_count(p.context), 0);
        done(&p, beside);
    }
}

/* What was timed once is known, and not timed again; a greater effort times it, and is then what is known. */
static void test_wisdom(void **state) {
    (void)state;
    problem p;
    alike();
    fake.fast = "combine(steps=16)+fuse+pack+wavefront+merge+graph";
    fake.gain = 1.2;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false), *again = NULL;
    assert_false(rcv_plan_from_wisdom(plan));
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE, RCV_EXHAUSTIVE, RCV_MEASURE};
    for (int i = 0; i < 4; i++) {
        check_ok(search(&p, efforts[i], false, &again));
        assert_string_equal(rcv_plan_string(again), fake.fast);
        assert_int_equal(rcv_plan_from_wisdom(again), i != 1);
        assert_int_equal(fake.calls > 0, i == 1);
        rcv_plan_free(again);
    }
    assert_int_equal(rcv_wisdom_count(p.context), 1);
    done(&p, plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest),   cmocka_unit_test(test_slower),      cmocka_unit_test(test_close),
        cmocka_unit_test(test_thrift),    cmocka_unit_test(test_waiting),     cmocka_unit_test(test_late),
        cmocka_unit_test(test_compiling), cmocka_unit_test(test_long),        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_slow),        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_failing),   cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_together),  cmocka_unit_test(test_unloaded),    cmocka_unit_test(test_stopped_compiling),
        cmocka_unit_test(test_wisdom),    cmocka_unit_test(test_interpreted), cmocka_unit_test(test_room),
        cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

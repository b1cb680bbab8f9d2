/* The planner's timing of candidates, with a fake device that computes nothing and advances a fake clock: which candidates are timed, how
 * often, and which is chosen. The same on every machine. */
#include "fake_device.h"

#include <math.h>

/* ---- the clock and the device ---- */

enum { MOST_PLANS = 128 };

typedef struct {
    char plan[96];
    int runs;           /* forward passes */
    int64_t least_rows; /* steps of its shortest run */
    int64_t layers;     /* of its last run */
} record;

static struct {
    record records[MOST_PLANS];
    size_t count;
    const char *fast;   /* the plan that is faster than the others, or NULL */
    double gain;        /* how many times */
    const char *slow;   /* the plan, or all that begin with it, that is slower */
    double loss;        /* how many times */
    double step, fixed; /* seconds of a step of a layer, of a call */
    double preparing;   /* seconds until a program is ready to run */
    int disturbed;      /* one of so many runs takes ten times as long; 0: none */
    uint64_t draws;
    int once, total; /* and so does this one run, from 1; of so many */
    int64_t threads;
    const char *kernels;
    int loads;            /* programs whose kernels were compiled */
    const char *unloaded; /* the plan whose kernels the device refuses; "": all */
    const char *unopened; /* the plan whose runs the device refuses */
    rcv_status refusal;
} fake;

struct rcvi_worker {
    const rcvi_engine *engine;
};

static rcv_status describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine) {
    (void)context, (void)ordinal, (void)dtype;
    *machine = (rcvi_machine){.threads = threads,
                              .cache = 1 << 20,
                              .panel = 16,
                              .grain = 16,
                              .group = 1,
                              .vendor = "a library",
                              .kernels = fake.kernels};
    return RCV_OK;
}

static rcv_status prepare(const rcvi_program *program, rcvi_engine **engine) {
    RCVI_TRY(prepare_nothing(program, engine));
    clock_seconds += fake.preparing;
    return RCV_OK;
}

static rcv_status load(rcvi_engine *engine) {
    fake.loads++;
    if (fake.unloaded && (!*fake.unloaded || !strcmp(engine->program->options.schedule, fake.unloaded)))
        return rcvi_fail(fake.refusal, "the device takes no kernels of this");
    return RCV_OK;
}

static rcv_status open_worker(const rcvi_engine *engine, rcvi_worker **worker) {
    if (fake.unopened && !strcmp(engine->program->options.schedule, fake.unopened))
        return rcvi_fail(fake.refusal, "the device has no room for this");
    *worker = rcvi_new(engine->program->net->context, 1, sizeof **worker);
    if (!*worker) return RCV_NO_MEMORY;
    (*worker)->engine = engine;
    return RCV_OK;
}

static void close_worker(rcvi_worker *worker) { rcvi_free(worker->engine->program->net->context, worker); }

static record *record_of(const char *plan) {
    for (size_t i = 0; i < fake.count; i++) {
        if (!strcmp(fake.records[i].plan, plan)) return &fake.records[i];
    }
    assert_true(fake.count < MOST_PLANS);
    record *added = &fake.records[fake.count++];
    *added = (record){.least_rows = INT64_MAX};
    snprintf(added->plan, sizeof added->plan, "%s", plan);
    return added;
}

static double seconds_of_run(const char *plan, int64_t steps, int64_t layers) {
    double seconds = fake.fixed + fake.step * (double)steps * (double)layers;
    if (fake.fast && !strcmp(plan, fake.fast)) seconds /= fake.gain;
    if (fake.slow && !strncmp(plan, fake.slow, strlen(fake.slow))) seconds *= fake.loss;
    return seconds;
}

static bool is_disturbed(void) {
    fake.draws = fake.draws * UINT64_C(6364136223846793005) + 1;
    return ++fake.total == fake.once || (fake.disturbed && (fake.draws >> 33) % (uint64_t)fake.disturbed == 0);
}

static rcv_status run(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    (void)end, (void)binding, (void)scratch;
    const rcvi_program *program = worker->engine->program;
    if (first) return RCV_OK; /* the backward pass takes no time */
    record *r = record_of(program->options.schedule);
    double seconds = seconds_of_run(r->plan, program->options.steps, program->net->options.layers);
    clock_seconds += is_disturbed() ? 10 * seconds : seconds;
    r->runs++;
    r->layers = program->net->options.layers;
    if (program->options.steps < r->least_rows) r->least_rows = program->options.steps;
    return RCV_OK;
}

static const rcvi_device device = {.name = "fake",
                                   .describe = describe,
                                   .prepare = prepare,
                                   .load = load,
                                   .release = release_nothing,
                                   .scratch_bytes = no_bytes,
                                   .extra_bytes = no_bytes,
                                   .open = open_worker,
                                   .close = close_worker,
                                   .run = run};

/* ---- searching ---- */

/* Runs of a millisecond, all alike. */
static void alike(void) {
    memset(&fake, 0, sizeof fake);
    fake.step = 1e-3 / 80;
    fake.gain = fake.loss = 1;
    fake.threads = 2;
    fake.kernels = "portable";
}

static rcv_status search(const problem *p, const rcv_plan_options *options, rcv_plan **plan) {
    rcvi_problem described = {.net = p->net, .options = options, .device = &device};
    check_ok(describe(p->context, 0, options->dtype, fake.threads, &described.machine));
    fake.count = 0;
    *plan = NULL;
    return rcvi_plan_search(&described, plan);
}

/* The plan that a fresh context chooses; free it with done. */
static rcv_plan *found(problem *p, const config *c, rcv_effort effort, bool training) {
    open_problem(p, c, 2);
    rcv_plan_options options = options_of(p, RCV_FLOAT32, training, NULL);
    options.effort = effort;
    rcv_plan *plan = NULL;
    check_ok(search(p, &options, &plan));
    return plan;
}

/* The candidates' strings, in the order in which they are offered. */
static size_t list(const config *c, bool training, char strings[MOST_PLANS][96]) {
    problem p;
    rcv_plan *plan = found(&p, c, RCV_ESTIMATE, training);
    size_t count = rcv_plan_candidate_count(plan);
    assert_true(count > 10 && count <= MOST_PLANS);
    for (size_t i = 0; i < count; i++)
        snprintf(strings[i], sizeof strings[i], "%s", rcv_plan_candidate(plan, i)->schedule);
    done(&p, plan);
    return count;
}

/* ---- which plan is chosen ---- */

/* Whichever candidate is 10% faster than the others is found, also where one run of eight is disturbed. */
static void test_exhaustive(void **state) {
    (void)state;
    char strings[MOST_PLANS][96];
    alike();
    for (int training = 0; training < 2; training++) {
        size_t count = list(&middle, training, strings);
        for (size_t i = 0; i < count; i++) {
            problem p;
            fake.fast = strings[i];
            fake.gain = 1.1;
            fake.disturbed = i % 2 ? 8 : 0;
            rcv_plan *plan = found(&p, &middle, RCV_EXHAUSTIVE, training);
            assert_string_equal(rcv_plan_string(plan), strings[i]);
            for (size_t k = 0; k < fake.count; k++) {
                assert_true(fake.records[k].runs >= 5);
                assert_int_equal(fake.records[k].least_rows, middle.steps);
                assert_int_equal(fake.records[k].layers, 2);
                double own = seconds_of_run(fake.records[k].plan, middle.steps, 2);
                if (i % 2 == 0) assert_float_equal(candidate_of(plan, fake.records[k].plan)->seconds, own, 1e-9);
            }
            assert_int_equal(fake.count, count);
            done(&p, plan);
        }
    }
}

/* Of plans within 2% of the fastest, the one offered first is chosen. */
static void test_ties(void **state) {
    (void)state;
    char strings[MOST_PLANS][96];
    alike();
    size_t count = list(&middle, false, strings);
    static const double gains[] = {1, 1.015, 1.03};
    for (int i = 0; i < 3; i++) {
        problem p;
        fake.fast = strings[count - 1];
        fake.gain = gains[i];
        rcv_plan *plan = found(&p, &middle, RCV_EXHAUSTIVE, false);
        assert_string_equal(rcv_plan_string(plan), strings[i < 2 ? 0 : count - 1]);
        done(&p, plan);
    }
}

/* Of what was timed the fastest is chosen, whichever it is; it was run most often, the slower ones less. */
static void test_measure(void **state) {
    (void)state;
    char strings[MOST_PLANS][96];
    alike();
    size_t count = list(&middle, false, strings), won = 0;
    for (size_t i = 0; i < count; i++) {
        problem p;
        fake.fast = strings[i];
        fake.gain = 1.1;
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        bool timed = candidate_of(plan, strings[i])->seconds > 0;
        if (timed) assert_string_equal(rcv_plan_string(plan), strings[i]);
        won += timed;
        int most = 0, least = 1000, own = record_of(rcv_plan_string(plan))->runs;
        size_t kept = 0; /* beyond the first halving: more than a sample and the run before it */
        for (size_t k = 0; k < fake.count; k++) {
            kept += fake.records[k].runs >= 4;
            if (fake.records[k].runs > most) most = fake.records[k].runs;
            if (fake.records[k].runs < least) least = fake.records[k].runs;
        }
        assert_true(own >= most - 2); /* the first one may have been run to know the machine's speed */
        assert_true(least <= most / 2);
        assert_true(kept >= 3 && kept <= fake.count / 2 + 1);
        done(&p, plan);
    }
    assert_true(won >= 6);
}

/* A family is timed by one member first; a faster member is found where that one is not much slower than the best. */
static void test_families(void **state) {
    (void)state;
    problem p;
    alike();
    fake.fast = "combine(steps=8)+fuse+pack+threads(2,split=rows)";
    fake.gain = 1.15;
    fake.slow = "combine+fuse+transpose";
    fake.loss = 2;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    assert_string_equal(rcv_plan_string(plan), fake.fast);
    done(&p, plan);
}

/* One that takes a hundred times as long as the others does not take their time away. */
static void test_hopeless(void **state) {
    (void)state;
    problem p;
    alike();
    fake.fast = "combine+fuse+pack+threads(2)";
    fake.gain = 1.1;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    size_t timed = fake.count;
    int runs = record_of(rcv_plan_string(plan))->runs;
    done(&p, plan);
    fake.slow = "vendor";
    fake.loss = 100;
    plan = found(&p, &middle, RCV_MEASURE, false);
    assert_string_equal(rcv_plan_string(plan), fake.fast);
    assert_true(record_of(rcv_plan_string(plan))->runs >= runs);
    assert_true(fake.count >= timed);
    assert_int_equal(record_of("vendor+threads(2)")->runs, 1);
    done(&p, plan);
}

/* Other work on the machine, which makes one run of four longer, seldom decides. */
static void test_disturbed(void **state) {
    (void)state;
    int won = 0;
    for (uint64_t draws = 0; draws < 40; draws++) {
        problem p;
        alike();
        fake.fast = "combine+fuse+pack+threads(2)";
        fake.gain = 1.1;
        fake.disturbed = 4;
        fake.draws = draws * UINT64_C(11400714819323198485);
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        won += !strcmp(rcv_plan_string(plan), fake.fast);
        done(&p, plan);
    }
    print_message("%d of 40 won\n", won);
    assert_true(won >= 34);
}

/* One disturbed run never does, not even of the plan that is timed before all others. */
static void test_disturbed_once(void **state) {
    (void)state;
    for (int once = 1; once <= 40; once++) {
        problem p;
        alike();
        fake.fast = "combine+fuse+pack+threads(2,split=rows)";
        fake.gain = 1.1;
        fake.once = once;
        rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
        assert_true(fake.total > 40);
        assert_string_equal(rcv_plan_string(plan), fake.fast);
        done(&p, plan);
    }
}

/* ---- how long it takes ---- */

/* However long a run is, choosing takes its time and no more. */
static void test_budget(void **state) {
    (void)state;
    for (double seconds = 1e-5; seconds < 100; seconds *= 3) {
        for (int training = 0; training < 2; training++) {
            problem p;
            alike();
            fake.step = seconds / 80;
            double begin = clock_seconds;
            rcv_plan *plan = found(&p, &middle, RCV_MEASURE, training);
            double took = clock_seconds - begin, shortest = fmin(seconds, 0.15 * seconds + 0.04);
            assert_true(took < fmin(1.1, fmax(2.5e-3, 25 * seconds)) + 3 * shortest);
            done(&p, plan);
        }
    }
}

/* Where the time is over before anything was timed, the first one is timed all the same, and remembered. */
static void test_late(void **state) {
    (void)state;
    static const config wide = {"lstm", {.input = 256, .hidden = 256, .layers = 2}, 40, 64, false, false, false};
    problem p;
    alike();
    fake.preparing = 3;
    rcv_plan *plan = found(&p, &wide, RCV_MEASURE, false);
    assert_true(candidate_of(plan, rcv_plan_string(plan))->seconds > 0);
    assert_int_equal(rcv_wisdom_count(p.context), 1);
    done(&p, plan);
}

/* Long problems are tried on fewer steps and layers, in little time, and their seconds scaled up. */
static void test_long(void **state) {
    (void)state;
    static const config deep = {"lstm", {.input = 64, .hidden = 64, .layers = 8}, 2000, 64, false, false, false};
    problem p;
    alike();
    fake.step = 20. / 2000 / 8; /* twenty seconds */
    fake.fast = "combine(steps=all)+fuse+pack+threads(2)";
    fake.gain = 1.25;
    double begin = clock_seconds;
    rcv_plan *plan = found(&p, &deep, RCV_MEASURE, true);
    assert_true(clock_seconds - begin < 1.2);
    assert_string_equal(rcv_plan_string(plan), fake.fast);
    assert_true(fake.count > 2);
    for (size_t k = 0; k < fake.count; k++) {
        assert_int_equal(fake.records[k].layers, 2);
        assert_true(fake.records[k].least_rows < 2000);
    }
    double seconds = candidate_of(plan, fake.fast)->seconds;
    assert_true(seconds > 0.7 * 20 / 1.25 && seconds < 1.4 * 20 / 1.25);
    done(&p, plan);
}

/* Short problems are tried whole, in no more than some tens of runs. */
static void test_short(void **state) {
    (void)state;
    problem p;
    alike();
    double begin = clock_seconds;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, false);
    assert_true(clock_seconds - begin < 0.05);
    assert_float_equal(candidate_of(plan, rcv_plan_string(plan))->seconds, 1e-3, 5e-5);
    done(&p, plan);
}

/* Where memory is not short, what saves it at the cost of time is not tried. */
static void test_recompute(void **state) {
    (void)state;
    problem p;
    alike();
    fake.fast = "combine(steps=16)+fuse+pack+recompute(every=16)+threads(2,split=rows)";
    fake.gain = 2;
    rcv_plan *plan = found(&p, &middle, RCV_MEASURE, true);
    for (size_t k = 0; k < fake.count; k++) assert_null(strstr(fake.records[k].plan, "recompute"));
    done(&p, plan);
    plan = found(&p, &middle, RCV_EXHAUSTIVE, true);
    assert_string_equal(rcv_plan_string(plan), fake.fast);
    done(&p, plan);
}

/* ---- stopping ---- */

typedef struct {
    int64_t asked, allowed; /* questions; answers of yes */
} patience;

static bool is_patient(void *user) {
    patience *own = user;
    return own->asked++ < own->allowed;
}

/* Stops at one question, in a context where nothing was learnt: no plan, nothing learnt, nothing kept in memory, no
 * question after the no; and then the same context can plan. */
static void check_stop(rcv_effort effort, bool training, int64_t allowed, int64_t candidates, const char *expected) {
    problem p;
    patience own = {.allowed = allowed};
    open_problem(&p, &middle, 2);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, training, NULL);
    options.effort = effort;
    options.go_on = is_patient;
    options.user = &own;
    rcv_plan *plan = NULL;
    size_t live = p.allocator.live;
    int trials = (int)(allowed > candidates ? allowed - candidates : 0);
    char sentence[64];
    snprintf(sentence, sizeof sentence, "stopped after %d trial%s,", trials, trials == 1 ? "" : "s");
    fake.total = 0;
    check_fails(search(&p, &options, &plan), RCV_STOPPED, sentence);
    assert_null(plan);
    assert_int_equal(own.asked, allowed + 1);
    assert_int_equal(fake.total, trials);
    assert_int_equal(p.allocator.live, live);
    assert_int_equal(rcv_wisdom_count(p.context), 0);
    options.go_on = NULL;
    check_ok(search(&p, &options, &plan));
    assert_string_equal(rcv_plan_string(plan), expected);
    done(&p, plan);
}

static void test_stopped(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int i = 0; i < 6; i++) {
        problem p;
        bool training = i % 2;
        patience own = {.allowed = INT64_MAX};
        alike();
        fake.fast = "combine+fuse+pack+threads(2)";
        fake.gain = 1.1;
        open_problem(&p, &middle, 2);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, training, NULL);
        options.effort = efforts[i / 2];
        options.go_on = is_patient;
        options.user = &own;
        rcv_plan *plan = NULL;
        check_ok(search(&p, &options, &plan));
        int64_t candidates = (int64_t)rcv_plan_candidate_count(plan);
        assert_int_equal(own.asked, candidates + fake.total + (options.effort != RCV_ESTIMATE));
        assert_null(plan->program.options.go_on); /* what may be gone by now is not kept */
        assert_null(plan->program.options.user);
        for (int64_t n = 0; n < own.asked; n += 1 + n / 4)
            check_stop(options.effort, training, n, candidates, rcv_plan_string(plan));
        check_stop(options.effort, training, own.asked - 1, candidates, rcv_plan_string(plan));
        done(&p, plan);
    }
}

/* What is known already is not asked about, and stays known where a greater effort is stopped. */
static void test_stopped_wisdom(void **state) {
    (void)state;
    problem p;
    patience own = {.allowed = 100};
    alike();
    open_problem(&p, &middle, 2);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, NULL);
    rcv_plan *plan = NULL;
    check_ok(search(&p, &options, &plan));
    rcv_plan_free(plan);
    options.go_on = is_patient;
    options.user = &own;
    options.effort = RCV_EXHAUSTIVE;
    check_fails(search(&p, &options, &plan), RCV_STOPPED, "planning was stopped");
    assert_int_equal(own.asked, 101);
    assert_int_equal(rcv_wisdom_count(p.context), 1);
    options.effort = RCV_MEASURE;
    check_ok(search(&p, &options, &plan));
    assert_true(rcv_plan_from_wisdom(plan));
    assert_int_equal(own.asked, 101);
    done(&p, plan);
}

/* ---- what cannot be used ---- */

/* By estimate kernels of the best plan alone are compiled; where the device refuses them, those of the next. */
static void test_loaded(void **state) {
    (void)state;
    problem p;
    char best[96];
    alike();
    rcv_plan *plan = found(&p, &middle, RCV_ESTIMATE, true);
    assert_int_equal(fake.loads, 1);
    snprintf(best, sizeof best, "%s", rcv_plan_string(plan));
    size_t count = rcv_plan_candidate_count(plan);
    done(&p, plan);

    alike();
    fake.unloaded = best;
    fake.refusal = RCV_UNSUPPORTED;
    plan = found(&p, &middle, RCV_ESTIMATE, true);
    assert_int_equal(fake.loads, 2);
    assert_string_not_equal(rcv_plan_string(plan), best);
    const rcv_candidate *refused = candidate_of(plan, best);
    assert_int_equal(refused->status, RCV_UNSUPPORTED);
    assert_string_equal(refused->reason, "the device takes no kernels of this");
    assert_true(!refused->chosen && candidate_of(plan, rcv_plan_string(plan))->chosen);
    done(&p, plan);

    static const rcv_status refusals[] = {RCV_UNSUPPORTED, RCV_NO_MEMORY};
    for (int i = 0; i < 2; i++) {
        alike();
        fake.unloaded = "";
        fake.refusal = refusals[i];
        open_problem(&p, &middle, 2);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
        options.effort = RCV_ESTIMATE;
        check_fails(search(&p, &options, &plan), refusals[i], "takes no kernels");
        assert_null(plan);
        if (i)
            assert_int_equal(fake.loads, 1);
        else
            assert_in_range(fake.loads, 5, count);
        close_problem(&p);
    }

    alike();
    plan = found(&p, &middle, RCV_MEASURE, true);
    assert_true(fake.loads >= 5);
    done(&p, plan);
}

/* A device that refuses a run gives the candidate its sentence; one without memory ends the search. */
static void test_unopened(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 2; e++) {
        problem p;
        alike();
        fake.fast = fake.unopened = "combine+fuse+pack+threads(2)";
        fake.gain = 2;
        fake.refusal = RCV_UNSUPPORTED;
        rcv_plan *plan = found(&p, &middle, efforts[e], false);
        const rcv_candidate *refused = candidate_of(plan, fake.unopened);
        assert_int_equal(refused->status, RCV_UNSUPPORTED);
        assert_non_null(strstr(refused->reason, "no room"));
        assert_true(refused->seconds == 0 && !refused->chosen);
        assert_true(candidate_of(plan, rcv_plan_string(plan))->chosen);
        done(&p, plan);

        open_problem(&p, &middle, 2);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, NULL);
        options.effort = efforts[e];
        fake.refusal = RCV_NO_MEMORY;
        assert_int_equal(search(&p, &options, &plan), RCV_NO_MEMORY);
        assert_null(plan);
        close_problem(&p);
    }
}

/* Of a vendor's library the model knows little: it is chosen for its time, or where nothing else can be. */
static void test_vendor(void **state) {
    (void)state;
    static const config one = {"lstm", {.input = 256, .hidden = 256, .layers = 1}, 100, 1, false, false, false};
    problem p;
    alike();
    fake.threads = 1;
    fake.kernels = "neon";
    rcv_plan *plan = found(&p, &one, RCV_ESTIMATE, false);
    double best = INFINITY, own = INFINITY, vendor = INFINITY;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (!strncmp(c->schedule, "vendor", 6))
            vendor = fmin(vendor, c->estimate);
        else if (!c->status)
            best = fmin(best, c->estimate);
        if (c->chosen) own = c->estimate;
    }
    assert_true(vendor < best);
    assert_true(own <= 1.02 * best && strncmp(rcv_plan_string(plan), "vendor", 6));
    done(&p, plan);
    fake.fast = "vendor";
    fake.gain = 1.5;
    plan = found(&p, &one, RCV_MEASURE, false);
    assert_string_equal(rcv_plan_string(plan), fake.fast);
    done(&p, plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exhaustive), cmocka_unit_test(test_ties),           cmocka_unit_test(test_measure),
        cmocka_unit_test(test_families),   cmocka_unit_test(test_hopeless),       cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_long),       cmocka_unit_test(test_short),          cmocka_unit_test(test_unopened),
        cmocka_unit_test(test_loaded),     cmocka_unit_test(test_disturbed_once), cmocka_unit_test(test_budget),
        cmocka_unit_test(test_vendor),     cmocka_unit_test(test_late),           cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_stopped),    cmocka_unit_test(test_stopped_wisdom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

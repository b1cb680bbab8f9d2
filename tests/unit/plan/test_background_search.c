/* Searches beside the caller: what they wait for, what stops them, what wisdom gets of them, what callbacks may do. */
#include "gated_plans.h"

/* ---- what stops a search ---- */

static void test_stopped(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        problem p;
        gate g = {.open = how < 2, .refuses = how == 1};
        rcv_run *run = NULL;
        data d;
        open_problem(&p, &middle, 1);
        rcv_plan_options options = gated(&p, true, &g);
        rcv_plan *plan = start(&p, &options);
        if (how == 0) check_ok(rcv_plan_stay(plan)); /* at once, or after it was found: the string holds */
        if (how == 1) check_fails(rcv_plan_wait(plan), RCV_STOPPED, "planning was stopped");
        if (how == 1) check_ok(rcv_plan_stay(plan));
        if (how >= 2) atomic_store(&g.open, true);
        if (how == 2) { /* freed while it searches */
            rcv_plan_free(plan);
            close_problem(&p);
            continue;
        }
        if (how == 3) check_ok(rcv_plan_stay(plan));
        char *string = strdup(rcv_plan_string(plan));
        results got, want;
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_FLOAT32);
        call(run, &d);
        close_data(&d, true, &got);
        run_pinned(&p, RCV_FLOAT32, true, string, &want);
        check_same_bits(string, &want, &got);
        if (how == 1) assert_string_equal(string, "naive");
        assert_string_equal(rcv_plan_string(plan), string);
        drop(&got);
        drop(&want);
        free(string);
        rcv_run_free(run);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

/* Two searches of a context run one after the other; a plan that waits for its turn can be freed. */
static void test_turns(void **state) {
    (void)state;
    enum { PLANS = 3 };
    problem p;
    gate g = {.open = false};
    rcv_plan *plans[PLANS], *waiting;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g), other = options;
    for (int i = 0; i < PLANS; i++) plans[i] = start(&p, &options);
    while (!atomic_load(&g.asked)) sleep_milliseconds(1);
    other.batch = 3;
    waiting = start(&p, &other);
    rcv_plan_free(waiting);
    assert_int_equal(atomic_load(&g.inside), 1);
    atomic_store(&g.open, true);
    for (int i = 0; i < PLANS; i++) check_ok(rcv_plan_wait(plans[i]));
    assert_int_equal(atomic_load(&g.most_inside), 1);
    assert_int_equal(atomic_load(&g.replaced), PLANS);
    for (int i = 0; i < PLANS; i++) rcv_plan_free(plans[i]);
    close_problem(&p);
}

/* ---- the first call ---- */

static _Thread_local gate *asked_in_slow_runs; /* NULL: runs of this thread are not slow */
static double first_run;                       /* when the first slow run began; 0: not yet */
static int most_asked;                         /* until the end of the last one */

static rcv_status run_slowly(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding,
                             void *scratch) {
    if (asked_in_slow_runs) {
        if (first_run == 0) first_run = rcvi_now();
        sleep_milliseconds(200);
        most_asked = atomic_load(&asked_in_slow_runs->asked);
    }
    return rcvi_device_cpu.run(worker, first, end, binding, scratch);
}

/* Makes a plan, and its first call, which is slow. False where more time passed between the two than a search waits for a call. */
static bool call_first(bool training) {
    problem p;
    gate g = {.open = true};
    rcv_run *run = NULL;
    data d;
    rcvi_device device = rcvi_device_cpu;
    device.run = run_slowly;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, training, &g);
    open_data(&d, &p, RCV_FLOAT32);
    first_run = 0;
    double begin = rcvi_now();
    rcv_plan *plan = start_with("naive", &p, &device, &options);
    check_ok(rcv_run_new(plan, &run));
    asked_in_slow_runs = &g;
    check_ok(rcv_run_forward(run, &d.forward));
    if (training) check_ok(rcv_run_backward(run, &d.backward));
    asked_in_slow_runs = NULL;
    bool in_time = first_run - begin < 0.09;
    if (in_time) assert_int_equal(most_asked, 0);
    check_ok(rcv_plan_wait(plan));
    assert_true(atomic_load(&g.asked) > 1);
    close_data(&d, training, NULL);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
    return in_time;
}

/* A search on a CPU waits until the first call, in training the first backward call, is done. */
static void test_first_call(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        bool in_time = false;
        for (int attempt = 0; attempt < 20 && !in_time; attempt++) in_time = call_first(training);
        if (!in_time) print_message("skipped: the machine is too busy to make a call in time\n");
    }
}

/* ---- a device whose streams are captured ---- */

static atomic_bool is_captured;
static bool ask_captured(void *stream) { return stream && atomic_load(&is_captured); }
static rcv_status wait_for_nothing(rcvi_worker *worker) {
    (void)worker;
    return RCV_OK;
}

/* Trials wait while a stream of the plan's runs is captured; a run that was captured keeps its plan. */
static void test_captures(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    int stream = 0;
    rcv_run *captured = NULL, *other = NULL;
    data d;
    rcvi_device device = rcvi_device_cpu;
    device.is_captured = ask_captured;
    device.wait = wait_for_nothing;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    atomic_store(&g.open, false);
    rcv_plan *plan = start_with("naive", &p, &device, &options);
    check_ok(rcv_run_new(plan, &captured));
    check_ok(rcv_run_new(plan, &other));
    check_ok(rcv_run_set_stream(captured, &stream));
    while (!atomic_load(&g.asked)) sleep_milliseconds(1);
    atomic_store(&is_captured, true);
    int asked = atomic_load(&g.asked);
    atomic_store(&g.open, true);
    sleep_milliseconds(100);
    assert_in_range(atomic_load(&g.asked), asked, asked + 1);
    open_data(&d, &p, RCV_FLOAT32);
    call(captured, &d);
    check_fails(rcv_plan_wait(plan), RCV_INVALID, "after the capture");
    atomic_store(&is_captured, false);
    check_ok(rcv_plan_wait(plan));
    assert_true(atomic_load(&g.asked) > asked + 1);
    assert_int_equal(atomic_load(&g.replaced), 1);
    call(captured, &d);
    assert_int_equal(rcv_run_version(captured), 1);
    call(other, &d);
    assert_int_equal(rcv_run_version(other), 2);
    close_data(&d, true, NULL);
    rcv_run_free(captured);
    rcv_run_free(other);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* ---- wisdom whose kernels are not compiled ---- */

static bool is_never_compiled(const rcvi_engine *engine) {
    (void)engine;
    return false;
}

static void test_compiled(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    rcv_plan *known = NULL;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    rcv_plan *searched = start(&p, &options);
    check_ok(rcv_plan_wait(searched));
    if (!rcv_wisdom_count(p.context)) { /* a busy machine left time for one trial alone */
        rcv_plan_free(searched);
        close_problem(&p);
        skip();
    }
    rcvi_device device = rcvi_device_cpu;
    rcvi_problem q = {.net = p.net, .options = &options, .device = &device};
    check_ok(device.describe(p.context, 0, options.dtype, 1, &q.machine));
    device.describe_libraries(0, &q.machine);
    check_ok(rcvi_plan_recall_compiled(&q, &known));
    assert_non_null(known);
    assert_string_equal(known->string, rcv_plan_string(searched));
    rcv_plan_free(known);
    known = NULL;
    device.is_compiled = is_never_compiled;
    check_ok(rcvi_plan_recall_compiled(&q, &known));
    assert_null(known);
    rcv_plan_free(searched);
    close_problem(&p);
}

/* Two plans in turns: which one is faster does not depend on their order; without memory there is no answer. */
static void test_turns_of_two(void **state) {
    (void)state;
    problem p;
    rcv_plan *plans[2], *known = NULL;
    double ratio = 0, inverse = 0, none = 1;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    rcvi_problem q = {.net = p.net, .options = &options, .device = &rcvi_device_cpu, .in_background = true};
    check_ok(rcvi_device_cpu.describe(p.context, 0, options.dtype, 1, &q.machine));
    rcvi_device_cpu.describe_libraries(0, &q.machine);
    for (int i = 0; i < 2; i++) {
        rcvi_rungs rungs;
        check_ok(rcvi_rungs_read(i ? "naive" : "combine(steps=4)+fuse+pack", &rungs));
        check_ok(rcvi_plan_make(&q, &rungs, &plans[i]));
    }
    check_ok(rcvi_compare_plans(&q, plans[0], plans[1], &ratio));
    check_ok(rcvi_compare_plans(&q, plans[1], plans[0], &inverse));
    assert_true(ratio > 0 && ratio < 1);
    assert_true(inverse > 1);
    options.search_memory = 1;
    check_ok(rcvi_compare_plans(&q, plans[0], plans[1], &none));
    assert_true(none == 0);
    options.search_memory = 0;
    check_ok(rcvi_plan_remember(&q, plans[1], 0.5));
    check_ok(rcvi_plan_recall_compiled(&q, &known));
    assert_non_null(known);
    assert_string_equal(known->string, "naive");
    rcv_plan_free(known);
    for (int i = 0; i < 2; i++) rcv_plan_free(plans[i]);
    close_problem(&p);
}

/* ---- what wisdom gets ---- */

static const char rare[] = "combine(steps=5)+fuse"; /* no search offers so many steps */
static atomic_int rare_runs;
static gate *stopped_in_confirmation; /* NULL: none */

/* The rare plan takes no time, since it computes nothing. */
static rcv_status run_quickly(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding,
                              void *scratch) {
    bool is_rare = binding->program->rungs.steps == 5;
    if (is_rare) atomic_fetch_add(&rare_runs, 1);
    if (is_rare && stopped_in_confirmation) atomic_store(&stopped_in_confirmation->refuses, true);
    return is_rare ? RCV_OK : rcvi_device_cpu.run(worker, first, end, binding, scratch);
}

/* What the search found is run in turns with the first plan. Where that is faster it stays, and wisdom has it; where the search is stopped
 * meanwhile, wisdom has nothing. */
static void test_not_confirmed(void **state) {
    (void)state;
    rcvi_device device = rcvi_device_cpu;
    device.run = run_quickly;
    for (int stopped = 0; stopped < 2; stopped++) {
        problem p;
        gate g = {.open = true};
        rcv_plan *known = NULL;
        atomic_store(&rare_runs, 0);
        stopped_in_confirmation = stopped ? &g : NULL;
        open_problem(&p, &middle, 1);
        rcv_plan_options options = gated(&p, true, &g);
        rcv_plan *plan = start_with(rare, &p, &device, &options);
        if (stopped)
            check_fails(rcv_plan_wait(plan), RCV_STOPPED, "planning was stopped");
        else
            check_ok(rcv_plan_wait(plan));
        assert_true(atomic_load(&rare_runs) > 0);
        assert_string_equal(rcv_plan_string(plan), rare);
        assert_int_equal(atomic_load(&g.replaced), 0);
        rcvi_problem q = {.net = p.net, .options = &options, .device = &device};
        check_ok(device.describe(p.context, 0, options.dtype, 1, &q.machine));
        device.describe_libraries(0, &q.machine);
        check_ok(rcvi_plan_recall_compiled(&q, &known));
        if (stopped) assert_int_equal(rcv_wisdom_count(p.context), 0);
        if (known)
            assert_string_equal(rcv_plan_string(known), rare); /* none where a busy machine left time for one trial */
        rcv_plan_free(known);
        rcv_plan_free(plan);
        close_problem(&p);
    }
    stopped_in_confirmation = NULL;
}

/* ---- callbacks ---- */

typedef struct {
    gate g;
    _Atomic(rcv_plan *) plan;
    atomic_int stay, wait; /* statuses */
} caller;

static void stay_and_wait(void *user) {
    caller *c = user;
    while (!atomic_load(&c->plan)) sleep_milliseconds(1);
    atomic_store(&c->wait, (int)rcv_plan_wait(atomic_load(&c->plan)));
    atomic_store(&c->stay, (int)rcv_plan_stay(atomic_load(&c->plan)));
    atomic_fetch_add(&c->g.replaced, 1);
}

static bool stay_when_asked(void *user) {
    stay_and_wait(user);
    return true;
}

/* A callback of the search can end the search, and cannot wait for it. */
static void test_callbacks(void **state) {
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        problem p;
        caller c = {.g = {.open = true}, .stay = -1, .wait = -1};
        open_problem(&p, &middle, 1);
        rcv_plan_options options = gated(&p, true, &c.g);
        options.user = &c;
        options.go_on = asked ? stay_when_asked : NULL;
        options.replaced = asked ? NULL : stay_and_wait;
        rcv_plan *plan = start(&p, &options);
        atomic_store(&c.plan, plan);
        if (asked)
            check_fails(rcv_plan_wait(plan), RCV_STOPPED, "planning was stopped");
        else
            check_ok(rcv_plan_wait(plan));
        assert_int_equal(atomic_load(&c.g.replaced), 1);
        assert_int_equal(atomic_load(&c.wait), RCV_INVALID);
        assert_int_equal(atomic_load(&c.stay), RCV_OK);
        assert_int_equal(!strcmp(rcv_plan_string(plan), "naive"), asked);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

/* Without memory for trials the estimate chooses; nothing is remembered as measured. */
static void test_memory(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    options.search_memory = 1;
    rcv_plan *plan = start(&p, &options);
    check_ok(rcv_plan_wait(plan));
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) assert_true(rcv_plan_candidate(plan, i)->seconds == 0);
    assert_int_equal(rcv_wisdom_count(p.context), 0);
    rcv_plan_free(plan);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped),       cmocka_unit_test(test_turns),     cmocka_unit_test(test_first_call),
        cmocka_unit_test(test_captures),      cmocka_unit_test(test_compiled),  cmocka_unit_test(test_turns_of_two),
        cmocka_unit_test(test_not_confirmed), cmocka_unit_test(test_callbacks), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

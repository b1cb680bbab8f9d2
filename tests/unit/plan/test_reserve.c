/* What a backward call needs lies in a reserve: backward calls may be repeated, and several forward calls may precede theirs. */
#include "reserves.h"
#include "sample.h"

static const config configs[] = {
    {"lstm", {.input = 5, .hidden = 8, .layers = 2, .dropout = 0.4}, 9, 6, true, true, true},
    {"gru", {.input = 4, .hidden = 7, .layers = 2, .bidirectional = true, .zoneout = 0.2}, 7, 5, true, false, true},
    {"sru", {.input = 6, .hidden = 6, .layers = 2}, 8, 4, false, true, true},
    {"lstm_layernorm", {.input = 4, .hidden = 8, .layers = 1}, 6, 5, false, false, true},
};
static const char *const plans[] = {"naive",
                                    "combine(steps=3)+fuse+pack",
                                    "combine(steps=all)+fuse+pack+threads(2)",
                                    "combine(steps=2)+fuse+pack+threads(2,split=rows)",
                                    "combine(steps=3)+fuse+transpose",
                                    "combine(steps=2)+fuse+pack+recompute(every=2)",
                                    "combine(steps=all)+fuse+pack+scan",
                                    "kernels"};

static void test_calls(void **state) {
    (void)state;
    enum { PLANS = sizeof plans / sizeof *plans, CONFIGS = sizeof configs / sizeof *configs };
    for (int i = 0; i < PLANS * CONFIGS; i++) {
        problem p;
        if (!sample_takes((size_t)i)) continue;
        open_problem(&p, &configs[i / PLANS], 2);
        rcv_dtype dtype = i % 3 == 0 ? RCV_FLOAT64 : RCV_FLOAT32;
        check_reserves(&p, dtype, plans[i % PLANS]);
        if (strstr(plans[i % PLANS], "pack")) check_reserves(&p, RCV_BFLOAT16, plans[i % PLANS]);
        close_problem(&p);
    }
}

static void test_refusals(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL, *own = NULL;
    rcv_run *run = NULL, *other = NULL;
    reserved_call c;
    open_problem(&p, &configs[0], 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine(steps=3)+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &own));
    options.reserve = true;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    /* a reserve of a call may have a seed more, which is in the run otherwise */
    assert_true(rcv_plan_bytes(own) + 256 >= rcv_plan_bytes(plan) + rcv_plan_reserve_bytes(plan));
    assert_int_equal(rcv_plan_reserve_bytes(own), rcv_plan_reserve_bytes(plan));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_run_new(own, &other));
    open_call(&c, &p, RCV_FLOAT32, plan, 0);
    check_fails(rcv_run_forward(other, &c.d.forward), RCV_INVALID, "made without them");
    check_fails(rcv_run_backward(run, &c.d.backward), RCV_INVALID, "needs a forward call before it");
    c.d.forward.reserve = NULL;
    check_fails(rcv_run_forward(run, &c.d.forward), RCV_INVALID, "but none is given");
    c.d.forward.reserve = (char *)c.reserve + 32;
    check_fails(rcv_run_forward(run, &c.d.forward), RCV_INVALID, "multiple of 64 bytes");
    c.d.forward.reserve = c.reserve;
    void *y = c.d.forward.y;
    c.d.forward.y = c.reserve;
    check_fails(rcv_run_forward(run, &c.d.forward), RCV_INVALID, "reserve");
    c.d.forward.y = y;
    check_ok(rcv_run_forward(run, &c.d.forward));
    void *dx = c.d.backward.dx;
    c.d.backward.dx = c.reserve;
    check_fails(rcv_run_backward(run, &c.d.backward), RCV_INVALID, "reserve");
    c.d.backward.dx = dx;
    c.d.backward.forward = &c.d.forward;
    check_ok(rcv_run_backward(run, &c.d.backward));
    close_call(&c, NULL);
    rcv_run_free(run);
    rcv_run_free(other);
    rcv_plan_free(own);
    rcv_plan_free(plan);
    options.training = false;
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "set training");
    options.reserve = false;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    assert_int_equal(rcv_plan_reserve_bytes(plan), 0);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* The planner times plans whose calls give reserves. */
static void test_planned(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    open_problem(&p, &configs[2], 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    options.reserve = true;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    char schedule[160];
    snprintf(schedule, sizeof schedule, "%s", rcv_plan_string(plan));
    rcv_plan_free(plan);
    check_reserves(&p, RCV_FLOAT32, schedule);
    close_problem(&p);
}

/* A batch of no sequences: nothing is computed, gradients of the parameters are zero. */
static void test_empty(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &configs[3], 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, &p, RCV_FLOAT32);
    d.forward.batch = RCV_EMPTY;
    check_ok(rcv_run_forward(run, &d.forward));
    check_ok(rcv_run_backward(run, &d.backward));
    for (int64_t i = 0; i < p.parameter_count; i++) assert_true(((float *)d.dparameters)[i] == 0);
    ((float *)d.dparameters)[0] = 3;
    d.backward.accumulate = true;
    check_ok(rcv_run_backward(run, &d.backward));
    assert_true(((float *)d.dparameters)[0] == 3);
    d.forward.batch = p.c.batch + 1;
    check_fails(rcv_run_forward(run, &d.forward), RCV_INVALID, "made for 1 to 5 sequences");
    d.forward.batch = -2;
    check_fails(rcv_run_forward(run, &d.forward), RCV_INVALID, "made for 1 to 5 sequences");
    d.forward.batch = 2;
    d.forward.steps = p.c.steps + 1;
    check_fails(rcv_run_forward(run, &d.forward), RCV_INVALID, "made for 1 to 6 time steps");
    close_data(&d, true, NULL);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A forward call that is refused leaves the run as it was: a backward call belongs to the call before it. */
static void test_refused_call(void **state) {
    (void)state;
    static const char *const schedules[] = {"naive", "combine(steps=3)+fuse+pack"};
    for (int i = 0; i < 2; i++) {
        problem p;
        results want, got;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        data d;
        open_problem(&p, &configs[0], 1);
        run_pinned(&p, RCV_FLOAT32, true, schedules[i], &want);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, schedules[i]);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_FLOAT32);
        check_ok(rcv_run_forward(run, &d.forward));
        rcv_forward refused = d.forward;
        refused.batch = 2;
        refused.y = d.x;
        check_fails(rcv_run_forward(run, &refused), RCV_INVALID, "overlap");
        refused.y = d.y;
        refused.seed_at = (const uint64_t *)(const void *)((const char *)d.x + 4);
        check_fails(rcv_run_forward(run, &refused), RCV_INVALID, "multiple of 8 bytes");
        refused.batch = RCV_EMPTY;
        refused.steps = p.c.steps + 1;
        check_fails(rcv_run_forward(run, &refused), RCV_INVALID, "time steps");
        refused = d.forward;
        refused.steps = 1;
        check_fails(rcv_run_forward(run, &refused), RCV_INVALID, "is not in 1 to 1");
        check_ok(rcv_run_backward(run, &d.backward));
        close_data(&d, true, &got);
        check_same_bits(schedules[i], &want, &got);
        drop(&want);
        drop(&got);
        rcv_run_free(run);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

/* A backward call by another run of the plan, which has made no forward call: the reserve and the named call have all that it reads. */
static void test_other_run(void **state) {
    (void)state;
    static const char *const schedules[] = {"naive", "combine(steps=3)+fuse+pack",
                                            "combine+fuse+pack+recompute(every=2)"};
    for (int i = 0; i < 3; i++) {
        problem p;
        results want, got;
        rcv_plan *plan = NULL;
        rcv_run *first = NULL, *other = NULL;
        reserved_call c;
        open_problem(&p, &configs[i], 1);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, schedules[i]);
        options.reserve = true;
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &first));
        check_ok(rcv_run_new(plan, &other));
        open_call(&c, &p, RCV_FLOAT32, plan, 0);
        check_ok(rcv_run_forward(first, &c.d.forward));
        check_ok(rcv_run_backward(first, &c.d.backward));
        close_call(&c, &want);
        open_call(&c, &p, RCV_FLOAT32, plan, 0);
        check_ok(rcv_run_forward(first, &c.d.forward));
        check_fails(rcv_run_backward(other, &c.d.backward), RCV_INVALID, "needs a forward call");
        c.d.backward.forward = &c.d.forward;
        check_ok(rcv_run_backward(other, &c.d.backward));
        close_call(&c, &got);
        check_same_bits(schedules[i], &want, &got);
        drop(&want);
        drop(&got);
        rcv_run_free(other);
        rcv_run_free(first);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

/* Parameters that a call without sequences gives for the first time are those of the next call that says they are the same. */
static void test_empty_call_with_parameters(void **state) {
    (void)state;
    problem p;
    results got[2];
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    open_problem(&p, &configs[1], 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine(steps=3)+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &plan));
    for (int empty = 0; empty < 2; empty++) {
        data d;
        open_data(&d, &p, RCV_FLOAT32);
        check_ok(rcv_run_new(plan, &run));
        if (empty) check_ok(rcv_run_forward(run, &d.forward));
        for (int64_t i = 0; i < p.parameter_count; i++) ((float *)d.parameters)[i] *= 0.5f;
        d.forward.batch = RCV_EMPTY;
        if (empty) check_ok(rcv_run_forward(run, &d.forward));
        d.forward.batch = 0;
        d.forward.same_parameters = empty;
        check_ok(rcv_run_forward(run, &d.forward));
        check_ok(rcv_run_backward(run, &d.backward));
        for (int64_t i = 0; i < p.parameter_count; i++) ((float *)d.parameters)[i] *= 2;
        close_data(&d, true, &got[empty]);
        rcv_run_free(run);
    }
    check_same_bits("an empty call before", &got[0], &got[1]);
    drop(&got[0]);
    drop(&got[1]);
    rcv_plan_free(plan);
    options.signals = true;
    data d;
    open_data(&d, &p, RCV_FLOAT32);
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    d.forward.batch = RCV_EMPTY;
    check_fails(rcv_run_forward(run, &d.forward), RCV_UNSUPPORTED, "needs at least one sequence");
    close_data(&d, true, NULL);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A backward call that names no forward call, after one that named an earlier forward call: that one's data is bound. */
static void test_last_call(void **state) {
    (void)state;
    problem p;
    results want[RESERVE_CALLS], got;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    reserved_call calls[2];
    const char *schedule = "combine(steps=3)+fuse+pack";
    open_problem(&p, &configs[0], 1);
    run_one_by_one(&p, RCV_FLOAT32, schedule, want);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, schedule);
    options.reserve = true;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < 2; k++) {
        open_call(&calls[k], &p, RCV_FLOAT32, plan, k);
        check_ok(rcv_run_forward(run, &calls[k].d.forward));
    }
    calls[0].d.backward.forward = &calls[0].d.forward;
    check_ok(rcv_run_backward(run, &calls[0].d.backward));
    check_fails(rcv_run_backward(run, &calls[1].d.backward), RCV_INVALID, "data->forward must name it");
    calls[1].d.backward.forward = &calls[1].d.forward;
    check_ok(rcv_run_backward(run, &calls[1].d.backward));
    calls[1].d.backward.forward = NULL;
    check_ok(rcv_run_backward(run, &calls[1].d.backward));
    rcv_forward empty = calls[1].d.forward;
    empty.batch = RCV_EMPTY;
    check_ok(rcv_run_forward(run, &empty));
    check_ok(rcv_run_backward(run, &calls[0].d.backward)); /* it names its forward call */
    check_fails(rcv_run_backward(run, &calls[1].d.backward), RCV_INVALID, "data->forward must name it");
    for (int k = 0; k < 2; k++) {
        close_call(&calls[k], &got);
        check_equal(schedule, k, &want[k], &got);
        drop(&got);
    }
    for (int k = 0; k < RESERVE_CALLS; k++) drop(&want[k]);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_planned),
                                       cmocka_unit_test(test_empty),
                                       cmocka_unit_test(test_refused_call),
                                       cmocka_unit_test(test_other_run),
                                       cmocka_unit_test(test_empty_call_with_parameters),
                                       cmocka_unit_test(test_last_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

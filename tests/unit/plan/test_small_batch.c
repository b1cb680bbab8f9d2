/* Calls of few sequences by a plan of their own: which plan makes a call, packed parameters, reserves, memory, searches, bad options. */
#include "small_batches.h"

static const config layers = {"lstm", {.input = 9, .hidden = 12, .layers = 2}, 7, 10, true, false, true};
static const config resets = {"gru", {.input = 6, .hidden = 8, .layers = 2, .dropout = 0.25}, 6, 9, false, true, true};

static const plan_pair pairs[] = {{"combine(steps=all)+fuse+pack", "combine+fuse+pack"},
                                  {"combine+fuse+pack", NULL},
                                  {"naive", "combine(steps=2)+fuse+pack"}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void test_calls(void **state) {
    (void)state;
    const config *configs[] = {&layers, &resets};
    for (int i = 0; i < 2 * PAIRS; i++) {
        problem p;
        open_problem(&p, configs[i % 2], 1);
        check_pair(&p, i % 4 ? RCV_FLOAT32 : RCV_FLOAT64, &pairs[i / 2]);
        check_pair_reserves(&p, RCV_FLOAT32, &pairs[i / 2]);
        close_problem(&p);
    }
}

/* A backward call belongs to the last forward call, whichever plan made it; after a call without sequences its gradients are zero. */
static void test_last(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    results want, got;
    data d, other;
    open_problem(&p, &layers, 1);
    rcv_plan_options o = pair_options(&p, RCV_FLOAT32, &pairs[0]);
    run_apart(&p, RCV_FLOAT32, &pairs[0], 5, 2, &want);
    check_ok(rcv_plan_new(p.net, &o, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&other, &p, RCV_FLOAT32);
    open_data(&d, &p, RCV_FLOAT32);
    check_fails(rcv_run_backward(run, &other.backward), RCV_INVALID, "needs a forward call before it");
    check_ok(rcv_run_forward(run, &other.forward));
    check_ok(call_at(&d, run, true, 5, 2));
    check_ok(rcv_run_forward(run, &other.forward));
    other.forward.batch = RCV_EMPTY;
    check_ok(rcv_run_forward(run, &other.forward));
    check_ok(rcv_run_backward(run, &other.backward));
    const float *gradients = other.dparameters;
    for (int64_t i = 0; i < p.parameter_count; i++) assert_true(gradients[i] == 0);
    other.forward.batch = p.c.batch + 1;
    check_fails(rcv_run_forward(run, &other.forward), RCV_INVALID, "made for 1 to 10 sequences");
    close_data(&other, true, NULL);
    close_data(&d, true, &got);
    check_equal("a small call", 0, &want, &got);
    drop(&want);
    drop(&got);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Both plans are searched for, and both runs take what was found. */
static void test_search(void **state) {
    (void)state;
    static const rcv_effort efforts[] = {RCV_ESTIMATE, RCV_BACKGROUND, RCV_MEASURE};
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        problem p;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        results oracle, got;
        double worst = 0;
        open_problem(&p, &layers, 1);
        run_oracle(&p, true, &oracle);
        rcv_plan_options o = options_of(&p, RCV_FLOAT32, true, NULL);
        o.effort = efforts[i];
        o.small_batch = 3;
        check_ok(rcv_plan_new(p.net, &o, &plan));
        check_ok(rcv_run_new(plan, &run));
        check_ok(rcv_plan_wait(plan));
        check_ok(rcv_run_update(run));
        for (int k = 0; k < 4; k++) {
            data d;
            int64_t batch = k % 2 ? 3 : p.c.batch;
            open_data(&d, &p, RCV_FLOAT32);
            check_ok(call_at(&d, run, true, p.c.steps, batch));
            assert_true(rcv_run_version(run) == 1 || efforts[i] == RCV_BACKGROUND);
            close_data(&d, true, &got);
            if (batch == p.c.batch) compare(&p, RCV_FLOAT32, rcv_plan_string(plan), &got, &oracle, &worst);
            drop(&got);
        }
        assert_true(rcv_plan_candidate_count(rcv_plan_small(plan)) > 0);
        check_ok(rcv_plan_stay(plan));
        rcv_run_free(run);
        rcv_plan_free(plan);
        drop(&oracle);
        close_problem(&p);
    }
}

static void test_memory(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    open_problem(&p, &layers, 1);
    rcv_plan_options o = pair_options(&p, RCV_FLOAT32, &pairs[0]);
    check_ok(rcv_plan_new(p.net, &o, &plan));
    size_t both = rcv_plan_bytes(plan), small = rcv_plan_bytes(rcv_plan_small(plan));
    rcv_plan_free(plan);
    o.memory = both;
    check_ok(rcv_plan_new(p.net, &o, &plan));
    rcv_plan_free(plan);
    o.memory = both - 1;
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_UNSUPPORTED, "are allowed");
    o.memory = both - small;
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_UNSUPPORTED, "leave small_batch out");
    close_problem(&p);
}

static void test_options(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    open_problem(&p, &layers, 1);
    rcv_plan_options o = options_of(&p, RCV_FLOAT32, true, "naive");
    check_ok(rcv_plan_new(p.net, &o, &plan));
    assert_null(rcv_plan_small(plan));
    rcv_plan_free(plan);
    for (int64_t batch = p.c.batch; batch >= -1; batch -= p.c.batch + 1) {
        o.small_batch = batch;
        check_fails(rcv_plan_new(p.net, &o, &plan), RCV_INVALID, "not 1 to batch - 1 = 9");
    }
    o.small_batch = 0;
    o.small_schedule = "naive";
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_INVALID, "small_schedule is for plans with");
    o.small_batch = 2;
    o.schedule = NULL;
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_INVALID, "small_schedule is for plans with");
    o.schedule = "naive";
    o.small_schedule = "no plan";
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_INVALID, "no plan");
    o.small_schedule = NULL;
    o.signals = true;
    check_fails(rcv_plan_new(p.net, &o, &plan), RCV_INVALID, "signals are raised by one plan");
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_last),
                                       cmocka_unit_test(test_search), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Networks in the reverse direction alone: every plan computes what the forward network computes on sequences in the reverse order. */
#include "planned.h"
#include "sample.h"

#include <math.h>

static const config configs[] = {
    {"lstm", {.input = 5, .hidden = 7, .layers = 3}, 9, 4, false, false, true},
    {"lstm", {.input = 4, .hidden = 5, .layers = 2, .dropout = 0.4, .zoneout = 0.3}, 6, 3, false, true, true},
    {"gru", {.input = 6, .hidden = 17, .layers = 2}, 10, 5, true, true, true},
    {"qrnn_fo_w2", {.input = 5, .hidden = 8, .layers = 2}, 8, 3, true, false, true},
    {"rnn_tanh", {.input = 3, .hidden = 9, .layers = 1}, 7, 2, false, false, false},
};

static const char *const extras[] = {"kernels",
                                     "combine",
                                     "fuse",
                                     "combine(steps=3)+fuse",
                                     "transpose",
                                     "wavefront",
                                     "combine(steps=all)+fuse+pack+blas",
                                     "combine(steps=2)+fuse+pack+wavefront",
                                     "combine(steps=3)+fuse+transpose+wavefront+threads(2)",
                                     "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+threads(2)",
                                     "combine(steps=2)+fuse+pack+recompute(every=2)",
                                     "combine(steps=3)+fuse+pack+scan",
                                     "combine(steps=all)+fuse+pack+scan+threads(2)",
                                     "vendor"};

/* Reverses the steps of each sequence within its length, of [steps, batch, columns]; what is past a length stays. */
static void turn(const problem *p, double *values, int64_t columns) {
    for (int64_t b = 0; b < p->c.batch; b++) {
        int64_t length = p->c.lengths ? p->lengths[b] : p->c.steps;
        for (int64_t t = 0; t < length / 2; t++) {
            double *one = values + (t * p->c.batch + b) * columns;
            double *other = values + ((length - 1 - t) * p->c.batch + b) * columns;
            for (int64_t i = 0; i < columns; i++) {
                double kept = one[i];
                one[i] = other[i];
                other[i] = kept;
            }
        }
    }
}

/* A reset at step t is a boundary between t - 1 and t: between two others in the reverse order, and none at the beginning. */
static void turn_resets(problem *p) {
    int64_t batch = p->c.batch;
    uint8_t *turned = calloc((size_t)(p->c.steps * batch), 1);
    assert_non_null(turned);
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = p->c.lengths ? p->lengths[b] : p->c.steps;
        for (int64_t t = 1; t < length; t++) turned[(length - t) * batch + b] = p->resets[t * batch + b];
    }
    memcpy(p->resets, turned, (size_t)(p->c.steps * batch));
    free(turned);
}

static void turn_results(const problem *p, results *r) {
    for (int i = 0; i < r->count; i++) {
        if (!strcmp(r->names[i], "y")) turn(p, r->values[i], rcv_net_output(p->net));
        if (!strcmp(r->names[i], "dx")) turn(p, r->values[i], p->c.net.input);
    }
}

/* The forward problem, and the reverse one with its sequences in the reverse order. */
static void open_pair(const config *c, problem *forward, problem *reverse) {
    config turned = *c;
    turned.net.reverse = true;
    open_problem(forward, c, 2);
    open_problem(reverse, &turned, 2);
    forward->restart = reverse->restart = c->resets;
    for (int64_t b = 0; b < c->batch; b++) forward->resets[b] = 0; /* the reverse direction has no step before it */
    memcpy(reverse->resets, forward->resets, (size_t)(c->steps * c->batch));
    turn(reverse, reverse->x, c->net.input);
    turn(reverse, reverse->dy, rcv_net_output(reverse->net));
    turn_resets(reverse);
}

static bool is_listed(const rcv_plan *plan, const char *schedule) {
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        if (!strcmp(rcv_plan_candidate(plan, i)->schedule, schedule)) return true;
    }
    return false;
}

/* Whether the plan applies; then its results are compared. In double and without lengths they have the bits of the forward network's. */
static bool check_plan(const problem *forward, const problem *reverse, rcv_dtype dtype, bool training,
                       const char *schedule, const results *want) {
    rcv_plan_options options = options_of(reverse, dtype, training, schedule);
    rcv_plan *plan = NULL;
    double worst = 0;
    results got, same;
    rcv_status status = rcv_plan_new(reverse->net, &options, &plan);
    if (status == RCV_UNSUPPORTED) return false;
    check_ok(status);
    run_plan(reverse, plan, dtype, training, &got);
    turn_results(reverse, &got);
    compare(reverse, dtype, schedule, &got, want, &worst);
    if (!forward->c.lengths && !strstr(schedule, "blas") && !strstr(schedule, "vendor")) {
        run_pinned(forward, dtype, training, schedule, &same);
        check_same_bits(schedule, &got, &same);
        drop(&same);
    }
    drop(&got);
    rcv_plan_free(plan);
    return true;
}

static void test_reverse(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t index = 0, run = 0, wavefronts = 0, vendors = 0;
    for (size_t i = 0; i < 6 * sizeof configs / sizeof *configs; i++) {
        problem forward, reverse;
        results want;
        bool training = i % 2;
        rcv_dtype dtype = dtypes[i / 2 % 3];
        open_pair(&configs[i / 6], &forward, &reverse);
        run_pinned(&forward, RCV_FLOAT64, training, "naive", &want);
        rcv_plan *plan = NULL;
        rcv_plan_options options = options_of(&reverse, dtype, training, NULL);
        options.effort = RCV_ESTIMATE;
        check_ok(rcv_plan_new(reverse.net, &options, &plan));
        for (size_t k = 0; k < rcv_plan_candidate_count(plan); k++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, k);
            if (c->status || !sample_takes(index++)) continue;
            assert_true(check_plan(&forward, &reverse, dtype, training, c->schedule, &want));
            run++;
            wavefronts += strstr(c->schedule, "wavefront") != NULL;
            vendors += strstr(c->schedule, "vendor") != NULL;
        }
        for (size_t k = 0; k < sizeof extras / sizeof *extras; k++) {
            if (is_listed(plan, extras[k]) || !sample_takes(index++)) continue;
            bool ran = check_plan(&forward, &reverse, dtype, training, extras[k], &want);
            run += ran;
            wavefronts += ran && strstr(extras[k], "wavefront");
        }
        rcv_plan_free(plan);
        drop(&want);
        close_problem(&forward);
        close_problem(&reverse);
    }
    print_message("%zu plans, %zu of them wavefronts, %zu by a vendor\n", run, wavefronts, vendors);
    assert_true(run > sample_least(400) && wavefronts > sample_least(20));
}

/* Names of parameters and sizes of states are those of one direction. */
static void test_parameters(void **state) {
    (void)state;
    problem p;
    open_problem(
        &p, &(config){"lstm", {.input = 3, .hidden = 4, .layers = 2, .reverse = true}, 5, 2, false, false, true}, 1);
    assert_int_equal(rcv_net_parameter_count(p.net), 8);
    assert_string_equal(rcv_net_parameter(p.net, 0)->name, "weight_ih_l0");
    assert_string_equal(rcv_net_parameter(p.net, 7)->name, "bias_hh_l1");
    assert_int_equal(rcv_net_output(p.net), 4);
    assert_int_equal(rcv_net_state(p.net, 0)->total, 8);
    assert_true(rcv_net_get_options(p.net)->reverse);
    rcv_net *both = NULL;
    check_fails(rcv_net_new(p.cell,
                            &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .bidirectional = true, .reverse = true),
                            &both),
                RCV_INVALID, "bidirectional and reverse exclude each other");
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reverse), cmocka_unit_test(test_parameters)};
    return cmocka_run_group_tests_name("reverse", tests, NULL, NULL);
}

/* Plans with another plan for calls of few sequences (small_batch), against the two plans apart: shared by tests of the CPU and of GPUs. */
#ifndef RECURVE_SMALL_BATCHES_H
#define RECURVE_SMALL_BATCHES_H

#include "reserves.h"

typedef struct {
    const char *large, *small; /* plan strings; NULL: the same */
} plan_pair;

static inline rcv_plan_options pair_options(const problem *p, rcv_dtype dtype, const plan_pair *pair) {
    rcv_plan_options o = options_of(p, dtype, true, pair->large);
    o.small_batch = p->c.batch / 2;
    o.small_schedule = pair->small;
    return o;
}

/* A call of these sizes by a new run of the plan for them alone. */
static inline void run_apart(const problem *p, rcv_dtype dtype, const plan_pair *pair, int64_t steps, int64_t batch,
                             results *want) {
    rcv_plan_options o = pair_options(p, dtype, pair);
    bool small = batch <= o.small_batch;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    data d;
    if (small) o.batch = o.small_batch;
    if (small && pair->small) o.schedule = pair->small;
    o.small_batch = 0;
    o.small_schedule = NULL;
    check_ok(rcv_plan_new(p->net, &o, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, p, dtype);
    check_ok(call_at(&d, run, true, steps, batch));
    check_ok(rcv_run_wait(run));
    close_data(&d, true, want);
    rcv_run_free(run);
    rcv_plan_free(plan);
}

/* Calls of few and of many sequences in turns. The parameters change now and then: what one plan has packed is then old for the other, even
 * where they are the same as in the last call. */
static inline void check_pair(problem *p, rcv_dtype dtype, const plan_pair *pair) {
    enum { CALLS = 14 };
    rcv_plan_options o = pair_options(p, dtype, pair);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check_ok(rcv_plan_new(p->net, &o, &plan));
    const rcv_plan *small = rcv_plan_small(plan);
    assert_non_null(small);
    assert_string_equal(rcv_plan_string(plan), pair->large);
    assert_string_equal(rcv_plan_string(small), pair->small ? pair->small : pair->large);
    check_ok(rcv_run_new(plan, &run));
    assert_true(rcv_plan_bytes(plan) > rcv_plan_bytes(small));
    assert_int_equal(rcv_run_bytes(run), rcv_plan_bytes(plan));
    for (int k = 0; k < CALLS; k++) {
        int64_t batches[] = {p->c.batch, o.small_batch, o.small_batch + 1, 1}, batch = batches[k * k % 7 % 4];
        int64_t steps = k % 2 ? p->c.steps : 1 + k % p->c.steps;
        bool changes = k % 3 == 0;
        results want, got;
        data d;
        for (int64_t i = 0; i < p->parameter_count && changes; i++) p->parameters[i] *= 0.9375;
        run_apart(p, dtype, pair, steps, batch, &want);
        open_data(&d, p, dtype);
        d.forward.same_parameters = !changes;
        check_ok(call_at(&d, run, true, steps, batch));
        check_ok(rcv_run_wait(run));
        close_data(&d, true, &got);
        check_equal(pair->large, k, &want, &got);
        drop(&want);
        drop(&got);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
}

/* Forward calls of both kinds with reserves, then their backward calls from the last to the first: the bits of calls one by one. */
static inline void check_pair_reserves(const problem *p, rcv_dtype dtype, const plan_pair *pair) {
    rcv_plan_options o = pair_options(p, dtype, pair);
    results want[RESERVE_CALLS];
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    int kinds[2] = {0};
    check_ok(rcv_plan_new(p->net, &o, &plan));
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < RESERVE_CALLS; k++) {
        reserved_call once;
        open_call(&once, p, dtype, NULL, k);
        kinds[once.d.forward.batch <= o.small_batch]++;
        check_ok(rcv_run_forward(run, &once.d.forward));
        check_ok(rcv_run_backward(run, &once.d.backward));
        check_ok(rcv_run_wait(run));
        close_call(&once, &want[k]);
    }
    assert_true(kinds[0] > 1 && kinds[1] > 1);
    rcv_run_free(run);
    rcv_plan_free(plan);
    o.reserve = true;
    check_ok(rcv_plan_new(p->net, &o, &plan));
    assert_true(rcv_plan_reserve_bytes(plan) >= rcv_plan_reserve_bytes(rcv_plan_small(plan)));
    check_in_reverse(p, dtype, plan, pair->large, want);
    rcv_plan_free(plan);
}

#endif

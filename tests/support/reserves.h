/* Several forward calls before their backward calls, and backward calls that are repeated: shared by tests of the CPU and of GPUs. */
#ifndef RECURVE_RESERVES_H
#define RECURVE_RESERVES_H

#include "planned.h"

enum { RESERVE_CALLS = 8, RESERVE_BYTES_ALIGN = 64 };

/* Sizes of call k: all different, the first one is the plan's. */
static inline void size_of_call(const problem *p, int k, int64_t *steps, int64_t *batch) {
    *steps = k ? 1 + (p->c.steps + 3 * k) % p->c.steps : p->c.steps;
    *batch = k ? 1 + (p->c.batch + 5 * k) % p->c.batch : p->c.batch;
}

/* Arrays, lengths and reserve of one call. */
typedef struct {
    data d;
    int64_t *lengths;
    void *reserve, *block;
} reserved_call;

static inline void open_call(reserved_call *c, const problem *p, rcv_dtype dtype, const rcv_plan *plan, int k) {
    open_data(&c->d, p, dtype);
    size_of_call(p, k, &c->d.forward.steps, &c->d.forward.batch);
    c->d.forward.seed = 100 + (uint64_t)k;
    c->lengths = malloc((size_t)p->c.batch * sizeof *c->lengths);
    assert_non_null(c->lengths);
    for (int64_t b = 0; b < p->c.batch; b++) c->lengths[b] = 1 + (p->lengths[b] + k) % c->d.forward.steps;
    if (p->c.lengths) c->d.forward.lengths = c->lengths;
    c->block = c->reserve = NULL;
    size_t bytes = plan ? rcv_plan_reserve_bytes(plan) : 0;
    if (!plan) return;
    assert_true(bytes > 0);
    check_ok(rcv_memory_new(p->context, p->device, bytes + 2 * RESERVE_BYTES_ALIGN, &c->block));
    uintptr_t at = (uintptr_t)c->block / (2 * RESERVE_BYTES_ALIGN) * (2 * RESERVE_BYTES_ALIGN) + RESERVE_BYTES_ALIGN;
    if (at < (uintptr_t)c->block) at += 2 * RESERVE_BYTES_ALIGN; /* an odd multiple: no reserve is aligned any better */
    c->d.forward.reserve = c->reserve = (void *)at;
}

static inline void close_call(reserved_call *c, results *r) {
    rcv_memory_free(c->d.p->context, c->d.p->device, c->block);
    free(c->lengths);
    close_data(&c->d, true, r);
}

static inline void check_equal(const char *schedule, int call, const results *a, const results *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        if (memcmp(a->values[i], b->values[i], (size_t)a->counts[i] * sizeof(double)))
            fail_msg("%s: %s of call %d differs", schedule, a->names[i], call);
    }
}

/* Forward and backward calls one by one, in a run with a reserve of its own; every backward call twice. want: [RESERVE_CALLS] */
static inline void run_one_by_one(const problem *p, rcv_dtype dtype, const char *schedule, results *want) {
    rcv_plan_options options = options_of(p, dtype, true, schedule);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < RESERVE_CALLS; k++) {
        reserved_call once, twice;
        results again;
        open_call(&once, p, dtype, NULL, k);
        open_call(&twice, p, dtype, NULL, k);
        check_ok(rcv_run_forward(run, &once.d.forward));
        check_ok(rcv_run_backward(run, &once.d.backward));
        check_ok(rcv_run_forward(run, &twice.d.forward));
        check_ok(rcv_run_backward(run, &twice.d.backward));
        check_ok(rcv_run_backward(run, &twice.d.backward));
        check_ok(rcv_run_wait(run));
        close_call(&once, &want[k]);
        close_call(&twice, &again);
        check_equal(schedule, k, &want[k], &again);
        drop(&again);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
}

/* All forward calls of a plan with reserves, then all backward calls from the last to the first: the same bits as `want`, which is dropped. */
static inline void check_in_reverse(const problem *p, rcv_dtype dtype, const rcv_plan *plan, const char *schedule,
                                    results *want) {
    reserved_call calls[RESERVE_CALLS];
    rcv_run *run = NULL;
    check_ok(rcv_run_new(plan, &run));
    for (int k = 0; k < RESERVE_CALLS; k++) {
        open_call(&calls[k], p, dtype, plan, k);
        check_ok(rcv_run_forward(run, &calls[k].d.forward));
    }
    for (int k = RESERVE_CALLS; k-- > 0;) {
        calls[k].d.backward.forward = &calls[k].d.forward;
        check_ok(rcv_run_backward(run, &calls[k].d.backward));
    }
    check_ok(rcv_run_wait(run));
    for (int k = 0; k < RESERVE_CALLS; k++) {
        results got;
        close_call(&calls[k], &got);
        check_equal(schedule, k, &want[k], &got);
        drop(&got);
        drop(&want[k]);
    }
    rcv_run_free(run);
}

/* The same of a pinned plan. */
static inline void check_reserves(const problem *p, rcv_dtype dtype, const char *schedule) {
    results want[RESERVE_CALLS];
    rcv_plan *plan = NULL;
    run_one_by_one(p, dtype, schedule, want);
    rcv_plan_options options = options_of(p, dtype, true, schedule);
    options.reserve = true;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_in_reverse(p, dtype, plan, schedule, want);
    rcv_plan_free(plan);
}

#endif

/* Plans by RCV_BACKGROUND whose searches wait at a gate, shared by the tests of versions and of searches. */
#ifndef RECURVE_GATED_PLANS_H
#define RECURVE_GATED_PLANS_H

#include "plan/background.h"
#include "plan/search.h"
#include "reserves.h"

#include <stdatomic.h>
#include <time.h>

static const config middle = {"lstm", {.input = 24, .hidden = 32, .layers = 2, .dropout = 0.3}, 12, 8, true, false,
                              true};

static inline void sleep_milliseconds(int count) {
    for (int i = 0; i < count; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* What a search asks, and what it is told. */
typedef struct {
    atomic_bool open, refuses; /* the gate at which searches wait; what go_on answers */
    atomic_int asked, inside, most_inside, replaced;
} gate;

static inline bool pass_gate(void *user) {
    gate *g = user;
    atomic_fetch_add(&g->asked, 1);
    int inside = atomic_fetch_add(&g->inside, 1) + 1;
    if (inside > atomic_load(&g->most_inside)) atomic_store(&g->most_inside, inside);
    while (!atomic_load(&g->open)) sleep_milliseconds(1);
    atomic_fetch_sub(&g->inside, 1);
    return !atomic_load(&g->refuses);
}

static inline void count_replaced(void *user) { atomic_fetch_add(&((gate *)user)->replaced, 1); }

static inline rcv_plan_options gated(const problem *p, bool training, gate *g) {
    rcv_plan_options o = options_of(p, RCV_FLOAT32, training, NULL);
    o.effort = RCV_BACKGROUND;
    o.go_on = pass_gate;
    o.replaced = count_replaced;
    o.user = g;
    return o;
}

/* A plan of this device with this first version. */
static inline rcv_plan *start_with(const char *first, const problem *p, const rcvi_device *device,
                                   const rcv_plan_options *options) {
    rcv_plan *plan = NULL;
    rcvi_problem q = {.net = p->net, .options = options, .device = device};
    rcvi_rungs rungs;
    check_ok(device->describe(p->context, 0, options->dtype, 1, &q.machine));
    if (device->describe_libraries) device->describe_libraries(0, &q.machine);
    check_ok(rcvi_rungs_read(first, &rungs));
    check_ok(rcvi_plan_make(&q, &rungs, &plan));
    check_ok(rcvi_plan_serve_sizes(plan));
    check_ok(rcvi_background_start(&q, plan));
    return plan;
}

/* Its first version is naive, which every search improves on. */
static inline rcv_plan *start(const problem *p, const rcv_plan_options *options) {
    return start_with("naive", p, &rcvi_device_cpu, options);
}

static inline void call(rcv_run *run, data *d) {
    check_ok(rcv_run_forward(run, &d->forward));
    check_ok(rcv_run_backward(run, &d->backward));
}

#endif

/* Shared by the tests of timing: a clock that the fake devices advance, engines that hold a program and nothing else, and a few
 * ways to look at plans. */
#ifndef RECURVE_FAKE_DEVICE_H
#define RECURVE_FAKE_DEVICE_H

#include "plan/search.h"
#include "planned.h"

static double clock_seconds = 1000;
double rcvi_now(void) { return clock_seconds; } /* instead of the library's */

struct rcvi_engine {
    const rcvi_program *program;
};

static inline rcv_status prepare_nothing(const rcvi_program *program, rcvi_engine **engine) {
    *engine = rcvi_new(program->net->context, 1, sizeof **engine);
    if (!*engine) return RCV_NO_MEMORY;
    (*engine)->program = program;
    return RCV_OK;
}

static inline void release_nothing(rcvi_engine *engine) { rcvi_free(engine->program->net->context, engine); }
static inline size_t no_bytes(const rcvi_engine *engine) { return (void)engine, 0; }

static const config middle = {"lstm", {.input = 32, .hidden = 32, .layers = 2}, 40, 16, false, false, false};

static inline void done(problem *p, rcv_plan *plan) {
    rcv_plan_free(plan);
    close_problem(p);
}

static inline const rcv_candidate *candidate_of(const rcv_plan *plan, const char *string) {
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (!strcmp(c->schedule, string)) return c;
    }
    fail_msg("%s is no candidate", string);
    return NULL;
}

#endif

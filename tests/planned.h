/* A network with data, and plans of it held against one another: shared by the planner's tests. */
#ifndef RECURVE_PLANNED_H
#define RECURVE_PLANNED_H

#include "probe.h"

typedef struct {
    const char *cell;
    rcv_net_options net;
    int64_t steps, batch;
    bool lengths, resets, initial;
} config;

enum { MAX_STATES = 8, MAX_TENSORS = 3 + 2 * MAX_STATES };

/* All that a call gives back, in double. */
typedef struct {
    const char *names[MAX_TENSORS];
    double *values[MAX_TENSORS];
    int64_t counts[MAX_TENSORS];
    int count;
} results;

typedef struct {
    config c;
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    int64_t x_count, y_count, parameter_count, state_counts[MAX_STATES];
    size_t states;
    double *x, *dy, *parameters, *initial[MAX_STATES], *dfinal[MAX_STATES];
    int64_t *lengths;
    uint8_t *resets;
} problem;

void open_problem(problem *p, const config *c, int64_t threads);
void close_problem(problem *p);
rcv_plan_options options_of(const problem *p, rcv_dtype dtype, bool training, const char *schedule);

/* Runs the plan that a string pins, in a run of its own; twice in it, the second time with parameters that have not
 * changed. */
void run_pinned(const problem *p, rcv_dtype dtype, bool training, const char *schedule, results *r);
void drop(results *r);

/* Fails where the results of a plan in this type are too far from those in double; `worst` keeps the largest error
 * relative to a tensor's largest element. */
void compare(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst);
void check_same_bits(const char *schedule, const results *a, const results *b);

#endif

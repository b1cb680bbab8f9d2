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

enum { MAX_STATES = 32, MAX_TENSORS = 3 + 3 * MAX_STATES };

/* All that a call gives back, in double. */
typedef struct {
    const char *names[MAX_TENSORS];
    double *values[MAX_TENSORS];
    int64_t counts[MAX_TENSORS];
    int count;
} results;

typedef struct {
    config c;
    const char *device; /* of its plans; NULL, the CPU, once it is opened */
    bool restart;       /* whether resets return to states of their own; false once it is opened */
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    int64_t x_count, y_count, parameter_count, state_counts[MAX_STATES];
    size_t states;
    double *x, *dy, *parameters, *initial[MAX_STATES], *dfinal[MAX_STATES], *again[MAX_STATES];
    int64_t *lengths;
    uint8_t *resets;
} problem;

void open_problem(problem *p, const config *c, int64_t threads);
/* With the cell of this text, which messages call c->cell. NULL: as open_problem. */
void open_problem_of(problem *p, const config *c, const char *text, int64_t threads);
void close_problem(problem *p);
rcv_plan_options options_of(const problem *p, rcv_dtype dtype, bool training, const char *schedule);

/* A problem's data in a plan's type and in the memory of the problem's device, and calls that point to it. Outputs are
 * poisoned, and behind every tensor of a GPU lie bytes that must not change. Not to be copied. */
typedef struct {
    const problem *p;
    rcv_dtype dtype;
    void *parameters, *x, *y, *dy, *dx, *dparameters;
    void *initial[MAX_STATES], *final[MAX_STATES], *dfinal[MAX_STATES], *dinitial[MAX_STATES];
    void *again[MAX_STATES], *dagain[MAX_STATES]; /* the states of restarts */
    uint8_t *resets;
    rcv_forward forward;
    rcv_backward backward;
} data;

void open_data(data *d, const problem *p, rcv_dtype dtype);
/* What lies in the outputs; r may be NULL. Fails where a call wrote to an input, or behind a tensor. */
void close_data(data *d, bool training, results *r);
void drop(results *r);

/* Runs a plan in a run of its own; twice in it, the second time with parameters that have not changed. */
void run_plan(const problem *p, const rcv_plan *plan, rcv_dtype dtype, bool training, results *r);
/* The same of the plan that a string pins. */
void run_pinned(const problem *p, rcv_dtype dtype, bool training, const char *schedule, results *r);
/* The naive plan in double on the CPU. */
void run_oracle(const problem *p, bool training, results *r);

/* Fails where the results of a plan in this type are too far from those in double; `worst` keeps the largest error
 * relative to a tensor's largest element. */
void compare(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst);
void check_same_bits(const char *schedule, const results *a, const results *b);
/* The same without failing: whether it is so, else a sentence. */
bool is_near(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst, char *sentence, size_t room);
/* The same of a problem that may enlarge roundings: `shaken` are the naive schedule's results in double with every input, parameter
 * and state moved by up to four roundings of the type: so many, because what lies near a kink must show on its other side in some draw. Where
 * that changes a tensor by more than the tolerance, so may a plan, which rounds at every step: SHAKEN times as much. Gradients of x
 * and of states count as exact as the largest of them: that of a stabiliser is zero, but only where all terms cancel. NULL: as is_near. */
enum { SHAKEN = 2 };
bool is_near_shaken(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
                    const results *shaken, double *worst, char *sentence, size_t room);
bool has_same_bits(const char *schedule, const results *a, const results *b, char *sentence, size_t room);

#endif

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
    const char *device;             /* of its plans; NULL, the CPU, once it is opened */
    bool restart;                   /* whether resets return to states of their own; false once it is opened */
    bool separate;                  /* whether parameters and gradients are tensors apart; false once it is opened */
    int64_t most_steps, most_batch; /* sizes that its plans are made for; 0 once it is opened: those of its calls */
    /* Types that plans but the oracle's declare; those of the plan once it is opened. */
    rcv_array_type data_type, state_type, parameter_type, gradient_type;
    bool batch_major; /* data of plans but the oracle's; false once it is opened */
    bool
        device_lengths; /* of plans but the oracle's, whose lengths are then out of range here and there; false once it is opened */
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
/* A pinned plan with blas, where there is no OpenBLAS: such plans do not apply. */
bool lacks_openblas(const char *schedule);
rcv_plan_options options_of(const problem *p, rcv_dtype dtype, bool training, const char *schedule);

/* A problem's data in a plan's type and in the memory of the problem's device, and calls that point to it. Outputs are
 * poisoned, and behind every tensor of a GPU lie bytes that must not change. Not to be copied. */
typedef struct {
    const problem *p;
    rcv_dtype dtype, data_dtype, state_dtype;  /* of the plan, of x, y and their gradients, of states */
    rcv_dtype parameter_dtype, gradient_dtype; /* of parameters, of their gradients */
    void *parameters, *x, *y, *dy, *dx, *dparameters;
    void **tensors, **dtensors; /* where the problem separates parameters; each in a block of its own, `blocks` */
    void **blocks, **dblocks;   /* all four: [rcv_net_parameter_count()] */
    void *initial[MAX_STATES], *final[MAX_STATES], *dfinal[MAX_STATES], *dinitial[MAX_STATES];
    void *again[MAX_STATES], *dagain[MAX_STATES]; /* the states of restarts */
    uint8_t *resets;
    int64_t *lengths; /* where they lie in the device's memory; else NULL */
    rcv_forward forward;
    rcv_backward backward;
} data;

/* The number of this type that is nearest; to even of two. */
double round_to(rcv_dtype dtype, double value);

void open_data(data *d, const problem *p, rcv_dtype dtype);
/* What lies in the outputs; r may be NULL. Gradients of separate tensors are one result, as a flat array has them. Fails where a call wrote to an input, or behind a tensor. */
void close_data(data *d, bool training, results *r);
void drop(results *r);

/* A call of sizes of its own, at most the problem's, on the beginning of the problem's arrays: changes what lies in the outputs. */
rcv_status call_at(data *d, rcv_run *run, bool training, int64_t steps, int64_t batch);
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

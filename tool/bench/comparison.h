/* A comparison: implementations of one computation, timed in turns in one process. Every implementation runs once in each round, so that
 * other load on the machine slows all of them. */
#ifndef TOOL_BENCH_COMPARISON_H
#define TOOL_BENCH_COMPARISON_H

#include "bench/results.h"

/* ---- inputs and results of a call ---- */

/* Arrays in the memory of the device. */
typedef struct {
    void *parameters, *x, *dy;
    void *y, *dx, *dparameters;
} device_arrays;

/* Every implementation reads the same inputs, and leaves y (in training also dparameters) in the same host memory, where they are compared
 * with those of the first implementation. Elements are float32 or float64. */
typedef struct call_tensors {
    rcv_dtype storage;
    bool training;
    int64_t x_count, y_count, parameter_count; /* [steps, batch, input], [steps, batch, output], flat */
    void *parameters, *x, *dy;
    void *y, *dx, *dparameters; /* dx and dparameters in training only */
    void *y_first, *dparameters_first;
    bool first_is_known;
    rcv_context *context;
    const char *device;
    bool has_device_memory;  /* the device's memory is not the host's */
    device_arrays on_device; /* filled by call_tensors_send; where the device uses host memory, the arrays above */
} call_tensors;

void call_tensors_new(call_tensors *tensors, const problem *problem, const rcv_net *net, uint64_t seed);
void call_tensors_free(call_tensors *tensors);
/* Copies the inputs to the device. Does nothing where they are there already. */
rcv_status call_tensors_send(call_tensors *tensors);
/* Sets all results to NaN, so that an implementation that writes nothing is noticed. */
rcv_status call_tensors_poison(call_tensors *tensors);
/* Copies results from the device to the host; in training the gradients of the parameters too, if `gradients`. */
rcv_status call_tensors_fetch(call_tensors *tensors, bool gradients);
/* Pseudorandom numbers, uniform in -scale..scale. */
void fill_random(rcv_dtype storage, void *values, int64_t count, double scale, uint64_t seed);
/* The largest difference of a and b over the largest element of b. */
double relative_difference(rcv_dtype storage, const void *a, const void *b, int64_t count);

/* ---- implementations ---- */

typedef struct implementation implementation;

struct implementation {
    measurement measured;
    bool gradients_compare;  /* its parameters have the layout of the first implementation's */
    bool keeps_threads_busy; /* its threads poll for a while after a call */
    bool is_asynchronous;    /* calls return before the work is done: many calls are timed with one wait */

    /* Seconds that `repeats` calls took; below 0 after setting `refusal`. */
    double (*run)(implementation *self, int64_t repeats);
    /* Copies the latest results into the tensors; NULL: they are there. */
    bool (*fetch)(implementation *self);
    void (*close)(implementation *self); /* may be NULL */
    void *state;
    int64_t repeats; /* calls of a turn */
};

typedef struct {
    implementation items[MAXIMUM_IMPLEMENTATIONS];
    size_t count;
    size_t rounds;
    double turn; /* seconds that a turn takes at least; 0: as long as the clock needs */
} comparison;

/* Adds an implementation that has nothing but its name. */
implementation *comparison_add(comparison *comparison, const char *name);
void implementation_refuse(implementation *implementation, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void comparison_remove_last(comparison *comparison);
/* Closes all implementations and moves what was measured to `measured`. The comparison is empty then. */
void comparison_end(comparison *comparison, measurements *measured);
void comparison_free(comparison *comparison);

/* Runs each implementation once and compares its results (tensors NULL: does not), then times rounds until `seconds` have passed and at
 * least `least` rounds are done, or until a signal asks to stop. `peak` is sampled between rounds; it may be NULL. */
void comparison_measure(comparison *comparison, const problem *problem, call_tensors *tensors, peak *peak,
                        const char *title, double seconds, size_t least);

/* A plan of recurve for this network; `parameters` are in host memory; schedule NULL: the planner chooses. */
implementation *comparison_add_plan(comparison *comparison, const char *name, const problem *problem,
                                    const rcv_net *net, call_tensors *tensors, const void *parameters,
                                    const char *schedule);
/* Of an implementation of comparison_add_plan; NULL where it was refused. */
const rcv_plan *implementation_plan(const implementation *implementation);
rcv_run *implementation_run(const implementation *implementation);

/* Written by hand on OpenBLAS: one input product a layer over all steps, one recurrent product a step, one loop over the elements. */
implementation *comparison_add_openblas(comparison *comparison, const problem *problem, call_tensors *tensors);
/* torch.nn in a child process with python3, on the problem's device. */
implementation *comparison_add_torch(comparison *comparison, const problem *problem, call_tensors *tensors);

/* ---- the machine's limit ---- */

/* `seconds` is the time of each experiment. One sample is enough on a GPU, and for an experiment that is shorter than several samples. */
void peak_begin(peak *peak, const problem *problem, double seconds);
void peak_sample(peak *peak, const problem *problem); /* does nothing once there are `most` samples */
double peak_best(const peak *peak);                   /* the maximum: other load only lowers a sample; 0: not known */

/* ---- helpers ---- */

double median(double *values, size_t count); /* sorts the values; 0 of none */
double quantile(const double *sorted, size_t count, double share);
/* A line on standard error that the next one overwrites; only on a terminal. */
void show_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void hide_progress(void);

#endif

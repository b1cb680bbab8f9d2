/* Trials: runs of plans on generated data, timed. */
#ifndef RCVI_TRIAL_H
#define RCVI_TRIAL_H

#include "plan/plan.h"

enum { RCVI_MAX_SAMPLES = 16 };

/* A candidate, and its trial: a plan for the problem or for a part of it. */
typedef struct {
    rcvi_rungs rungs;
    rcv_candidate shown; /* what the caller sees; texts in the search's pool */
    rcv_plan *plan;      /* of the problem while it is estimated, then of the trial; NULL: not made */
    rcv_run *run;        /* of the trial; NULL: closed */
    bool warm;           /* it has run since it was opened */
    double estimate;     /* of the trial */
    double samples[RCVI_MAX_SAMPLES];
    int sample_count;
    bool remaining;    /* neither refused nor dropped */
    bool is_too_large; /* its trial needs more memory than there is for trials */
} rcvi_candidate;

/* What trials share: the problem, the memory limit and the data. */
typedef struct {
    rcvi_problem problem; /* of the trials, except for the number of steps */
    rcv_context *context;
    rcvi_pool *pool;   /* for messages of refusal */
    double sample;     /* seconds that a sample should take: short runs are repeated */
    size_t memory;     /* bytes that trials may take at once */
    size_t open_bytes; /* that they take */
    int64_t runs;      /* so far */
    void *stream;      /* of the trials; NULL: the device's default stream */
    double rested;     /* seconds of pauses */
    /* Data for trials of up to `steps` steps; elements of the plan's type. */
    int64_t steps;
    char *block; /* data in the host's memory, or */
    void *there; /* in the device's, where that has its own */
    void *parameters, *x, *y, *dy, *dx, *dparameters, *resets;
    int64_t *lengths;
    void *lengths_there; /* the same in the device's memory, where calls give them there */
    void **tensors;      /* [2 * parameter_count] of parameters, then of their gradients; NULL: these are flat arrays */
} rcvi_bench;

/* After a failure rcvi_bench_end does nothing. */
rcv_status rcvi_bench_begin(rcvi_bench *bench, const rcvi_problem *problem, rcvi_pool *pool);
void rcvi_bench_end(rcvi_bench *bench); /* trials are closed by then */

/* Beside a caller: pauses for `factor` times these seconds; returns the seconds of the pause. */
double rcvi_rest(const rcvi_problem *problem, double factor, double seconds);

/* The clock of a search: seconds without its pauses. */
double rcvi_bench_now(const rcvi_bench *bench);

/* Calls the caller's go_on; RCV_STOPPED where that answers false. `runs` trials have been run so far. */
rcv_status rcvi_ask_to_go_on(const rcv_plan_options *options, int64_t runs);
rcv_status rcvi_stop_planning(int64_t runs); /* RCV_STOPPED */

/* Makes the trial's plan with this many steps; sets its estimate. */
rcv_status rcvi_trial_make(rcvi_bench *bench, rcvi_candidate *candidate, int64_t steps);
/* False where the trial needs more memory than there is; sets the bytes that its next run touches for the first time. */
bool rcvi_trial_fits(const rcvi_bench *bench, rcvi_candidate *candidate, double *fresh);
/* Is there memory for the trial beside those that are open? */
bool rcvi_trial_fits_beside(const rcvi_bench *bench, const rcvi_candidate *candidate);
/* One run, after a call of go_on; opens the trial where it is closed. 0 seconds where the device refuses: that is then the candidate's
 * refusal. */
rcv_status rcvi_trial_run(rcvi_bench *bench, rcvi_candidate *candidate, double *seconds);
/* So many runs, waited for once: the sum of their seconds. */
rcv_status rcvi_trial_repeat(rcvi_bench *bench, rcvi_candidate *candidate, int count, double *seconds);
/* Adds a sample; shown.seconds becomes the lower quartile of all. Where the first run already takes more than `enough` seconds, it is the
 * sample. */
rcv_status rcvi_trial_sample(rcvi_bench *bench, rcvi_candidate *candidate, double enough);
void rcvi_trial_close(rcvi_bench *bench, rcvi_candidate *candidate);

/* Runs two plans of the problem in turns, a few times each. *ratio is the median of the seconds of `plan` divided by those of `other` in the same
 * turn; infinity where the device refuses `plan` alone; 0 where there is no memory for both, or it refuses both. */
rcv_status rcvi_compare_plans(const rcvi_problem *problem, rcv_plan *plan, rcv_plan *other, double *ratio);

/* Notes a failure and its message as the candidate's refusal; returns RCV_NO_MEMORY as it is. */
rcv_status rcvi_refuse(rcvi_pool *pool, rcvi_candidate *candidate, rcv_status status);

#endif

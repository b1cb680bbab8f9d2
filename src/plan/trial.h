/* Trials: plans run on made-up data, and timed. */
#ifndef RCVI_TRIAL_H
#define RCVI_TRIAL_H

#include "plan/plan.h"

enum { RCVI_MAX_SAMPLES = 16 };

/* A candidate, and its trial: a plan for the problem or for a part of it. */
typedef struct {
    rcvi_rungs rungs;
    rcv_candidate shown; /* texts in the search's pool */
    rcv_plan *plan;      /* for the problem while it is judged, then for the trial; NULL: not made */
    rcv_run *run;        /* of the trial; NULL: closed */
    bool warm;           /* it has run since it was opened */
    double estimate;     /* of the trial */
    double samples[RCVI_MAX_SAMPLES];
    int sample_count;
    bool racing; /* neither refused nor beaten */
} rcvi_candidate;

/* Where trials are run. */
typedef struct {
    rcvi_problem problem; /* theirs, but for the number of steps */
    rcv_context *context;
    rcvi_pool *pool;   /* for sentences of refusal */
    double sample;     /* seconds that a sample should take: short runs are repeated */
    size_t memory;     /* bytes that trials may take at once */
    size_t open_bytes; /* that they take */
    int64_t runs;      /* so far */
    /* Data for trials of up to `steps` steps; elements of the plan's type. */
    int64_t steps;
    char *block; /* data in the host's memory, or */
    void *there; /* in the device's, where that has its own */
    void *parameters, *x, *y, *dy, *dx, *dparameters, *resets;
    int64_t *lengths;
} rcvi_bench;

void rcvi_bench_begin(rcvi_bench *bench, const rcvi_problem *problem, rcvi_pool *pool);
void rcvi_bench_end(rcvi_bench *bench); /* trials are closed by then */

/* RCV_STOPPED where the caller wants no more after this many runs. */
rcv_status rcvi_ask_to_go_on(const rcv_plan_options *options, int64_t runs);

/* The trial with this many steps; sets its estimate. */
rcv_status rcvi_trial_make(rcvi_bench *bench, rcvi_candidate *contender, int64_t steps);
/* Bytes that the next run touches for the first time; false where it takes more memory than there is. */
bool rcvi_trial_fits(const rcvi_bench *bench, const rcvi_candidate *contender, double *fresh);
/* One run, opened where it is not, after asking the caller; 0 seconds where its device refuses, which then is the
 * candidate's refusal. */
rcv_status rcvi_trial_run(rcvi_bench *bench, rcvi_candidate *contender, double *seconds);
/* So many runs, one behind the other, that are waited for once: their seconds together. */
rcv_status rcvi_trial_repeat(rcvi_bench *bench, rcvi_candidate *contender, int count, double *seconds);
/* One more sample, and shown.seconds as the lower quartile of all. A first run that shows more than `enough` seconds
 * suffices. */
rcv_status rcvi_trial_sample(rcvi_bench *bench, rcvi_candidate *contender, double enough);
void rcvi_trial_close(rcvi_bench *bench, rcvi_candidate *contender);

/* Keeps a failure that belongs to a candidate with its sentence; one of memory is handed on. */
rcv_status rcvi_refuse(rcvi_pool *pool, rcvi_candidate *contender, rcv_status status);

#endif

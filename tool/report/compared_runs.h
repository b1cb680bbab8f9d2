/* Runs that are compared: what their logs say, and which of them train the same model the same way. */
#ifndef TOOL_REPORT_COMPARED_RUNS_H
#define TOOL_REPORT_COMPARED_RUNS_H

#include "report/training_log.h"

typedef enum { ONE_RANK, DATA, PIPELINE, HYBRID, ARRANGEMENTS } arrangement;

typedef struct {
    const char *name; /* of the log, without folders */
    training_log log;
    double replicas, stages, micro_batches, time_chunks;
    const char *split;
    double speed; /* tokens a second; NaN: not known */
    double loss;  /* the last mean that was logged; NaN: none was */
    size_t model; /* the first run that this one can be compared with */
} run;

/* False after saying what is wrong with one. */
bool runs_read(run *runs, const char *const *paths, size_t count);
void runs_free(run *runs, size_t count);

double run_ranks(const run *run);
arrangement run_arrangement(const run *run);
/* Seconds of training until the logged mean loss was at most `loss`; NaN: it never was. */
double run_seconds_to(const run *run, double loss);
/* The settings in which a run's model or way of learning is another, "hidden (64, not 32)", for free(); NULL: none is. */
char *run_difference(const run *one, const run *from);
bool run_shares(const run *one, const run *with, const char *setting); /* has it the same value in both? */

/* Does a setting say how a run goes, and not what is learnt? */
bool is_way_to_run(const char *setting);

#endif

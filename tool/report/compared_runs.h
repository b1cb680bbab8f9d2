/* Training runs that are compared: their logs, and which of them train the same model in the same way. */
#ifndef TOOL_REPORT_COMPARED_RUNS_H
#define TOOL_REPORT_COMPARED_RUNS_H

#include "report/training_log.h"

typedef enum { ONE_RANK, DATA, PIPELINE, HYBRID, ARRANGEMENTS } arrangement;

typedef struct {
    const char *name; /* file name of the log, without folders */
    training_log log;
    double replicas, stages, micro_batches, time_chunks;
    const char *split;
    double speed; /* tokens a second; NaN: not known */
    double loss;  /* the last mean loss in the log; NaN: none */
    size_t model; /* index of the first run with the same model and training */
} run;

/* False after saying what is wrong with a log. */
bool runs_read(run *runs, const char *const *paths, size_t count);
void runs_free(run *runs, size_t count);

double run_ranks(const run *run);
arrangement run_arrangement(const run *run);
/* Seconds of training until the mean loss in the log was at most `loss`; NaN: it never was. */
double run_seconds_to(const run *run, double loss);
/* The settings of model and training in which two runs differ, "hidden (64, not 32)", for free(); NULL: none. */
char *run_difference(const run *one, const run *from);
bool run_shares(const run *one, const run *with, const char *setting); /* is the value the same in both? */

/* Does a setting affect the execution only, and not what is learnt? */
bool is_execution_setting(const char *setting);

#endif

/* Training runs that are compared: their logs, and which of them train the same model in the same way. */
#ifndef TOOL_REPORT_COMPARED_RUNS_H
#define TOOL_REPORT_COMPARED_RUNS_H

#include "report/training/training_log.h"

typedef enum { ONE_RANK, DATA, PIPELINE, HYBRID, ARRANGEMENTS } arrangement;

typedef struct run {
    char *name; /* file name of the log; with its folders below those that all share, if names are not unique */
    const training_log *log;
    double replicas, stages, micro_batches, time_chunks;
    const char *split;
    double speed; /* tokens a second; NaN: not known */
    double loss;  /* the last mean loss in the log; NaN: none */
    size_t model; /* index of the first run with the same model and training */
} run;

/* The runs of the files; runs_free() frees them, and not the files. */
run *runs_new(const log_file *files, size_t count);
void runs_free(run *runs, size_t count);
/* The name of a run beside the others; for free(). */
char *run_name(const log_file *files, size_t count, size_t index);

double run_ranks(const run *run);
arrangement run_arrangement(const run *run);
/* Does a run of the same model have another number of ranks than one of the others? */
bool runs_differ_in_ranks(const run *runs, size_t count, size_t model);
/* Seconds of training until the mean loss in the log was at most `loss`; NaN: it never was. */
double run_seconds_to(const run *run, double loss);
double run_seconds(const run *run); /* of training; NaN: not known */
double run_updates(const run *run);
/* The settings of model and training in which two runs differ, "hidden (64, not 32)", for free(); NULL: none. */
char *run_difference(const run *one, const run *from);
bool run_shares(const run *one, const run *with, const char *setting); /* is the value the same in both? */
/* The value of a setting in the log, or its default; for free(). */
char *run_setting(const run *run, const char *setting);

/* Does a setting affect the execution only, and not what is learnt? */
bool is_execution_setting(const char *setting);

/* The settings of some runs: names in the order of the first run, then those that only others have. */
typedef struct {
    const char **names; /* NULL: there are none */
    size_t count;
} setting_names;

setting_names settings_of_runs(const run *runs, size_t count); /* names is for free() */
bool runs_share(const run *runs, size_t count, const char *setting);

#endif

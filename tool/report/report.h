/* HTML pages. A page is one file without scripts, and refers to nothing outside. It is written whole or not at all; on failure the functions
 * say what went wrong and return false. */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include "bench/results.h"

/* The results of recurve bench, to bench->report. */
bool write_bench_page(const bench *bench, const results *results);

/* What recurve report was asked for. One log: its curves, tables and settings. Several: they are laid over each other. */
typedef struct {
    const char *const *logs;
    size_t count;
    double
        loss; /* of several logs: the loss to which runs are timed; NaN: the largest final loss of the runs of a model */
    const char *output; /* the page */
    const char *json;   /* the summary of the runs, a path; "-": standard output; NULL: none */
} report;

bool write_report(const report *report, rcv_settings *settings);
/* Writes the page whenever a log has grown, until all runs have ended or a signal comes. Logs that do not exist yet are waited for. Returns the exit
 * status of the verb. */
int watch_report(const report *report, rcv_settings *settings);
/* Several training logs compared. */
bool write_comparison_page(const char *const *logs, size_t count, double loss, const char *output,
                           rcv_settings *settings);

#endif

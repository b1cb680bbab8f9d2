/* HTML pages. A page is one file without scripts, and refers to nothing outside. It is written whole or not at all; on failure the functions
 * say what went wrong and return false. */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include "bench/results.h"

/* The results of recurve bench, to bench->report. */
bool write_bench_page(const bench *bench, const results *results);
/* The curves, tables and settings of one training log. */
bool write_training_page(const char *log, const char *output, rcv_settings *settings);
/* Several training logs compared. loss: the loss to which runs are timed; NaN: the largest final loss of the runs of a model. */
bool write_comparison_page(const char *const *logs, size_t count, double loss, const char *output,
                           rcv_settings *settings);

#endif

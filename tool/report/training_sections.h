/* The sections of the pages of recurve report: of one training log, and of several that are compared. */
#ifndef TOOL_REPORT_TRAINING_SECTIONS_H
#define TOOL_REPORT_TRAINING_SECTIONS_H

#include "report/compared_runs.h"
#include "report/drawing.h"
#include "report/training_log.h"

/* A cell of a table; empty if the value is not finite. */
void put_number(FILE *out, double value, const char *format);

/* The page of one run, from the paragraph after the title on. */
void put_training(FILE *out, const training_log *log, rcv_settings *settings);
/* The settings that differ from their defaults; with `shared`, without those that affect the execution only. */
void put_settings(FILE *out, const training_log *log, rcv_settings *settings, bool shared);

/* The section with the traces of updates: begin_traces, put_trace for each run; the caller closes it. */
bool trace_is_drawn(const trace *trace); /* does it have spans? */
void begin_traces(FILE *out);
void put_trace(FILE *out, const trace *trace);

/* Scaling, and data and pipeline parallelism, for each model that the runs train. loss: the loss to which runs are timed; NaN: the largest
 * final loss of the runs of a model. */
void put_runs(FILE *out, const run *runs, size_t count, double loss);

#endif

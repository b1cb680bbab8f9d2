/* Sections of the pages of recurve report: of one training log, and of several that are compared. */
#ifndef TOOL_REPORT_TRAINING_SECTIONS_H
#define TOOL_REPORT_TRAINING_SECTIONS_H

#include "report/compared_runs.h"
#include "report/drawing.h"
#include "report/training_log.h"

/* A cell of a table; empty where the value is no number. */
void put_number(FILE *out, double value, const char *format);

/* All of one run, from the paragraph behind the title on. */
void put_training(FILE *out, const training_log *log, rcv_settings *settings);
/* Those that differ from their defaults; `shared`: but for those that say how a run goes. */
void put_settings(FILE *out, const training_log *log, rcv_settings *settings, bool shared);

/* One update, rank by rank: a section for the traces behind it, which the caller closes. */
bool trace_is_drawn(const trace *trace); /* is there anything in it? */
void begin_traces(FILE *out);
void put_trace(FILE *out, const trace *trace);

/* Scaling, and data against pipeline, for each model that the runs train. loss: the one that runs are timed to; NaN: the
 * largest that runs of a model have at their end. */
void put_runs(FILE *out, const run *runs, size_t count, double loss);

#endif

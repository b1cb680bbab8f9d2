/* The sections of the pages of recurve report: of one training log, and of several that are compared. */
#ifndef TOOL_REPORT_TRAINING_SECTIONS_H
#define TOOL_REPORT_TRAINING_SECTIONS_H

#include "report/drawing.h"
#include "report/training/compared_runs.h"
#include "report/training/curves.h"

/* A cell of a table, with its digits grouped; empty if the value is not finite. */
void put_number(FILE *out, double value, const char *format);
/* A card with a number; none if the value is not finite. */
void put_number_card(FILE *out, double value, const char *format, const char *meaning);

/* The page of one run, from the paragraph after the title on. */
void put_training(FILE *out, const training_log *log, rcv_settings *settings);

/* ---- metrics ---- */

/* The metric that is shown as a curve: that of the validations, else of the test; LOG_VALUES: there is none. */
log_value main_metric(const training_log *log);
/* Cards with the metrics of the test, else of the best validation. */
void put_metric_cards(FILE *out, const training_log *log);
/* The classes of the test and its confusion matrix, if the log has them. */
void put_classes(FILE *out, const training_log *log);

/* ---- settings ---- */

/* The settings that differ from their defaults. */
void put_settings(FILE *out, const training_log *log, rcv_settings *settings);
/* The settings that differ between the runs; those that are the same in all can be unfolded. */
void put_setting_differences(FILE *out, const run *runs, size_t count);
/* Names the run's own files, or how they are looked at: runs always differ in it, and learn the same. */
bool is_file_setting(const char *setting);

/* ---- traces of updates: begin_traces, put_trace for each run; the caller closes the section ---- */

bool trace_is_drawn(const trace *trace); /* does it have spans? */
void begin_traces(FILE *out);
void put_trace(FILE *out, const trace *trace);

/* ---- several runs ---- */

/* Curves over each other, and tables of the runs. loss: the time to this loss is shown; NaN: none. */
void put_comparison(FILE *out, const run *runs, size_t count, double loss);
/* Scaling, and data and pipeline parallelism, for each model whose runs differ in their ranks. loss: the loss to which runs are timed; NaN:
 * the largest final loss of the runs of a model. */
void put_scaling_sections(FILE *out, const run *runs, size_t count, double loss);

#endif

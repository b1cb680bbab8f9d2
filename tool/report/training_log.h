/* A training log: one JSON object a line, as the trainer writes them. */
#ifndef TOOL_REPORT_TRAINING_LOG_H
#define TOOL_REPORT_TRAINING_LOG_H

#include "report/update_trace.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What was known after an update; NaN is what the line does not say. */
typedef struct {
    double step, epoch, loss, perplexity;
    double rate, norm, speed; /* speed: tokens a second; the three of progress alone */
    double seconds;
    bool best; /* of validations: the lowest so far */
} log_point;

typedef struct {
    log_point *points;
    size_t count, capacity;
} log_series; /* steps rise */

/* Where a run went on from a checkpoint, what came after that one is forgotten: the series are those of the run that counts. */
typedef struct {
    log_series progress, validations, resumes;
    json_t *start, *end; /* the lines; NULL: none. A log that begins with a resume starts there */
    json_t *begun;       /* the last start or resume that says how the run goes on; NULL: none */
    trace trace;         /* the last update that was traced; no lanes: none was */
    size_t checkpoints;
} training_log;

/* False after saying what was wrong, with the line. A last line that is cut short is left out. */
bool log_read(training_log *log, const char *path);
void log_free(training_log *log);
double log_number(const json_t *line, const char *key);    /* NaN where it has none */
const char *log_text(const json_t *line, const char *key); /* NULL where it has none */
/* A value of a setting as text, for free(), and the default of one; "" where none is known. */
char *log_value_text(const json_t *value);
const char *default_setting(const char *name);
const log_point *log_best(const training_log *log); /* of the validations; NULL: there is none */
/* Tokens a second: the run's own mean where it has ended, else that of what it said on the way; NaN: it says nothing. */
double log_speed(const training_log *log);

#endif

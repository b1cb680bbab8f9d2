/* A training log, as the trainer writes it: one JSON object a line. */
#ifndef TOOL_REPORT_TRAINING_LOG_H
#define TOOL_REPORT_TRAINING_LOG_H

#include "report/update_trace.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The values of a line, after an update; NaN: the line does not have it. */
typedef struct {
    double step, epoch, loss, perplexity;
    double rate, norm, speed; /* of progress lines only; speed: tokens a second */
    double seconds;
    bool best; /* of validations: the lowest loss so far */
} log_point;

typedef struct {
    log_point *points;
    size_t count, capacity;
} log_series; /* steps increase */

/* Where a run resumed from a checkpoint, lines of later updates from before are dropped: each update appears once. */
typedef struct {
    log_series progress, validations, resumes;
    json_t *start, *end; /* the lines; NULL: none. A log that begins with a resume has that as its start */
    json_t *begun;       /* the last start or resume with settings; NULL: none */
    trace trace;         /* the last update that was traced; no lanes: none */
    size_t checkpoints;
} training_log;

/* False after saying what is wrong in which line. An incomplete last line is ignored. */
bool log_read(training_log *log, const char *path);
void log_free(training_log *log);
double log_number(const json_t *line, const char *key);    /* NaN: it has none */
const char *log_text(const json_t *line, const char *key); /* NULL: it has none */
/* The value of a setting as text, for free(); the default of a setting, "" if it is not known. */
char *log_value_text(const json_t *value);
const char *default_setting(const char *name);
const log_point *log_best(const training_log *log); /* the validation with the lowest loss; NULL: none */
/* Tokens a second: that of the end line, else the mean of the progress lines; NaN: none. */
double log_speed(const training_log *log);

#endif

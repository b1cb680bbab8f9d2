/* A training log, as the trainer writes it: one JSON object a line. */
#ifndef TOOL_REPORT_TRAINING_LOG_H
#define TOOL_REPORT_TRAINING_LOG_H

#include "report/training/log_values.h"
#include "report/training/update_trace.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values of lines after updates, a column for each value; NULL: no line has the value. The steps increase. */
typedef struct {
    double *columns[LOG_VALUES]; /* [capacity], NaN where a line does not have it */
    size_t count, capacity;
} log_series;

/* Where a run resumed from a checkpoint, lines of later updates from before are dropped: each update appears once. */
typedef struct {
    log_series progress, validations, resumes;
    json_t *start, *end; /* the lines; NULL: none. A log that begins with a resume has that as its start */
    json_t *begun;       /* the last start or resume with settings; NULL: none */
    json_t *test;        /* the results on the test data; NULL: none */
    trace trace;         /* the last update that was traced; no lanes: none */
    size_t checkpoints;
} training_log;

/* Handles a line. Returns what is wrong with it, or NULL. Unknown events are skipped. */
const char *log_add_line(training_log *log, json_t *line);
const char *log_add_row(training_log *log, scanned event, const log_row *row);
void log_free(training_log *log);

/* ---- a file that is read, and read on when it has grown ---- */

typedef struct {
    const char *path;
    training_log log;
    bool waits;      /* a file that does not exist yet is no error */
    bool exists;     /* it has been there */
    int64_t size;    /* bytes of the file at the last call */
    int64_t offset;  /* bytes that have been read */
    size_t newlines; /* in them */
    int64_t place;   /* inode: another one is another file */
    char *wrong;     /* what is wrong with the file, a sentence; NULL: nothing */
} log_file;

/* Reads what was appended since the last call. A file that became shorter or was replaced is read from its beginning. An incomplete last line
 * is left for the next call. True if there was something; on failure the file's `wrong` is set. Does not print. */
bool log_file_read(log_file *file);
/* Reads each of the files to its end, several at a time. True if there was something new. */
bool log_files_read(log_file *files, size_t count);
void log_file_free(log_file *file);
/* After reading to the end: sets `wrong` if the file is empty, or is not a training log. */
void log_file_check(log_file *file);
/* Reads the file. False after saying what is wrong in which line. An incomplete last line is ignored. */
bool log_read(training_log *log, const char *path);

/* ---- values ---- */

double log_number(const json_t *line, const char *key);    /* NaN: it has none */
const char *log_text(const json_t *line, const char *key); /* NULL: it has none */
/* The value of a setting as text, for free(); the default of a setting, "" if it is not known. */
char *log_value_text(const json_t *value);
const char *default_setting(const char *name);

/* NaN: none */
static inline double series_value(const log_series *series, log_value value, size_t index) {
    return series->columns[value] != NULL && index < series->count ? series->columns[value][index] : NAN;
}

double series_last(const log_series *series, log_value value); /* the last that is finite; NaN: none */
bool series_has(const log_series *series, log_value value);    /* is one of them finite? */

#define NO_POINT SIZE_MAX
size_t log_best(const training_log *log); /* the validation with the lowest loss; NO_POINT: none */
/* Tokens a second: that of the end line, else the mean of the progress lines; NaN: none. */
double log_speed(const training_log *log);
const char *
log_speed_name(const training_log *log); /* what it counts, "sequences a second"; logs call all of it tokens */
/* How the loss is shown: as bits a byte, as perplexity, or as it is. */
log_value log_measure(const training_log *log);
/* A value of the test, or of its metrics; NaN: none. */
double log_test_value(const training_log *log, log_value value);
/* The loss of the test as `measure`; a log that has only the loss still has bits a byte. */
double log_test_measure(const training_log *log, log_value measure);
/* Has the run ended, and been tested if its settings say so? */
bool log_is_over(const training_log *log);

#endif

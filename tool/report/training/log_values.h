/* The numbers that a line of a training log has after an update. */
#ifndef TOOL_REPORT_LOG_VALUES_H
#define TOOL_REPORT_LOG_VALUES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    VALUE_STEP,
    VALUE_EPOCH,
    VALUE_SECONDS,
    VALUE_LOSS,
    VALUE_PERPLEXITY,
    VALUE_BITS, /* bits a byte */
    VALUE_RATE,
    VALUE_NORM,
    VALUE_SPEED,  /* tokens a second */
    FIRST_METRIC, /* this and all after it are members of "metrics" */
    VALUE_ACCURACY = FIRST_METRIC,
    VALUE_PRECISION,
    VALUE_RECALL,
    VALUE_F1,
    VALUE_AUC,
    VALUE_MAE,
    VALUE_RMSE,
    VALUE_R2,
    VALUE_NAIVE_MAE,
    VALUE_NAIVE_RMSE,
    LOG_VALUES
} log_value;

typedef struct {
    const char *key;  /* in the line, or in its "metrics" */
    const char *name; /* on a page */
    const char *format;
    bool rises; /* the largest value is the best */
} log_value_description;

extern const log_value_description log_values[LOG_VALUES];

/* The values of a line; NaN: the line does not have it. */
typedef struct {
    double values[LOG_VALUES];
} log_row;

log_row empty_row(void);

typedef enum { SCANNED_NOTHING, SCANNED_PROGRESS, SCANNED_VALIDATION } scanned;

/* The members of the line before, which those of the next line mostly equal: their keys as they are written, with quotes and colon. */
enum { SHAPE_MEMBERS = 24, SHAPE_KEY = 24 };

typedef struct {
    struct {
        char text[SHAPE_KEY];
        unsigned char length; /* 0: not known */
        unsigned char place;
    } members[SHAPE_MEMBERS];
} line_shape;

enum { SCAN_PADDING = 8 }; /* bytes behind the newline that may be read */

/* Reads the line of a progress or validation event if it is plain: members are numbers, true, false, null and ASCII text without escapes, and
 * "metrics" is an object of such members. What it accepts is JSON, and its values are those that jansson reads; whatever it does not accept is
 * SCANNED_NOTHING and left to jansson. A newline stands at `end`, and SCAN_PADDING bytes behind it. `shape` is of the line before, zero at first. */
scanned scan_line(const char *line, const char *end, log_row *row, line_shape *shape);

#endif

/* One update of a run of several ranks: what each rank did when, as the log's timelines say it. */
#ifndef TOOL_REPORT_UPDATE_TRACE_H
#define TOOL_REPORT_UPDATE_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum { SPAN_FORWARD, SPAN_BACKWARD, SPAN_OTHER, SPAN_WAIT, SPAN_EXCHANGE, SPAN_KINDS } span_kind;

extern const char *const span_names[SPAN_KINDS];

typedef struct {
    span_kind kind;
    int unit;          /* of the batch; -1: of none */
    double begin, end; /* seconds since all ranks had come */
} span;

typedef struct {
    double begin, end;
} interval;

/* Compute is forward, backward and other. Exchange goes on beside it, and its spans may overlap: a moment counts once. */
typedef struct {
    int rank, replica, stage;
    span *spans;
    interval *exchanges; /* the exchange spans united; they rise and lie apart */
    size_t count, exchange_count;
    double compute, exchange; /* seconds */
    double hidden;            /* of the exchange: with compute of the same rank beside it */
} lane;

typedef struct {
    lane *lanes; /* ranks rise */
    size_t count;
    double step;
    double seconds; /* until the last rank has ended */
} trace;

static inline bool is_compute(span_kind kind) { return kind <= SPAN_OTHER; }

/* Takes the timeline of one rank. That of a later update takes the place of all before. What is wrong with it, or NULL. */
const char *trace_add(trace *trace, const json_t *line);
void trace_free(trace *trace);
/* NaN where there is no lane. */
double trace_balance(const trace *trace); /* the largest compute over the mean */
double trace_idle(const trace *trace);    /* the share of all ranks' time without compute */

#endif

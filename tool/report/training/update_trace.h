/* The trace of one update of a training run with several ranks, from the timeline lines of its log. */
#ifndef TOOL_REPORT_UPDATE_TRACE_H
#define TOOL_REPORT_UPDATE_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum { SPAN_FORWARD, SPAN_BACKWARD, SPAN_OTHER, SPAN_WAIT, SPAN_EXCHANGE, SPAN_KINDS } span_kind;

extern const char *const span_names[SPAN_KINDS];

typedef struct {
    span_kind kind;
    int unit;          /* of the batch; -1: none */
    double begin, end; /* seconds since all ranks had arrived */
} span;

typedef struct {
    double begin, end;
} interval;

/* The spans of one rank. Compute is forward, backward and other. Exchange runs in parallel, and its spans may overlap: overlaps count once. */
typedef struct {
    int rank, replica, stage;
    span *spans;
    interval *exchanges; /* the union of the exchange spans: increasing and disjoint */
    size_t count, exchange_count;
    double compute, exchange; /* seconds */
    double hidden;            /* seconds of the exchange during which the same rank computes */
} lane;

typedef struct {
    lane *lanes; /* ranks increase */
    size_t count;
    double step;
    double seconds; /* until the last rank has ended */
} trace;

static inline bool is_compute(span_kind kind) { return kind <= SPAN_OTHER; }

/* Adds the timeline of one rank. A timeline of a later update replaces all before. Returns what is wrong with it, or NULL. */
const char *trace_add(trace *trace, const json_t *line);
void trace_free(trace *trace);
/* NaN without lanes. */
double trace_balance(const trace *trace); /* the largest compute time of a rank over the mean */
double trace_idle(const trace *trace);    /* the share of all ranks' time without compute */

#endif

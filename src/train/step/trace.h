/* Spans of time of one update on one rank. */
#ifndef RCVI_TRACE_H
#define RCVI_TRACE_H

#include "base/base.h"

typedef enum {
    RCVI_TRACE_FORWARD,  /* of a unit */
    RCVI_TRACE_BACKWARD, /* of a unit */
    RCVI_TRACE_OTHER,    /* feeding, rows of the embedding, the update */
    RCVI_TRACE_WAIT,     /* for other ranks */
    RCVI_TRACE_EXCHANGE, /* concurrent with these: a transfer from its first byte to its last */
    RCVI_TRACE_KINDS
} rcvi_trace_kind;
extern const char *const rcvi_trace_names[RCVI_TRACE_KINDS];

typedef struct {
    int kind, unit; /* unit -1: none */
    double begin, end;
} rcvi_trace_span;

typedef struct {
    bool on;
    bool failed;   /* no memory: later spans are not kept */
    double origin; /* of the clock: times are relative to it */
    rcvi_trace_span *spans;
    size_t count, capacity;
} rcvi_trace;

static inline double rcvi_trace_now(const rcvi_trace *trace) { return trace->on ? rcvi_now() : 0; }
/* Adds a span from `begin` until now, or until `end`. Nothing where the trace is off. */
void rcvi_trace_add(rcv_context *context, rcvi_trace *trace, rcvi_trace_kind kind, int64_t unit, double begin);
void rcvi_trace_add_until(rcv_context *context, rcvi_trace *trace, rcvi_trace_kind kind, int64_t unit, double begin,
                          double end);

#endif

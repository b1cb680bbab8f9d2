/* What a rank did when, in one update. */
#ifndef RCVI_TRACE_H
#define RCVI_TRACE_H

#include "base/base.h"

typedef enum {
    RCVI_TRACE_FORWARD,  /* of a unit */
    RCVI_TRACE_BACKWARD, /* the same */
    RCVI_TRACE_OTHER,    /* feeding, rows of the embedding, the update */
    RCVI_TRACE_WAIT,     /* for others */
    RCVI_TRACE_EXCHANGE, /* beside all of these: a transfer from its first byte to its last */
    RCVI_TRACE_KINDS
} rcvi_trace_kind;
extern const char *const rcvi_trace_names[RCVI_TRACE_KINDS];

typedef struct {
    int kind, unit; /* unit -1: none */
    double begin, end;
} rcvi_trace_span;

typedef struct {
    bool on;
    bool failed;   /* for want of memory: nothing is kept then */
    double origin; /* what times are counted from */
    rcvi_trace_span *spans;
    size_t count, capacity;
} rcvi_trace;

static inline double rcvi_trace_now(const rcvi_trace *trace) { return trace->on ? rcvi_now() : 0; }
/* From `begin` until now, or until `end`. Nothing where it is not on. */
void rcvi_trace_add(rcv_context *context, rcvi_trace *trace, rcvi_trace_kind kind, int64_t unit, double begin);
void rcvi_trace_add_until(rcv_context *context, rcvi_trace *trace, rcvi_trace_kind kind, int64_t unit, double begin,
                          double end);

#endif

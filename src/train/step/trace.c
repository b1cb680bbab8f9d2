#include "train/step/trace.h"

const char *const rcvi_trace_names[] = {"forward", "backward", "other", "wait", "exchange"};

void rcvi_trace_add_until(rcv_context *context, rcvi_trace *t, rcvi_trace_kind kind, int64_t unit, double begin,
                          double end) {
    if (!t->on || t->failed) return;
    t->failed = !rcvi_grow(context, &t->spans, &t->capacity, t->count + 1, sizeof *t->spans);
    if (t->failed) return;
    t->spans[t->count++] = (rcvi_trace_span){(int)kind, (int)unit, begin - t->origin, end - t->origin};
}

void rcvi_trace_add(rcv_context *context, rcvi_trace *t, rcvi_trace_kind kind, int64_t unit, double begin) {
    rcvi_trace_add_until(context, t, kind, unit, begin, rcvi_trace_now(t));
}

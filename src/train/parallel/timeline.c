/* One update of a run of several ranks, as it went on each of them, for the log. */
#include "train/run/trainer.h"

#include <string.h>

/* Updates that are traced: once all is warm, and once more, should the first have been disturbed. */
static bool is_traced(const rcv_trainer *t) { return t->topology.world && (t->updates == 8 || t->updates == 24); }

rcv_status rcvi_timeline_begin(rcv_trainer *t) {
    rcvi_trace *trace = &t->work->trace;
    trace->on = is_traced(t);
    trace->count = 0;
    if (!trace->on) return RCV_OK;
    RCVI_TRY(rcvi_work_wait(t->work));
    RCVI_TRY(rcvi_comm_agree(t->topology.world, RCV_OK)); /* all are here */
    trace->origin = rcvi_now();
    return RCV_OK;
}

static rcv_status send_spans(const rcv_trainer *t) {
    rcvi_trace *trace = &t->work->trace;
    int64_t count = (int64_t)trace->count;
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, &count, sizeof count));
    return rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, trace->spans, trace->count * sizeof *trace->spans);
}

static rcv_status receive_spans(const rcv_trainer *t, int rank) {
    int64_t count;
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, &count, sizeof count));
    rcvi_trace_span *spans = rcvi_new(t->context, (size_t)count, sizeof *spans);
    if (!spans) return RCV_NO_MEMORY;
    rcv_status status = rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, spans, (size_t)count * sizeof *spans);
    if (!status) rcvi_log_timeline(t, rank, spans, (size_t)count);
    rcvi_free(t->context, spans);
    return status;
}

rcv_status rcvi_timeline_end(rcv_trainer *t) {
    rcvi_trace *trace = &t->work->trace;
    if (!trace->on) return RCV_OK;
    trace->on = false;
    if (!rcvi_topology_is_leader(&t->topology)) return send_spans(t);
    rcvi_log_timeline(t, 0, trace->spans, trace->count);
    for (int r = 1; r < rcvi_comm_size(t->topology.world); r++) RCVI_TRY(receive_spans(t, r));
    return RCV_OK;
}

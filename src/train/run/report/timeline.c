/* Traced updates of a run of several ranks: see timeline.h. */
#include "train/run/report/timeline.h"

/* Once all is warm, and once more, should the first have been disturbed. */
static bool is_traced(int64_t update) { return update == 8 || update == 24; }

rcv_status rcvi_timeline_begin(rcvi_work *w, int64_t update) {
    const rcvi_topology *topology = w->options.topology;
    rcvi_trace *trace = &w->trace;
    trace->on = topology && is_traced(update);
    trace->count = 0;
    if (!trace->on) return RCV_OK;
    RCVI_TRY(rcvi_work_wait(w));
    RCVI_TRY(rcvi_comm_agree(topology->world, RCV_OK)); /* a barrier */
    trace->origin = rcvi_now();
    return RCV_OK;
}

static rcv_status send_spans(rcvi_comm *world, const rcvi_trace *trace) {
    int64_t count = (int64_t)trace->count;
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_SEND, 0, &count, sizeof count));
    return rcvi_comm_transfer_bytes(world, RCVI_SEND, 0, trace->spans, trace->count * sizeof *trace->spans);
}

static rcv_status receive_spans(rcv_context *context, const rcvi_topology *topology, int rank, const rcvi_run_log *log,
                                int64_t step) {
    int64_t count;
    RCVI_TRY(rcvi_comm_transfer_bytes(topology->world, RCVI_RECEIVE, rank, &count, sizeof count));
    rcvi_trace_span *spans = rcvi_new(context, (size_t)count, sizeof *spans);
    if (!spans) return RCV_NO_MEMORY;
    rcv_status status =
        rcvi_comm_transfer_bytes(topology->world, RCVI_RECEIVE, rank, spans, (size_t)count * sizeof *spans);
    if (!status) rcvi_log_timeline(log, step, topology, rank, spans, (size_t)count);
    rcvi_free(context, spans);
    return status;
}

rcv_status rcvi_timeline_end(rcvi_work *w, const rcvi_run_log *log, int64_t step) {
    const rcvi_topology *topology = w->options.topology;
    rcvi_trace *trace = &w->trace;
    if (!trace->on) return RCV_OK;
    trace->on = false;
    if (!rcvi_topology_is_leader(topology)) return send_spans(topology->world, trace);
    rcvi_log_timeline(log, step, topology, 0, trace->spans, trace->count);
    for (int r = 1; r < rcvi_comm_size(topology->world); r++)
        RCVI_TRY(receive_spans(w->learner->context, topology, r, log, step));
    return RCV_OK;
}

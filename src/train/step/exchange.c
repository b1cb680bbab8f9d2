/* Transfers of a batch between ranks, and their order: see exchange.h. */
#include "train/step/exchange.h"

#include "train/parallel/gradient_segments.h"

#include <math.h>
#include <string.h>

enum { FORWARD = 0, BACKWARD = 1 };

/* A segment of the gradient and its transfer. */
typedef struct {
    rcvi_gradient_segment of;
    int64_t *starts; /* [replicas + 1] of shares, within the segment */
    rcvi_transfer *transfer;
} segment;

struct rcvi_exchange {
    rcvi_work *work;
    const rcvi_topology *topology;
    rcvi_staging *staging; /* owns the signals, where the device's memory is not the host's; else NULL */
    uint64_t *signals;     /* one per layer, one for the lead of the first layer, then as signal_of says */
    segment *segments;
    size_t segment_count;
    /* [units] for each direction: what neighbours send, and what is sent to them. */
    rcvi_transfer **receipts[2], **sends[2];
    rcvi_transfer *gather; /* of rows */
    void *rows,
        *merged; /* [rows of all replicas, embedding] of the device: rows of the gradient of the embedding, and these by row */
    uint64_t number; /* of the batch */
};

/* ---- signals ---- */

/* Signals after those of layers and of the lead of the first. The first two are events of segments. */
typedef enum { OF_HEAD = RCVI_AFTER_HEAD, OF_INPUTS = RCVI_AFTER_INPUTS, OF_UPDATE, OF_UNITS } signal_kind;

static int layers_of(const rcvi_exchange *x) { return (int)rcv_net_get_options(x->work->learner->slice)->layers; }
static int64_t units_of(const rcvi_exchange *x) { return x->work->options.units; }

static int signal_of(const rcvi_exchange *x, signal_kind kind) { return layers_of(x) + 1 + (int)kind; }
static int signal_of_unit(const rcvi_exchange *x, const rcvi_unit *u, int way) {
    return signal_of(x, OF_UNITS) + (int)(way * units_of(x) + u->number);
}

static rcv_status make_signals(rcvi_exchange *x) {
    const rcv_learner *l = x->work->learner;
    size_t count = (size_t)(signal_of(x, OF_UNITS) + 2 * units_of(x));
    if (!l->device->staging) {
        x->signals = rcvi_new(l->context, count, sizeof *x->signals);
        return x->signals ? RCV_OK : RCV_NO_MEMORY;
    }
    RCVI_TRY(l->device->staging->open(l->context, l->ordinal, count * sizeof *x->signals, &x->staging));
    x->signals = l->device->staging->host_memory(x->staging);
    memset(x->signals, 0, count * sizeof *x->signals);
    return RCV_OK;
}

static rcv_status raise_signal(rcvi_exchange *x, int signal) {
    rcvi_work *w = x->work;
    return w->ops->signal(w->learn, &x->signals[signal], &rcvi_feed_control(w)->number);
}

/* ---- transfers ---- */

/* Options that all transfers of arrays have in common. */
static rcvi_transfer_options transfer_of(const rcvi_exchange *x, rcvi_transfer_kind kind, void *data, int64_t count) {
    const rcv_learner *l = x->work->learner;
    return (rcvi_transfer_options){.kind = kind,
                                   .type = l->real == RCV_FLOAT64 ? RCVI_TRANSFER_DOUBLE : RCVI_TRANSFER_FLOAT,
                                   .data = data,
                                   .count = count,
                                   .on_device = l->device->memory != NULL};
}

static void wait_for(const rcvi_exchange *x, int signal, rcvi_transfer_options *o) {
    o->counter = (const _Atomic uint64_t *)&x->signals[signal];
    o->ready = x->number;
}

/* Waits for a transfer, and traces how long it took and how long this rank waited. */
static rcv_status finish(const rcvi_exchange *x, rcvi_transfer **transfer) {
    rcvi_work *w = x->work;
    rcvi_transfer *given = *transfer;
    rcvi_transfer_times times;
    double begin = rcvi_trace_now(&w->trace);
    *transfer = NULL;
    RCVI_TRY(rcvi_transfer_wait(given, &times));
    if (!w->trace.on || !given) return RCV_OK;
    rcvi_trace_add(w->learner->context, &w->trace, RCVI_TRACE_WAIT, -1, begin);
    rcvi_trace_add_until(w->learner->context, &w->trace, RCVI_TRACE_EXCHANGE, -1, times.started, times.completed);
    return RCV_OK;
}

/* ---- segments ---- */

static rcv_status make_segments(rcvi_exchange *x) {
    const rcv_learner *l = x->work->learner;
    int replicas = x->topology->replica_count;
    rcvi_gradient_segment *list = rcvi_gradient_segments_new(l, x->work->options.sparse, &x->segment_count);
    x->segments = rcvi_new(l->context, x->segment_count, sizeof *x->segments);
    bool good = list && x->segments;
    for (size_t i = 0; good && i < x->segment_count; i++) {
        segment *p = &x->segments[i];
        p->of = list[i];
        p->starts = rcvi_new(l->context, (size_t)replicas + 1, sizeof *p->starts);
        good = p->starts != NULL;
        for (int r = 0; good && r <= replicas; r++) p->starts[r] = rcvi_share_start(p->of.count, r, replicas);
    }
    rcvi_free(l->context, list);
    return good ? RCV_OK : RCV_NO_MEMORY;
}

static rcv_status start_sums(rcvi_exchange *x) {
    for (size_t i = 0; i < x->segment_count && x->topology->reduces_gradients; i++) {
        segment *p = &x->segments[i];
        rcvi_transfer_options o =
            transfer_of(x, x->topology->shares_optimiser ? RCVI_REDUCE_SCATTER : RCVI_ALL_REDUCE_SUM,
                        rcvi_gradient_at(x->work, p->of.first), p->of.count);
        o.starts = x->topology->shares_optimiser ? p->starts : NULL;
        o.as_bfloat16 = x->topology->bfloat16_gradients;
        wait_for(x, p->of.event, &o);
        RCVI_TRY(rcvi_transfer_start(x->topology->replicas, &o, &p->transfer));
    }
    return RCV_OK;
}

/* ---- making and freeing ---- */

static int64_t merged_elements(const rcvi_work *w) {
    return w->options.rows * w->options.topology->replica_count * w->learner->shape.embedding;
}

static rcv_status fill_exchange(rcvi_exchange *x) {
    rcvi_work *w = x->work;
    const rcv_learner *l = w->learner;
    RCVI_TRY(make_signals(x));
    RCVI_TRY(make_segments(x));
    for (int way = 0; way < 2; way++) {
        x->receipts[way] = rcvi_new(l->context, (size_t)units_of(x), sizeof *x->receipts[way]);
        x->sends[way] = rcvi_new(l->context, (size_t)units_of(x), sizeof *x->sends[way]);
        if (!x->receipts[way] || !x->sends[way]) return RCV_NO_MEMORY;
    }
    if (!rcvi_work_merges(w)) return RCV_OK;
    RCVI_TRY(rcvi_device_new(l, merged_elements(w), rcvi_real_bytes(l), &x->rows));
    return rcvi_device_new(l, merged_elements(w), rcvi_real_bytes(l), &x->merged);
}

rcv_status rcvi_exchange_new(rcvi_work *w, rcvi_exchange **exchange) {
    rcvi_exchange *x = rcvi_new(w->learner->context, 1, sizeof *x);
    *exchange = x;
    if (!x) return RCV_NO_MEMORY;
    x->work = w;
    x->topology = w->options.topology;
    return fill_exchange(x);
}

/* Waits for transfers that are in flight, whatever their status. */
static void finish_all(rcvi_exchange *x) {
    for (size_t i = 0; x->segments && i < x->segment_count; i++) finish(x, &x->segments[i].transfer);
    finish(x, &x->gather);
    for (int way = 0; way < 2; way++) {
        for (int64_t i = 0; i < units_of(x); i++) {
            if (x->receipts[way]) finish(x, &x->receipts[way][i]);
            if (x->sends[way]) finish(x, &x->sends[way][i]);
        }
    }
}

void rcvi_exchange_free(rcvi_exchange *x) {
    if (!x) return;
    const rcv_learner *l = x->work->learner;
    finish_all(x);
    for (size_t i = 0; x->segments && i < x->segment_count; i++) rcvi_free(l->context, x->segments[i].starts);
    rcvi_free(l->context, x->segments);
    for (int way = 0; way < 2; way++) {
        rcvi_free(l->context, x->receipts[way]);
        rcvi_free(l->context, x->sends[way]);
    }
    rcvi_device_free(l, x->rows);
    rcvi_device_free(l, x->merged);
    if (x->staging)
        l->device->staging->close(x->staging);
    else
        rcvi_free(l->context, x->signals);
    rcvi_free(l->context, x);
}

size_t rcvi_exchange_bytes(const rcvi_exchange *x) {
    return x->rows ? 2 * (size_t)merged_elements(x->work) * rcvi_real_bytes(x->work->learner) : 0;
}

/* ---- neighbours ---- */

/* Forward, a unit comes from the stage below; backward, from the stage above. */
static bool has_neighbour(const rcvi_exchange *x, int way) {
    return way == FORWARD ? x->topology->stage > 0 : x->topology->stage + 1 < x->topology->stage_count;
}

/* A unit's rows: of what is received, x from below or dy from above; of what is sent (`out`), y to above or dx to below. */
static rcvi_transfer_options rows_of(const rcvi_exchange *x, const rcvi_window *v, const rcvi_unit *u, int way,
                                     bool out) {
    const rcvi_work *w = x->work;
    bool wide = way == FORWARD ? !out : out; /* features of the input */
    int64_t columns = wide ? rcv_net_get_options(w->learner->slice)->input : rcv_net_output(w->learner->slice);
    void *array = way == FORWARD ? (out ? w->y : w->x) : (out ? w->dx : w->dy);
    rcvi_transfer_options o =
        transfer_of(x, out ? RCVI_SEND : RCVI_RECEIVE, rcvi_element_at(w->learner, array, u->row * columns),
                    v->steps * v->batch * columns);
    o.peer = x->topology->stage + ((way == FORWARD) == out ? 1 : -1);
    o.tag = way;
    return o;
}

static rcv_status start_receive(rcvi_exchange *x, const rcvi_window *v, int64_t number, int way) {
    const rcvi_unit u = rcvi_unit_of(v, number);
    if (!has_neighbour(x, way)) return RCV_OK;
    const rcvi_transfer_options o = rows_of(x, v, &u, way, false);
    return rcvi_transfer_start(x->topology->stages, &o, &x->receipts[way][number]);
}

rcv_status rcvi_exchange_begin(rcvi_exchange *x, const rcvi_window *v, uint64_t number, bool sums) {
    int64_t units = rcvi_window_units(v);
    x->number = number;
    if (x->topology->stage_count > 1)
        RCVI_TRY(x->work->ops->wait(x->work->learn)); /* until nothing reads the arrays that are received into */
    for (int64_t i = 0; i < (v->training ? 2 : 1) * units; i++) {
        int64_t unit = v->training ? v->tasks[i].unit : i;
        RCVI_TRY(start_receive(x, v, unit, v->training && v->tasks[i].backward ? BACKWARD : FORWARD));
    }
    return sums ? start_sums(x) : RCV_OK;
}

rcv_status rcvi_exchange_wait_for_unit(rcvi_exchange *x, const rcvi_unit *u, bool backward) {
    return finish(x, &x->receipts[backward ? BACKWARD : FORWARD][u->number]);
}

rcv_status rcvi_exchange_send_unit(rcvi_exchange *x, const rcvi_window *v, const rcvi_unit *u, bool backward) {
    int way = backward ? BACKWARD : FORWARD, signal = signal_of_unit(x, u, way);
    if (!has_neighbour(x, backward ? FORWARD : BACKWARD)) return RCV_OK;
    rcvi_transfer_options o = rows_of(x, v, u, way, true);
    RCVI_TRY(raise_signal(x, signal));
    wait_for(x, signal, &o);
    return rcvi_transfer_start(x->topology->stages, &o, &x->sends[way][u->number]);
}

/* ---- gradients ---- */

rcv_status rcvi_exchange_signal_layers(rcvi_exchange *x, const rcvi_unit *u, bool last) {
    if (!x->topology->reduces_gradients) return RCV_OK;
    return rcv_run_set_signals(u->run, last ? x->signals : NULL, &rcvi_feed_control(x->work)->number);
}

rcv_status rcvi_exchange_signal_head(rcvi_exchange *x) { return raise_signal(x, signal_of(x, OF_HEAD)); }

void *rcvi_exchange_rows(const rcvi_exchange *x) {
    const rcvi_work *w = x->work;
    return rcvi_element_at(w->learner, x->rows, w->row_starts[x->topology->replica]);
}

void *rcvi_exchange_merged(const rcvi_exchange *x) { return x->merged; }

rcv_status rcvi_exchange_signal_inputs(rcvi_exchange *x) {
    const rcvi_work *w = x->work;
    RCVI_TRY(raise_signal(x, signal_of(x, OF_INPUTS)));
    if (!rcvi_work_merges(w)) return RCV_OK;
    int replicas = x->topology->replica_count;
    rcvi_transfer_options o = transfer_of(x, RCVI_ALL_GATHER, x->rows, w->row_starts[replicas]);
    o.starts = w->row_starts;
    o.as_bfloat16 = x->topology->bfloat16_gradients;
    wait_for(x, signal_of(x, OF_INPUTS), &o);
    return rcvi_transfer_start(x->topology->replicas, &o, &x->gather);
}

/* Sums gathered rows of the same token. */
static rcv_status merge_rows(rcvi_exchange *x) {
    rcvi_work *w = x->work;
    int64_t columns = w->learner->shape.embedding;
    if (!x->gather) return RCV_OK;
    RCVI_TRY(finish(x, &x->gather));
    rcvi_groups groups = rcvi_feed_merged(w);
    return w->ops->scatter(w->learn, w->row_starts[x->topology->replica_count] / columns, columns, &groups, false,
                           x->rows, x->merged);
}

rcv_status rcvi_exchange_finish(rcvi_exchange *x) {
    for (int way = 0; way < 2; way++) {
        for (int64_t i = 0; i < units_of(x); i++) RCVI_TRY(finish(x, &x->sends[way][i]));
    }
    for (size_t i = 0; i < x->segment_count; i++) RCVI_TRY(finish(x, &x->segments[i].transfer));
    return merge_rows(x);
}

/* ---- the update ---- */

/* An update of many parts as several of at most RCVI_MAX_PARTS; the first one has the sparse rows. False: there are no more. */
static bool next_parts(const rcvi_update *all, int *done, rcvi_update *some) {
    int left = all->part_count - *done;
    if (*done && left <= 0) return false;
    *some = *all;
    some->parts = all->parts + *done;
    some->part_count = left < RCVI_MAX_UPDATE_PARTS ? left : RCVI_MAX_UPDATE_PARTS;
    if (*done) some->sparse = (rcvi_sparse_part){0};
    *done += some->part_count > 0 ? some->part_count : 1;
    return true;
}

/* The sum of squares of the gradient that is here, where no other rank counts it. */
static rcv_status sum_squares(rcvi_exchange *x, const rcvi_update *update, rcvi_outcome *outcome) {
    rcvi_work *w = x->work;
    rcvi_update some;
    double sum = 0;
    for (int done = 0; next_parts(update, &done, &some);) {
        RCVI_TRY(w->ops->sum_squares(w->learn, &some, rcvi_feed_control(w), w->outcome));
        RCVI_TRY(w->ops->fetch(w->learn, outcome, w->outcome, sizeof *outcome));
        sum += outcome->norm;
    }
    outcome->norm = x->topology->shares_optimiser || x->topology->replica == 0 ? sum : 0;
    return RCV_OK;
}

static rcv_status gather_shares(rcvi_exchange *x) {
    const rcv_learner *l = x->work->learner;
    if (!x->topology->shares_optimiser) return RCV_OK;
    RCVI_TRY(raise_signal(x, signal_of(x, OF_UPDATE)));
    for (size_t i = 0; i < x->segment_count; i++) {
        segment *p = &x->segments[i];
        rcvi_transfer_options o =
            transfer_of(x, RCVI_ALL_GATHER, rcvi_local_element_at(l, l->parameters, p->of.first), p->of.count);
        o.starts = p->starts;
        wait_for(x, signal_of(x, OF_UPDATE), &o);
        RCVI_TRY(rcvi_transfer_start(x->topology->replicas, &o, &p->transfer));
    }
    for (size_t i = 0; i < x->segment_count; i++) RCVI_TRY(finish(x, &x->segments[i].transfer));
    return RCV_OK;
}

rcv_status rcvi_exchange_update(rcvi_exchange *x, const rcvi_update *update) {
    rcvi_work *w = x->work;
    rcvi_outcome outcome;
    rcvi_update some;
    double begin = rcvi_trace_now(&w->trace);
    if (!rcvi_topology_sums_norm(x->topology)) {
        RCVI_TRY(w->ops->update(w->learn, update, rcvi_feed_control(w), w->outcome));
        return rcvi_work_trace(w, RCVI_TRACE_OTHER, -1, begin);
    }
    RCVI_TRY(sum_squares(x, update, &outcome));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_OTHER, -1, begin));
    begin = rcvi_trace_now(&w->trace);
    RCVI_TRY(rcvi_comm_all_reduce(x->topology->world, RCVI_ALL_REDUCE_SUM, &outcome.norm, 1));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_WAIT, -1, begin));
    begin = rcvi_trace_now(&w->trace);
    outcome.norm = sqrt(outcome.norm);
    RCVI_TRY(w->ops->send(w->learn, w->outcome, &outcome, sizeof outcome));
    for (int done = 0; next_parts(update, &done, &some);)
        RCVI_TRY(w->ops->apply(w->learn, &some, rcvi_feed_control(w), w->outcome));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_OTHER, -1, begin));
    return gather_shares(x);
}

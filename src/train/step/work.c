/* What is enqueued for a batch: its units in order, exchanges with other ranks between them, and the update. See work.h. */
#include "train/step/work.h"

#include "plan/run.h"
#include "train/step/exchange.h"

#include <string.h>

/* ---- making and freeing ---- */

int64_t rcvi_work_gradient_start(const rcvi_work *w) {
    const rcv_learner *l = w->learner;
    return l->has_embedding && (w->options.sparse || l->shape.fixed) ? l->net_offset : l->first_element;
}

int64_t rcvi_work_gradient_count(const rcvi_work *w) {
    const rcv_learner *l = w->learner;
    return (w->options.lean ? l->weight_offset : l->end_element) - rcvi_work_gradient_start(w);
}

static rcv_status make_gradients(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l);
    RCVI_TRY(rcvi_device_new(l, rcvi_work_gradient_count(w), real, &w->gradient));
    return w->options.drops.weight > 0
               ? rcvi_device_new(l, rcv_net_parameter_elements(l->slice), real, &w->masked_parameters)
               : RCV_OK;
}

static bool needs_dx(const rcv_learner *l) { return !l->has_embedding || (l->shape.tokens && !l->shape.fixed); }

static int64_t input_of(const rcvi_work *w) { return rcv_net_get_options(w->learner->slice)->input; }
static int64_t output_of(const rcvi_work *w) { return rcv_net_output(w->learner->slice); }

/* With as many rows as the largest window. */
static rcv_status make_arrays(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l);
    int64_t rows = w->options.rows, inputs, outputs;
    if (!rcvi_multiply(rows, input_of(w), &inputs) || !rcvi_multiply(rows, output_of(w), &outputs))
        return rcvi_fail(RCV_INVALID, "a batch of %lld rows is more than memory can address; use fewer",
                         (long long)rows);
    bool training = w->options.training,
         separate = !rcvi_predicts_steps(l) || (training && w->options.drops.output > 0);
    RCVI_TRY(rcvi_device_new(l, inputs, real, &w->x));
    RCVI_TRY(rcvi_device_new(l, outputs, real, &w->y));
    if (separate && l->has_head) RCVI_TRY(rcvi_device_new(l, outputs, real, &w->head_features));
    if (!training) return RCV_OK;
    if (needs_dx(l)) RCVI_TRY(rcvi_device_new(l, inputs, real, &w->dx));
    RCVI_TRY(rcvi_device_new(l, outputs, real, &w->dy));
    return rcvi_predicts_steps(l) || !l->has_head ? RCV_OK : rcvi_device_new(l, outputs, real, &w->dhead_features);
}

/* In the host's memory, for the feed. */
static rcv_status make_tables(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t replicas = rcvi_work_merges(w) ? (size_t)w->options.topology->replica_count : 0;
    w->host_block = rcvi_new(l->context, w->feed.bytes, 1);
    w->slots = rcvi_new(l->context, (size_t)l->shape.tokens, sizeof *w->slots);
    w->read_rows = rcvi_new(l->context, (replicas + 1) * (size_t)w->options.rows, sizeof *w->read_rows);
    w->row_starts = rcvi_new(l->context, replicas + 1, sizeof *w->row_starts);
    w->lengths = rcvi_new(l->context, (size_t)w->options.rows, sizeof *w->lengths);
    if (!w->host_block || !w->slots || !w->read_rows || !w->row_starts || !w->lengths) return RCV_NO_MEMORY;
    memset(w->slots, 0xff, (size_t)l->shape.tokens * sizeof *w->slots);
    return RCV_OK;
}

/* Gradients are written after the head is computed and read by the update: until then a lean head may use their memory. */
static rcv_status fill_work(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    if (w->options.training) RCVI_TRY(make_gradients(w));
    const rcvi_learn_shape shape = {.dtype = l->dtype,
                                    .threads = w->options.threads,
                                    .rows = w->options.rows,
                                    .features = l->has_head ? l->width : 1,
                                    .classes = l->has_head ? l->shape.outputs : 1,
                                    .chunk = w->options.chunk,
                                    .training = w->options.training && l->has_head,
                                    .lean = w->options.lean,
                                    .spare = w->options.lean ? w->gradient : NULL,
                                    .spare_bytes = (size_t)rcvi_work_gradient_count(w) * rcvi_real_bytes(l)};
    RCVI_TRY(w->ops->open(l->context, l->ordinal, &shape, &w->learn));
    rcvi_feed_lay_out(w, &w->feed);
    RCVI_TRY(make_tables(w));
    void *memory;
    RCVI_TRY(rcvi_device_new(l, (int64_t)w->feed.bytes, 1, &memory));
    w->device_block = memory;
    RCVI_TRY(rcvi_device_new(l, 1, sizeof(rcvi_outcome), &memory));
    w->outcome = memory;
    RCVI_TRY(make_arrays(w));
    return w->options.topology ? rcvi_exchange_new(w, &w->exchange) : RCV_OK;
}

rcv_status rcvi_work_new(rcv_learner *learner, const rcvi_work_options *options, rcvi_work **out) {
    *out = NULL;
    rcvi_work *w = rcvi_new(learner->context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->learner = learner;
    w->ops = learner->device->learn;
    w->options = *options;
    w->parameters = learner->parameters;
    rcv_status status = fill_work(w);
    if (status) {
        rcvi_work_free(w);
        return status;
    }
    *out = w;
    return RCV_OK;
}

void rcvi_work_free(rcvi_work *w) {
    if (!w) return;
    rcv_learner *l = w->learner;
    if (w->learn) w->ops->wait(w->learn);
    rcvi_exchange_free(w->exchange);
    while (w->window_count)
        rcvi_window_free(w, &w->windows[--w->window_count]); /* later ones use the memory of the first */
    rcvi_free(l->context, w->windows);
    void *const arrays[] = {w->x, w->y, w->dx, w->dy, w->head_features, w->dhead_features};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_device_free(l, arrays[i]);
    rcvi_device_free(l, w->masked_parameters);
    rcvi_device_free(l, w->gradient);
    rcvi_device_free(l, w->outcome);
    rcvi_device_free(l, w->device_block);
    rcvi_free(l->context, w->host_block);
    rcvi_free(l->context, w->slots);
    rcvi_free(l->context, w->read_rows);
    rcvi_free(l->context, w->row_starts);
    rcvi_free(l->context, w->lengths);
    rcvi_free(l->context, w->trace.spans);
    if (w->learn) w->ops->close(w->learn);
    rcvi_free(l->context, w);
}

rcv_status rcvi_work_add_window(rcvi_work *w, const rcvi_window_options *options, size_t *window) {
    if (!rcvi_grow(w->learner->context, &w->windows, &w->window_capacity, w->window_count + 1, sizeof *w->windows))
        return rcvi_no_memory(sizeof *w->windows);
    rcvi_window *v = &w->windows[w->window_count];
    *v = (rcvi_window){0};
    rcv_status status = rcvi_window_new(w, options, v);
    if (status) {
        rcvi_window_free(w, v);
        return status;
    }
    *window = w->window_count++;
    w->current_window = SIZE_MAX;
    return RCV_OK;
}

/* Another window's runs may have used the memory since this one's did. */
static rcv_status switch_window(rcvi_work *w, size_t window) {
    if (w->current_window == window) return RCV_OK;
    w->current_window = window;
    const rcvi_window *v = &w->windows[window];
    for (int64_t i = 0; i < v->in_flight * v->chunks; i++) RCVI_TRY(rcvi_run_reset(v->runs[i]));
    return RCV_OK;
}

rcv_status rcvi_work_open(rcvi_work *w, size_t window) {
    rcvi_window *v = &w->windows[window];
    rcv_status status = v->runs ? RCV_OK : rcvi_window_open(w, v);
    w->current_window = SIZE_MAX;
    if (status) rcvi_window_close(w, v);
    return status;
}

/* After its enqueued calls have ended. */
void rcvi_work_close(rcvi_work *w, size_t window) {
    if (!w->windows[window].runs) return;
    w->ops->wait(w->learn);
    rcvi_window_close(w, &w->windows[window]);
}

rcv_status rcvi_work_clear_states(rcvi_work *w, size_t window) {
    const rcvi_window *v = &w->windows[window];
    size_t count = rcv_net_state_count(w->learner->slice);
    for (int64_t m = 0; v->carries && m < v->micro; m++) {
        for (size_t s = 0; s < count; s++)
            RCVI_TRY(w->ops->clear(w->learn, rcvi_window_states(v, count, m, 0)[s], rcvi_window_state_bytes(w, v, s)));
    }
    return RCV_OK;
}

rcv_status rcvi_work_wait(rcvi_work *w) {
    RCVI_TRY(w->ops->wait(w->learn));
    for (size_t i = 0; i < w->window_count; i++) {
        const rcvi_window *v = &w->windows[i];
        for (int64_t r = 0; v->runs && r < v->in_flight * v->chunks; r++) RCVI_TRY(rcv_run_wait(v->runs[r]));
    }
    return RCV_OK;
}

static size_t window_bytes(const rcvi_work *w, const rcvi_window *v) {
    size_t bytes = 0;
    for (int64_t r = 0; v->runs && r < v->in_flight * v->chunks; r++) bytes += rcv_run_bytes(v->runs[r]);
    int64_t sets = (v->states ? v->micro * (v->chunks + 1) : 0) + (v->dstates ? 2 : 0);
    for (size_t s = 0; s < rcv_net_state_count(w->learner->slice); s++)
        bytes += (size_t)sets * rcvi_window_state_bytes(w, v, s);
    return bytes;
}

size_t rcvi_work_bytes(const rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l), bytes = w->feed.bytes + w->ops->bytes(w->learn);
    if (w->gradient) bytes += (size_t)rcvi_work_gradient_count(w) * real;
    if (w->masked_parameters) bytes += (size_t)rcv_net_parameter_elements(l->slice) * real;
    size_t rows = (size_t)w->options.rows, inputs = rows * (size_t)input_of(w), outputs = rows * (size_t)output_of(w);
    bytes += ((w->x ? inputs : 0) + (w->dx ? inputs : 0)) * real;
    bytes += ((w->y ? outputs : 0) + (w->dy ? outputs : 0) + (w->head_features ? outputs : 0) +
              (w->dhead_features ? outputs : 0)) *
             real;
    if (w->exchange) bytes += rcvi_exchange_bytes(w->exchange);
    for (size_t i = 0; i < w->window_count; i++) bytes += window_bytes(w, &w->windows[i]);
    return bytes;
}

rcv_status rcvi_work_trace(rcvi_work *w, rcvi_trace_kind kind, int64_t unit, double begin) {
    if (!w->trace.on) return RCV_OK;
    RCVI_TRY(w->ops->wait(w->learn));
    rcvi_trace_add(w->learner->context, &w->trace, kind, unit, begin);
    return RCV_OK;
}

/* ---- evaluation ---- */

/* Batches are numbered: a signal is the number of its batch. */
static uint64_t next_number(rcvi_work *w) { return ++w->batch_count; }

/* The states after the last chunk become those before the first of the next batch. */
static rcv_status carry_states(rcvi_work *w, const rcvi_window *v) {
    size_t count = rcv_net_state_count(w->learner->slice);
    for (int64_t m = 0; v->carries && m < v->micro; m++) {
        void **to = rcvi_window_states(v, count, m, 0), **from = rcvi_window_states(v, count, m, v->chunks);
        for (size_t s = 0; s < count; s++)
            RCVI_TRY(w->ops->copy(w->learn, to[s], from[s], rcvi_window_state_bytes(w, v, s)));
    }
    return RCV_OK;
}

/* Waits for the input from the stage below, computes, and sends the output to the stage above. */
static rcv_status forward_unit(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, uint64_t seed, bool first) {
    if (w->exchange) RCVI_TRY(rcvi_exchange_wait_for_unit(w->exchange, u, false));
    double begin = rcvi_trace_now(&w->trace);
    RCVI_TRY(rcvi_unit_forward(w, v, u, seed, first));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_FORWARD, u->number, begin));
    return w->exchange ? rcvi_exchange_send_unit(w->exchange, v, u, false) : RCV_OK;
}

/* What comes before the first unit of a batch. */
static rcv_status begin_batch(rcvi_work *w, size_t window, const rcvi_batch *batch, const rcvi_control *control) {
    const rcvi_window *v = &w->windows[window];
    RCVI_TRY(switch_window(w, window));
    RCVI_TRY(rcvi_feed_send(w, v, batch, control, 0));
    if (!batch->carries) RCVI_TRY(rcvi_work_clear_states(w, window));
    return rcvi_unit_prepare_parameters(w, v);
}

rcv_status rcvi_work_evaluate(rcvi_work *w, size_t window, const rcvi_batch *batch, bool first) {
    const rcvi_window *v = &w->windows[window];
    const rcvi_control control = {.number = next_number(w)};
    RCVI_TRY(begin_batch(w, window, batch, &control));
    if (w->exchange) RCVI_TRY(rcvi_exchange_begin(w->exchange, v, control.number, false));
    for (int64_t i = 0; i < rcvi_window_units(v); i++) {
        const rcvi_unit u = rcvi_unit_of(v, i);
        RCVI_TRY(forward_unit(w, v, &u, 0, i == 0));
        rcvi_head head = rcvi_unit_head(w, v, &u);
        head.adds_loss = !first || i > 0;
        if (w->learner->has_head) RCVI_TRY(w->ops->head(w->learn, &head, rcvi_feed_control(w), w->outcome));
    }
    RCVI_TRY(carry_states(w, v));
    return w->exchange ? rcvi_exchange_finish(w->exchange) : RCV_OK;
}

rcv_status rcvi_work_predict(rcvi_work *w, size_t window, const rcvi_batch *batch, bool first) {
    const rcvi_window *v = &w->windows[window];
    const rcvi_control control = {.number = next_number(w)};
    const rcvi_unit u = rcvi_unit_of(v, 0);
    RCVI_TRY(begin_batch(w, window, batch, &control));
    RCVI_TRY(rcvi_unit_forward(w, v, &u, 0, first));
    return carry_states(w, v);
}

/* ---- training ---- */

typedef struct {
    const rcvi_window *window;
    uint64_t seed;
    bool first;                  /* batch of the update */
    const rcvi_update *update;   /* of the last batch of an update; else NULL */
    int64_t forwards, backwards; /* units so far */
} training;

static rcv_status train_forward(rcvi_work *w, training *a, const rcvi_unit *u) {
    bool fresh = a->first && !a->forwards;
    a->forwards++;
    RCVI_TRY(forward_unit(w, a->window, u, a->seed, a->forwards == 1));
    if (!w->learner->has_head) return RCV_OK;
    double begin = rcvi_trace_now(&w->trace);
    RCVI_TRY(rcvi_unit_train_head(w, a->window, u, fresh));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_FORWARD, u->number, begin));
    bool last = a->update && a->forwards == rcvi_window_units(a->window);
    return w->exchange && last ? rcvi_exchange_signal_head(w->exchange) : RCV_OK;
}

static rcv_status train_backward(rcvi_work *w, training *a, const rcvi_unit *u) {
    bool fresh = a->first && !a->backwards;
    a->backwards++;
    bool last = a->update && a->backwards == rcvi_window_units(a->window);
    if (w->exchange) RCVI_TRY(rcvi_exchange_wait_for_unit(w->exchange, u, true));
    if (w->exchange) RCVI_TRY(rcvi_exchange_signal_layers(w->exchange, u, last));
    double begin = rcvi_trace_now(&w->trace);
    RCVI_TRY(rcvi_unit_backward(w, a->window, u, fresh));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_BACKWARD, u->number, begin));
    return w->exchange ? rcvi_exchange_send_unit(w->exchange, a->window, u, true) : RCV_OK;
}

static rcv_status enqueue_batch(rcvi_work *w, training a) {
    const rcvi_window *v = a.window;
    RCVI_TRY(rcvi_unit_prepare_parameters(w, v));
    for (int64_t i = 0; i < 2 * rcvi_window_units(v); i++) {
        const rcvi_unit u = rcvi_unit_of(v, v->tasks[i].unit);
        RCVI_TRY(v->tasks[i].backward ? train_backward(w, &a, &u) : train_forward(w, &a, &u));
    }
    double begin = rcvi_trace_now(&w->trace);
    RCVI_TRY(rcvi_unit_embedding_gradient(w, v, a.first));
    RCVI_TRY(carry_states(w, v));
    RCVI_TRY(rcvi_work_trace(w, RCVI_TRACE_OTHER, -1, begin));
    if (w->exchange && a.update) RCVI_TRY(rcvi_exchange_signal_inputs(w->exchange));
    if (w->exchange) RCVI_TRY(rcvi_exchange_finish(w->exchange));
    if (!a.update) return RCV_OK;
    RCVI_TRY(rcvi_unit_mask_gradient(w));
    if (w->exchange) return rcvi_exchange_update(w->exchange, a.update);
    rcvi_update whole = *a.update;
    const rcvi_unit u = rcvi_unit_of(v, 0);
    const rcvi_head head = rcvi_unit_head(w, v, &u);
    if (w->options.lean) whole.head = &head;
    return w->ops->update(w->learn, &whole, rcvi_feed_control(w), w->outcome);
}

/* The calls of a window are the same for every batch, so that a device can record them as a graph and replay it. Lengths are set before;
 * exchanges with other ranks are not recorded. */
rcv_status rcvi_work_train(rcvi_work *w, size_t window, const rcvi_batch *batch, const rcvi_control *control,
                           uint64_t update_seed, bool first, const rcvi_update *update) {
    rcvi_window *v = &w->windows[window];
    bool repeats = w->ops->replay && !v->fixed && !w->exchange, done = false;
    uint64_t key = 1 + window * 4 + (first ? 2 : 0) + (update ? 1 : 0);
    rcvi_control numbered = *control;
    const training a = {.window = v, .seed = control->seed, .first = first, .update = update};
    numbered.number = next_number(w);
    RCVI_TRY(switch_window(w, window));
    RCVI_TRY(rcvi_feed_send(w, v, batch, &numbered, update_seed));
    if (!batch->carries) RCVI_TRY(rcvi_work_clear_states(w, window));
    if (w->exchange) RCVI_TRY(rcvi_exchange_begin(w->exchange, v, numbered.number, update != NULL));
    if (repeats && v->lengths) RCVI_TRY(rcvi_run_set_lengths(v->runs[0], w->lengths));
    if (repeats) RCVI_TRY(w->ops->replay(w->learn, key, &done));
    if (done) return RCV_OK;
    rcv_status status = enqueue_batch(w, a);
    if (!repeats) return status;
    if (!status) return w->ops->end_recording(w->learn, key);
    w->ops->cancel_recording(w->learn, key);
    if (status != RCV_UNSUPPORTED) return status;
    v->fixed = true; /* call by call, then: nothing has been executed yet */
    return enqueue_batch(w, a);
}

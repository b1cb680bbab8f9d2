/* What is enqueued for a batch: inputs, the network, the output layer, and back; the update. */
#include "train/work.h"

#include "plan/run.h"

#include <string.h>

/* Masks of the trainer's own; those between layers have the layer's number. */
enum { SALT_EMBEDDING = 1000001, SALT_INPUT, SALT_OUTPUT, SALT_WEIGHT };

/* ---- life ---- */

int64_t rcvi_work_gradient_start(const rcvi_work *w) {
    return w->options.sparse || w->learner->shape.fixed ? w->learner->at_net : 0;
}

int64_t rcvi_work_gradient_count(const rcvi_work *w) {
    const rcv_learner *l = w->learner;
    return (w->options.lean ? l->at_weight : l->elements) - rcvi_work_gradient_start(w);
}

static rcv_status make_gradients(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l);
    RCVI_TRY(rcvi_device_new(l, rcvi_work_gradient_count(w), real, &w->gradient));
    return w->options.drops.weight > 0 ? rcvi_device_new(l, rcv_net_parameter_elements(l->net), real, &w->dropped)
                                       : RCV_OK;
}

/* Of as many rows as any window has. */
static rcv_status make_arrays(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l);
    int64_t rows = w->options.rows, inputs, outputs;
    if (!rcvi_multiply(rows, l->shape.embedding, &inputs) || !rcvi_multiply(rows, l->width, &outputs))
        return rcvi_fail(RCV_INVALID, "a batch of %lld rows is more than memory can address; use fewer",
                         (long long)rows);
    bool training = w->options.training, apart = !rcvi_tells_next(l) || (training && w->options.drops.output > 0);
    RCVI_TRY(rcvi_device_new(l, inputs, real, &w->x));
    RCVI_TRY(rcvi_device_new(l, outputs, real, &w->y));
    if (apart) RCVI_TRY(rcvi_device_new(l, outputs, real, &w->apart));
    if (!training) return RCV_OK;
    if (l->shape.tokens && !l->shape.fixed) RCVI_TRY(rcvi_device_new(l, inputs, real, &w->dx));
    RCVI_TRY(rcvi_device_new(l, outputs, real, &w->dy));
    return rcvi_tells_next(l) ? RCV_OK : rcvi_device_new(l, outputs, real, &w->dapart);
}

/* Gradients are written behind the head, and read by the update of their parts: a lean head may lie in their place. */
static rcv_status fill_work(rcvi_work *w) {
    const rcv_learner *l = w->learner;
    if (w->options.training) RCVI_TRY(make_gradients(w));
    const rcvi_learn_shape shape = {.dtype = l->dtype,
                                    .threads = w->options.threads,
                                    .rows = w->options.rows,
                                    .features = l->width,
                                    .classes = l->shape.outputs,
                                    .chunk = w->options.chunk,
                                    .training = w->options.training,
                                    .lean = w->options.lean,
                                    .spare = w->options.lean ? w->gradient : NULL,
                                    .spare_bytes = (size_t)rcvi_work_gradient_count(w) * rcvi_real_bytes(l)};
    RCVI_TRY(w->ops->open(l->context, l->ordinal, &shape, &w->learn));
    rcvi_feed_lay_out(w, &w->feed);
    w->here = rcvi_new(l->context, w->feed.bytes, 1);
    w->slots = rcvi_new(l->context, (size_t)l->shape.tokens, sizeof *w->slots);
    if (!w->here || !w->slots) return RCV_NO_MEMORY;
    memset(w->slots, 0xff, (size_t)l->shape.tokens * sizeof *w->slots);
    void *memory;
    RCVI_TRY(rcvi_device_new(l, (int64_t)w->feed.bytes, 1, &memory));
    w->there = memory;
    RCVI_TRY(rcvi_device_new(l, 1, sizeof(rcvi_outcome), &memory));
    w->outcome = memory;
    return make_arrays(w);
}

rcv_status rcvi_work_new(rcv_learner *learner, const rcvi_work_options *options, rcvi_work **out) {
    *out = NULL;
    rcvi_work *w = rcvi_new(learner->context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->learner = learner;
    w->ops = learner->device->learns;
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
    while (w->window_count) rcvi_window_free(w, &w->windows[--w->window_count]); /* who borrows goes first */
    rcvi_free(l->context, w->windows);
    void *const arrays[] = {w->x, w->y, w->dx, w->dy, w->apart, w->dapart};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_device_free(l, arrays[i]);
    rcvi_device_free(l, w->dropped);
    rcvi_device_free(l, w->gradient);
    rcvi_device_free(l, w->outcome);
    rcvi_device_free(l, w->there);
    rcvi_free(l->context, w->here);
    rcvi_free(l->context, w->slots);
    if (w->learn) w->ops->close(w->learn);
    rcvi_free(l->context, w);
}

rcv_status rcvi_work_window(rcvi_work *w, const rcvi_window_options *options, size_t *window) {
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
    w->turn = SIZE_MAX;
    return RCV_OK;
}

/* Another window's run may have used the memory meanwhile. */
static rcv_status turn_to(rcvi_work *w, size_t window) {
    if (w->turn == window) return RCV_OK;
    w->turn = window;
    return rcvi_run_renew(w->windows[window].run);
}

rcv_status rcvi_work_open(rcvi_work *w, size_t window) {
    rcvi_window *v = &w->windows[window];
    rcv_status status = v->run ? RCV_OK : rcvi_window_open(w, v);
    w->turn = SIZE_MAX;
    if (status) rcvi_window_close(v);
    return status;
}

/* What it has enqueued is done first. */
void rcvi_work_close(rcvi_work *w, size_t window) {
    if (!w->windows[window].run) return;
    w->ops->wait(w->learn);
    rcvi_window_close(&w->windows[window]);
}

rcv_status rcvi_work_forget(rcvi_work *w, size_t window) {
    const rcvi_window *v = &w->windows[window];
    for (size_t s = 0; v->carries && s < rcv_net_state_count(w->learner->net); s++)
        RCVI_TRY(w->ops->clear(w->learn, v->initial[s], rcvi_window_state_bytes(w, v, s)));
    return RCV_OK;
}

size_t rcvi_work_bytes(const rcvi_work *w) {
    const rcv_learner *l = w->learner;
    size_t real = rcvi_real_bytes(l), bytes = w->feed.bytes + w->ops->bytes(w->learn);
    if (w->gradient) bytes += (size_t)rcvi_work_gradient_count(w) * real;
    if (w->dropped) bytes += (size_t)rcv_net_parameter_elements(l->net) * real;
    size_t rows = (size_t)w->options.rows, inputs = rows * (size_t)l->shape.embedding,
           outputs = rows * (size_t)l->width;
    bytes += ((w->x ? inputs : 0) + (w->dx ? inputs : 0)) * real;
    bytes +=
        ((w->y ? outputs : 0) + (w->dy ? outputs : 0) + (w->apart ? outputs : 0) + (w->dapart ? outputs : 0)) * real;
    for (size_t i = 0; i < w->window_count; i++) {
        const rcvi_window *v = &w->windows[i];
        bytes += v->run ? rcv_run_bytes(v->run) : 0;
        for (size_t s = 0; v->carries && s < rcv_net_state_count(l->net); s++)
            bytes += 2 * rcvi_window_state_bytes(w, v, s);
    }
    return bytes;
}

/* ---- forwards ---- */

static rcvi_mask mask_of(const rcvi_work *w, const rcvi_window *v, double probability, uint64_t salt) {
    return (rcvi_mask){.kind = w->options.drops.variational ? RCVI_MASK_OVER_TIME : RCVI_MASK_ELEMENTS,
                       .probability = probability,
                       .salt = salt,
                       .period = v->batch};
}

static rcvi_mask word_mask(const rcvi_work *w) {
    return (rcvi_mask){.kind = RCVI_MASK_IDS,
                       .probability = w->options.drops.embedding,
                       .salt = SALT_EMBEDDING,
                       .ids = rcvi_feed_ids(w)};
}

/* Where the network's inputs lie. */
static rcv_status make_inputs(rcvi_work *w, const rcvi_window *v, const void **x) {
    const rcv_learner *l = w->learner;
    const rcvi_drops *drops = &w->options.drops;
    int64_t rows = v->steps * v->batch, columns = l->shape.embedding;
    *x = w->x;
    const void *from = w->x;
    if (l->shape.tokens)
        RCVI_TRY(w->ops->gather(w->learn, rows, columns, rcvi_feed_ids(w), w->parameters, w->x));
    else
        from = *x = w->there + w->feed.x;
    if (v->training && drops->embedding > 0 && l->shape.tokens) {
        rcvi_mask mask = word_mask(w);
        RCVI_TRY(w->ops->mask(w->learn, rows, columns, &mask, rcvi_feed_control(w), w->x, w->x));
    }
    if (v->training && drops->input > 0) {
        rcvi_mask mask = mask_of(w, v, drops->input, SALT_INPUT);
        RCVI_TRY(w->ops->mask(w->learn, rows, columns, &mask, rcvi_feed_control(w), from, w->x));
        *x = w->x;
    }
    return RCV_OK;
}

static bool is_recurrent(const rcv_parameter *p) { return !strncmp(p->name, "weight_hh", strlen("weight_hh")); }

/* Every matrix on a state with its mask, from `values` and back to it. */
static rcv_status mask_matrices(rcvi_work *w, void *values) {
    const rcv_net *net = w->learner->net;
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++) {
        const rcv_parameter *p = rcv_net_parameter(net, i);
        if (!is_recurrent(p)) continue;
        const rcvi_mask mask = {
            .kind = RCVI_MASK_ELEMENTS, .probability = w->options.drops.weight, .salt = SALT_WEIGHT + (uint64_t)i};
        void *at = rcvi_at(w->learner, values, p->offset);
        RCVI_TRY(w->ops->mask(w->learn, 1, p->count, &mask, rcvi_feed_update(w), at, at));
    }
    return RCV_OK;
}

static rcv_status net_parameters(rcvi_work *w, const rcvi_window *v, const void **parameters) {
    const rcv_learner *l = w->learner;
    *parameters = rcvi_at(l, w->parameters, l->at_net);
    if (!v->training || !w->dropped) return RCV_OK;
    size_t bytes = (size_t)rcv_net_parameter_elements(l->net) * rcvi_real_bytes(l);
    RCVI_TRY(w->ops->copy(w->learn, w->dropped, *parameters, bytes));
    *parameters = w->dropped;
    return mask_matrices(w, w->dropped);
}

static rcvi_head head_of(const rcvi_work *w, const rcvi_window *v) {
    const rcv_learner *l = w->learner;
    bool values = l->shape.kind == RCV_DATA_VALUES;
    return (rcvi_head){.rows = rcvi_tells_next(l) ? v->steps * v->batch : v->batch,
                       .y = v->seen,
                       .weight = rcvi_at(l, w->parameters, l->at_weight),
                       .bias = rcvi_at(l, w->parameters, l->at_bias),
                       .targets = values ? NULL : (const int32_t *)(const void *)(w->there + w->feed.targets),
                       .values = values ? w->there + w->feed.values : NULL,
                       .rounded = v->training && w->ops->head_weight,
                       .later = w->ops->head_rest};
}

static rcv_status forward(rcvi_work *w, rcvi_window *v, const int64_t *lengths, uint64_t seed) {
    const rcv_learner *l = w->learner;
    const void *x, *parameters;
    RCVI_TRY(make_inputs(w, v, &x));
    RCVI_TRY(net_parameters(w, v, &parameters));
    const rcv_forward data = {.parameters = parameters,
                              .x = x,
                              .lengths = lengths,
                              .initial = (const void *const *)v->initial,
                              .y = w->y,
                              .final = v->final,
                              .seed = seed};
    RCVI_TRY(rcv_run_forward(v->run, &data));
    if (v->training && w->ops->head_weight) {
        const rcvi_head head = head_of(w, v);
        RCVI_TRY(w->ops->head_weight(w->learn, &head, rcvi_run_beside(v->run, true)));
    }
    int64_t rows = v->steps * v->batch;
    if (!rcvi_tells_next(l)) {
        rows = v->batch;
        RCVI_TRY(w->ops->gather(w->learn, rows, l->width, (const int32_t *)(const void *)(w->there + w->feed.last),
                                w->y, v->seen));
    }
    if (!v->training || !(w->options.drops.output > 0)) return RCV_OK;
    rcvi_mask mask = mask_of(w, v, w->options.drops.output, SALT_OUTPUT);
    return w->ops->mask(w->learn, rows, l->width, &mask, rcvi_feed_control(w), rcvi_tells_next(l) ? w->y : v->seen,
                        v->seen);
}

/* States go on where there are any to carry. */
static rcv_status carry(rcvi_work *w, const rcvi_window *v) {
    for (size_t s = 0; v->carries && s < rcv_net_state_count(w->learner->net); s++)
        RCVI_TRY(w->ops->copy(w->learn, v->initial[s], v->final[s], rcvi_window_state_bytes(w, v, s)));
    return RCV_OK;
}

rcv_status rcvi_work_loss(rcvi_work *w, size_t window, const rcvi_batch *batch, bool first) {
    rcvi_window *v = &w->windows[window];
    const rcvi_control control = {0};
    RCVI_TRY(turn_to(w, window));
    RCVI_TRY(rcvi_feed_send(w, batch, &control, 0));
    if (!batch->carries) RCVI_TRY(rcvi_work_forget(w, window));
    RCVI_TRY(forward(w, v, batch->lengths, 0));
    rcvi_head head = head_of(w, v);
    head.adds_loss = !first;
    RCVI_TRY(w->ops->head(w->learn, &head, rcvi_feed_control(w), w->outcome));
    return carry(w, v);
}

rcv_status rcvi_work_step(rcvi_work *w, size_t window, const int32_t *tokens) {
    rcvi_window *v = &w->windows[window];
    RCVI_TRY(w->ops->send(w->learn, w->there + w->feed.ids, tokens, (size_t)v->batch * sizeof *tokens));
    RCVI_TRY(forward(w, v, NULL, 0));
    return carry(w, v);
}

/* ---- backwards ---- */

static rcvi_head head_with_gradients(const rcvi_work *w, const rcvi_window *v, bool first) {
    const rcv_learner *l = w->learner;
    rcvi_head head = head_of(w, v);
    int64_t start = rcvi_work_gradient_start(w);
    head.adds_loss = head.accumulate = !first;
    head.dy = v->dseen;
    if (w->options.lean) return head;
    head.dweight = rcvi_at(l, w->gradient, l->at_weight - start);
    head.dbias = rcvi_at(l, w->gradient, l->at_bias - start);
    return head;
}

static rcv_status backward_head(rcvi_work *w, rcvi_window *v, const rcvi_head *head) {
    const rcv_learner *l = w->learner;
    RCVI_TRY(w->ops->head(w->learn, head, rcvi_feed_control(w), w->outcome));
    if (w->options.drops.output > 0) {
        rcvi_mask mask = mask_of(w, v, w->options.drops.output, SALT_OUTPUT);
        RCVI_TRY(w->ops->mask(w->learn, head->rows, l->width, &mask, rcvi_feed_control(w), v->dseen, v->dseen));
    }
    if (rcvi_tells_next(l)) return RCV_OK;
    int64_t rows = v->steps * v->batch;
    rcvi_groups groups = rcvi_feed_groups(w, true);
    RCVI_TRY(w->ops->clear(w->learn, w->dy, (size_t)(rows * l->width) * rcvi_real_bytes(l)));
    return w->ops->scatter(w->learn, v->batch, l->width, &groups, true, v->dseen, w->dy);
}

/* The gradient of the network's inputs to the rows that they were. */
static rcv_status backward_inputs(rcvi_work *w, rcvi_window *v, bool first) {
    const rcv_learner *l = w->learner;
    const rcvi_drops *drops = &w->options.drops;
    int64_t rows = v->steps * v->batch, columns = l->shape.embedding;
    if (drops->input > 0) {
        rcvi_mask mask = mask_of(w, v, drops->input, SALT_INPUT);
        RCVI_TRY(w->ops->mask(w->learn, rows, columns, &mask, rcvi_feed_control(w), w->dx, w->dx));
    }
    if (drops->embedding > 0) {
        rcvi_mask mask = word_mask(w);
        RCVI_TRY(w->ops->mask(w->learn, rows, columns, &mask, rcvi_feed_control(w), w->dx, w->dx));
    }
    rcvi_groups groups = rcvi_feed_groups(w, false);
    if (w->options.sparse) return w->ops->scatter(w->learn, rows, columns, &groups, false, w->dx, w->x);
    if (first && !l->shape.tied) /* where it is tied, the output layer has overwritten it */
        RCVI_TRY(w->ops->clear(w->learn, w->gradient, (size_t)(l->shape.tokens * columns) * rcvi_real_bytes(l)));
    return w->ops->scatter(w->learn, rows, columns, &groups, true, w->dx, w->gradient);
}

static rcv_status backward(rcvi_work *w, rcvi_window *v, bool first) {
    const rcv_learner *l = w->learner;
    void *gradient = rcvi_at(l, w->gradient, l->at_net - rcvi_work_gradient_start(w));
    const rcvi_head head = head_with_gradients(w, v, first);
    RCVI_TRY(backward_head(w, v, &head));
    const rcv_backward data = {.dy = w->dy, .dx = w->dx, .dparameters = gradient, .accumulate = !first};
    RCVI_TRY(rcv_run_backward(v->run, &data));
    if (w->ops->head_rest) RCVI_TRY(w->ops->head_rest(w->learn, &head, rcvi_run_beside(v->run, false)));
    return w->dx ? backward_inputs(w, v, first) : RCV_OK;
}

/* ---- learning ---- */

static rcv_status enqueue(rcvi_work *w, rcvi_window *v, const rcvi_batch *batch, uint64_t seed, bool first,
                          const rcvi_update *update) {
    const rcv_learner *l = w->learner;
    RCVI_TRY(forward(w, v, batch->lengths, seed));
    RCVI_TRY(backward(w, v, first));
    RCVI_TRY(carry(w, v));
    if (!update) return RCV_OK;
    if (w->dropped) RCVI_TRY(mask_matrices(w, rcvi_at(l, w->gradient, l->at_net - rcvi_work_gradient_start(w))));
    rcvi_update whole = *update;
    const rcvi_head head = head_of(w, v);
    if (w->options.lean) whole.head = &head;
    return w->ops->update(w->learn, &whole, rcvi_feed_control(w), w->outcome);
}

/* What is enqueued for a window is the same every time, but for lengths, which are sent before. */
rcv_status rcvi_work_learn(rcvi_work *w, size_t window, const rcvi_batch *batch, const rcvi_control *control,
                           uint64_t update_seed, bool first, const rcvi_update *update) {
    rcvi_window *v = &w->windows[window];
    bool repeats = w->ops->replay && !v->fixed, done = false;
    uint64_t key = 1 + window * 4 + (first ? 2 : 0) + (update ? 1 : 0);
    RCVI_TRY(turn_to(w, window));
    RCVI_TRY(rcvi_feed_send(w, batch, control, update_seed));
    if (!batch->carries) RCVI_TRY(rcvi_work_forget(w, window));
    if (repeats && v->lengths) RCVI_TRY(rcvi_run_announce(v->run, batch->lengths));
    if (repeats) RCVI_TRY(w->ops->replay(w->learn, key, &done));
    if (done) return RCV_OK;
    rcv_status status = enqueue(w, v, batch, control->seed, first, update);
    if (!repeats) return status;
    if (!status) return w->ops->recorded(w->learn, key);
    w->ops->abandon(w->learn, key);
    if (status != RCV_UNSUPPORTED) return status;
    v->fixed = true; /* one by one, then: nothing has been carried out */
    return enqueue(w, v, batch, control->seed, first, update);
}

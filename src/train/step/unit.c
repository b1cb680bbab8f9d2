/* Forward and backward pass of one unit of a batch: inputs, the layers that are here, the output layer. */
#include "train/step/work.h"

#include "net/net.h"
#include "plan/run.h"
#include "train/step/exchange.h"

#include <string.h>

/* Salts of the masks that are made here; the masks between layers have the layer's number. */
enum { SALT_EMBEDDING = 1000001, SALT_INPUT, SALT_OUTPUT, SALT_WEIGHT };

rcvi_unit rcvi_unit_of(const rcvi_window *v, int64_t number) {
    int64_t m = number / v->chunks, k = number % v->chunks;
    return (rcvi_unit){.number = number,
                       .micro = m,
                       .chunk = k,
                       .row = number * v->pitch,
                       .run = v->runs[m % v->in_flight * v->chunks + k]};
}

/* The part of the whole batch that the unit is: masks are functions of the position in the whole. */
static rcvi_shard shard_of(const rcvi_window *v, const rcvi_unit *u) {
    bool all = rcvi_window_units(v) == 1 && v->whole == v->batch;
    if (all) return (rcvi_shard){0};
    return (rcvi_shard){u->chunk * v->steps, v->first + u->micro * v->batch, v->whole};
}

static int64_t input_of(const rcvi_work *w) { return w->learner->slice->options.input; }
static int64_t output_of(const rcvi_work *w) { return rcv_net_output(w->learner->slice); }

/* Address of a row of an array with so many columns. */
static void *row_at(const rcvi_work *w, const void *array, int64_t row, int64_t columns) {
    return rcvi_element_at(w->learner, array, row * columns);
}

/* The unit's first row of head_features: these have a row per step, or one per sequence. */
static int64_t head_row(const rcvi_work *w, const rcvi_window *v, const rcvi_unit *u) {
    return rcvi_predicts_steps(w->learner) ? u->row : u->micro * v->target_pitch;
}

/* ---- masks ---- */

static rcvi_mask mask_of(const rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, double probability,
                         uint64_t salt) {
    return (rcvi_mask){.kind = w->options.drops.variational ? RCVI_MASK_OVER_TIME : RCVI_MASK_ELEMENTS,
                       .probability = probability,
                       .salt = salt,
                       .period = v->batch,
                       .shard = shard_of(v, u)};
}

/* Drops whole words. */
static rcvi_mask word_mask(const rcvi_work *w, const rcvi_unit *u) {
    return (rcvi_mask){.kind = RCVI_MASK_IDS,
                       .probability = w->options.drops.embedding,
                       .salt = SALT_EMBEDDING,
                       .ids = rcvi_feed_ids(w) + u->row};
}

/* Probability of dropout between the stage below and the first layer here, which is applied here. */
static double dropout_below(const rcvi_work *w, const rcvi_window *v) {
    return v->training && !w->learner->has_embedding ? w->learner->net->options.dropout : 0;
}

static rcv_status mask_rows(rcvi_work *w, const rcvi_window *v, int64_t columns, const rcvi_mask *mask,
                            const void *from, void *to) {
    return w->ops->mask(w->learn, v->steps * v->batch, columns, mask, rcvi_feed_control(w), from, to);
}

/* ---- forward ---- */

/* Makes the unit's inputs, and gives their address. */
static rcv_status make_inputs(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, const void **x) {
    const rcv_learner *l = w->learner;
    const rcvi_drops *drops = &w->options.drops;
    int64_t columns = input_of(w);
    void *here = row_at(w, w->x, u->row, columns);
    const void *from = here;
    *x = here;
    if (dropout_below(w, v) > 0) {
        rcvi_mask mask = mask_of(w, v, u, dropout_below(w, v), (uint64_t)l->slice->first);
        RCVI_TRY(mask_rows(w, v, columns, &mask, here, here));
    }
    if (!l->has_embedding) return RCV_OK;
    if (l->shape.tokens)
        RCVI_TRY(
            w->ops->gather(w->learn, v->steps * v->batch, columns, rcvi_feed_ids(w) + u->row, w->parameters, here));
    else
        from = *x = row_at(w, w->device_block + w->feed.x, u->row, columns);
    if (v->training && drops->embedding > 0 && l->shape.tokens) {
        rcvi_mask mask = word_mask(w, u);
        RCVI_TRY(mask_rows(w, v, columns, &mask, here, here));
    }
    if (v->training && drops->input > 0) {
        rcvi_mask mask = mask_of(w, v, u, drops->input, SALT_INPUT);
        RCVI_TRY(mask_rows(w, v, columns, &mask, from, here));
        *x = here;
    }
    return RCV_OK;
}

static bool is_recurrent(const rcv_parameter *p) { return !strncmp(p->name, "weight_hh", strlen("weight_hh")); }

/* Weight drop: masks every matrix that multiplies a state, in place, in an array over the parameters of the layers that are here. */
static rcv_status mask_matrices(rcvi_work *w, void *values) {
    const rcv_learner *l = w->learner;
    int64_t start = l->slice_offset - l->net_offset, end = start + rcv_net_parameter_elements(l->slice);
    for (size_t i = 0; i < rcv_net_parameter_count(l->net); i++) {
        const rcv_parameter *p = rcv_net_parameter(l->net, i);
        if (!is_recurrent(p) || p->offset < start || p->offset >= end) continue;
        const rcvi_mask mask = {
            .kind = RCVI_MASK_ELEMENTS, .probability = w->options.drops.weight, .salt = SALT_WEIGHT + (uint64_t)i};
        void *at = rcvi_element_at(l, values, p->offset - start);
        RCVI_TRY(w->ops->mask(w->learn, 1, p->count, &mask, rcvi_feed_update(w), at, at));
    }
    return RCV_OK;
}

rcv_status rcvi_unit_mask_gradient(rcvi_work *w) {
    return w->masked_parameters ? mask_matrices(w, rcvi_gradient_at(w, w->learner->slice_offset)) : RCV_OK;
}

rcv_status rcvi_unit_prepare_parameters(rcvi_work *w, const rcvi_window *v) {
    const rcv_learner *l = w->learner;
    w->layer_parameters = rcvi_local_element_at(l, w->parameters, l->slice_offset);
    if (!v->training || !w->masked_parameters) return RCV_OK;
    size_t bytes = (size_t)rcv_net_parameter_elements(l->slice) * rcvi_real_bytes(l);
    RCVI_TRY(w->ops->copy(w->learn, w->masked_parameters, w->layer_parameters, bytes));
    w->layer_parameters = w->masked_parameters;
    return mask_matrices(w, w->masked_parameters);
}

/* The gradients of the output layer may be computed beside the backward pass: not with several units, which accumulate them one after the
 * other, nor where replicas reduce them during that pass. */
static bool head_may_wait(const rcvi_work *w, const rcvi_window *v) {
    const rcvi_topology *topology = w->options.topology;
    return w->ops->head_gradients && rcvi_window_units(v) == 1 && !(topology && topology->reduces_gradients);
}

rcvi_head rcvi_unit_head(const rcvi_work *w, const rcvi_window *v, const rcvi_unit *u) {
    const rcv_learner *l = w->learner;
    bool values = rcvi_kind_has_values(l->shape.kind);
    int64_t row = head_row(w, v, u);
    const int32_t *targets = (const int32_t *)(const void *)(w->device_block + w->feed.targets);
    return (rcvi_head){.rows = rcvi_predicts_steps(l) ? v->steps * v->batch : v->batch,
                       .y = row_at(w, v->head_features, row, l->width),
                       .weight = rcvi_local_element_at(l, w->parameters, l->weight_offset),
                       .bias = rcvi_local_element_at(l, w->parameters, l->bias_offset),
                       .targets = values ? NULL : targets + row,
                       .class_weights = l->device_weights,
                       .values = values ? row_at(w, w->device_block + w->feed.values, row, l->shape.outputs) : NULL,
                       .rounded = v->training && w->ops->prepare_head,
                       .later = head_may_wait(w, v)};
}

/* Makes the features that the output layer reads, where these are not y itself. */
static rcv_status make_head_features(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u) {
    const rcv_learner *l = w->learner;
    int64_t row = head_row(w, v, u), rows = v->steps * v->batch;
    void *features = row_at(w, v->head_features, row, l->width);
    const void *from = row_at(w, w->y, u->row, l->width);
    if (!rcvi_predicts_steps(l)) {
        const int32_t *last = (const int32_t *)(const void *)(w->device_block + w->feed.last);
        rows = v->batch;
        from = features;
        RCVI_TRY(w->ops->gather(w->learn, rows, l->width, last + row, w->y, features));
    }
    if (!v->training || !(w->options.drops.output > 0)) return RCV_OK;
    rcvi_mask mask = mask_of(w, v, u, w->options.drops.output, SALT_OUTPUT);
    return w->ops->mask(w->learn, rows, l->width, &mask, rcvi_feed_control(w), from, features);
}

/* Weights are packed by the first use of a run in a batch, or, where runs share packed weights, by the first run alone. */
rcv_status rcvi_unit_forward(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, uint64_t seed, bool first) {
    const rcvi_shard shard = shard_of(v, u);
    size_t states = rcv_net_state_count(w->learner->slice);
    const void *x;
    RCVI_TRY(make_inputs(w, v, u, &x));
    const rcv_forward data = RCV_INIT(rcv_forward, .parameters = w->layer_parameters, .x = x,
                                      .lengths = v->lengths ? w->lengths + u->micro * v->batch : NULL,
                                      .initial = (const void *const *)rcvi_window_states(v, states, u->micro, u->chunk),
                                      .y = row_at(w, w->y, u->row, output_of(w)),
                                      .final = rcvi_window_states(v, states, u->micro, u->chunk + 1), .seed = seed,
                                      .same_parameters = v->packs_once ? !first : u->micro >= v->in_flight);
    rcvi_run_set_shard(u->run, &shard);
    RCVI_TRY(rcv_run_forward(u->run, &data));
    if (!w->learner->has_head) return RCV_OK;
    if (v->training && w->ops->prepare_head && !u->number) {
        const rcvi_head head = rcvi_unit_head(w, v, u);
        RCVI_TRY(w->ops->prepare_head(w->learn, &head, rcvi_run_loop_event(u->run, true)));
    }
    return make_head_features(w, v, u);
}

/* ---- backward ---- */

static rcvi_head head_with_gradients(const rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, bool fresh) {
    const rcv_learner *l = w->learner;
    rcvi_head head = rcvi_unit_head(w, v, u);
    head.adds_loss = head.accumulate = !fresh;
    head.dy = row_at(w, v->dhead_features, head_row(w, v, u), l->width);
    if (w->options.lean) return head;
    head.dweight = rcvi_gradient_at(w, l->weight_offset);
    head.dbias = rcvi_gradient_at(w, l->bias_offset);
    return head;
}

rcv_status rcvi_unit_train_head(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, bool fresh) {
    const rcv_learner *l = w->learner;
    const rcvi_head head = head_with_gradients(w, v, u, fresh);
    RCVI_TRY(w->ops->head(w->learn, &head, rcvi_feed_control(w), w->outcome));
    if (w->options.drops.output > 0) {
        rcvi_mask mask = mask_of(w, v, u, w->options.drops.output, SALT_OUTPUT);
        RCVI_TRY(w->ops->mask(w->learn, head.rows, l->width, &mask, rcvi_feed_control(w), head.dy, head.dy));
    }
    if (rcvi_predicts_steps(l)) return RCV_OK;
    size_t bytes = (size_t)(v->steps * v->batch * l->width) * rcvi_real_bytes(l);
    rcvi_groups groups = rcvi_feed_last(w, v, u->micro);
    RCVI_TRY(w->ops->clear(w->learn, row_at(w, w->dy, u->row, l->width), bytes));
    return w->ops->scatter(w->learn, v->batch, l->width, &groups, true, head.dy, w->dy);
}

/* Gradients of the states before a chunk, which the chunk hands to the one before; NULL at the ends of the window. */
static void **dstates_of(const rcvi_work *w, const rcvi_window *v, int64_t chunk) {
    bool inside = v->dstates && chunk > 0 && chunk < v->chunks;
    return inside ? v->dstates + (size_t)(chunk % 2) * rcv_net_state_count(w->learner->slice) : NULL;
}

rcv_status rcvi_unit_backward(rcvi_work *w, const rcvi_window *v, const rcvi_unit *u, bool fresh) {
    const rcv_learner *l = w->learner;
    int64_t columns = input_of(w);
    void *dx = w->dx ? row_at(w, w->dx, u->row, columns) : NULL;
    const rcv_backward data = RCV_INIT(rcv_backward, .dy = row_at(w, w->dy, u->row, output_of(w)),
                                       .dfinal = (const void *const *)dstates_of(w, v, u->chunk + 1), .dx = dx,
                                       .dinitial = dstates_of(w, v, u->chunk),
                                       .dparameters = rcvi_gradient_at(w, l->slice_offset), .accumulate = !fresh);
    RCVI_TRY(rcv_run_backward(u->run, &data));
    if (l->has_head && head_may_wait(w, v)) {
        const rcvi_head head = head_with_gradients(w, v, u, fresh);
        RCVI_TRY(w->ops->head_gradients(w->learn, &head, rcvi_run_loop_event(u->run, false)));
    }
    if (!(dropout_below(w, v) > 0)) return RCV_OK;
    rcvi_mask mask = mask_of(w, v, u, dropout_below(w, v), (uint64_t)l->slice->first);
    return mask_rows(w, v, columns, &mask, dx, dx);
}

static rcv_status mask_inputs(rcvi_work *w, const rcvi_window *v) {
    const rcvi_drops *drops = &w->options.drops;
    int64_t columns = input_of(w);
    for (int64_t i = 0; i < rcvi_window_units(v); i++) {
        const rcvi_unit u = rcvi_unit_of(v, i);
        void *dx = row_at(w, w->dx, u.row, columns);
        rcvi_mask input = mask_of(w, v, &u, drops->input, SALT_INPUT), words = word_mask(w, &u);
        if (drops->input > 0) RCVI_TRY(mask_rows(w, v, columns, &input, dx, dx));
        if (drops->embedding > 0) RCVI_TRY(mask_rows(w, v, columns, &words, dx, dx));
    }
    return RCV_OK;
}

rcv_status rcvi_unit_embedding_gradient(rcvi_work *w, const rcvi_window *v, bool fresh) {
    const rcv_learner *l = w->learner;
    if (!w->dx || !l->has_embedding) return RCV_OK;
    int64_t rows = rcvi_window_rows(v), columns = input_of(w);
    RCVI_TRY(mask_inputs(w, v));
    rcvi_groups groups = rcvi_feed_groups(w);
    if (w->options.sparse) {
        void *to = rcvi_work_merges(w) ? rcvi_exchange_rows(w->exchange) : w->x;
        return w->ops->scatter(w->learn, rows, columns, &groups, false, w->dx, to);
    }
    if (fresh && !l->shape.tied) /* a tied one was overwritten by the output layer's gradient */
        RCVI_TRY(w->ops->clear(w->learn, w->gradient, (size_t)(l->shape.tokens * columns) * rcvi_real_bytes(l)));
    return w->ops->scatter(w->learn, rows, columns, &groups, true, w->dx, w->gradient);
}

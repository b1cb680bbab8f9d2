/* Retimed tracks: a backward sweep whose products are computed at the beginning of the next step (retime.h), and its tail.
 *
 * It applies on a GPU with combine, fuse and pack, without resets, recomputation and loop distribution; with lengths to networks of one
 * direction, forwards, layer by layer. With lengths the operands of late products are zero in steps that a sequence does not have, and so are
 * the products; a late state keeps the caller's value until the sequence's last step. After the last step of such a sweep the products of that step are left: the tail computes them from the first slots of their operands. It writes the adjoints
 * of the first states and, where dx is late, the dx of the first step. */
#include "schedule/stepwise/stepwise.h"

/* With lengths the last step of the sweep must be one that no sequence leaves out, and the tail outside of the loop. */
static bool may_retime(const rcvi_stepwise *w, const rcvi_track *t) {
    bool ends_together = !t->is_reversed && w->frame.net->directions == 1 && !w->pass.is_wavefront;
    return w->modes.retime && (!w->frame.ragged || ends_together);
}

void rcvi_track_retime(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_graph *adjoint = rcvi_track_adjoint(w, t);
    if (may_retime(w, t) && !w->frame.program->failed)
        t->is_retimed = rcvi_retime(w->frame.program, adjoint, w->pass.chunk == 1, &t->retimed);
}

bool rcvi_track_is_dx_late(const rcvi_track *t) { return t->is_retimed && t->retimed.output_late; }

bool rcvi_track_has_tail_in_loop(const rcvi_stepwise *w, const rcvi_track *t) {
    return rcvi_track_is_dx_late(t) && w->pass.is_wavefront;
}

/* In the loop the tail is due when the sweep's time is -1, and at no other: its own time is -1 - t times more
 * steps than any program of the plan is written for (program/sizes.h). */
static rcvi_time_map tail_time_map(const rcvi_stepwise *w, const rcvi_track *t) {
    rcvi_time_map time_map = rcvi_time_map_new(w->frame.steps, w->frame.batch, 1, 0, true);
    const rcvi_time *own = &t->backward.time_map.step;
    int64_t steps = 2 * w->frame.program->options.steps + 16;
    time_map.step = (rcvi_time){.span = 1};
    if (rcvi_track_has_tail_in_loop(w, t)) {
        time_map.step = *own;
        time_map.step.base = -(own->base + 1) * steps;
        time_map.step.inner = -own->inner * steps;
        time_map.step.outer = -own->outer * steps;
    }
    return time_map;
}

/* Inputs of the tail: the operands of the products, then what the backward sweep left of late states. */
static void place_tail_inputs(const rcvi_track *t, rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    for (int i = 0; i < t->retimed.operand_count; i++) {
        const rcvi_storage *from = &t->backward.fusions[0].storage[t->retimed.operands[i]];
        f->storage[graph->inputs[i].value] =
            (rcvi_storage){.kind = RCVI_FIXED, .buffer = from->buffer, .offset = from->offset, .row = from->row};
        f->given[graph->inputs[i].value] = true;
    }
    size_t input = (size_t)t->retimed.operand_count;
    for (size_t s = 0; s < t->retimed.states; s++) {
        if (!t->retimed.is_late[s] || !t->retimed.has_rest[s]) continue;
        const rcvi_storage *state = &t->backward.states[s];
        f->storage[graph->inputs[input].value] =
            (rcvi_storage){.kind = RCVI_FIXED, .buffer = state->buffer, .row = state->row};
        f->given[graph->inputs[input++].value] = true;
    }
}

void rcvi_tail_open(rcvi_stepwise *w, rcvi_track *t) {
    if (!rcvi_track_open_sweep(w, t, &t->tail, RCVI_SWEEP_BACKWARD, &t->retimed.last, tail_time_map(w, t), false))
        return;
    rcvi_fusion *f = &t->tail.fusions[0];
    const rcvi_graph *graph = f->emitter.graph;
    place_tail_inputs(t, f);
    rcvi_fusion_analyse(f);
    size_t output = 0;
    for (size_t s = 0; s < t->retimed.states && !w->frame.program->failed; s++) {
        if (!t->retimed.is_late[s]) continue;
        t->tail_adjoints[s] = rcvi_track_state_buffer(w, t, rcvi_track_adjoint(w, t), s, 1, "first");
        rcvi_fusion_store(
            f, graph->outputs[output++].value,
            (rcvi_storage){.kind = RCVI_FIXED, .buffer = t->tail_adjoints[s], .row = t->backward.states[s].row});
    }
    rcvi_storage dx = {.kind = RCVI_FIXED, .buffer = t->dx, .row = rcvi_track_layer(w, t)->input};
    if (t->retimed.output_late) rcvi_fusion_store(f, graph->outputs[output].value, dx);
    rcvi_fusion_prepare(f);
}

void rcvi_tail_write(rcvi_stepwise *w, rcvi_track *t) {
    rcvi_track_mark(w, t);
    rcvi_fusion_emit(&t->tail.fusions[0], RCVI_IN_LOOP);
}

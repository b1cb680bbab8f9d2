/* Backward sweeps: a set of tracks through time, backwards, over the adjoint of the cell.
 *
 * Written for every layer in training. A set's program is: adjoints of the final states; loops over chunks and steps, with a recomputing
 * sweep first where the plan recomputes, then for each part the work before, in and after its loop; the tail of retimed tracks;
 * gradients of the parameters that are deferred; adjoints of the initial and restart states. Gradients that are not deferred are summed
 * at every step, or after every chunk. */
#include "schedule/stepwise/stepwise.h"

/* ---- opening ---- */

/* Where the adjoint graph reads a value of the forward sweep. */
static rcvi_storage forward_storage(const rcvi_stepwise *w, const rcvi_track *t, int source) {
    const rcvi_sweep *s = w->modes.recompute ? &t->recomputed : &t->forward;
    const rcvi_graph *forward = rcvi_track_graph(w, t);
    bool computed = rcvi_operations[forward->values[source].operation].arguments > 0;
    if (computed && rcvi_track_slot_holds(w, forward, source))
        return rcvi_storage_later(&s->time_map, s->states[rcvi_graph_state_of_next(forward, source)]);
    return s->kept[source].kind != RCVI_NOT_STORED ? s->kept[source] : rcvi_sweep_fusion_of(s, source)->storage[source];
}

/* Adjoints of the states: a ring of two slots, or, where later parts read them, all steps. The first ones are the caller's. */
static void open_adjoint_states(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *s) {
    const rcvi_graph *graph = s->graph;
    rcvi_frame *frame = &w->frame;
    bool ring = s->parts.count == 1;
    for (size_t i = 0; i < rcvi_track_adjoint(w, t)->state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i), row = ring ? size : rcvi_program_row(frame->program, size);
        const char *name = graph->states[i].name;
        int buffer = rcvi_frame_buffer(frame, ring ? 2 : frame->steps + 1, row, "%sadjoint.%s", t->label, name);
        s->states[i] = (rcvi_storage){.kind = ring ? RCVI_RING : RCVI_OVER_TIME, .buffer = buffer, .row = row};
        rcvi_view first = rcvi_whole_view(buffer, row);
        if (ring)
            first = rcvi_storage_ring_slot(&s->states[i], frame->batch, frame->steps);
        else
            first.offset = frame->steps * frame->batch * row;
        rcvi_emit_copy(frame->program, frame->batch, size, first,
                       rcvi_state_block(frame, RCVI_DFINAL, i, t->layer, t->direction, size));
        if (frame->ragged)
            t->incoming[i] = rcvi_frame_buffer(frame, ring ? 1 : frame->steps, row, "%sarriving.%s", t->label, name);
        if (frame->resets) {
            t->drestarts[i] = rcvi_track_state_buffer(w, t, graph, i, 1, "drestart");
            t->at_reset[i] = rcvi_track_state_buffer(w, t, graph, i, 1, "ending");
            rcvi_emit_fill(frame->program, frame->batch, size, rcvi_whole_view(t->drestarts[i], size), 0);
        }
    }
}

/* Inputs of the adjoint: dy, and what the forward sweep kept. storage: [values] */
static void place_inputs(rcvi_stepwise *w, rcvi_track *t, const rcvi_graph *graph, int dy, rcvi_storage *storage) {
    int64_t columns = rcvi_track_layer(w, t)->output;
    for (size_t i = 0; i < graph->input_count; i++) {
        const rcvi_graph_input *input = &graph->inputs[i];
        if (input->source != RCVI_NONE) {
            storage[input->value] = forward_storage(w, t, input->source);
        } else {
            rcvi_storage shared = rcvi_track_values_into(w, t, t->layer + 1, dy, t->direction * columns,
                                                         columns * w->frame.net->directions);
            storage[input->value] = rcvi_track_own_order(w, t, shared, columns, "dy");
        }
    }
}

/* A late state whose next value is products only: they are computed at the next step, and its slot holds zeros. */
static bool is_cleared(const rcvi_track *t, size_t state) {
    return t->is_retimed && t->retimed.is_late[state] && !t->retimed.has_rest[state];
}

/* What a part is given, and what others read of it. */
static void mark_values(const rcvi_stepwise *w, const rcvi_track *t, rcvi_fusion *f, const rcvi_storage *inputs) {
    const rcvi_sweep *s = &t->backward;
    const rcvi_graph *graph = s->graph;
    size_t states = rcvi_track_adjoint(w, t)->state_count;
    if (t->is_retimed) {
        f->late = t->retimed.operands;
        f->late_count = t->retimed.operand_count;
        f->late_first = states;
        for (size_t i = states; i < graph->state_count; i++) f->given[graph->states[i].value] = true;
    }
    for (size_t i = 0; i < graph->input_count; i++) {
        f->given[graph->inputs[i].value] = true;
        f->storage[graph->inputs[i].value] = inputs[graph->inputs[i].value];
    }
    for (size_t i = 0; i < states; i++) {
        f->given[graph->states[i].value] = true;
        f->storage[graph->states[i].value] = rcvi_incoming_adjoint(w, t, s, i);
        if (w->frame.ragged && !is_cleared(t, i)) f->needed[graph->states[i].next] = true;
    }
    f->defers_gradients = w->modes.defer_gradients;
}

static void open_part(rcvi_stepwise *w, rcvi_track *t, int part, const rcvi_storage *inputs) {
    rcvi_frame *frame = &w->frame;
    rcvi_sweep *s = &t->backward;
    const rcvi_graph *graph = s->graph;
    rcvi_fusion *f = &s->fusions[part];
    mark_values(w, t, f, inputs);
    rcvi_sweep_restrict(s, part);
    if (frame->program->failed) return;
    rcvi_fusion_analyse(f);
    bool is_distributed = s->parts.count > 1;
    if (is_distributed && frame->resets) rcvi_sweep_store_shared(s, part, true);
    for (size_t i = 0; i < rcvi_track_adjoint(w, t)->state_count && !frame->program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        if (is_cleared(t, i)) {
            if (!frame->ragged) rcvi_fusion_clear_each_step(f, s->states[i], rcvi_state_size(graph, i));
            continue;
        }
        rcvi_track_make_readable(w, t, f, next);
        if (rcvi_track_stores_directly(w, f, next)) rcvi_fusion_store(f, next, s->states[i]);
    }
    if (is_distributed) rcvi_sweep_store_shared(s, part, false);
    int out = graph->outputs[0].value;
    rcvi_storage dx = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = rcvi_track_layer(w, t)->input};
    if (rcvi_track_is_dx_late(t)) dx = rcvi_storage_later(&f->time_map, dx);
    if (rcvi_fusion_computes(f, out)) rcvi_fusion_store(f, out, dx);
    rcvi_fusion_prepare(f);
}

static void open_backward(rcvi_stepwise *w, rcvi_track *t, int dy, int dx) {
    rcvi_frame *frame = &w->frame;
    const rcvi_graph *graph = t->is_retimed ? &t->retimed.graph : rcvi_track_adjoint(w, t);
    rcvi_time_map time_map = rcvi_track_time_map(w, t, true);
    if (!rcvi_track_open_sweep(w, t, &t->backward, RCVI_SWEEP_BACKWARD, graph, time_map, w->modes.distribute)) return;
    rcvi_storage *inputs = rcvi_pool_new(&frame->program->pool, graph->value_count, sizeof *inputs);
    if (!inputs) frame->program->failed = true;
    if (frame->program->failed) return;
    place_inputs(w, t, graph, dy, inputs);
    open_adjoint_states(w, t, &t->backward);
    int64_t width = rcvi_track_layer(w, t)->input, slots = frame->steps + rcvi_track_is_dx_late(t);
    bool own = t->is_reversed && !rcvi_frame_is_in_time_order(frame, t->layer);
    t->dx = own ? rcvi_frame_buffer(frame, slots, width, "%sdx", t->label) : dx;
    for (int part = 0; part < t->backward.parts.count && !frame->program->failed; part++) open_part(w, t, part, inputs);
    if (t->is_retimed && !frame->program->failed) rcvi_tail_open(w, t);
}

int rcvi_backward_new_dx(rcvi_stepwise *w, int64_t layer) {
    int64_t directions = w->frame.net->directions;
    bool late = false;
    for (int64_t d = 0; d < directions; d++) late |= rcvi_track_is_dx_late(&w->tracks[layer * directions + d]);
    int dx = rcvi_frame_buffer(&w->frame, w->frame.steps + late, rcvi_frame_width(&w->frame, layer), "dx%lld",
                               (long long)layer);
    rcvi_program *program = w->frame.program;
    /* What the caller reads in the plan's 16-bit type, and nothing is added to, may be rounded at once. */
    bool rounded = layer == 0 && directions == 1 && !program->failed && rcvi_frame_rounds_ends(&w->frame);
    if (rounded) program->buffers[dx].rounding = RCVI_ROUNDED;
    return dx;
}

/* Of a direction that goes in reverse: step by step, added to what the other direction computed, or alone. */
static void write_reversed_dx(rcvi_stepwise *w, const rcvi_track *t, int dx) {
    rcvi_program *program = w->frame.program;
    int64_t width = rcvi_track_layer(w, t)->input;
    rcvi_time_map time_map = rcvi_time_map_new(w->frame.steps, w->frame.batch, w->frame.steps, 0, false);
    rcvi_storage own = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = width};
    rcvi_storage shared = rcvi_track_shared(t, dx, 0, width);
    rcvi_view out = rcvi_storage_at_step(&time_map, &shared), from = rcvi_storage_at_step(&time_map, &own);
    rcvi_program_loop(program, w->frame.steps);
    if (t->direction)
        rcvi_emit_add(program, w->frame.batch, width, out, out, from);
    else
        rcvi_emit_copy(program, w->frame.batch, width, out, from);
    rcvi_program_end_loop(program);
}

void rcvi_backward_write_dx(rcvi_stepwise *w, int64_t layer, int dx) {
    int64_t directions = w->frame.net->directions;
    for (int64_t d = 0; d < directions && !w->frame.program->failed; d++) {
        const rcvi_track *t = &w->tracks[layer * directions + d];
        if (t->dx != dx) write_reversed_dx(w, t, dx);
    }
}

/* ---- writing ---- */

static void write_adjoint_states(rcvi_stepwise *w, rcvi_track *t, int part) {
    rcvi_fusion *f = &t->backward.fusions[part];
    const rcvi_graph *graph = t->backward.graph;
    for (size_t i = 0; i < rcvi_track_adjoint(w, t)->state_count && !w->frame.program->failed; i++) {
        int v = graph->states[i].next;
        if (t->backward.parts.of_state[i] != part) continue;
        rcvi_storage later = rcvi_storage_later(&f->time_map, t->backward.states[i]);
        rcvi_view next = rcvi_storage_at_step(&f->time_map, &t->backward.states[i]);
        if (is_cleared(t, i))
            rcvi_clear_where_live(w, t, f, rcvi_state_size(graph, i), next, rcvi_storage_at_step(&f->time_map, &later));
        else if (!rcvi_track_stores_directly(w, f, v))
            rcvi_select_or_copy(w, t, f, v, next, rcvi_storage_at_step(&f->time_map, &later));
        rcvi_write_reset_adjoint(w, t, &f->time_map, i, rcvi_state_size(graph, i), next);
    }
}

/* One time step of a part: the body of its loop. */
static void write_step(rcvi_stepwise *w, rcvi_track *t, int part) {
    const rcvi_sweep *s = &t->backward;
    rcvi_fusion *f = &s->fusions[part];
    rcvi_program *program = w->frame.program;
    rcvi_track_mark(w, t);
    rcvi_write_incoming(w, t, s, part);
    rcvi_fusion_emit(f, RCVI_IN_LOOP);
    write_adjoint_states(w, t, part);
    if (w->pass.chunk == 1 && !w->modes.defer_gradients) rcvi_fusion_emit_gradients(f, false);
    int out = s->graph->outputs[0].value;
    if (rcvi_sweep_fusion_of(s, out) == f && !rcvi_fusion_computes(f, out)) {
        rcvi_storage dx = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = rcvi_track_layer(w, t)->input};
        rcvi_view from = rcvi_fusion_view(f, out, false);
        program->time = f->time_map.step;
        rcvi_emit_copy(program, w->frame.batch, dx.row, rcvi_storage_at_step(&f->time_map, &dx), from);
        program->time = (rcvi_time){.span = 1};
    }
}

/* With signals, gradients come before the adjoint of the input, so that their exchange can begin early; unless a factor of them is
 * computed after the loop too. */
static bool are_gradients_first(const rcvi_stepwise *w, const rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    bool late = false;
    for (size_t g = 0; g < graph->gradient_count; g++) {
        int left = graph->gradients[g].left, right = graph->gradients[g].right;
        if (!f->skipped[g])
            late |= rcvi_track_is_after_loop(f, left) || (right != RCVI_NONE && rcvi_track_is_after_loop(f, right));
    }
    return w->frame.program->options.signals && !late;
}

static void write_part(rcvi_stepwise *w, rcvi_track *set, int64_t count, int part, int64_t delay, bool tail_in_loop) {
    for (int64_t i = 0; i < count; i++) {
        rcvi_track_mark(w, &set[i]);
        rcvi_fusion_emit(&set[i].backward.fusions[part], RCVI_BEFORE_LOOP);
    }
    rcvi_open_steps(w, delay);
    for (int64_t i = 0; i < count; i++) write_step(w, &set[i], part);
    for (int64_t i = 0; i < count && tail_in_loop; i++) rcvi_tail_write(w, &set[i]);
    rcvi_close_steps(w);
    for (int64_t i = 0; i < count; i++) {
        rcvi_fusion *f = &set[i].backward.fusions[part];
        bool gradients = w->pass.chunk > 1 && !w->modes.defer_gradients;
        bool first = gradients && are_gradients_first(w, f);
        rcvi_track_mark(w, &set[i]);
        if (first) rcvi_fusion_emit_gradients(f, true);
        rcvi_fusion_emit(f, RCVI_AFTER_LOOP);
        if (gradients && !first) rcvi_fusion_emit_gradients(f, true);
    }
}

static void open_set(rcvi_stepwise *w, rcvi_track *set, int64_t count, const int *dy, const int *dx) {
    for (int64_t i = 0; i < count && !w->frame.program->failed; i++) {
        rcvi_track *t = &set[i];
        rcvi_track_mark(w, t);
        rcvi_constants_clear_gradient(w, t);
        if (w->modes.recompute) rcvi_recompute_open(w, t);
        if (!w->frame.program->failed) open_backward(w, t, dy[i], dx[i]);
    }
}

static void write_deferred_gradients(rcvi_stepwise *w, rcvi_track *t) {
    rcvi_track_mark(w, t);
    for (int part = 0; part < t->backward.parts.count; part++)
        rcvi_fusion_emit_gradients(&t->backward.fusions[part], true);
}

/* For the caller: adjoints of the initial and restart states. */
static void write_dstates(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_graph *graph = rcvi_track_adjoint(w, t);
    rcvi_track_mark(w, t);
    for (size_t s = 0; s < graph->state_count; s++) {
        const rcvi_storage *state = &t->backward.states[s];
        bool late = t->is_retimed && t->retimed.is_late[s];
        rcvi_frame_write_dstates(&w->frame, s, t->layer, t->direction,
                                 rcvi_whole_view(late ? t->tail_adjoints[s] : state->buffer, state->row),
                                 rcvi_whole_view(t->drestarts[s], rcvi_state_size(graph, s)));
    }
}

void rcvi_backward_write_set(rcvi_stepwise *w, rcvi_track *set, int64_t count, const int *dy, const int *dx) {
    rcvi_program *program = w->frame.program;
    int64_t delay = 0;
    for (int64_t i = 0; i < count; i++) delay = set[i].delay > delay ? set[i].delay : delay;
    open_set(w, set, count, dy, dx);
    if (program->failed) return;
    bool tail_in_loop = rcvi_track_has_tail_in_loop(w, &set[0]);
    delay += tail_in_loop;
    rcvi_open_chunks(w, delay);
    if (w->modes.recompute) rcvi_recompute_write_chunk(w, set, count, delay);
    for (int part = 0; part < set[0].backward.parts.count; part++) write_part(w, set, count, part, delay, tail_in_loop);
    rcvi_close_chunks(w);
    for (int64_t i = 0; i < count && !tail_in_loop; i++) {
        if (set[i].is_retimed) rcvi_tail_write(w, &set[i]);
    }
    for (int64_t i = 0; i < count && w->modes.defer_gradients; i++) write_deferred_gradients(w, &set[i]);
    for (int64_t i = 0; i < count && !program->failed; i++) rcvi_constants_write_gradient(w, &set[i]);
    for (int64_t i = 0; i < count && !program->failed; i++) write_dstates(w, &set[i]);
    rcvi_track_mark(w, NULL);
}

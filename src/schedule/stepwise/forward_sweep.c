/* Forward sweeps: a set of tracks through time, forwards.
 *
 * Written for every layer, in inference and training; a recomputing sweep (recompute.c) is opened here too. A set's program is: states
 * before the first step; loops over chunks and steps with, for each part, the work before, in and after its loop; final states. */
#include "schedule/stepwise/stepwise.h"

/* ---- kinds of sweeps ---- */

static bool keeps_values(const rcvi_sweep *s) { return s->kind != RCVI_SWEEP_FORWARD; }
static bool is_of_chunk(const rcvi_sweep *s) { return s->kind == RCVI_SWEEP_RECOMPUTING; }
static bool has_output(const rcvi_sweep *s) { return s->kind != RCVI_SWEEP_RECOMPUTING; }

/* ---- opening ---- */

/* Marks what the derivative reads. States stay exact, other values may be rounded. */
static void mark_kept(const rcvi_stepwise *w, const rcvi_track *t, rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph, *adjoint = rcvi_track_adjoint(w, t);
    for (size_t i = 0; i < adjoint->input_count; i++) {
        int v = adjoint->inputs[i].source;
        if (v == RCVI_NONE || f->given[v] || rcvi_track_slot_holds(w, graph, v)) continue;
        bool rounded = rcvi_graph_state_of_next(graph, v) == RCVI_NONE;
        (rounded ? f->kept : f->needed)[v] = true;
    }
}

/* Storage of what the derivative reads: over all steps, or over the chunk of a recomputing sweep. */
static void store_kept(rcvi_stepwise *w, const rcvi_track *t, rcvi_sweep *s, rcvi_fusion *f) {
    rcvi_program *program = w->frame.program;
    const rcvi_graph *graph = f->emitter.graph, *adjoint = rcvi_track_adjoint(w, t);
    bool of_chunk = is_of_chunk(s);
    for (size_t i = 0; i < adjoint->input_count && !program->failed; i++) {
        int v = adjoint->inputs[i].source;
        if (v == RCVI_NONE || !(f->needed[v] || f->kept[v]) || !rcvi_fusion_computes(f, v)) continue;
        if (s->kept[v].kind != RCVI_NOT_STORED) continue;
        int64_t row = rcvi_features(graph, graph->values[v].size);
        if (rcvi_fusion_is_factor(adjoint, adjoint->inputs[i].value)) row = rcvi_program_row(program, row);
        int buffer = rcvi_frame_buffer(&w->frame, of_chunk ? w->pass.chunk : w->frame.steps, row, "%skept.%s", t->label,
                                       adjoint->inputs[i].name);
        if (program->failed) return;
        program->buffers[buffer].distant = !of_chunk;
        if (f->kept[v]) program->buffers[buffer].rounding = RCVI_ROUNDED;
        s->kept[v] = (rcvi_storage){.kind = of_chunk ? RCVI_OVER_CHUNK : RCVI_OVER_TIME, .buffer = buffer, .row = row};
        rcvi_fusion_store(f, v, s->kept[v]);
    }
}

static rcvi_storage output_storage(const rcvi_stepwise *w, const rcvi_track *t) {
    int64_t columns = rcvi_track_layer(w, t)->output;
    return rcvi_track_values_into(w, t, t->layer + 1, w->frame.inputs[t->layer + 1], t->direction * columns,
                                  w->frame.rows[t->layer + 1]);
}

/* A sweep without an output computes only what the next states and the derivative need. */
static void drop_output(rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    for (size_t v = 0; v < graph->value_count; v++) f->emitter.live[v] = f->needed[v] || f->kept[v];
    for (size_t s = 0; s < graph->state_count; s++) f->emitter.live[graph->states[s].next] = true;
    for (size_t v = graph->value_count; v-- > 0;) {
        const rcvi_value *value = &graph->values[v];
        for (int a = 0; f->emitter.live[v] && a < rcvi_operations[value->operation].arguments; a++)
            f->emitter.live[value->arguments[a]] = true;
    }
}

/* A ring of two slots where only the next step reads a state; else one slot more than there are steps. Later parts read the states of
 * all steps. */
static void store_states(rcvi_stepwise *w, const rcvi_track *t, rcvi_sweep *s) {
    bool ring = !keeps_values(s) && s->parts.count == 1, of_chunk = is_of_chunk(s);
    for (size_t i = 0; i < s->graph->state_count; i++) {
        int64_t slots = ring ? 2 : of_chunk ? w->pass.chunk + 1 : w->frame.steps + 1;
        int64_t row = rcvi_program_row(w->frame.program, rcvi_state_size(s->graph, i));
        s->states[i] =
            (rcvi_storage){.kind = ring       ? RCVI_RING
                                   : of_chunk ? RCVI_OVER_CHUNK
                                              : RCVI_OVER_TIME,
                           .buffer = rcvi_frame_buffer(&w->frame, slots, row, "%s%s.%s", t->label,
                                                       of_chunk ? "again" : "state", s->graph->states[i].name),
                           .row = row};
    }
}

/* What a part is given, and what others read of it. */
static void mark_values(const rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *s, rcvi_fusion *f) {
    const rcvi_graph *graph = s->graph;
    for (size_t i = 0; i < graph->input_count; i++) {
        f->storage[graph->inputs[i].value] = t->inputs[i];
        f->given[graph->inputs[i].value] = true;
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        f->storage[graph->states[i].value] = s->states[i];
        f->given[graph->states[i].value] = true;
        if (w->frame.ragged) f->needed[graph->states[i].next] = true;
    }
    if (w->frame.ragged && has_output(s)) f->needed[graph->outputs[0].value] = true;
    if (keeps_values(s)) mark_kept(w, t, f);
    if (!has_output(s)) drop_output(f);
}

static void open_part(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *s, int part) {
    const rcvi_graph *graph = s->graph;
    rcvi_fusion *f = &s->fusions[part];
    int out = graph->outputs[0].value;
    mark_values(w, t, s, f);
    rcvi_sweep_restrict(s, part);
    if (w->frame.program->failed) return;
    rcvi_fusion_analyse(f);
    bool rounds = rcvi_dtype_is_narrow(w->frame.program->options.dtype);
    /* Else the output might be read from where it is kept, rounded. */
    if (has_output(s) && rounds) rcvi_track_make_readable(w, t, f, out);
    if (keeps_values(s)) store_kept(w, t, s, f);
    bool is_distributed = s->parts.count > 1;
    if (is_distributed && w->frame.resets) rcvi_sweep_store_shared(s, part, true);
    for (size_t i = 0; i < graph->state_count && !w->frame.program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        rcvi_track_make_readable(w, t, f, next);
        if (rcvi_track_stores_directly(w, f, next))
            rcvi_fusion_store(f, next, rcvi_storage_later(&f->time_map, s->states[i]));
    }
    if (has_output(s)) rcvi_track_make_readable(w, t, f, out);
    if (is_distributed) rcvi_sweep_store_shared(s, part, false);
    if (has_output(s) && rcvi_track_stores_directly(w, f, out)) rcvi_fusion_store(f, out, output_storage(w, t));
    rcvi_fusion_prepare(f);
}

void rcvi_forward_open(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *s, rcvi_sweep_kind kind, rcvi_time_map time_map) {
    const rcvi_graph *graph = rcvi_track_graph(w, t);
    if (!rcvi_track_open_sweep(w, t, s, kind, graph, time_map, w->modes.distribute)) return;
    store_states(w, t, s);
    for (int part = 0; part < s->parts.count && !w->frame.program->failed; part++) open_part(w, t, s, part);
}

/* x, and the masks of zoneout. */
static void place_inputs(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_graph *graph = rcvi_track_graph(w, t);
    rcvi_storage x = rcvi_track_values_into(w, t, t->layer, w->frame.inputs[t->layer], 0, w->frame.rows[t->layer]);
    bool random = rcvi_frame_has_random_zoneout(&w->frame);
    t->inputs[0] = rcvi_track_own_order(w, t, x, rcvi_track_layer(w, t)->input, "x");
    for (size_t i = 1; i < graph->input_count; i++) {
        t->inputs[i] = (rcvi_storage){.kind = random ? RCVI_OVER_TIME : RCVI_FIXED,
                                      .buffer = rcvi_frame_write_zone(&w->frame, t->layer, t->direction, i),
                                      .row = random ? rcvi_features(graph, graph->inputs[i].size) : 0};
    }
}

/* ---- writing ---- */

static void write_initial_states(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_sweep *s = &t->forward;
    const rcvi_graph *graph = s->graph;
    rcvi_frame *frame = &w->frame;
    for (size_t i = 0; i < graph->state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i);
        rcvi_emit_copy(frame->program, frame->batch, size, rcvi_whole_view(s->states[i].buffer, s->states[i].row),
                       rcvi_state_block(frame, RCVI_INITIAL, i, t->layer, t->direction, size));
        if (w->modes.recompute)
            t->checkpoints[i] = rcvi_track_state_buffer(w, t, graph, i, w->pass.chunks, "checkpoint");
        if (!frame->resets) continue;
        t->restarts[i] = rcvi_track_state_buffer(w, t, graph, i, 1, "restart");
        rcvi_emit_copy(frame->program, frame->batch, size, rcvi_whole_view(t->restarts[i], size),
                       rcvi_state_block(frame, RCVI_RESTART, i, t->layer, t->direction, size));
    }
}

static void write_final_states(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_graph *graph = t->forward.graph;
    rcvi_frame *frame = &w->frame;
    for (size_t i = 0; i < graph->state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i), row = t->forward.states[i].row;
        rcvi_view last = rcvi_whole_view(t->forward.states[i].buffer, row);
        if (t->forward.states[i].kind == RCVI_RING)
            last = rcvi_storage_ring_slot(&t->forward.states[i], frame->batch, frame->steps);
        else
            last.offset = frame->steps * frame->batch * row;
        rcvi_emit_copy(frame->program, frame->batch, size,
                       rcvi_state_block(frame, RCVI_FINAL, i, t->layer, t->direction, size), last);
    }
}

static void write_output(rcvi_stepwise *w, const rcvi_track *t, const rcvi_fusion *f) {
    rcvi_storage output = output_storage(w, t);
    rcvi_select_or_copy(w, t, f, f->emitter.graph->outputs[0].value, rcvi_storage_at_step(&f->time_map, &output),
                        rcvi_no_view());
}

void rcvi_forward_write_step(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *s, int part) {
    rcvi_fusion *f = &s->fusions[part];
    const rcvi_graph *graph = s->graph;
    rcvi_track_mark(w, t);
    rcvi_write_restarts(w, t, s, part);
    rcvi_fusion_emit(f, RCVI_IN_LOOP);
    for (size_t i = 0; i < graph->state_count && !w->frame.program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        rcvi_storage later = rcvi_storage_later(&f->time_map, s->states[i]);
        if (!rcvi_track_stores_directly(w, f, next))
            rcvi_select_or_copy(w, t, f, next, rcvi_storage_at_step(&f->time_map, &later),
                                rcvi_storage_at_step(&f->time_map, &s->states[i]));
    }
    int out = graph->outputs[0].value;
    if (has_output(s) && rcvi_sweep_fusion_of(s, out) == f && !rcvi_track_stores_directly(w, f, out) &&
        !rcvi_track_is_after_loop(f, out))
        write_output(w, t, f);
}

/* The tracks of a set are of one cell: they have the same parts. */
static void write_part(rcvi_stepwise *w, rcvi_track *set, int64_t count, int part, int64_t delay) {
    for (int64_t i = 0; i < count; i++) {
        rcvi_track_mark(w, &set[i]);
        rcvi_fusion_emit(&set[i].forward.fusions[part], RCVI_BEFORE_LOOP);
    }
    rcvi_open_steps(w, delay);
    for (int64_t i = 0; i < count; i++) rcvi_forward_write_step(w, &set[i], &set[i].forward, part);
    rcvi_close_steps(w);
    for (int64_t i = 0; i < count; i++) {
        rcvi_fusion *f = &set[i].forward.fusions[part];
        int out = set[i].forward.graph->outputs[0].value;
        rcvi_track_mark(w, &set[i]);
        rcvi_fusion_emit(f, RCVI_AFTER_LOOP);
        if (rcvi_sweep_fusion_of(&set[i].forward, out) != f || !rcvi_track_is_after_loop(f, out)) continue;
        rcvi_open_steps(w, delay);
        write_output(w, &set[i], f);
        rcvi_close_steps(w);
    }
}

void rcvi_forward_write_set(rcvi_stepwise *w, rcvi_track *set, int64_t count) {
    rcvi_program *program = w->frame.program;
    bool keep = w->frame.training && !w->modes.recompute;
    int64_t delay = set[count - 1].delay;
    for (int64_t i = 0; i < count && !program->failed; i++) {
        rcvi_track *t = &set[i];
        rcvi_track_mark(w, t);
        place_inputs(w, t);
        rcvi_constants_write(w, t);
        rcvi_forward_open(w, t, &t->forward, keep ? RCVI_SWEEP_FORWARD_KEEPING : RCVI_SWEEP_FORWARD,
                          rcvi_track_time_map(w, t, false));
        if (!program->failed) write_initial_states(w, t);
    }
    if (program->failed) return;
    rcvi_open_chunks(w, delay);
    for (int64_t i = 0; i < count && w->modes.recompute; i++) {
        rcvi_track_mark(w, &set[i]);
        rcvi_recompute_save(w, &set[i], &set[i].forward);
    }
    for (int part = 0; part < set[0].forward.parts.count; part++) write_part(w, set, count, part, delay);
    rcvi_close_chunks(w);
    for (int64_t i = 0; i < count; i++) {
        rcvi_track_mark(w, &set[i]);
        write_final_states(w, &set[i]);
    }
    rcvi_track_mark(w, NULL);
}

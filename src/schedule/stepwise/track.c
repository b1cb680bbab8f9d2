/* A track: one layer in one direction of a stepwise program. Its tables, its time, and how it reads what layers share. */
#include "schedule/stepwise/stepwise.h"

bool rcvi_track_open(rcvi_stepwise *w, rcvi_track *t) {
    rcvi_pool *pool = &w->frame.program->pool;
    const rcvi_graph *forward = rcvi_track_graph(w, t);
    size_t states = forward->state_count;
    t->label = rcvi_pool_format(pool, "l%lld%s.", (long long)t->layer, t->is_reversed ? "r" : "");
    int *tables = rcvi_pool_new(pool, 6 * states, sizeof *tables);
    t->inputs = rcvi_pool_new(pool, forward->input_count, sizeof *t->inputs);
    t->constants = t->dconstants = RCVI_NONE;
    if (!t->label || !tables || !t->inputs) return false;
    t->restarts = tables;
    t->checkpoints = tables + states;
    t->incoming = tables + 2 * states;
    t->drestarts = tables + 3 * states;
    t->at_reset = tables + 4 * states;
    t->tail_adjoints = tables + 5 * states;
    return true;
}

void rcvi_track_close(rcvi_track *t) {
    rcvi_sweep_close(&t->forward);
    rcvi_sweep_close(&t->recomputed);
    rcvi_sweep_close(&t->backward);
    rcvi_sweep_close(&t->tail);
    rcvi_fusion_free(&t->constant_values);
    rcvi_fusion_free(&t->constant_adjoint);
    rcvi_retimed_free(&t->retimed);
}

void rcvi_track_mark(rcvi_stepwise *w, const rcvi_track *t) {
    w->frame.program->layer = t ? (int)t->layer : RCVI_NONE;
    w->frame.program->direction = t && t->is_reversed;
}

rcvi_time_map rcvi_track_time_map(const rcvi_stepwise *w, const rcvi_track *t, bool backward) {
    return rcvi_time_map_new(w->frame.steps, w->frame.batch, w->pass.chunk, t->delay, backward);
}

int rcvi_track_state_buffer(rcvi_stepwise *w, const rcvi_track *t, const rcvi_graph *graph, size_t s, int64_t slots,
                            const char *name) {
    return rcvi_frame_buffer(&w->frame, slots, rcvi_state_size(graph, s), "%s%s.%s", t->label, name,
                             graph->states[s].name);
}

bool rcvi_track_open_sweep(const rcvi_stepwise *w, const rcvi_track *t, rcvi_sweep *s, rcvi_sweep_kind kind,
                           const rcvi_graph *graph, rcvi_time_map time_map, bool distribute) {
    const rcvi_param_layout *params = rcvi_track_layer(w, t)->layouts[t->direction];
    if (!rcvi_sweep_open(s, w->frame.program, graph, params, t->label, time_map, distribute)) return false;
    s->kind = kind;
    s->defers_gradients = w->modes.defer_gradients;
    for (int part = 0; part < s->parts.count; part++) {
        s->fusions[part].emitter.constants = t->constants;
        s->fusions[part].emitter.dconstants = t->dconstants;
    }
    return true;
}

rcvi_storage rcvi_track_shared(const rcvi_track *t, int buffer, int64_t offset, int64_t row) {
    return (rcvi_storage){.kind = t->is_reversed ? RCVI_OVER_TIME_REVERSED : RCVI_OVER_TIME,
                          .buffer = buffer,
                          .offset = offset,
                          .row = row};
}

rcvi_storage rcvi_track_values_into(const rcvi_stepwise *w, const rcvi_track *t, int64_t layer, int buffer,
                                    int64_t offset, int64_t row) {
    rcvi_storage storage = rcvi_track_shared(t, buffer, offset, row);
    if (rcvi_frame_is_in_time_order(&w->frame, layer)) storage.kind = RCVI_OVER_TIME;
    return storage;
}

/* A chunk in the order of steps is not a block of rows in the order of a reverse direction's time. */
rcvi_storage rcvi_track_own_order(rcvi_stepwise *w, const rcvi_track *t, rcvi_storage storage, int64_t columns,
                                  const char *name) {
    if (storage.kind != RCVI_OVER_TIME_REVERSED || (w->longest_chunk == 1 && !w->modes.defer_gradients)) return storage;
    rcvi_program *program = w->frame.program;
    int64_t row = rcvi_program_row(program, columns);
    rcvi_storage own = {.kind = RCVI_OVER_TIME,
                        .buffer = rcvi_frame_buffer(&w->frame, w->frame.steps, row, "%s%s", t->label, name),
                        .row = row};
    if (!program->failed) program->buffers[own.buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    rcvi_time_map time_map = rcvi_time_map_new(w->frame.steps, w->frame.batch, w->frame.steps, 0, false);
    rcvi_program_loop(program, w->frame.steps);
    rcvi_emit_copy(program, w->frame.batch, columns, rcvi_storage_at_step(&time_map, &own),
                   rcvi_storage_at_step(&time_map, &storage));
    rcvi_program_end_loop(program);
    return own;
}

void rcvi_track_make_readable(rcvi_stepwise *w, const rcvi_track *t, rcvi_fusion *f, int v) {
    bool has_storage = f->storage[v].kind != RCVI_NOT_STORED;
    if (!rcvi_fusion_computes(f, v) || has_storage || f->phase[v] == RCVI_IN_LOOP) return;
    int64_t columns = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    int buffer = rcvi_frame_buffer(&w->frame, w->pass.chunk, columns, "%sreadable.v%d", t->label, v);
    rcvi_fusion_store(f, v, (rcvi_storage){.kind = RCVI_OVER_CHUNK, .buffer = buffer, .row = columns});
}

bool rcvi_track_stores_directly(const rcvi_stepwise *w, const rcvi_fusion *f, int v) {
    return rcvi_fusion_computes(f, v) && f->phase[v] == RCVI_IN_LOOP && !w->frame.ragged;
}

bool rcvi_track_is_after_loop(const rcvi_fusion *f, int v) {
    return rcvi_fusion_computes(f, v) && f->phase[v] == RCVI_AFTER_LOOP;
}

bool rcvi_track_slot_holds(const rcvi_stepwise *w, const rcvi_graph *graph, int value) {
    return rcvi_graph_state_of_next(graph, value) != RCVI_NONE && !w->frame.ragged && !w->frame.resets;
}

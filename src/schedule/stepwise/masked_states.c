/* States of sequences with lengths and resets.
 *
 * Lengths: past its length a sequence keeps its state, gives y = 0, and passes its adjoint on unchanged. Resets: a reset at step s is a
 * boundary between s-1 and s, for both directions; forwards the state there becomes the restart state, backwards the adjoint there is
 * added to the restart state's and becomes zero. Without lengths and resets these functions write plain copies, or nothing. */
#include "schedule/stepwise/stepwise.h"

static rcvi_view length_mask(const rcvi_stepwise *w, const rcvi_track *t, const rcvi_time_map *time_map) {
    rcvi_storage storage = rcvi_track_shared(t, w->frame.length_mask, 0, 1);
    return rcvi_storage_at_step(time_map, &storage);
}

/* The boundary before step s forwards, and before step s-1 (that is, after s) in reverse: one row later there. */
static rcvi_view reset_mask(const rcvi_stepwise *w, const rcvi_track *t, const rcvi_time_map *time_map) {
    rcvi_storage storage = rcvi_track_shared(t, w->frame.reset_mask, t->is_reversed ? w->frame.batch : 0, 1);
    return rcvi_storage_at_step(time_map, &storage);
}

void rcvi_select_or_copy(rcvi_stepwise *w, const rcvi_track *t, const rcvi_fusion *f, int v, rcvi_view out,
                         rcvi_view otherwise) {
    rcvi_program *program = w->frame.program;
    rcvi_view from = rcvi_fusion_view(f, v, false);
    int64_t columns = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    program->time = f->time_map.step;
    if (w->frame.ragged) {
        rcvi_emit_select(program, w->frame.batch, columns, length_mask(w, t, &f->time_map), out, from, otherwise);
    } else {
        rcvi_emit_copy(program, w->frame.batch, columns, out, from);
    }
    program->time = (rcvi_time){.span = 1};
}

void rcvi_clear_where_live(rcvi_stepwise *w, const rcvi_track *t, const rcvi_fusion *f, int64_t size, rcvi_view out,
                           rcvi_view otherwise) {
    rcvi_program *program = w->frame.program;
    if (!w->frame.ragged) return;
    program->time = f->time_map.step;
    rcvi_emit_select(program, w->frame.batch, size, length_mask(w, t, &f->time_map), out, rcvi_no_view(), otherwise);
    program->time = (rcvi_time){.span = 1};
}

void rcvi_write_restarts(rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *s, int part) {
    const rcvi_fusion *f = &s->fusions[part];
    rcvi_program *program = w->frame.program;
    program->time = f->time_map.step;
    for (size_t i = 0; w->frame.resets && i < s->graph->state_count; i++) {
        if (s->parts.of_state[i] != part) continue;
        rcvi_view slot = rcvi_storage_at_step(&f->time_map, &s->states[i]);
        int64_t size = rcvi_state_size(s->graph, i);
        rcvi_emit_select(program, w->frame.batch, size, reset_mask(w, t, &f->time_map), slot,
                         rcvi_whole_view(t->restarts[i], size), slot);
    }
    program->time = (rcvi_time){.span = 1};
}

rcvi_storage rcvi_incoming_adjoint(const rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *s, size_t i) {
    if (!w->frame.ragged) return rcvi_storage_later(&s->time_map, s->states[i]);
    return (rcvi_storage){
        .kind = s->parts.count == 1 ? RCVI_FIXED : RCVI_OVER_TIME, .buffer = t->incoming[i], .row = s->states[i].row};
}

void rcvi_write_incoming(rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *s, int part) {
    const rcvi_time_map *time_map = &s->fusions[part].time_map;
    rcvi_program *program = w->frame.program;
    program->time = time_map->step;
    size_t states = rcvi_track_adjoint(w, t)->state_count; /* without operands of late products */
    for (size_t i = 0; w->frame.ragged && i < states; i++) {
        if (s->parts.of_state[i] != part) continue;
        int64_t size = rcvi_state_size(s->graph, i);
        rcvi_storage later = rcvi_storage_later(time_map, s->states[i]), incoming = rcvi_incoming_adjoint(w, t, s, i);
        rcvi_emit_select(program, w->frame.batch, size, length_mask(w, t, time_map),
                         rcvi_storage_at_step(time_map, &incoming), rcvi_storage_at_step(time_map, &later),
                         rcvi_no_view());
    }
    program->time = (rcvi_time){.span = 1};
}

void rcvi_write_reset_adjoint(rcvi_stepwise *w, const rcvi_track *t, const rcvi_time_map *time_map, size_t i,
                              int64_t size, rcvi_view adjoint) {
    rcvi_frame *frame = &w->frame;
    rcvi_program *program = frame->program;
    if (!frame->resets) return;
    program->time = time_map->step;
    rcvi_view mask = reset_mask(w, t, time_map), at_reset = rcvi_whole_view(t->at_reset[i], size);
    rcvi_view sum = rcvi_whole_view(t->drestarts[i], size);
    rcvi_emit_select(program, frame->batch, size, mask, at_reset, adjoint, rcvi_no_view());
    rcvi_emit_add(program, frame->batch, size, sum, sum, at_reset);
    rcvi_emit_select(program, frame->batch, size, mask, adjoint, rcvi_no_view(), adjoint);
    program->time = (rcvi_time){.span = 1};
}

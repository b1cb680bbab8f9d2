/* Recomputation (checkpointing): training keeps the states before every chunk only.
 *
 * It applies where the plan has recompute(every=N); N is then the chunk of both passes. The forward sweep keeps nothing for the
 * derivative and copies its states to the checkpoints before each chunk. The backward pass writes, for each chunk, a forward sweep from
 * the checkpoint that keeps the chunk's values, and then the backward sweep over them. */
#include "schedule/stepwise/stepwise.h"

/* Forwards through each chunk, the chunks in the order of the backward pass. */
static rcvi_time_map recomputing_time_map(const rcvi_stepwise *w, const rcvi_track *t) {
    rcvi_time_map time_map = rcvi_track_time_map(w, t, true);
    time_map.step.base = time_map.span.base;
    time_map.step.inner = time_map.local_inner = 1;
    time_map.local_base = 0;
    return time_map;
}

void rcvi_recompute_open(rcvi_stepwise *w, rcvi_track *t) {
    rcvi_forward_open(w, t, &t->recomputed, RCVI_SWEEP_RECOMPUTING, recomputing_time_map(w, t));
}

typedef enum { SAVE, RESTORE } checkpoint_copy;

/* Between a sweep's states at a chunk's first step and the checkpoints. */
static void copy_checkpoints(rcvi_stepwise *w, rcvi_track *t, const rcvi_sweep *s, checkpoint_copy direction) {
    const rcvi_graph *graph = s->graph;
    rcvi_program *program = w->frame.program;
    const rcvi_time_map *time_map = &s->time_map;
    program->time = time_map->span;
    program->time.span = 1;
    for (size_t i = 0; i < graph->state_count; i++) {
        int64_t size = rcvi_state_size(graph, i), slot = size * w->frame.batch;
        rcvi_view checkpoint = {.buffer = t->checkpoints[i],
                                .offset = time_map->span.base / w->pass.chunk * slot,
                                .stride = time_map->span.inner / w->pass.chunk * slot,
                                .row = size,
                                .column = 1};
        rcvi_view state = rcvi_storage_over_chunk(time_map, &s->states[i]);
        rcvi_emit_copy(program, w->frame.batch, size, direction == RESTORE ? state : checkpoint,
                       direction == RESTORE ? checkpoint : state);
    }
    program->time = (rcvi_time){.span = 1};
}

void rcvi_recompute_save(rcvi_stepwise *w, rcvi_track *t, const rcvi_sweep *s) { copy_checkpoints(w, t, s, SAVE); }

void rcvi_recompute_write_chunk(rcvi_stepwise *w, rcvi_track *set, int64_t count, int64_t delay) {
    for (int64_t i = 0; i < count; i++) {
        rcvi_track_mark(w, &set[i]);
        copy_checkpoints(w, &set[i], &set[i].recomputed, RESTORE);
    }
    for (int part = 0; part < set[0].recomputed.parts.count; part++) {
        for (int64_t i = 0; i < count; i++) {
            rcvi_track_mark(w, &set[i]);
            rcvi_fusion_emit(&set[i].recomputed.fusions[part], RCVI_BEFORE_LOOP);
        }
        rcvi_open_steps(w, delay);
        for (int64_t i = 0; i < count; i++) rcvi_forward_write_step(w, &set[i], &set[i].recomputed, part);
        rcvi_close_steps(w);
        for (int64_t i = 0; i < count; i++) {
            rcvi_track_mark(w, &set[i]);
            rcvi_fusion_emit(&set[i].recomputed.fusions[part], RCVI_AFTER_LOOP);
        }
    }
}

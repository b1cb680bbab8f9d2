/* The rungs: step after step, with products combined over gates and over chunks of time, pointwise parts fused, weights
 * packed, layers or directions side by side.
 *
 * Tracks, one a layer and direction, that may run side by side form a set, and a set has its own loops: over chunks of
 * time steps, and inside over the steps of a chunk (only one of the two where a chunk is one step or all). In a
 * wavefront all layers are one set, each a chunk behind the one below, so that in one round of the outer loop they
 * depend on nothing of the same round. The passes of training need not be alike: what the forward pass keeps lies in the
 * order of steps however it went through them.
 *
 * Where only every so-many-th state is kept, the backward pass sweeps forwards over each chunk again before it goes
 * back through it.
 *
 * A sweep is of parts, one where recurrences are not taken apart. Each goes through the chunk before the next one does, with its own
 * work before, inside and behind its loop. */
#include "schedule/stepwise.h"
#include "schedule/retime.h"
#include "schedule/sweep.h"

typedef struct {
    int64_t layer, direction, delay;
    const char *label;
    rcvi_sweep forward, again, backward;
    rcvi_place *inputs;            /* [inputs of the forward graph] in the track's own time */
    int *restarts, *checkpoints;   /* [states] */
    int *arriving, *sums, *ending; /* [states] of the backward rcvi_sweep */
    int dx;                        /* buffer, in the track's own time */
    bool is_retimed;               /* the backward sweep's graph is the retimed one */
    rcvi_retimed retimed;
    rcvi_sweep last; /* products behind its last step */
    int *first;      /* [states] adjoints before the first step, of late states */
} track;

typedef struct {
    rcvi_frame frame;
    int64_t chunk, chunks; /* of the pass that is written */
    bool wavefront;        /* that pass is one */
    int64_t longest;       /* chunk of both passes */
    bool recompute;
    bool gathers;  /* gradients of parameters are summed behind all loops */
    bool retimes;  /* the backward sweep's products move to the next step where they can */
    bool apart;    /* recurrences are taken one after the other */
    track *tracks; /* [layers * directions] */
} writer;

static const rcvi_layer *layer_of(const writer *w, const track *t) { return &w->frame.net->layers[t->layer]; }

static rcvi_clock clock_of(const writer *w, const track *t, bool backward) {
    return rcvi_clock_new(w->frame.steps, w->frame.batch, w->chunk, t->delay, backward);
}

/* Forwards through each chunk, the chunks in the order of the backward pass. */
static rcvi_clock clock_again(const writer *w, const track *t) {
    rcvi_clock clock = clock_of(w, t, true);
    clock.step.base = clock.span.base;
    clock.step.inner = clock.local_inner = 1;
    clock.local_base = 0;
    return clock;
}

static void mark(writer *w, const track *t) {
    w->frame.program->layer = t ? (int)t->layer : RCVI_NONE;
    w->frame.program->direction = t ? (int)t->direction : 0;
}

/* What layers share, [steps, batch, row] in the order of steps, as the track sees it. */
static rcvi_place shared_place(const track *t, int buffer, int64_t offset, int64_t row) {
    return (rcvi_place){
        .kind = t->direction ? RCVI_OVER_STEPS : RCVI_OVER_TIME, .buffer = buffer, .offset = offset, .row = row};
}

static rcvi_view live_view(const writer *w, const track *t, const rcvi_clock *clock) {
    rcvi_place place = shared_place(t, w->frame.live, 0, 1);
    return rcvi_place_at_step(clock, &place);
}

/* A reset at step s stands between s-1 and s: before step s forwards, before step s-1 in reverse. */
static rcvi_view boundary_view(const writer *w, const track *t, const rcvi_clock *clock) {
    rcvi_place place = shared_place(t, w->frame.boundary, t->direction ? w->frame.batch : 0, 1);
    return rcvi_place_at_step(clock, &place);
}

/* Steps taken one by one cannot be seen as rows of a chunk in reverse: the track gets a copy in its own order. */
static rcvi_place own_order(writer *w, const track *t, rcvi_place place, int64_t columns, const char *name) {
    if (place.kind != RCVI_OVER_STEPS || (w->longest == 1 && !w->gathers)) return place;
    rcvi_program *program = w->frame.program;
    int64_t row = rcvi_program_row(program, columns);
    rcvi_place own = {.kind = RCVI_OVER_TIME,
                      .buffer = rcvi_frame_buffer(&w->frame, w->frame.steps, row, "%s%s", t->label, name),
                      .row = row};
    if (!program->failed) program->buffers[own.buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    rcvi_clock clock = rcvi_clock_new(w->frame.steps, w->frame.batch, w->frame.steps, 0, false);
    rcvi_program_loop(program, w->frame.steps);
    rcvi_emit_copy(program, w->frame.batch, columns, rcvi_place_at_step(&clock, &own),
                   rcvi_place_at_step(&clock, &place));
    rcvi_program_end_loop(program);
    return own;
}

/* ---- forward sweeps ---- */

static int state_buffer(writer *w, const track *t, const rcvi_graph *graph, size_t s, int64_t slots, const char *name) {
    return rcvi_frame_buffer(&w->frame, slots, rcvi_state_size(graph, s), "%s%s.%s", t->label, name,
                             graph->states[s].name);
}

static bool open_sweep(const writer *w, const track *t, rcvi_sweep *s, const rcvi_graph *graph, rcvi_clock clock,
                       bool apart) {
    const rcvi_param_place *params = layer_of(w, t)->places[t->direction];
    if (!rcvi_sweep_open(s, w->frame.program, graph, params, t->label, clock, apart)) return false;
    s->gathers = w->gathers;
    return true;
}

/* Does a state's slot hold this value at the end of a step? A boundary or a frozen row puts something else there. */
static bool slot_holds(const writer *w, const rcvi_graph *graph, int value) {
    return rcvi_graph_next_of(graph, value) != RCVI_NONE && !w->frame.ragged && !w->frame.resets;
}

/* Marks what the derivative asks for: `kept` sweeps keep it. States stay exact. */
static void need_kept(writer *w, const track *t, rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph, *adjoint = &layer_of(w, t)->adjoint;
    for (size_t i = 0; i < adjoint->input_count; i++) {
        int v = adjoint->inputs[i].source;
        if (v == RCVI_NONE || f->at_hand[v] || slot_holds(w, graph, v)) continue;
        bool rounded = rcvi_graph_next_of(graph, v) == RCVI_NONE;
        (rounded ? f->kept : f->needed)[v] = true;
    }
}

/* A value that will be copied or selected from at a step must lie in memory. */
static void make_readable(writer *w, const track *t, rcvi_fusion *f, int v) {
    if (!rcvi_fusion_computes(f, v) || f->places[v].kind != RCVI_NOWHERE || f->phase[v] == RCVI_INSIDE) return;
    int64_t columns = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    int buffer = rcvi_frame_buffer(&w->frame, w->chunk, columns, "%sreadable.v%d", t->label, v);
    rcvi_fusion_store(f, v, (rcvi_place){.kind = RCVI_OVER_CHUNK, .buffer = buffer, .row = columns});
}

static void place_kept(writer *w, const track *t, rcvi_sweep *s, rcvi_fusion *f, bool local) {
    rcvi_program *program = w->frame.program;
    const rcvi_graph *graph = f->emitter.graph, *adjoint = &layer_of(w, t)->adjoint;
    for (size_t i = 0; i < adjoint->input_count && !program->failed; i++) {
        int v = adjoint->inputs[i].source;
        if (v == RCVI_NONE || !(f->needed[v] || f->kept[v]) || !rcvi_fusion_computes(f, v)) continue;
        if (s->kept[v].kind != RCVI_NOWHERE) continue;
        int64_t row = rcvi_features(graph, graph->values[v].size);
        if (rcvi_fusion_is_factor(adjoint, adjoint->inputs[i].value)) row = rcvi_program_row(program, row);
        int buffer = rcvi_frame_buffer(&w->frame, local ? w->chunk : w->frame.steps, row, "%skept.%s", t->label,
                                       adjoint->inputs[i].name);
        if (program->failed) return;
        program->buffers[buffer].distant = !local;
        if (f->kept[v]) program->buffers[buffer].rounding = RCVI_ROUNDED;
        s->kept[v] = (rcvi_place){.kind = local ? RCVI_OVER_CHUNK : RCVI_OVER_TIME, .buffer = buffer, .row = row};
        rcvi_fusion_store(f, v, s->kept[v]);
    }
}

/* Can the value be stored there while it is computed? */
static bool stores_directly(const writer *w, const rcvi_fusion *f, int v) {
    return rcvi_fusion_computes(f, v) && f->phase[v] == RCVI_INSIDE && !w->frame.ragged;
}

static rcvi_place output_place(const writer *w, const track *t) {
    int64_t columns = layer_of(w, t)->output;
    return shared_place(t, w->frame.inputs[t->layer + 1], t->direction * columns, w->frame.rows[t->layer + 1]);
}

/* A sweep that gives no output computes only what the next states and the derivative need. */
static void forget_output(rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    for (size_t v = 0; v < graph->value_count; v++) f->emitter.live[v] = f->needed[v] || f->kept[v];
    for (size_t s = 0; s < graph->state_count; s++) f->emitter.live[graph->states[s].next] = true;
    for (size_t v = graph->value_count; v-- > 0;) {
        const rcvi_value *value = &graph->values[v];
        for (int a = 0; f->emitter.live[v] && a < rcvi_operations[value->operation].arguments; a++)
            f->emitter.live[value->arguments[a]] = true;
    }
}

/* Where the states of a forward sweep lie. */
static void place_states(writer *w, const track *t, rcvi_sweep *s, bool ring, bool local) {
    for (size_t i = 0; i < s->graph->state_count; i++) {
        int64_t slots = ring ? 2 : local ? w->chunk + 1 : w->frame.steps + 1;
        int64_t row = rcvi_program_row(w->frame.program, rcvi_state_size(s->graph, i));
        s->states[i] = (rcvi_place){.kind = ring    ? RCVI_RING
                                            : local ? RCVI_OVER_CHUNK
                                                    : RCVI_OVER_TIME,
                                    .buffer = rcvi_frame_buffer(&w->frame, slots, row, "%s%s.%s", t->label,
                                                                local ? "again" : "state", s->graph->states[i].name),
                                    .row = row};
    }
}

static void open_forward_part(writer *w, track *t, rcvi_sweep *s, int part, bool keep, bool local, bool output) {
    const rcvi_graph *graph = s->graph;
    rcvi_fusion *f = &s->fusions[part];
    for (size_t i = 0; i < graph->input_count; i++) {
        f->places[graph->inputs[i].value] = t->inputs[i];
        f->at_hand[graph->inputs[i].value] = true;
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        f->places[graph->states[i].value] = s->states[i];
        f->at_hand[graph->states[i].value] = true;
        if (w->frame.ragged) f->needed[graph->states[i].next] = true;
    }
    int out = graph->outputs[0].value;
    if (w->frame.ragged && output) f->needed[out] = true;
    if (keep) need_kept(w, t, f);
    if (!output) forget_output(f);
    rcvi_sweep_restrict(s, part);
    if (w->frame.program->failed) return;
    rcvi_fusion_analyse(f);
    bool rounds = rcvi_dtype_is_narrow(w->frame.program->options.dtype);
    if (output && rounds) make_readable(w, t, f, out); /* else it might be read where it is kept */
    if (keep) place_kept(w, t, s, f, local);
    bool apart = s->parts.count > 1;
    if (apart && w->frame.resets) rcvi_sweep_share(s, part, true);
    for (size_t i = 0; i < graph->state_count && !w->frame.program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        make_readable(w, t, f, next);
        if (stores_directly(w, f, next)) rcvi_fusion_store(f, next, rcvi_place_later(&f->clock, s->states[i]));
    }
    if (output) make_readable(w, t, f, out);
    if (apart) rcvi_sweep_share(s, part, false);
    if (output && stores_directly(w, f, out)) rcvi_fusion_store(f, out, output_place(w, t));
    rcvi_fusion_prepare(f);
}

static void open_forward(writer *w, track *t, rcvi_sweep *s, rcvi_clock clock, bool keep, bool local, bool output) {
    if (!open_sweep(w, t, s, &layer_of(w, t)->forward, clock, w->apart)) return;
    place_states(w, t, s, !keep && s->parts.count == 1, local); /* later parts read states of all steps */
    for (int part = 0; part < s->parts.count && !w->frame.program->failed; part++)
        open_forward_part(w, t, s, part, keep, local, output);
}

static void write_states_before(writer *w, track *t, const rcvi_sweep *s) {
    const rcvi_graph *graph = s->graph;
    rcvi_frame *frame = &w->frame;
    for (size_t i = 0; i < graph->state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i);
        rcvi_emit_copy(frame->program, frame->batch, size, rcvi_whole_view(s->states[i].buffer, s->states[i].row),
                       rcvi_state_block(frame, RCVI_INITIAL, i, t->layer, t->direction, size));
        if (w->recompute) t->checkpoints[i] = state_buffer(w, t, graph, i, w->chunks, "checkpoint");
        if (!frame->resets) continue;
        t->restarts[i] = state_buffer(w, t, graph, i, 1, "restart");
        rcvi_emit_copy(frame->program, frame->batch, size, rcvi_whole_view(t->restarts[i], size),
                       rcvi_state_block(frame, RCVI_RESTART, i, t->layer, t->direction, size));
    }
}

/* Between a sweep's states at a chunk's first step and the checkpoints. */
static void copy_checkpoints(writer *w, track *t, const rcvi_sweep *s, bool restore) {
    const rcvi_graph *graph = s->graph;
    rcvi_program *program = w->frame.program;
    const rcvi_clock *clock = &s->clock;
    program->time = clock->span;
    program->time.span = 1;
    for (size_t i = 0; i < graph->state_count; i++) {
        int64_t size = rcvi_state_size(graph, i), slot = size * w->frame.batch;
        rcvi_view kept = {.buffer = t->checkpoints[i],
                          .offset = clock->span.base / w->chunk * slot,
                          .stride = clock->span.inner / w->chunk * slot,
                          .row = size,
                          .column = 1};
        rcvi_view now = rcvi_place_over_chunk(clock, &s->states[i]);
        rcvi_emit_copy(program, w->frame.batch, size, restore ? now : kept, restore ? kept : now);
    }
    program->time = (rcvi_time){.span = 1};
}

static void select_or_copy(writer *w, const track *t, const rcvi_fusion *f, int v, rcvi_view out, rcvi_view otherwise) {
    rcvi_program *program = w->frame.program;
    rcvi_view from = rcvi_fusion_view(f, v, false);
    int64_t columns = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    program->time = f->clock.step;
    if (w->frame.ragged) {
        rcvi_emit_select(program, w->frame.batch, columns, live_view(w, t, &f->clock), out, from, otherwise);
    } else {
        rcvi_emit_copy(program, w->frame.batch, columns, out, from);
    }
    program->time = (rcvi_time){.span = 1};
}

static bool is_late(const rcvi_fusion *f, int v) { return rcvi_fusion_computes(f, v) && f->phase[v] == RCVI_BEHIND; }

static void write_output(writer *w, const track *t, const rcvi_fusion *f) {
    rcvi_place place = output_place(w, t);
    select_or_copy(w, t, f, f->emitter.graph->outputs[0].value, rcvi_place_at_step(&f->clock, &place), rcvi_no_view());
}

/* One time step of a part of a track. */
static void write_forward_step(writer *w, track *t, rcvi_sweep *s, int part, bool output) {
    rcvi_fusion *f = &s->fusions[part];
    const rcvi_graph *graph = s->graph;
    rcvi_program *program = w->frame.program;
    mark(w, t);
    program->time = f->clock.step;
    for (size_t i = 0; w->frame.resets && i < graph->state_count; i++) {
        if (s->parts.of_state[i] != part) continue;
        rcvi_view slot = rcvi_place_at_step(&f->clock, &s->states[i]);
        int64_t size = rcvi_state_size(graph, i);
        rcvi_emit_select(program, w->frame.batch, size, boundary_view(w, t, &f->clock), slot,
                         rcvi_whole_view(t->restarts[i], size), slot);
    }
    program->time = (rcvi_time){.span = 1};
    rcvi_fusion_emit(f, RCVI_INSIDE);
    for (size_t i = 0; i < graph->state_count && !program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        rcvi_place later = rcvi_place_later(&f->clock, s->states[i]);
        if (!stores_directly(w, f, next))
            select_or_copy(w, t, f, next, rcvi_place_at_step(&f->clock, &later),
                           rcvi_place_at_step(&f->clock, &s->states[i]));
    }
    int out = graph->outputs[0].value;
    if (output && rcvi_sweep_fusion_of(s, out) == f && !stores_directly(w, f, out) && !is_late(f, out))
        write_output(w, t, f);
}

static void write_final_states(writer *w, track *t) {
    const rcvi_graph *graph = t->forward.graph;
    rcvi_frame *frame = &w->frame;
    for (size_t i = 0; i < graph->state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i), row = t->forward.states[i].row;
        rcvi_view last = rcvi_whole_view(t->forward.states[i].buffer, row);
        int64_t slot = t->forward.states[i].kind == RCVI_RING ? frame->steps % 2 : frame->steps;
        last.offset = slot * frame->batch * row;
        rcvi_emit_copy(frame->program, frame->batch, size,
                       rcvi_state_block(frame, RCVI_FINAL, i, t->layer, t->direction, size), last);
    }
}

/* ---- loops ---- */

/* Opens the loop over chunks, where there are several, and over their steps, where they have several. */
static void open_chunks(writer *w, int64_t delay) {
    if (w->chunks > 1 && w->chunk > 1) rcvi_program_loop(w->frame.program, w->chunks + delay);
}
static void open_steps(writer *w, int64_t delay) {
    rcvi_program_loop(w->frame.program, w->chunk > 1 ? w->chunk : w->frame.steps + delay);
}
static void close_steps(writer *w) { rcvi_program_end_loop(w->frame.program); }
static void close_chunks(writer *w) {
    if (w->chunks > 1 && w->chunk > 1) rcvi_program_end_loop(w->frame.program);
}

/* The tracks of a set are of one cell: they have the same parts. */
static void write_forward_part(writer *w, track *set, int64_t count, int part, int64_t delay) {
    for (int64_t i = 0; i < count; i++) {
        mark(w, &set[i]);
        rcvi_fusion_emit(&set[i].forward.fusions[part], RCVI_BEFORE);
    }
    open_steps(w, delay);
    for (int64_t i = 0; i < count; i++) write_forward_step(w, &set[i], &set[i].forward, part, true);
    close_steps(w);
    for (int64_t i = 0; i < count; i++) {
        rcvi_fusion *f = &set[i].forward.fusions[part];
        int out = set[i].forward.graph->outputs[0].value;
        mark(w, &set[i]);
        rcvi_fusion_emit(f, RCVI_BEHIND);
        if (rcvi_sweep_fusion_of(&set[i].forward, out) != f || !is_late(f, out)) continue;
        open_steps(w, delay);
        write_output(w, &set[i], f);
        close_steps(w);
    }
}

/* x, and what zoneout leaves new. */
static void place_forward_inputs(writer *w, track *t) {
    const rcvi_graph *graph = &layer_of(w, t)->forward;
    rcvi_place x = shared_place(t, w->frame.inputs[t->layer], 0, w->frame.rows[t->layer]);
    bool chance = rcvi_frame_zones_by_chance(&w->frame);
    t->inputs[0] = own_order(w, t, x, layer_of(w, t)->input, "x");
    for (size_t i = 1; i < graph->input_count; i++) {
        t->inputs[i] = (rcvi_place){.kind = chance ? RCVI_OVER_TIME : RCVI_STILL,
                                    .buffer = rcvi_frame_write_zone(&w->frame, t->layer, t->direction, i),
                                    .row = chance ? rcvi_features(graph, graph->inputs[i].size) : 0};
    }
}

static void write_forward_set(writer *w, track *set, int64_t count) {
    rcvi_program *program = w->frame.program;
    bool keep = w->frame.training && !w->recompute;
    int64_t delay = set[count - 1].delay;
    for (int64_t i = 0; i < count && !program->failed; i++) {
        track *t = &set[i];
        mark(w, t);
        place_forward_inputs(w, t);
        open_forward(w, t, &t->forward, clock_of(w, t, false), keep, false, true);
        if (!program->failed) write_states_before(w, t, &t->forward);
    }
    if (program->failed) return;
    open_chunks(w, delay);
    for (int64_t i = 0; i < count && w->recompute; i++) {
        mark(w, &set[i]);
        copy_checkpoints(w, &set[i], &set[i].forward, false);
    }
    for (int part = 0; part < set[0].forward.parts.count; part++) write_forward_part(w, set, count, part, delay);
    close_chunks(w);
    for (int64_t i = 0; i < count; i++) {
        mark(w, &set[i]);
        write_final_states(w, &set[i]);
    }
    mark(w, NULL);
}

/* ---- backward sweeps ---- */

/* Where the adjoint graph finds what the forward sweep computed. */
static rcvi_place kept_place(const writer *w, const track *t, int source) {
    const rcvi_sweep *s = w->recompute ? &t->again : &t->forward;
    const rcvi_graph *forward = &layer_of(w, t)->forward;
    bool computed = rcvi_operations[forward->values[source].operation].arguments > 0;
    if (computed && slot_holds(w, forward, source)) {
        return rcvi_place_later(&s->clock, s->states[rcvi_graph_next_of(forward, source)]);
    }
    return s->kept[source].kind != RCVI_NOWHERE ? s->kept[source] : rcvi_sweep_fusion_of(s, source)->places[source];
}

static void open_adjoint_states(writer *w, track *t, rcvi_sweep *s) {
    const rcvi_graph *graph = s->graph;
    rcvi_frame *frame = &w->frame;
    bool ring = s->parts.count == 1; /* else later parts read them at all steps */
    for (size_t i = 0; i < layer_of(w, t)->adjoint.state_count && !frame->program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i), row = ring ? size : rcvi_program_row(frame->program, size);
        const char *name = graph->states[i].name;
        int buffer = rcvi_frame_buffer(frame, ring ? 2 : frame->steps + 1, row, "%sadjoint.%s", t->label, name);
        s->states[i] = (rcvi_place){.kind = ring ? RCVI_RING : RCVI_OVER_TIME, .buffer = buffer, .row = row};
        rcvi_view first = rcvi_whole_view(buffer, row);
        first.offset = (ring ? frame->steps % 2 : frame->steps) * frame->batch * row;
        rcvi_emit_copy(frame->program, frame->batch, size, first,
                       rcvi_state_block(frame, RCVI_DFINAL, i, t->layer, t->direction, size));
        if (frame->ragged)
            t->arriving[i] = rcvi_frame_buffer(frame, ring ? 1 : frame->steps, row, "%sarriving.%s", t->label, name);
        if (frame->resets) {
            t->sums[i] = state_buffer(w, t, graph, i, 1, "drestart");
            t->ending[i] = state_buffer(w, t, graph, i, 1, "ending");
            rcvi_emit_fill(frame->program, frame->batch, size, rcvi_whole_view(t->sums[i], size), 0);
        }
    }
}

/* What the adjoint of a state is when it arrives at a step. */
static rcvi_place arriving_place(const writer *w, const track *t, const rcvi_sweep *s, size_t i) {
    if (!w->frame.ragged) return rcvi_place_later(&s->clock, s->states[i]);
    return (rcvi_place){
        .kind = s->parts.count == 1 ? RCVI_STILL : RCVI_OVER_TIME, .buffer = t->arriving[i], .row = s->states[i].row};
}

static void retime(writer *w, track *t) {
    if (w->retimes && !w->frame.program->failed)
        t->is_retimed = rcvi_retime(w->frame.program, &layer_of(w, t)->adjoint, w->chunk == 1, &t->retimed);
}

/* Is dx of a step computed at the one after it? It then has a slot more. */
static bool is_output_late(const track *t) { return t->is_retimed && t->retimed.output_late; }

/* Inside of a wavefront's loop, since the layer below waits for it; else behind all loops. */
static bool is_last_inside(const writer *w, const track *t) { return is_output_late(t) && w->wavefront; }

/* The retimed sweep's products that are left when its last step is done, of what lies in the first slots. */
static void open_last(writer *w, track *t) {
    rcvi_clock clock = rcvi_clock_new(w->frame.steps, w->frame.batch, 1, 0, true);
    const rcvi_clock *own = &t->backward.clock;
    clock.step = (rcvi_time){.span = 1};
    if (is_last_inside(w, t)) {
        int64_t steps = w->frame.steps; /* due when the sweep's time is -1, and at no other */
        clock.step = own->step;
        clock.step.base = -(own->step.base + 1) * steps;
        clock.step.inner = -own->step.inner * steps;
        clock.step.outer = -own->step.outer * steps;
    }
    if (!open_sweep(w, t, &t->last, &t->retimed.last, clock, false)) return;
    rcvi_fusion *f = &t->last.fusions[0];
    const rcvi_graph *graph = f->emitter.graph;
    for (int i = 0; i < t->retimed.operand_count; i++) {
        const rcvi_place *place = &t->backward.fusions[0].places[t->retimed.operands[i]];
        f->places[graph->inputs[i].value] =
            (rcvi_place){.kind = RCVI_STILL, .buffer = place->buffer, .offset = place->offset, .row = place->row};
        f->at_hand[graph->inputs[i].value] = true;
    }
    size_t input = (size_t)t->retimed.operand_count;
    for (size_t s = 0; s < t->retimed.states; s++) {
        if (!t->retimed.is_late[s] || !t->retimed.has_rest[s]) continue;
        f->places[graph->inputs[input].value] =
            (rcvi_place){.kind = RCVI_STILL, .buffer = t->backward.states[s].buffer, .row = t->backward.states[s].row};
        f->at_hand[graph->inputs[input++].value] = true;
    }
    rcvi_fusion_analyse(f);
    size_t output = 0;
    for (size_t s = 0; s < t->retimed.states && !w->frame.program->failed; s++) {
        if (!t->retimed.is_late[s]) continue;
        t->first[s] = state_buffer(w, t, &layer_of(w, t)->adjoint, s, 1, "first");
        rcvi_fusion_store(f, graph->outputs[output++].value,
                          (rcvi_place){.kind = RCVI_STILL, .buffer = t->first[s], .row = t->backward.states[s].row});
    }
    rcvi_place dx = {.kind = RCVI_STILL, .buffer = t->dx, .row = layer_of(w, t)->input};
    if (t->retimed.output_late) rcvi_fusion_store(f, graph->outputs[output].value, dx);
    rcvi_fusion_prepare(f);
}

static void write_last(writer *w, track *t) {
    mark(w, t);
    rcvi_fusion_emit(&t->last.fusions[0], RCVI_INSIDE);
}

/* Inputs of the adjoint: what arrives from above, and what the forward sweep kept. [values] */
static void place_inputs(writer *w, track *t, const rcvi_graph *graph, int dy, rcvi_place *places) {
    int64_t columns = layer_of(w, t)->output;
    for (size_t i = 0; i < graph->input_count; i++) {
        const rcvi_graph_input *input = &graph->inputs[i];
        if (input->source != RCVI_NONE) {
            places[input->value] = kept_place(w, t, input->source);
        } else {
            rcvi_place place = shared_place(t, dy, t->direction * columns, columns * w->frame.net->directions);
            places[input->value] = own_order(w, t, place, columns, "dy");
        }
    }
}

static void open_backward_part(writer *w, track *t, int part, const rcvi_place *inputs) {
    rcvi_frame *frame = &w->frame;
    rcvi_sweep *s = &t->backward;
    const rcvi_graph *graph = s->graph;
    size_t states = layer_of(w, t)->adjoint.state_count;
    rcvi_fusion *f = &s->fusions[part];
    if (t->is_retimed) {
        f->late = t->retimed.operands;
        f->late_count = t->retimed.operand_count;
        f->late_first = states;
        for (size_t i = states; i < graph->state_count; i++) f->at_hand[graph->states[i].value] = true;
    }
    for (size_t i = 0; i < graph->input_count; i++) {
        f->at_hand[graph->inputs[i].value] = true;
        f->places[graph->inputs[i].value] = inputs[graph->inputs[i].value];
    }
    for (size_t i = 0; i < states; i++) {
        f->at_hand[graph->states[i].value] = true;
        f->places[graph->states[i].value] = arriving_place(w, t, s, i);
        if (frame->ragged) f->needed[graph->states[i].next] = true;
    }
    f->gathers = w->gathers;
    rcvi_sweep_restrict(s, part);
    if (frame->program->failed) return;
    rcvi_fusion_analyse(f);
    bool apart = s->parts.count > 1;
    if (apart && frame->resets) rcvi_sweep_share(s, part, true);
    for (size_t i = 0; i < states && !frame->program->failed; i++) {
        int next = graph->states[i].next;
        if (s->parts.of_state[i] != part) continue;
        if (t->is_retimed && t->retimed.is_late[i] && !t->retimed.has_rest[i]) {
            rcvi_fusion_clear(f, s->states[i], rcvi_state_size(graph, i));
            continue;
        }
        make_readable(w, t, f, next);
        if (stores_directly(w, f, next)) rcvi_fusion_store(f, next, s->states[i]);
    }
    if (apart) rcvi_sweep_share(s, part, false);
    int out = graph->outputs[0].value;
    rcvi_place place = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = layer_of(w, t)->input};
    if (is_output_late(t)) place = rcvi_place_later(&f->clock, place);
    if (rcvi_fusion_computes(f, out)) rcvi_fusion_store(f, out, place);
    rcvi_fusion_prepare(f);
}

static void open_backward(writer *w, track *t, int dy, int dx) {
    rcvi_frame *frame = &w->frame;
    const rcvi_graph *graph = t->is_retimed ? &t->retimed.graph : &layer_of(w, t)->adjoint;
    if (!open_sweep(w, t, &t->backward, graph, clock_of(w, t, true), w->apart)) return;
    rcvi_place *inputs = rcvi_pool_new(&frame->program->pool, graph->value_count, sizeof *inputs);
    if (!inputs) frame->program->failed = true;
    if (frame->program->failed) return;
    place_inputs(w, t, graph, dy, inputs);
    open_adjoint_states(w, t, &t->backward);
    int64_t width = layer_of(w, t)->input;
    t->dx = t->direction ? rcvi_frame_buffer(frame, frame->steps + is_output_late(t), width, "%sdx", t->label) : dx;
    for (int part = 0; part < t->backward.parts.count && !frame->program->failed; part++)
        open_backward_part(w, t, part, inputs);
    if (t->is_retimed && !frame->program->failed) open_last(w, t);
}

static void write_adjoint_states(writer *w, track *t, int part) {
    rcvi_fusion *f = &t->backward.fusions[part];
    const rcvi_graph *graph = t->backward.graph;
    rcvi_frame *frame = &w->frame;
    rcvi_program *program = frame->program;
    for (size_t i = 0; i < layer_of(w, t)->adjoint.state_count && !program->failed; i++) {
        int64_t size = rcvi_state_size(graph, i);
        int v = graph->states[i].next;
        if (t->backward.parts.of_state[i] != part) continue;
        if (t->is_retimed && t->retimed.is_late[i] && !t->retimed.has_rest[i]) continue;
        rcvi_place later = rcvi_place_later(&f->clock, t->backward.states[i]);
        rcvi_view next = rcvi_place_at_step(&f->clock, &t->backward.states[i]);
        if (!stores_directly(w, f, v)) select_or_copy(w, t, f, v, next, rcvi_place_at_step(&f->clock, &later));
        if (!frame->resets) continue;
        program->time = f->clock.step;
        rcvi_view mask = boundary_view(w, t, &f->clock), ending = rcvi_whole_view(t->ending[i], size);
        rcvi_view sum = rcvi_whole_view(t->sums[i], size);
        rcvi_emit_select(program, frame->batch, size, mask, ending, next, rcvi_no_view());
        rcvi_emit_add(program, frame->batch, size, sum, sum, ending);
        rcvi_emit_select(program, frame->batch, size, mask, next, rcvi_no_view(), next);
        program->time = (rcvi_time){.span = 1};
    }
}

static void write_backward_step(writer *w, track *t, int part) {
    const rcvi_sweep *s = &t->backward;
    rcvi_fusion *f = &s->fusions[part];
    const rcvi_graph *graph = s->graph;
    rcvi_program *program = w->frame.program;
    mark(w, t);
    program->time = f->clock.step;
    for (size_t i = 0; w->frame.ragged && i < graph->state_count; i++) {
        if (s->parts.of_state[i] != part) continue;
        int64_t size = rcvi_state_size(graph, i);
        rcvi_place later = rcvi_place_later(&f->clock, s->states[i]), arriving = arriving_place(w, t, s, i);
        rcvi_emit_select(program, w->frame.batch, size, live_view(w, t, &f->clock),
                         rcvi_place_at_step(&f->clock, &arriving), rcvi_place_at_step(&f->clock, &later),
                         rcvi_no_view());
    }
    program->time = (rcvi_time){.span = 1};
    rcvi_fusion_emit(f, RCVI_INSIDE);
    write_adjoint_states(w, t, part);
    if (w->chunk == 1 && !w->gathers) rcvi_fusion_emit_gradients(f, false);
    int out = graph->outputs[0].value;
    if (rcvi_sweep_fusion_of(s, out) == f && !rcvi_fusion_computes(f, out)) {
        rcvi_place place = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = layer_of(w, t)->input};
        rcvi_view from = rcvi_fusion_view(f, out, false);
        program->time = f->clock.step;
        rcvi_emit_copy(program, w->frame.batch, place.row, rcvi_place_at_step(&f->clock, &place), from);
        program->time = (rcvi_time){.span = 1};
    }
}

/* The forward sweep over a chunk once more, from its checkpoint. */
static void write_again(writer *w, track *set, int64_t count, int64_t delay) {
    for (int64_t i = 0; i < count; i++) {
        mark(w, &set[i]);
        copy_checkpoints(w, &set[i], &set[i].again, true);
    }
    for (int part = 0; part < set[0].again.parts.count; part++) {
        for (int64_t i = 0; i < count; i++) {
            mark(w, &set[i]);
            rcvi_fusion_emit(&set[i].again.fusions[part], RCVI_BEFORE);
        }
        open_steps(w, delay);
        for (int64_t i = 0; i < count; i++) write_forward_step(w, &set[i], &set[i].again, part, false);
        close_steps(w);
        for (int64_t i = 0; i < count; i++) {
            mark(w, &set[i]);
            rcvi_fusion_emit(&set[i].again.fusions[part], RCVI_BEHIND);
        }
    }
}

static void open_backward_set(writer *w, track *set, int64_t count, const int *dy, const int *dx) {
    for (int64_t i = 0; i < count && !w->frame.program->failed; i++) {
        track *t = &set[i];
        mark(w, t);
        if (w->recompute) open_forward(w, t, &t->again, clock_again(w, t), true, true, false);
        if (!w->frame.program->failed) open_backward(w, t, dy[i], dx[i]);
    }
}

/* Where somebody waits for gradients they come before the adjoint of the input, unless that is where their factors are computed. */
static bool are_gradients_first(const writer *w, const rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    bool late = false;
    for (size_t g = 0; g < graph->gradient_count; g++) {
        int right = graph->gradients[g].right;
        if (!f->left_out[g]) late |= is_late(f, graph->gradients[g].left) || (right != RCVI_NONE && is_late(f, right));
    }
    return w->frame.program->options.signals && !late;
}

static void write_backward_part(writer *w, track *set, int64_t count, int part, int64_t delay, bool inside) {
    for (int64_t i = 0; i < count; i++) {
        mark(w, &set[i]);
        rcvi_fusion_emit(&set[i].backward.fusions[part], RCVI_BEFORE);
    }
    open_steps(w, delay);
    for (int64_t i = 0; i < count; i++) write_backward_step(w, &set[i], part);
    for (int64_t i = 0; i < count && inside; i++) write_last(w, &set[i]);
    close_steps(w);
    for (int64_t i = 0; i < count; i++) {
        rcvi_fusion *f = &set[i].backward.fusions[part];
        bool gradients = w->chunk > 1 && !w->gathers, first = gradients && are_gradients_first(w, f);
        mark(w, &set[i]);
        if (first) rcvi_fusion_emit_gradients(f, true);
        rcvi_fusion_emit(f, RCVI_BEHIND);
        if (gradients && !first) rcvi_fusion_emit_gradients(f, true);
    }
}

/* dy and dx: [count] buffers. */
static void write_backward_set(writer *w, track *set, int64_t count, const int *dy, const int *dx) {
    rcvi_program *program = w->frame.program;
    int64_t delay = 0;
    for (int64_t i = 0; i < count; i++) delay = set[i].delay > delay ? set[i].delay : delay;
    open_backward_set(w, set, count, dy, dx);
    if (program->failed) return;
    bool inside = is_last_inside(w, &set[0]);
    delay += inside;
    open_chunks(w, delay);
    if (w->recompute) write_again(w, set, count, delay);
    for (int part = 0; part < set[0].backward.parts.count; part++)
        write_backward_part(w, set, count, part, delay, inside);
    close_chunks(w);
    for (int64_t i = 0; i < count && !inside; i++) {
        if (set[i].is_retimed) write_last(w, &set[i]);
    }
    for (int64_t i = 0; i < count && w->gathers; i++) {
        mark(w, &set[i]);
        for (int part = 0; part < set[i].backward.parts.count; part++)
            rcvi_fusion_emit_gradients(&set[i].backward.fusions[part], true);
    }
    for (int64_t i = 0; i < count && !program->failed; i++) {
        const rcvi_graph *graph = &layer_of(w, &set[i])->adjoint;
        mark(w, &set[i]);
        for (size_t s = 0; s < graph->state_count; s++) {
            const rcvi_place *place = &set[i].backward.states[s];
            bool late = set[i].is_retimed && set[i].retimed.is_late[s];
            rcvi_frame_write_dstates(&w->frame, s, set[i].layer, set[i].direction,
                                     rcvi_whole_view(late ? set[i].first[s] : place->buffer, place->row),
                                     rcvi_whole_view(set[i].sums[s], rcvi_state_size(graph, s)));
        }
    }
    mark(w, NULL);
}

/* What a reverse direction computed in its own order, added in the order of steps. */
static void add_reversed(writer *w, const track *t, int dx) {
    rcvi_program *program = w->frame.program;
    int64_t width = layer_of(w, t)->input;
    rcvi_clock clock = rcvi_clock_new(w->frame.steps, w->frame.batch, w->frame.steps, 0, false);
    rcvi_place own = {.kind = RCVI_OVER_TIME, .buffer = t->dx, .row = width}, place = shared_place(t, dx, 0, width);
    rcvi_view out = rcvi_place_at_step(&clock, &place);
    rcvi_program_loop(program, w->frame.steps);
    rcvi_emit_add(program, w->frame.batch, width, out, out, rcvi_place_at_step(&clock, &own));
    rcvi_program_end_loop(program);
}

/* ---- the network ---- */

static void write_forward_pass(writer *w) {
    rcvi_frame *frame = &w->frame;
    int64_t layers = frame->net->options.layers, directions = frame->net->directions;
    rcvi_frame_write_masks(frame);
    rcvi_frame_write_input(frame);
    for (int64_t layer = 0; layer < layers && !frame->program->failed; layer++) {
        if (rcvi_frame_has_dropout(frame, layer))
            frame->inputs[layer] = rcvi_frame_write_dropout(frame, layer, frame->inputs[layer], frame->rows[layer],
                                                            "dropped", RCVI_ROUNDED);
        rcvi_frame_open_output(frame, layer);
        for (int64_t d = 0; d < directions; d++) w->tracks[layer * directions + d].delay = w->wavefront ? layer : 0;
        if (!w->wavefront) write_forward_set(w, &w->tracks[layer * directions], directions);
    }
    if (w->wavefront) write_forward_set(w, w->tracks, layers);
}

/* Of a layer whose tracks are retimed, where they are. */
static int new_dx(writer *w, int64_t layer) {
    int64_t directions = w->frame.net->directions;
    bool late = false;
    for (int64_t d = 0; d < directions; d++) late |= is_output_late(&w->tracks[layer * directions + d]);
    return rcvi_frame_buffer(&w->frame, w->frame.steps + late, rcvi_frame_width(&w->frame, layer), "dx%lld",
                             (long long)layer);
}

static void write_backward_wavefront(writer *w, int dy) {
    int64_t layers = w->frame.net->options.layers;
    int *buffers = rcvi_pool_new(&w->frame.program->pool, (size_t)layers + 1, sizeof *buffers);
    if (!buffers) {
        w->frame.program->failed = true;
        return;
    }
    int64_t apart = 1; /* steps that a layer is behind the one above */
    for (int64_t layer = 0; layer < layers; layer++) {
        retime(w, &w->tracks[layer]);
        if (is_output_late(&w->tracks[layer])) apart = 2;
    }
    for (int64_t layer = 0; layer < layers; layer++) {
        buffers[layer] = new_dx(w, layer);
        w->tracks[layer].delay = apart * (layers - 1 - layer);
    }
    buffers[layers] = dy;
    write_backward_set(w, w->tracks, layers, buffers + 1, buffers);
    rcvi_frame_write_dx(&w->frame, buffers[0]);
}

static void write_backward_pass(writer *w) {
    rcvi_frame *frame = &w->frame;
    int64_t directions = frame->net->directions;
    int dy = rcvi_frame_write_dy(frame);
    if (w->wavefront) {
        write_backward_wavefront(w, dy);
        return;
    }
    for (int64_t layer = frame->net->options.layers; layer-- > 0 && !frame->program->failed;) {
        track *set = &w->tracks[layer * directions];
        for (int64_t d = 0; d < directions; d++) {
            set[d].delay = 0;
            retime(w, &set[d]);
        }
        int dx = new_dx(w, layer);
        write_backward_set(w, set, directions, (int[]){dy, dy}, (int[]){dx, dx});
        if (directions > 1 && !frame->program->failed) add_reversed(w, &set[1], dx);
        dy = rcvi_frame_has_dropout(frame, layer)
                 ? rcvi_frame_write_dropout(frame, layer, dx, rcvi_frame_width(frame, layer), "ddropped", RCVI_EXACT)
                 : dx;
    }
    rcvi_frame_write_dx(frame, dy);
}

static bool open_track(writer *w, track *t) {
    rcvi_pool *pool = &w->frame.program->pool;
    size_t states = layer_of(w, t)->forward.state_count;
    t->label = rcvi_pool_format(pool, "l%lld%s.", (long long)t->layer, t->direction ? "r" : "");
    int *tables = rcvi_pool_new(pool, 6 * states, sizeof *tables);
    t->inputs = rcvi_pool_new(pool, layer_of(w, t)->forward.input_count, sizeof *t->inputs);
    if (!t->label || !tables || !t->inputs) return false;
    t->restarts = tables;
    t->checkpoints = tables + states;
    t->arriving = tables + 2 * states;
    t->sums = tables + 3 * states;
    t->ending = tables + 4 * states;
    t->first = tables + 5 * states;
    return true;
}

/* Before a pass is written. */
static void cut_time(writer *w, int64_t chunk, bool wavefront) {
    w->wavefront = wavefront;
    w->chunk = chunk;
    w->chunks = (w->frame.steps + chunk - 1) / chunk;
}

static void close_tracks(writer *w, size_t count) {
    for (size_t i = 0; w->tracks && i < count; i++) {
        track *t = &w->tracks[i];
        rcvi_sweep_close(&t->forward);
        rcvi_sweep_close(&t->again);
        rcvi_sweep_close(&t->backward);
        rcvi_sweep_close(&t->last);
        rcvi_retimed_free(&t->retimed);
    }
    rcvi_free(w->frame.program->pool.context, w->tracks);
}

/* Steps of a pass that depend on the parameters alone come first, those of all layers together: a GPU takes them by few
 * launches. They stand outside of loops, and wait for nothing but each other. */
static void hoist_prepared(rcvi_program *program, size_t first, size_t end) {
    rcv_context *context = program->pool.context;
    rcvi_step *moved = rcvi_new(context, end - first, sizeof *moved);
    size_t count = 0;
    if (!moved) program->failed = true;
    for (int others = 0; others < 2 && moved; others++) {
        for (size_t i = first; i < end; i++) {
            bool prepared = program->steps[i].when == RCVI_WHEN_PARAMETERS_CHANGED;
            if (prepared != others) moved[count++] = program->steps[i];
        }
    }
    for (size_t i = 0; i < count; i++) program->steps[first + i] = moved[i];
    rcvi_free(context, moved);
}

static void write(rcvi_program *program) {
    const rcv_net *net = program->net;
    rcv_context *context = program->pool.context;
    int64_t steps = program->options.steps, chunk = rcvi_chunk_of(&program->rungs, steps);
    int64_t forward = rcvi_forward_chunk_of(&program->rungs, steps);
    size_t count = (size_t)(net->options.layers * net->directions);
    writer w = {.longest = chunk > forward ? chunk : forward,
                .recompute = program->rungs.recompute > 0,
                .gathers = program->machine.gpu && program->rungs.combine && !program->rungs.recompute,
                .tracks = rcvi_new(context, count, sizeof *w.tracks)};
    bool ok = rcvi_frame_init(&w.frame, program) && w.tracks;
    w.frame.pads = true;
    w.apart = program->rungs.scan;
    w.retimes =
        w.gathers && program->rungs.fuse && program->rungs.pack && !w.frame.ragged && !w.frame.resets && !w.apart;
    for (size_t i = 0; ok && i < count; i++) {
        w.tracks[i].layer = (int64_t)i / net->directions;
        w.tracks[i].direction = (int64_t)i % net->directions;
        ok = open_track(&w, &w.tracks[i]);
    }
    if (!ok) program->failed = true;
    cut_time(&w, forward, program->rungs.wavefront);
    if (ok) write_forward_pass(&w);
    program->forward_count = program->step_count;
    cut_time(&w, chunk, program->rungs.wavefront && !program->rungs.forward_wave);
    if (w.frame.training && !program->failed) write_backward_pass(&w);
    close_tracks(&w, count);
    rcvi_frame_free(&w.frame);
    if (!program->machine.gpu || program->failed) return;
    hoist_prepared(program, 0, program->forward_count);
    hoist_prepared(program, program->forward_count, program->step_count);
}

const rcvi_schedule rcvi_schedule_stepwise = {
    .name = "stepwise", .applies = rcvi_stepwise_applies, .write = write, .variants = rcvi_stepwise_variants};

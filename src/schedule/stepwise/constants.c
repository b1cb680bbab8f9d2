/* Constants of a track: values that depend on the parameters alone, and their gradients.
 *
 * It applies to cells with such values. They are computed when the parameters have changed, as packed weights are, in one row that every
 * sweep reads as it reads a learned vector. The backward sweep sums the gradients of the constants over all steps and sequences, as it
 * sums those of the vectors. After its loops the chain rule leads from these sums to the gradients of the parameters. */
#include "schedule/stepwise/stepwise.h"

/* One row, outside of loops. */
static rcvi_time_map row_time_map(void) {
    rcvi_time_map time_map = rcvi_time_map_new(1, 1, 1, 0, false);
    time_map.step = time_map.span = (rcvi_time){.span = 1};
    return time_map;
}

static bool open_fusion(rcvi_stepwise *w, const rcvi_track *t, const rcvi_graph *graph, rcvi_fusion *f) {
    rcvi_program *program = w->frame.program;
    const char *label = rcvi_pool_format(&program->pool, "%sconstant.", t->label);
    if (!label) program->failed = true;
    return label &&
           rcvi_fusion_init(f, program, graph, rcvi_track_layer(w, t)->layouts[t->direction], label, row_time_map());
}

static int new_row(rcvi_stepwise *w, const rcvi_track *t, const char *name) {
    return rcvi_program_buffer(w->frame.program, RCVI_ARENA, 0, RCVI_REAL, rcvi_track_layer(w, t)->constant_elements,
                               "%s%s", t->label, name);
}

/* Constant `output` in a row of all of them. */
static rcvi_storage place_in_row(const rcvi_stepwise *w, const rcvi_track *t, size_t output, int buffer) {
    const rcvi_layer *layer = rcvi_track_layer(w, t);
    const rcvi_param_layout *layout = &layer->layouts[t->direction][layer->forward.param_count + output];
    return (rcvi_storage){.kind = RCVI_FIXED, .buffer = buffer, .offset = layout->offset, .row = layout->rows};
}

/* The steps from `first` on depend on the parameters only, and so do the buffers that they write. */
static void mark_prepared(rcvi_program *program, size_t first) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = first; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        program->steps[i].when = RCVI_WHEN_PARAMETERS_CHANGED;
        for (int k = 0; k < count; k++) {
            if (accesses[k].written) program->buffers[accesses[k].view->buffer].lasting = true;
        }
    }
}

/* Storage of the constants, and of the values that their derivative reads. */
static void store_values(rcvi_stepwise *w, rcvi_track *t, rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    for (size_t i = 0; i < graph->output_count; i++)
        rcvi_fusion_store(f, graph->outputs[i].value, place_in_row(w, t, i, t->constants));
    for (int v = 0; v < (int)graph->value_count && !w->frame.program->failed; v++) {
        if (!f->needed[v] || f->storage[v].kind != RCVI_NOT_STORED || !rcvi_fusion_computes(f, v)) continue;
        int64_t columns = rcvi_features(graph, graph->values[v].size);
        rcvi_storage storage = {
            .kind = RCVI_FIXED, .buffer = rcvi_fusion_buffer(f, 1, columns, "kept", v), .row = columns};
        rcvi_fusion_store(f, v, storage);
    }
}

void rcvi_constants_write(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_layer *layer = rcvi_track_layer(w, t);
    const rcvi_graph *adjoint = &layer->constants_adjoint;
    rcvi_program *program = w->frame.program;
    rcvi_fusion *f = &t->constant_values;
    size_t first = program->step_count;
    if (!layer->constants.output_count || !open_fusion(w, t, &layer->constants, f)) return;
    t->constants = new_row(w, t, "constants");
    for (size_t i = 0; w->frame.training && i < adjoint->input_count; i++) {
        if (adjoint->inputs[i].source != RCVI_NONE) f->needed[adjoint->inputs[i].source] = true;
    }
    rcvi_fusion_analyse(f);
    store_values(w, t, f);
    if (program->failed) return;
    rcvi_fusion_prepare(f);
    rcvi_fusion_emit(f, RCVI_IN_LOOP);
    mark_prepared(program, first);
}

void rcvi_constants_clear_gradient(rcvi_stepwise *w, rcvi_track *t) {
    int64_t elements = rcvi_track_layer(w, t)->constant_elements;
    if (t->constants == RCVI_NONE) return;
    t->dconstants = new_row(w, t, "dconstants");
    rcvi_emit_fill(w->frame.program, 1, elements, rcvi_whole_view(t->dconstants, elements), 0);
}

void rcvi_constants_write_gradient(rcvi_stepwise *w, rcvi_track *t) {
    const rcvi_layer *layer = rcvi_track_layer(w, t);
    const rcvi_graph *graph = &layer->constants_adjoint;
    rcvi_fusion *f = &t->constant_adjoint;
    if (t->constants == RCVI_NONE || !open_fusion(w, t, graph, f)) return;
    rcvi_track_mark(w, t);
    for (size_t i = 0; i < graph->input_count; i++) { /* the gradients of the constants first, in their order */
        int v = graph->inputs[i].value, source = graph->inputs[i].source;
        f->given[v] = true;
        f->storage[v] = source == RCVI_NONE ? place_in_row(w, t, i, t->dconstants) : t->constant_values.storage[source];
    }
    rcvi_fusion_analyse(f);
    if (w->frame.program->failed) return;
    rcvi_fusion_prepare(f);
    rcvi_fusion_emit(f, RCVI_IN_LOOP);
    rcvi_fusion_emit_gradients(f, false);
}

/* Before a fusion's phases are emitted: storage of values that cross phases or are factors of gradients, matrices that are one product,
 * and steps that depend on the parameters only (packed weights, sums of biases, copies of learned vectors). */
#include "schedule/fuse/internal.h"

/* A library product for a scan may be rounded: the scan reads it once, and is limited by memory bandwidth. */
static rcvi_storage chunk_storage(rcvi_fusion *f, int64_t columns, const char *name, int v) {
    int buffer = rcvi_fusion_buffer(f, f->time_map.chunk, columns, name, v);
    if (!f->emitter.program->failed && rcvi_fusion_is_scan_product(f, v))
        f->emitter.program->buffers[buffer].rounding = RCVI_ROUNDED;
    return (rcvi_storage){.kind = RCVI_OVER_CHUNK, .buffer = buffer, .row = columns};
}

/* Storage of a value that another phase reads, or that is a factor of gradients: over a chunk; over time where gradients are deferred. */
static rcvi_storage crossing_storage(rcvi_fusion *f, int64_t columns, const char *name, int v) {
    if (!f->defers_gradients || !rcvi_fusion_is_factor(f->emitter.graph, v)) return chunk_storage(f, columns, name, v);
    int64_t row = rcvi_program_row(f->emitter.program, columns);
    int buffer = rcvi_fusion_buffer(f, f->time_map.steps + (f->late_count > 0), row, name, v);
    return (rcvi_storage){.kind = RCVI_OVER_TIME, .buffer = buffer, .row = row};
}

/* Left factors of gradients in adjacent columns, in the order of their parameters, so that stacked parameters are one product. */
static void place_gradient_factors(rcvi_fusion *f) {
    const rcvi_graph *graph = f->emitter.graph;
    rcvi_program *program = f->emitter.program;
    int *order = rcvi_new(program->pool.context, graph->gradient_count, sizeof *order), count = 0;
    if (!order) program->failed = true;
    int64_t total = 0, done = -1;
    while (!program->failed) {
        int next = RCVI_NONE;
        int64_t least = INT64_MAX;
        for (size_t g = 0; g < graph->gradient_count; g++) {
            int64_t offset = f->emitter.params[graph->gradients[g].param].offset;
            if (graph->gradients[g].right == RCVI_NONE || offset <= done || offset >= least) continue;
            least = offset;
            next = graph->gradients[g].left;
        }
        if (next == RCVI_NONE) break;
        done = least;
        bool open = rcvi_fusion_computes(f, next) && !rcvi_fusion_has_storage(f, next);
        for (int i = 0; i < count; i++) open &= order[i] != next;
        if (!open) continue;
        order[count++] = next;
        total += rcvi_fusion_features(f, next);
    }
    int64_t slots = f->defers_gradients ? f->time_map.steps + (f->late_count > 0) : f->time_map.chunk;
    total = rcvi_program_row(program, total);
    int buffer = count ? rcvi_fusion_buffer(f, slots, total, "factors", order[0]) : RCVI_NONE;
    int64_t column = 0;
    for (int i = 0; i < count; i++) {
        f->storage[order[i]] = (rcvi_storage){.kind = f->defers_gradients ? RCVI_OVER_TIME : RCVI_OVER_CHUNK,
                                              .buffer = buffer,
                                              .offset = column,
                                              .row = total};
        column += rcvi_fusion_features(f, order[i]);
    }
    rcvi_free(program->pool.context, order);
}

/* Are the parameters of v adjacent to those of `last`, with the same operand, so that both are one product? */
static bool is_stacked_on(const rcvi_fusion *f, int first, int last, int v) {
    const rcvi_value *a = rcvi_fusion_value(f, last), *b = rcvi_fusion_value(f, v);
    bool matrices = a->operation == RCVI_MATRIX && b->operation == RCVI_MATRIX && f->method[v] == RCVI_OWN_STEP;
    if (!matrices || a->arguments[0] != b->arguments[0] || f->phase[first] != f->phase[v] ||
        f->level[first] != f->level[v] || rcvi_fusion_has_storage(f, v) || f->needed[v] || f->kept[v])
        return false;
    const rcvi_param_layout *x = &f->emitter.params[a->index], *y = &f->emitter.params[b->index];
    return x->blocks == 1 && y->blocks == 1 && x->columns == y->columns &&
           x->offset + x->rows * x->columns == y->offset &&
           rcvi_program_is_one_array(f->emitter.program, x->offset, y->offset);
}

static void group_matrices(rcvi_fusion *f) {
    for (int v = 0; v < rcvi_fusion_value_count(f); v++) {
        if (f->method[v] != RCVI_OWN_STEP || rcvi_fusion_value(f, v)->operation != RCVI_MATRIX ||
            f->group[v] != RCVI_NONE)
            continue;
        if (rcvi_fusion_has_storage(f, v) || f->needed[v] || f->kept[v]) continue;
        int members = 1, last = v;
        int64_t columns = rcvi_fusion_features(f, v);
        for (int c = 0; c < rcvi_fusion_value_count(f); c++) {
            if (f->group[c] != RCVI_NONE || !is_stacked_on(f, v, last, c)) continue;
            f->group[c] = v;
            last = c;
            columns += rcvi_fusion_features(f, c);
            members++;
            c = -1; /* the next one may come before it in the graph */
        }
        if (members == 1) continue;
        f->group[v] = v;
        bool inside = f->phase[v] == RCVI_IN_LOOP;
        int buffer = rcvi_fusion_buffer(f, inside ? 1 : f->time_map.chunk, columns, "gates", v);
        int64_t first = f->emitter.params[rcvi_fusion_value(f, v)->index].offset,
                depth = f->emitter.params[rcvi_fusion_value(f, v)->index].columns;
        for (int c = 0; c < rcvi_fusion_value_count(f); c++) {
            if (f->group[c] != v) continue;
            int64_t column = (f->emitter.params[rcvi_fusion_value(f, c)->index].offset - first) / depth;
            f->storage[c] = (rcvi_storage){
                .kind = inside ? RCVI_FIXED : RCVI_OVER_CHUNK, .buffer = buffer, .offset = column, .row = columns};
        }
    }
}

/* ---- steps that depend on the parameters only ---- */

void rcvi_fusion_mark_prepared(rcvi_program *program, int buffer) {
    if (program->failed) return;
    program->steps[program->step_count - 1].when = RCVI_WHEN_PARAMETERS_CHANGED;
    program->buffers[buffer].lasting = true;
}

rcvi_view rcvi_fusion_vector(const rcvi_fusion *f, int v) {
    return rcvi_emitter_vector(&f->emitter, rcvi_fusion_value(f, v)->index);
}

/* Is it the operand of a matrix product, here or in a gradient? */
static bool is_multiplied(const rcvi_fusion *f, int v) {
    const rcvi_graph *graph = f->emitter.graph;
    bool found = false;
    for (int c = v + 1; c < rcvi_fusion_value_count(f); c++) {
        rcvi_operation operation = rcvi_fusion_value(f, c)->operation;
        bool matrix = operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE;
        found |= matrix && f->emitter.live[c] && !f->given[c] && rcvi_fusion_value(f, c)->arguments[0] == v;
    }
    for (size_t g = 0; g < graph->gradient_count; g++) found |= graph->gradients[g].right == v;
    return found;
}

/* A learned vector is one row, but products read a row for each sequence and step: it is copied to all rows. */
static void place_vectors(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    for (int v = 0; v < rcvi_fusion_value_count(f) && !program->failed; v++) {
        if (rcvi_fusion_value(f, v)->operation != RCVI_VECTOR || !f->emitter.live[v] || !is_multiplied(f, v)) continue;
        int64_t columns = rcvi_fusion_features(f, v), row = rcvi_program_row(program, columns);
        int64_t slots = f->defers_gradients ? f->time_map.steps : f->time_map.chunk;
        int buffer = rcvi_fusion_buffer(f, slots, row, "rows", v);
        f->storage[v] = (rcvi_storage){.kind = RCVI_FIXED, .buffer = buffer, .row = row};
        rcvi_emit_copy(program, slots * f->time_map.batch, columns,
                       (rcvi_view){.buffer = buffer, .row = row, .column = 1}, rcvi_fusion_vector(f, v));
        rcvi_fusion_mark_prepared(program, buffer);
    }
}

static void prepare_bias(rcvi_fusion *f, rcvi_form *form) {
    rcvi_program *program = f->emitter.program;
    form->bias = form->vector_count ? rcvi_fusion_vector(f, form->vectors[0]) : rcvi_no_view();
    if (form->vector_count < 2) return;
    int64_t columns = rcvi_fusion_features(f, form->value);
    int buffer =
        rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, columns, "%sbias.v%d", f->emitter.label, form->value);
    rcvi_view sum = {.buffer = buffer, .row = 0, .column = 1};
    for (int i = 1; i < form->vector_count && !program->failed; i++) {
        rcvi_emit_add(program, 1, columns, sum, i == 1 ? form->bias : sum, rcvi_fusion_vector(f, form->vectors[i]));
        rcvi_fusion_mark_prepared(program, buffer);
    }
    form->bias = sum;
}

/* The buffer into which an earlier step packs the same matrix, or RCVI_NONE. */
static int find_packed(const rcvi_program *program, const rcvi_param_layout *param, const rcvi_view *weights,
                       bool transposed) {
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_PACK && rcvi_view_equal(&step->a, weights) && step->rows == param->rows &&
            step->columns == param->columns && step->pack.transposed == transposed)
            return step->out.buffer;
    }
    return RCVI_NONE;
}

static void pack_matrix(rcvi_fusion *f, int v) {
    rcvi_program *program = f->emitter.program;
    if (f->rungs->transpose) return;
    const rcvi_param_layout *param = &f->emitter.params[rcvi_fusion_value(f, v)->index];
    bool transposed = rcvi_fusion_value(f, v)->operation == RCVI_MATRIX_TRANSPOSE;
    rcvi_view weights = rcvi_program_parameters(program, RCVI_PARAMETERS, param->offset, param->columns);
    if (f->packed[v] == RCVI_NONE) f->packed[v] = find_packed(program, param, &weights, transposed);
    if (program->failed || f->packed[v] != RCVI_NONE) return;
    int64_t count = transposed ? rcvi_program_packed(program, param->columns, param->rows)
                               : rcvi_program_packed(program, param->rows, param->columns);
    f->packed[v] = rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_PACKED, count, "%spacked.v%d%s", f->emitter.label,
                                       v, transposed ? "t" : "");
    rcvi_step step = {.kind = RCVI_STEP_PACK,
                      .rows = param->rows,
                      .columns = param->columns,
                      .out = {.buffer = f->packed[v], .row = count, .column = 1},
                      .a = weights,
                      .b = rcvi_no_view(),
                      .mask = rcvi_no_view(),
                      .pack = {transposed}};
    rcvi_program_step(program, &step);
    rcvi_fusion_mark_prepared(program, f->packed[v]);
}

/* Does its storage hold one step at a time only, where a phase or a gradient reads several? */
static bool has_one_step(const rcvi_fusion *f, int v) {
    if (!rcvi_fusion_has_storage(f, v) || f->phase[v] != RCVI_IN_LOOP || f->storage[v].kind == RCVI_OVER_TIME)
        return false;
    if (rcvi_fusion_value(f, v)->operation == RCVI_VECTOR) return false; /* it has a row for every step */
    if (f->defers_gradients && rcvi_fusion_is_factor(f->emitter.graph, v)) return true;
    return f->time_map.chunk > 1 && f->storage[v].kind != RCVI_OVER_CHUNK;
}

/* Storage of late values one step before; before the first step of the sweep they are zero. */
static void place_late(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    for (int i = 0; i < f->late_count && !program->failed; i++) {
        const rcvi_storage *storage = &f->storage[f->late[i]];
        f->storage[f->emitter.graph->states[f->late_first + (size_t)i].value] =
            rcvi_storage_later(&f->time_map, *storage);
        bool done = false;
        for (int k = 0; k < i; k++) done |= f->storage[f->late[k]].buffer == storage->buffer;
        rcvi_view slot_after = {.buffer = storage->buffer,
                                .offset = f->time_map.steps * f->time_map.batch * storage->row,
                                .row = storage->row,
                                .column = 1};
        if (!done) rcvi_emit_fill(program, f->time_map.batch, storage->row, slot_after, 0);
    }
}

void rcvi_fusion_prepare(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    place_vectors(f);
    if (f->rungs->combine && (f->time_map.chunk > 1 || f->defers_gradients) && f->emitter.graph->gradient_count)
        place_gradient_factors(f);
    if (f->rungs->combine) group_matrices(f);
    rcvi_fusion_find_library_products(f);
    for (int v = 0; v < rcvi_fusion_value_count(f) && !program->failed; v++) {
        if (rcvi_fusion_computes(f, v) && f->method[v] != RCVI_ALIAS && !rcvi_fusion_has_storage(f, v) &&
            rcvi_fusion_crosses_phases(f, v))
            f->storage[v] = crossing_storage(f, rcvi_fusion_features(f, v), "crossing", v);
        if (f->emitter.live[v] && has_one_step(f, v) && rcvi_fusion_crosses_phases(f, v)) {
            f->chunk_copy[v] = crossing_storage(f, rcvi_fusion_features(f, v), "wide", v);
            if (!f->given[v]) rcvi_fusion_store(f, v, f->chunk_copy[v]);
        }
    }
    place_late(f);
    for (int i = 0; i < f->form_count && !program->failed; i++) {
        rcvi_form *form = &f->forms[i];
        if (f->form_of[form->value] != i) continue;
        if (form->by_library)
            rcvi_fusion_prepare_library_product(f, i);
        else
            prepare_bias(f, form);
        if (form->split && !form->by_library)
            form->early_storage = chunk_storage(f, rcvi_fusion_features(f, form->value), "early", form->value);
        for (int m = 0; m < form->matrix_count; m++) {
            bool packed = !form->by_library || (form->split && !form->early[m] && !rcvi_fusion_has_library_only(f));
            if (packed) pack_matrix(f, form->matrices[m]);
        }
    }
}

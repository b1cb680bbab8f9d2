#include "schedule/fuse.h"

bool rcvi_fusion_init(rcvi_fusion *f, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_place *params,
                      const char *label, rcvi_clock clock) {
    size_t count = graph->value_count;
    rcvi_pool *pool = &program->pool;
    *f = (rcvi_fusion){.rungs = &program->rungs, .clock = clock};
    bool ok = rcvi_emitter_init(&f->emitter, program, graph, params, label);
    f->places = rcvi_pool_new(pool, count, sizeof *f->places);
    f->wide = rcvi_pool_new(pool, count, sizeof *f->wide);
    f->at_hand = rcvi_pool_new(pool, count, sizeof *f->at_hand);
    f->needed = rcvi_pool_new(pool, count, sizeof *f->needed);
    f->kept = rcvi_pool_new(pool, count, sizeof *f->kept);
    f->settled = rcvi_pool_new(pool, graph->state_count, sizeof *f->settled);
    f->left_out = rcvi_pool_new(pool, graph->gradient_count, sizeof *f->left_out);
    f->part = rcvi_pool_new(pool, count, 1);
    f->phase = rcvi_pool_new(pool, count, 1);
    f->level = rcvi_pool_new(pool, count, sizeof *f->level);
    f->form_of = rcvi_pool_new(pool, count, sizeof *f->form_of);
    f->group = rcvi_pool_new(pool, count, sizeof *f->group);
    f->packed = rcvi_pool_new(pool, count, sizeof *f->packed);
    f->forms = rcvi_pool_new(pool, count, sizeof *f->forms);
    if (!ok || pool->failed) program->failed = true;
    for (size_t v = 0; !program->failed && v < count; v++) f->group[v] = f->packed[v] = RCVI_NONE;
    return !program->failed;
}

void rcvi_fusion_free(rcvi_fusion *f) {
    if (!f->emitter.program) return;
    rcvi_free(f->emitter.program->pool.context, f->stores);
    rcvi_emitter_free(&f->emitter);
}

static int64_t features(const rcvi_fusion *f, int v) {
    return rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
}

static const rcvi_value *value_of(const rcvi_fusion *f, int v) { return &f->emitter.graph->values[v]; }
static int argument_count(const rcvi_fusion *f, int v) { return rcvi_operations[value_of(f, v)->operation].arguments; }
static int value_count(const rcvi_fusion *f) { return (int)f->emitter.graph->value_count; }
static bool has_place(const rcvi_fusion *f, int v) { return f->places[v].kind != RCVI_NOWHERE; }

bool rcvi_fusion_computes(const rcvi_fusion *f, int v) {
    return f->part[v] != RCVI_GIVEN && f->part[v] != RCVI_ABSORBED;
}

bool rcvi_fusion_is_factor(const rcvi_graph *graph, int v) {
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (graph->gradients[g].left == v || graph->gradients[g].right == v) return true;
    }
    return false;
}

/* The value that an alias repeats; others are their own. */
static int behind_alias(const rcvi_fusion *f, int v) {
    while (f->part[v] == RCVI_ALIAS) v = value_of(f, v)->arguments[0];
    return v;
}

/* Does consumer c, or one of the alias c, find v in a register of its own map? */
static bool is_near(const rcvi_fusion *f, int v, int c) {
    bool mapped = f->part[v] == RCVI_MAPPED || f->part[v] == RCVI_FORMED;
    return mapped && f->part[c] == RCVI_MAPPED && f->phase[c] == f->phase[v] && f->level[c] == f->level[v] &&
           rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v);
}

/* Is it read from memory here, beside by products and gradients where only what is read exactly is asked for? */
static bool is_read(const rcvi_fusion *f, int v, bool exactly) {
    for (int c = v + 1; c < value_count(f); c++) {
        if (f->part[c] == RCVI_GIVEN || !f->emitter.live[c]) continue;
        rcvi_operation operation = value_of(f, c)->operation;
        if (exactly && (operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE)) continue;
        for (int a = 0; a < argument_count(f, c); a++) {
            if (value_of(f, c)->arguments[a] != v) continue;
            if (f->part[c] == RCVI_ALIAS) {
                if (is_read(f, c, exactly)) return true;
                continue;
            }
            if (f->part[v] == RCVI_ALIAS ? !f->joined || !is_near(f, behind_alias(f, v), c) : !is_near(f, v, c))
                return true;
        }
    }
    return f->needed[v] || (!exactly && rcvi_fusion_is_factor(f->emitter.graph, v));
}

void rcvi_fusion_store(rcvi_fusion *f, int v, rcvi_place place) {
    rcvi_program *program = f->emitter.program;
    if (program->failed) return;
    bool rounds =
        rcvi_dtype_is_narrow(program->options.dtype) && program->buffers[place.buffer].rounding == RCVI_ROUNDED;
    bool shows = rounds && !rcvi_fusion_is_heavy(f, v) && (f->part[v] == RCVI_ALONE || is_read(f, v, true));
    if (!has_place(f, v) && !shows) {
        f->places[v] = place;
    } else if (rcvi_grow(program->pool.context, &f->stores, &f->store_capacity, f->store_count + 1,
                         sizeof *f->stores)) {
        f->stores[f->store_count++] = (rcvi_store){v, place};
    } else {
        program->failed = true;
    }
}

static rcvi_view view_of_place(const rcvi_fusion *f, const rcvi_place *place, bool over_chunk) {
    return over_chunk ? rcvi_place_over_chunk(&f->clock, place) : rcvi_place_at_step(&f->clock, place);
}

rcvi_view rcvi_fusion_view(const rcvi_fusion *f, int v, bool over_chunk) {
    if (over_chunk && f->wide[v].kind != RCVI_NOWHERE) return view_of_place(f, &f->wide[v], true);
    if (!has_place(f, v)) return f->emitter.views[v];
    return view_of_place(f, &f->places[v], over_chunk);
}

/* ---- places ---- */

int rcvi_fusion_buffer(rcvi_fusion *f, int64_t slots, int64_t columns, const char *name, int v) {
    rcvi_program *program = f->emitter.program;
    int64_t count = rcvi_program_product(program, slots, f->clock.batch, columns);
    const char *own = value_of(f, v)->name, *label = f->emitter.label;
    int buffer = own ? rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s%s.%s", label, name, own)
                     : rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s%s.v%d", label, name, v);
    if (!program->failed) program->buffers[buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    return buffer;
}

/* What the library multiplies for a scan may be rounded: that reads it once, and is as fast as memory. */
static rcvi_place chunk_place(rcvi_fusion *f, int64_t columns, const char *name, int v) {
    int buffer = rcvi_fusion_buffer(f, f->clock.chunk, columns, name, v);
    if (!f->emitter.program->failed && rcvi_fusion_is_heavy(f, v))
        f->emitter.program->buffers[buffer].rounding = RCVI_ROUNDED;
    return (rcvi_place){.kind = RCVI_OVER_CHUNK, .buffer = buffer, .row = columns};
}

/* For what another phase reads, or what is a factor of gradients: over a chunk, or over time where those are gathered. */
static rcvi_place crossing_place(rcvi_fusion *f, int64_t columns, const char *name, int v) {
    if (!f->gathers || !rcvi_fusion_is_factor(f->emitter.graph, v)) return chunk_place(f, columns, name, v);
    int64_t row = rcvi_program_row(f->emitter.program, columns);
    int buffer = rcvi_fusion_buffer(f, f->clock.steps + (f->late_count > 0), row, name, v);
    return (rcvi_place){.kind = RCVI_OVER_TIME, .buffer = buffer, .row = row};
}

static bool is_read_outside(const rcvi_fusion *f, int v, unsigned char phase) {
    for (int c = v + 1; c < value_count(f); c++) {
        if (f->part[c] == RCVI_GIVEN) continue;
        for (int a = 0; a < argument_count(f, c); a++) {
            if (value_of(f, c)->arguments[a] != v) continue;
            if (f->part[c] == RCVI_ALIAS ? is_read_outside(f, c, phase) : f->phase[c] != phase) return true;
        }
    }
    return false;
}

bool rcvi_fusion_crosses(const rcvi_fusion *f, int v) {
    if ((f->clock.chunk > 1 || f->gathers) && rcvi_fusion_is_factor(f->emitter.graph, v)) return true;
    return is_read_outside(f, v, f->phase[v]);
}

/* Left factors of gradients side by side in the order of their parameters, so that stacked parameters are one product.
 */
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
            int64_t offset = f->emitter.places[graph->gradients[g].param].offset;
            if (graph->gradients[g].right == RCVI_NONE || offset <= done || offset >= least) continue;
            least = offset;
            next = graph->gradients[g].left;
        }
        if (next == RCVI_NONE) break;
        done = least;
        bool open = rcvi_fusion_computes(f, next) && !has_place(f, next);
        for (int i = 0; i < count; i++) open &= order[i] != next;
        if (!open) continue;
        order[count++] = next;
        total += features(f, next);
    }
    int64_t slots = f->gathers ? f->clock.steps + (f->late_count > 0) : f->clock.chunk;
    total = rcvi_program_row(program, total);
    int buffer = count ? rcvi_fusion_buffer(f, slots, total, "factors", order[0]) : RCVI_NONE;
    int64_t column = 0;
    for (int i = 0; i < count; i++) {
        f->places[order[i]] = (rcvi_place){
            .kind = f->gathers ? RCVI_OVER_TIME : RCVI_OVER_CHUNK, .buffer = buffer, .offset = column, .row = total};
        column += features(f, order[i]);
    }
    rcvi_free(program->pool.context, order);
}

/* Matrices with one operand whose parameters are stacked: one product. */
static bool continues(const rcvi_fusion *f, int first, int last, int v) {
    const rcvi_value *a = value_of(f, last), *b = value_of(f, v);
    bool matrices = a->operation == RCVI_MATRIX && b->operation == RCVI_MATRIX && f->part[v] == RCVI_ALONE;
    if (!matrices || a->arguments[0] != b->arguments[0] || f->phase[first] != f->phase[v] ||
        f->level[first] != f->level[v] || has_place(f, v) || f->needed[v] || f->kept[v])
        return false;
    const rcvi_param_place *x = &f->emitter.places[a->index], *y = &f->emitter.places[b->index];
    return x->blocks == 1 && y->blocks == 1 && x->columns == y->columns &&
           x->offset + x->rows * x->columns == y->offset;
}

static void group_matrices(rcvi_fusion *f) {
    for (int v = 0; v < value_count(f); v++) {
        if (f->part[v] != RCVI_ALONE || value_of(f, v)->operation != RCVI_MATRIX || f->group[v] != RCVI_NONE) continue;
        if (has_place(f, v) || f->needed[v] || f->kept[v]) continue;
        int members = 1, last = v;
        int64_t columns = features(f, v);
        for (int c = 0; c < value_count(f); c++) {
            if (f->group[c] != RCVI_NONE || !continues(f, v, last, c)) continue;
            f->group[c] = v;
            last = c;
            columns += features(f, c);
            members++;
            c = -1; /* the next one may stand before it */
        }
        if (members == 1) continue;
        f->group[v] = v;
        bool inside = f->phase[v] == RCVI_INSIDE;
        int buffer = rcvi_fusion_buffer(f, inside ? 1 : f->clock.chunk, columns, "gates", v);
        int64_t first = f->emitter.places[value_of(f, v)->index].offset,
                depth = f->emitter.places[value_of(f, v)->index].columns;
        for (int c = 0; c < value_count(f); c++) {
            if (f->group[c] != v) continue;
            int64_t column = (f->emitter.places[value_of(f, c)->index].offset - first) / depth;
            f->places[c] = (rcvi_place){
                .kind = inside ? RCVI_STILL : RCVI_OVER_CHUNK, .buffer = buffer, .offset = column, .row = columns};
        }
    }
}

/* ---- what depends on the parameters alone ---- */

void rcvi_fusion_mark_prepared(rcvi_program *program, int buffer) {
    if (program->failed) return;
    program->steps[program->step_count - 1].when = RCVI_WHEN_PARAMETERS_CHANGED;
    program->buffers[buffer].lasting = true;
}

rcvi_view rcvi_fusion_vector(const rcvi_fusion *f, int v) {
    int parameters = rcvi_program_external(f->emitter.program, RCVI_PARAMETERS, 0);
    return (rcvi_view){
        .buffer = parameters, .offset = f->emitter.places[value_of(f, v)->index].offset, .row = 0, .column = 1};
}

/* Is it what a matrix is multiplied with, here or in a gradient? */
static bool is_multiplied(const rcvi_fusion *f, int v) {
    const rcvi_graph *graph = f->emitter.graph;
    bool found = false;
    for (int c = v + 1; c < value_count(f); c++) {
        rcvi_operation operation = value_of(f, c)->operation;
        bool matrix = operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE;
        found |= matrix && f->emitter.live[c] && !f->at_hand[c] && value_of(f, c)->arguments[0] == v;
    }
    for (size_t g = 0; g < graph->gradient_count; g++) found |= graph->gradients[g].right == v;
    return found;
}

/* A learned vector is one row, but products read a row for each sequence and step: copies of it. */
static void place_vectors(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    for (int v = 0; v < value_count(f) && !program->failed; v++) {
        if (value_of(f, v)->operation != RCVI_VECTOR || !f->emitter.live[v] || !is_multiplied(f, v)) continue;
        int64_t columns = features(f, v), row = rcvi_program_row(program, columns);
        int64_t slots = f->gathers ? f->clock.steps : f->clock.chunk;
        int buffer = rcvi_fusion_buffer(f, slots, row, "rows", v);
        f->places[v] = (rcvi_place){.kind = RCVI_STILL, .buffer = buffer, .row = row};
        rcvi_emit_copy(program, slots * f->clock.batch, columns, (rcvi_view){.buffer = buffer, .row = row, .column = 1},
                       rcvi_fusion_vector(f, v));
        rcvi_fusion_mark_prepared(program, buffer);
    }
}

static void prepare_bias(rcvi_fusion *f, rcvi_form *form) {
    rcvi_program *program = f->emitter.program;
    form->bias = form->vector_count ? rcvi_fusion_vector(f, form->vectors[0]) : rcvi_no_view();
    if (form->vector_count < 2) return;
    int64_t columns = features(f, form->value);
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
static int find_packed(const rcvi_program *program, const rcvi_param_place *place, bool transposed) {
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_PACK && step->a.offset == place->offset && step->rows == place->rows &&
            step->columns == place->columns && step->pack.transposed == transposed)
            return step->out.buffer;
    }
    return RCVI_NONE;
}

static void pack_matrix(rcvi_fusion *f, int v) {
    rcvi_program *program = f->emitter.program;
    if (f->rungs->transpose) return;
    const rcvi_param_place *place = &f->emitter.places[value_of(f, v)->index];
    bool transposed = value_of(f, v)->operation == RCVI_MATRIX_TRANSPOSE;
    if (f->packed[v] == RCVI_NONE) f->packed[v] = find_packed(program, place, transposed);
    if (program->failed || f->packed[v] != RCVI_NONE) return;
    int64_t count = transposed ? rcvi_program_packed(program, place->columns, place->rows)
                               : rcvi_program_packed(program, place->rows, place->columns);
    f->packed[v] = rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_PACKED, count, "%spacked.v%d%s", f->emitter.label,
                                       v, transposed ? "t" : "");
    int parameters = rcvi_program_external(program, RCVI_PARAMETERS, 0);
    rcvi_step step = {.kind = RCVI_STEP_PACK,
                      .rows = place->rows,
                      .columns = place->columns,
                      .out = {.buffer = f->packed[v], .row = count, .column = 1},
                      .a = {.buffer = parameters, .offset = place->offset, .row = place->columns, .column = 1},
                      .b = rcvi_no_view(),
                      .mask = rcvi_no_view(),
                      .pack = {transposed}};
    rcvi_program_step(program, &step);
    rcvi_fusion_mark_prepared(program, f->packed[v]);
}

/* Does its place show one step at a time only, where more are asked for? */
static bool is_narrow(const rcvi_fusion *f, int v) {
    if (!has_place(f, v) || f->phase[v] != RCVI_INSIDE || f->places[v].kind == RCVI_OVER_TIME) return false;
    if (value_of(f, v)->operation == RCVI_VECTOR) return false; /* copied for all steps that are asked for */
    if (f->gathers && rcvi_fusion_is_factor(f->emitter.graph, v)) return true;
    return f->clock.chunk > 1 && f->places[v].kind != RCVI_OVER_CHUNK;
}

void rcvi_fusion_clear(rcvi_fusion *f, rcvi_place place, int64_t columns) {
    rcvi_pool *pool = &f->emitter.program->pool;
    size_t most = f->emitter.graph->state_count;
    if (!f->zeros) {
        f->zeros = rcvi_pool_new(pool, most, sizeof *f->zeros);
        f->zero_columns = rcvi_pool_new(pool, most, sizeof *f->zero_columns);
    }
    if (!f->zeros || !f->zero_columns) {
        f->emitter.program->failed = true;
        return;
    }
    f->zeros[f->zero_count] = place;
    f->zero_columns[f->zero_count++] = columns;
}

/* What late values were at the step before: behind the first step there is nothing, so zeros. */
static void place_late(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    for (int i = 0; i < f->late_count && !program->failed; i++) {
        const rcvi_place *place = &f->places[f->late[i]];
        f->places[f->emitter.graph->states[f->late_first + (size_t)i].value] = rcvi_place_later(&f->clock, *place);
        bool done = false;
        for (int k = 0; k < i; k++) done |= f->places[f->late[k]].buffer == place->buffer;
        rcvi_view behind = {.buffer = place->buffer,
                            .offset = f->clock.steps * f->clock.batch * place->row,
                            .row = place->row,
                            .column = 1};
        if (!done) rcvi_emit_fill(program, f->clock.batch, place->row, behind, 0);
    }
}

void rcvi_fusion_prepare(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    place_vectors(f);
    if (f->rungs->combine && (f->clock.chunk > 1 || f->gathers) && f->emitter.graph->gradient_count)
        place_gradient_factors(f);
    if (f->rungs->combine) group_matrices(f);
    rcvi_fusion_find_large(f);
    for (int v = 0; v < value_count(f) && !program->failed; v++) {
        if (rcvi_fusion_computes(f, v) && f->part[v] != RCVI_ALIAS && !has_place(f, v) && rcvi_fusion_crosses(f, v))
            f->places[v] = crossing_place(f, features(f, v), "crossing", v);
        if (f->emitter.live[v] && is_narrow(f, v) && rcvi_fusion_crosses(f, v)) {
            f->wide[v] = crossing_place(f, features(f, v), "wide", v);
            if (!f->at_hand[v]) rcvi_fusion_store(f, v, f->wide[v]);
        }
    }
    place_late(f);
    for (int i = 0; i < f->form_count && !program->failed; i++) {
        rcvi_form *form = &f->forms[i];
        if (f->form_of[form->value] != i) continue;
        if (form->large)
            rcvi_fusion_prepare_large(f, i);
        else
            prepare_bias(f, form);
        if (form->split && !form->large)
            form->early_place = chunk_place(f, features(f, form->value), "early", form->value);
        for (int m = 0; m < form->matrix_count; m++) {
            bool packed = !form->large || (form->split && !form->early[m]);
            if (packed) pack_matrix(f, form->matrices[m]);
        }
    }
}

/* ---- emission ---- */

/* Where a value is seen by steps of this phase; what has no place gets a buffer when it is stored. */
static void see_values(rcvi_fusion *f, rcvi_phase phase) {
    for (int v = 0; v < value_count(f); v++) {
        const rcvi_value *value = value_of(f, v);
        if (value->operation == RCVI_VECTOR && !has_place(f, v)) {
            f->emitter.views[v] = f->emitter.live[v] ? rcvi_fusion_vector(f, v) : rcvi_no_view();
        } else if (has_place(f, v)) {
            f->emitter.views[v] = rcvi_fusion_view(f, v, phase != RCVI_INSIDE);
        } else if (f->part[v] == RCVI_ALIAS && f->at_hand[value->arguments[0]]) {
            f->emitter.views[v] = f->emitter.views[value->arguments[0]];
            f->emitter.views[v].column = 0;
        } else if (f->phase[v] == (unsigned char)phase || f->part[v] == RCVI_GIVEN) {
            f->emitter.views[v] = rcvi_no_view();
        }
    }
}

/* A value of size one that lies in memory, seen by those who repeat it. */
static void see_aliases(rcvi_fusion *f) {
    for (int v = 0; v < value_count(f); v++) {
        if (f->part[v] != RCVI_ALIAS) continue;
        f->emitter.views[v] = f->emitter.views[value_of(f, v)->arguments[0]];
        f->emitter.views[v].column = 0;
    }
}

void rcvi_fusion_give_buffer(rcvi_fusion *f, int v) {
    if (f->emitter.views[v].buffer != RCVI_NONE) return;
    int64_t columns = features(f, v), slots = f->phase[v] == RCVI_INSIDE ? 1 : f->clock.chunk;
    f->emitter.views[v] =
        (rcvi_view){.buffer = rcvi_fusion_buffer(f, slots, columns, "value", v), .row = columns, .column = 1};
}

typedef struct {
    rcvi_fusion *fusion;
    rcvi_phase phase;
    int64_t columns;
    rcvi_map map;
    int *source; /* [values] instruction or product of this map, or RCVI_NONE */
} mapper;

/* The view of a value as the map sees it: one of size one is the same in every column. */
static rcvi_view seen(const mapper *m, int v, rcvi_view view) {
    if (features(m->fusion, v) == 1 && m->columns > 1) view.column = 0;
    return view;
}

static int add_operand(mapper *m, rcvi_view view, bool shared) {
    for (int i = 0; shared && i < m->map.operand_count; i++) {
        if (rcvi_view_equal(&m->map.operands[i], &view)) return i;
    }
    m->map.operands[m->map.operand_count] = view;
    return m->map.operand_count++;
}

/* Where the value goes: its own place, and others. The answer is the operand of the first, or RCVI_NONE. */
static int add_stores(mapper *m, int v, bool product, int source) {
    rcvi_fusion *f = m->fusion;
    int out = RCVI_NONE;
    if (has_place(f, v) || is_read(f, v, false)) {
        rcvi_fusion_give_buffer(f, v);
        out = add_operand(m, seen(m, v, f->emitter.views[v]), false);
    }
    for (size_t i = 0; i < f->store_count; i++) {
        if (f->stores[i].value != v) continue;
        rcvi_view view = seen(m, v, view_of_place(f, &f->stores[i].place, m->phase != RCVI_INSIDE));
        int operand = add_operand(m, view, false);
        if (out == RCVI_NONE)
            out = operand;
        else
            m->map.stores[m->map.store_count++] = (rcvi_map_store){product, source, operand};
    }
    return out;
}

/* The form's sum, or the part of it that is computed before the loop. */
static void add_product(mapper *m, const rcvi_form *form, bool early_part) {
    rcvi_fusion *f = m->fusion;
    int index = m->map.product_count++;
    rcvi_product *product = &m->map.products[index];
    bool over_chunk = m->phase != RCVI_INSIDE;
    *product = (rcvi_product){.start = form->bias, .out = RCVI_NONE};
    if (form->split && !early_part) product->start = view_of_place(f, &form->early_place, over_chunk);
    for (int i = 0; i < form->matrix_count; i++) {
        int v = form->matrices[i];
        if (form->split && form->early[i] != early_part) continue;
        const rcvi_param_place *place = &f->emitter.places[value_of(f, v)->index];
        bool transposed = value_of(f, v)->operation == RCVI_MATRIX_TRANSPOSE;
        int t = product->term_count++;
        int64_t count = f->packed[v] == RCVI_NONE ? 0 : f->emitter.program->buffers[f->packed[v]].count;
        product->terms[t].a = f->emitter.views[value_of(f, v)->arguments[0]];
        product->terms[t].b = (rcvi_view){.buffer = f->packed[v], .row = count, .column = 1};
        product->terms[t].depth = transposed ? place->rows : place->columns;
        product->terms[t].plain = f->rungs->transpose;
        product->terms[t].transposed = transposed;
        if (f->rungs->transpose)
            product->terms[t].b = (rcvi_view){.buffer = rcvi_program_external(f->emitter.program, RCVI_PARAMETERS, 0),
                                              .offset = place->offset,
                                              .row = place->columns,
                                              .column = 1};
    }
    if (early_part) {
        product->out = add_operand(m, view_of_place(f, &form->early_place, true), false);
    } else {
        m->source[form->value] = index;
        product->out = add_stores(m, form->value, true, index);
    }
}

static void add_instruction(mapper *m, int v) {
    rcvi_fusion *f = m->fusion;
    int index = m->map.instruction_count++;
    rcvi_instruction *instruction = &m->map.instructions[index];
    *instruction = (rcvi_instruction){.operation = value_of(f, v)->operation, .out = RCVI_NONE};
    for (int a = 0; a < argument_count(f, v); a++) {
        int argument = value_of(f, v)->arguments[a];
        if (f->joined && m->source[behind_alias(f, argument)] != RCVI_NONE) argument = behind_alias(f, argument);
        if (rcvi_graph_is_number(f->emitter.graph, argument)) {
            instruction->from[a] = RCVI_FROM_NUMBER;
            instruction->number[a] = value_of(f, argument)->number;
        } else if (m->source[argument] != RCVI_NONE) {
            instruction->from[a] = f->part[argument] == RCVI_FORMED ? RCVI_FROM_PRODUCT : RCVI_FROM_REGISTER;
            instruction->source[a] = m->source[argument];
        } else {
            instruction->from[a] = RCVI_FROM_VIEW;
            instruction->source[a] = add_operand(m, seen(m, argument, f->emitter.views[argument]), true);
        }
    }
    m->source[v] = index;
    instruction->out = add_stores(m, v, false, index);
}

static bool new_mapper(mapper *m, rcvi_fusion *f, rcvi_phase phase, int64_t columns) {
    rcvi_program *program = f->emitter.program;
    rcvi_pool *pool = &program->pool;
    *m = (mapper){.fusion = f, .phase = phase, .columns = columns};
    m->map.products = rcvi_pool_new(pool, RCVI_MAX_PRODUCTS, sizeof *m->map.products);
    m->map.instructions =
        rcvi_pool_new(pool, (size_t)rcvi_most_instructions(&program->machine), sizeof *m->map.instructions);
    m->map.operands = rcvi_pool_new(pool, RCVI_MAX_OPERANDS + f->store_count, sizeof *m->map.operands);
    m->map.stores = rcvi_pool_new(pool, f->store_count + 1, sizeof *m->map.stores);
    m->source = rcvi_pool_new(pool, (size_t)value_count(f), sizeof *m->source);
    if (pool->failed) program->failed = true;
    for (int v = 0; !program->failed && v < value_count(f); v++) m->source[v] = RCVI_NONE;
    return !program->failed;
}

static void emit_mapper(const mapper *m) {
    rcvi_fusion *f = m->fusion;
    rcvi_program *program = f->emitter.program;
    rcvi_map *map = rcvi_pool_new(&program->pool, 1, sizeof *map);
    if (!map) program->failed = true;
    if (program->failed || m->map.product_count + m->map.instruction_count == 0) return;
    *map = m->map;
    rcvi_view none = rcvi_no_view();
    rcvi_step step = {.kind = RCVI_STEP_MAP,
                      .rows = m->phase == RCVI_INSIDE ? f->clock.batch : f->clock.chunk * f->clock.batch,
                      .columns = m->columns,
                      .out = none,
                      .a = none,
                      .b = none,
                      .mask = none,
                      .map = map};
    rcvi_program_step(program, &step);
}

/* Do the sums of two values multiply an operand in common? */
static bool share_operands(const rcvi_fusion *f, int v, int other) {
    const rcvi_form *a = &f->forms[f->form_of[v]], *b = &f->forms[f->form_of[other]];
    for (int i = 0; i < a->matrix_count; i++) {
        for (int k = 0; k < b->matrix_count; k++) {
            if (value_of(f, a->matrices[i])->arguments[0] == value_of(f, b->matrices[k])->arguments[0]) return true;
        }
    }
    return false;
}

/* Places of this size that are cleared at every step, with the first map of it. */
static void add_zeros(mapper *m) {
    rcvi_fusion *f = m->fusion;
    for (int i = 0; i < f->zero_count; i++) {
        if (f->zero_columns[i] != m->columns) continue;
        f->zero_columns[i] = -m->columns; /* until the phase is emitted again */
        rcvi_instruction *zero = &m->map.instructions[m->map.instruction_count++];
        *zero = (rcvi_instruction){.operation = RCVI_ADD, .from = {RCVI_FROM_NUMBER, RCVI_FROM_NUMBER}};
        zero->out = add_operand(m, view_of_place(f, &f->zeros[i], false), false);
    }
}

/* Is it computed in a map of this phase and level? */
static bool belongs(const rcvi_fusion *f, int v, rcvi_phase phase, int level) {
    if (f->part[v] != RCVI_FORMED && f->part[v] != RCVI_MAPPED) return false;
    const rcvi_form *form = f->part[v] == RCVI_FORMED ? &f->forms[f->form_of[v]] : NULL;
    if (form && form->large && !form->split) return false;
    return f->phase[v] == (unsigned char)phase && f->level[v] == level;
}

/* Does an instruction of its own level use it? */
static bool is_joined(const rcvi_fusion *f, int v) {
    for (int c = v + 1; c < value_count(f); c++) {
        if (!f->emitter.live[c] || !is_near(f, v, c)) continue;
        for (int a = 0; a < argument_count(f, c); a++) {
            if (behind_alias(f, value_of(f, c)->arguments[a]) == v) return true;
        }
    }
    return false;
}

/* In which map of its level a value is computed: the main one, RCVI_NONE, or one of products that share operands, named by
 * the first of them. On a GPU products that no instruction joins are steps of their own, unless they multiply what
 * products of the main map multiply: one launch may take several of these, but in one step each would wait for the
 * other's operands. */
static int map_of(const rcvi_fusion *f, int v) {
    if (!f->emitter.program->machine.gpu || f->part[v] != RCVI_FORMED || is_joined(f, v)) return RCVI_NONE;
    int first = v;
    for (int c = 0; c < value_count(f); c++) {
        bool beside = f->part[c] == RCVI_FORMED && f->phase[c] == f->phase[v] && f->level[c] == f->level[v] &&
                      rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v);
        if (!beside || !share_operands(f, c, v)) continue;
        if (is_joined(f, c)) return RCVI_NONE;
        if (c < first) first = c;
    }
    return first;
}

bool rcvi_fusion_is_bare(const rcvi_fusion *f, int v) { return map_of(f, v) != RCVI_NONE; }

/* Products and maps of one level and size that belong to one map. `only` is the one value wanted, or RCVI_NONE. */
static void emit_map(rcvi_fusion *f, rcvi_phase phase, int level, int64_t columns, int map, int only) {
    rcvi_program *program = f->emitter.program;
    mapper m;
    if (!new_mapper(&m, f, phase, columns)) return;
    for (int v = 0; v < value_count(f) && !program->failed; v++) {
        if (!belongs(f, v, phase, level) || rcvi_fusion_columns(f, v) != columns) continue;
        if (only != RCVI_NONE ? v != only : map_of(f, v) != map) continue;
        if (f->part[v] == RCVI_FORMED) add_product(&m, &f->forms[f->form_of[v]], false);
        if (f->part[v] == RCVI_MAPPED) add_instruction(&m, v);
    }
    if (phase == RCVI_INSIDE && map == RCVI_NONE) add_zeros(&m);
    emit_mapper(&m);
}

/* The early parts of forms of this size, as many as one step takes. */
static void emit_early(rcvi_fusion *f, int level, int64_t columns, int *next) {
    mapper m;
    if (!new_mapper(&m, f, RCVI_BEFORE, columns)) return;
    for (; *next < f->form_count && m.map.product_count < RCVI_MAX_PRODUCTS; ++*next) {
        const rcvi_form *form = &f->forms[*next];
        bool here = f->form_of[form->value] == *next && form->split && !form->large && form->early_level == level;
        if (here && features(f, form->value) == columns) add_product(&m, form, true);
    }
    emit_mapper(&m);
}

/* Each size once: does a form before this one have it? */
static bool is_first_of_size(const rcvi_fusion *f, int form) {
    for (int i = 0; i < form; i++) {
        bool other = f->form_of[f->forms[i].value] == i && f->forms[i].split;
        if (other && features(f, f->forms[i].value) == features(f, f->forms[form].value)) return false;
    }
    return true;
}

static void emit_maps(rcvi_fusion *f, rcvi_phase phase, int level) {
    bool apart = !f->rungs->fuse && !f->rungs->combine; /* one product a step */
    for (int i = 0; phase == RCVI_BEFORE && i < f->form_count; i++) {
        if (f->form_of[f->forms[i].value] != i || !f->forms[i].split || !is_first_of_size(f, i)) continue;
        for (int next = 0; next < f->form_count && !f->emitter.program->failed;)
            emit_early(f, level, features(f, f->forms[i].value), &next);
    }
    for (int v = 0; v < value_count(f) && !f->emitter.program->failed; v++) {
        if (!belongs(f, v, phase, level)) continue;
        bool first = true;
        int map = apart ? RCVI_NONE : map_of(f, v);
        for (int c = 0; c < v && !apart; c++)
            first &= !(belongs(f, c, phase, level) && rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v) &&
                       map_of(f, c) == map);
        if (first) emit_map(f, phase, level, rcvi_fusion_columns(f, v), map, apart ? v : RCVI_NONE);
    }
}

/* Matrices side by side as one product. */
static void emit_group(rcvi_fusion *f, int first, int64_t rows) {
    const rcvi_param_place *place = &f->emitter.places[value_of(f, first)->index];
    int parameters = rcvi_program_external(f->emitter.program, RCVI_PARAMETERS, 0);
    rcvi_step step = {.kind = RCVI_STEP_GEMM,
                      .rows = rows,
                      .columns = f->places[first].row,
                      .out = f->emitter.views[first],
                      .a = f->emitter.views[value_of(f, first)->arguments[0]],
                      .b = {.buffer = parameters, .offset = place->offset, .row = place->columns, .column = 1},
                      .mask = rcvi_no_view(),
                      .gemm = {.depth = place->columns, .transpose_b = true, .batch = 1}};
    rcvi_program_step(f->emitter.program, &step);
}

static void emit_alone(rcvi_fusion *f, rcvi_phase phase, int level) {
    for (int v = 0; v < value_count(f) && !f->emitter.program->failed; v++) {
        bool here = f->part[v] == RCVI_ALONE && f->phase[v] == (unsigned char)phase && f->level[v] == level;
        if (!here) continue;
        if (f->group[v] != RCVI_NONE) {
            if (f->group[v] == v) emit_group(f, v, f->emitter.batch);
            continue;
        }
        rcvi_fusion_give_buffer(f, v);
        rcvi_emit_value(&f->emitter, v);
        for (size_t i = 0; i < f->store_count; i++) {
            if (f->stores[i].value == v)
                rcvi_emit_result(&f->emitter, v, view_of_place(f, &f->stores[i].place, phase != RCVI_INSIDE));
        }
    }
}

void rcvi_fusion_emit(rcvi_fusion *f, rcvi_phase phase) {
    rcvi_program *program = f->emitter.program;
    rcvi_time before = program->time;
    int levels = 0;
    for (int v = 0; v < value_count(f); v++) {
        if (f->level[v] >= levels) levels = f->level[v] + 1;
    }
    for (int i = 0; i < f->form_count; i++) {
        if (f->forms[i].early_level >= levels) levels = f->forms[i].early_level + 1;
    }
    program->time = phase == RCVI_INSIDE ? f->clock.step : f->clock.span;
    f->emitter.batch = phase == RCVI_INSIDE ? f->clock.batch : f->clock.chunk * f->clock.batch;
    see_values(f, phase);
    for (int v = 0; phase == RCVI_INSIDE && v < value_count(f); v++) {
        if (f->wide[v].kind != RCVI_NOWHERE && f->at_hand[v])
            rcvi_emit_copy(program, f->clock.batch, features(f, v), view_of_place(f, &f->wide[v], false),
                           f->emitter.views[v]);
    }
    for (int level = 0; level < levels && !program->failed; level++) {
        see_aliases(f);
        emit_alone(f, phase, level);
        rcvi_fusion_emit_large(f, phase, level);
        see_aliases(f);
        emit_maps(f, phase, level);
    }
    see_aliases(f);
    for (int i = 0; i < f->zero_count && phase == RCVI_INSIDE; i++) {
        bool done = f->zero_columns[i] < 0; /* with a map of its size, where there was one */
        if (!done)
            rcvi_emit_fill(program, f->clock.batch, f->zero_columns[i], view_of_place(f, &f->zeros[i], false), 0);
        if (done) f->zero_columns[i] = -f->zero_columns[i];
    }
    program->time = before;
}

/* ---- gradients ---- */

static bool is_next_to(const rcvi_view *a, const rcvi_view *b, int64_t columns) {
    rcvi_view moved = *a;
    moved.offset += columns;
    return rcvi_view_equal(&moved, b);
}

static rcvi_view factor(const rcvi_fusion *f, int v, bool over_chunk) {
    if (v == RCVI_NONE) return rcvi_no_view();
    if (f->gathers) return rcvi_place_over_all(f->wide[v].kind != RCVI_NOWHERE ? &f->wide[v] : &f->places[v]);
    return rcvi_fusion_view(f, v, over_chunk);
}

/* The gradient not done yet whose parameter comes first, or the count of gradients. */
static size_t first_gradient(const rcvi_fusion *f, const bool *done) {
    const rcvi_graph *graph = f->emitter.graph;
    size_t first = graph->gradient_count;
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (done[g]) continue;
        int64_t offset = f->emitter.places[graph->gradients[g].param].offset;
        if (first == graph->gradient_count || offset < f->emitter.places[graph->gradients[first].param].offset)
            first = g;
    }
    return first;
}

void rcvi_fusion_emit_gradients(rcvi_fusion *f, bool over_chunk) {
    rcvi_program *program = f->emitter.program;
    const rcvi_graph *graph = f->emitter.graph;
    rcvi_time before = program->time;
    program->time = over_chunk ? f->clock.span : f->clock.step;
    if (f->gathers) program->time = (rcvi_time){.span = 1};
    int64_t steps = f->gathers ? f->clock.steps : over_chunk ? f->clock.chunk : 1, depth = steps * f->clock.batch;
    bool *done = rcvi_new(program->pool.context, graph->gradient_count, sizeof *done);
    if (!done) program->failed = true;
    for (size_t g = 0; done && g < graph->gradient_count; g++) done[g] = f->left_out[g];
    for (size_t g; !program->failed && (g = first_gradient(f, done)) < graph->gradient_count;) {
        const rcvi_gradient *gradient = &graph->gradients[g];
        const rcvi_param_place *place = &f->emitter.places[gradient->param];
        int64_t rows = place->rows;
        rcvi_view left = factor(f, gradient->left, over_chunk), right = factor(f, gradient->right, over_chunk);
        done[g] = true;
        for (size_t n; f->rungs->combine && (n = first_gradient(f, done)) < graph->gradient_count;) {
            const rcvi_gradient *next = &graph->gradients[n];
            const rcvi_param_place *other = &f->emitter.places[next->param];
            rcvi_view beside = factor(f, next->left, over_chunk);
            bool stacked = other->offset == place->offset + rows * place->columns && place->blocks == 1 &&
                           other->blocks == 1 && other->columns == place->columns;
            if (!stacked || next->right != gradient->right || !is_next_to(&left, &beside, rows)) break;
            done[n] = true;
            rows += other->rows;
        }
        rcvi_emit_gradient(program, place, rows, left, right, depth);
    }
    rcvi_free(program->pool.context, done);
    program->time = before;
}

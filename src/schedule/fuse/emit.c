/* The steps of one phase, level by level: products by the library, steps of their own, then maps. */
#include "schedule/fuse/internal.h"

/* Sets the views through which steps of this phase read values; a value without storage gets a buffer when it is written. */
static void set_views(rcvi_fusion *f, rcvi_phase phase) {
    for (int v = 0; v < rcvi_fusion_value_count(f); v++) {
        const rcvi_value *value = rcvi_fusion_value(f, v);
        if (value->operation == RCVI_VECTOR && !rcvi_fusion_has_storage(f, v)) {
            f->emitter.views[v] = f->emitter.live[v] ? rcvi_fusion_vector(f, v) : rcvi_no_view();
        } else if (rcvi_fusion_has_storage(f, v)) {
            f->emitter.views[v] = rcvi_fusion_view(f, v, phase != RCVI_IN_LOOP);
        } else if (f->method[v] == RCVI_ALIAS && f->given[value->arguments[0]]) {
            f->emitter.views[v] = f->emitter.views[value->arguments[0]];
            f->emitter.views[v].column = 0;
        } else if (f->phase[v] == (unsigned char)phase || f->method[v] == RCVI_GIVEN) {
            f->emitter.views[v] = rcvi_no_view();
        }
    }
}

/* Aliases read the value of size one that they repeat. */
static void set_alias_views(rcvi_fusion *f) {
    for (int v = 0; v < rcvi_fusion_value_count(f); v++) {
        if (f->method[v] != RCVI_ALIAS) continue;
        f->emitter.views[v] = f->emitter.views[rcvi_fusion_value(f, v)->arguments[0]];
        f->emitter.views[v].column = 0;
    }
}

void rcvi_fusion_allocate(rcvi_fusion *f, int v) {
    if (f->emitter.views[v].buffer != RCVI_NONE) return;
    int64_t columns = rcvi_fusion_features(f, v), slots = f->phase[v] == RCVI_IN_LOOP ? 1 : f->time_map.chunk;
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

/* The view of a value in the map: a value of size one is repeated over the columns. */
static rcvi_view broadcast_view(const mapper *m, int v, rcvi_view view) {
    if (rcvi_fusion_features(m->fusion, v) == 1 && m->columns > 1) view.column = 0;
    return view;
}

static int add_operand(mapper *m, rcvi_view view, bool shared) {
    for (int i = 0; shared && i < m->map.operand_count; i++) {
        if (rcvi_view_equal(&m->map.operands[i], &view)) return i;
    }
    m->map.operands[m->map.operand_count] = view;
    return m->map.operand_count++;
}

/* Stores of a value: to its own storage and further ones. Returns the operand of the first, or RCVI_NONE. */
static int add_stores(mapper *m, int v, bool product, int source) {
    rcvi_fusion *f = m->fusion;
    int out = RCVI_NONE;
    if (rcvi_fusion_has_storage(f, v) || rcvi_fusion_is_read(f, v, false)) {
        rcvi_fusion_allocate(f, v);
        out = add_operand(m, broadcast_view(m, v, f->emitter.views[v]), false);
    }
    for (size_t i = 0; i < f->store_count; i++) {
        if (f->stores[i].value != v) continue;
        rcvi_view view = broadcast_view(m, v, rcvi_fusion_view_of(f, &f->stores[i].storage, m->phase != RCVI_IN_LOOP));
        int operand = add_operand(m, view, false);
        if (out == RCVI_NONE)
            out = operand;
        else
            m->map.stores[m->map.store_count++] = (rcvi_map_store){product, source, operand};
    }
    return out;
}

/* The product of a form: all of it, or its early terms, or the terms that remain for the loop. */
static void add_product(mapper *m, const rcvi_form *form, bool early_part) {
    rcvi_fusion *f = m->fusion;
    int index = m->map.product_count++;
    rcvi_product *product = &m->map.products[index];
    bool over_chunk = m->phase != RCVI_IN_LOOP;
    *product = (rcvi_product){.start = form->bias, .out = RCVI_NONE};
    if (form->split && !early_part) product->start = rcvi_fusion_view_of(f, &form->early_storage, over_chunk);
    for (int i = 0; i < form->matrix_count; i++) {
        int v = form->matrices[i];
        if (form->split && form->early[i] != early_part) continue;
        const rcvi_param_layout *param = &f->emitter.params[rcvi_fusion_value(f, v)->index];
        bool transposed = rcvi_fusion_value(f, v)->operation == RCVI_MATRIX_TRANSPOSE;
        int t = product->term_count++;
        int64_t count = f->packed[v] == RCVI_NONE ? 0 : f->emitter.program->buffers[f->packed[v]].count;
        product->terms[t].a = f->emitter.views[rcvi_fusion_value(f, v)->arguments[0]];
        product->terms[t].b = (rcvi_view){.buffer = f->packed[v], .row = count, .column = 1};
        product->terms[t].depth = transposed ? param->rows : param->columns;
        product->terms[t].plain = f->rungs->transpose;
        product->terms[t].transposed = transposed;
        if (f->rungs->transpose)
            product->terms[t].b =
                rcvi_program_parameters(f->emitter.program, RCVI_PARAMETERS, param->offset, param->columns);
    }
    if (early_part) {
        product->out = add_operand(m, rcvi_fusion_view_of(f, &form->early_storage, true), false);
    } else {
        m->source[form->value] = index;
        product->out = add_stores(m, form->value, true, index);
    }
}

static void add_instruction(mapper *m, int v) {
    rcvi_fusion *f = m->fusion;
    int index = m->map.instruction_count++;
    rcvi_instruction *instruction = &m->map.instructions[index];
    *instruction = (rcvi_instruction){.operation = rcvi_fusion_value(f, v)->operation, .out = RCVI_NONE};
    for (int a = 0; a < rcvi_fusion_argument_count(f, v); a++) {
        int argument = rcvi_fusion_value(f, v)->arguments[a];
        if (f->scalar_columns && m->source[rcvi_fusion_resolve_alias(f, argument)] != RCVI_NONE)
            argument = rcvi_fusion_resolve_alias(f, argument);
        if (rcvi_graph_is_number(f->emitter.graph, argument)) {
            instruction->from[a] = RCVI_FROM_NUMBER;
            instruction->number[a] = rcvi_fusion_value(f, argument)->number;
        } else if (m->source[argument] != RCVI_NONE) {
            instruction->from[a] = f->method[argument] == RCVI_AFFINE ? RCVI_FROM_PRODUCT : RCVI_FROM_REGISTER;
            instruction->source[a] = m->source[argument];
        } else {
            instruction->from[a] = RCVI_FROM_VIEW;
            instruction->source[a] = add_operand(m, broadcast_view(m, argument, f->emitter.views[argument]), true);
        }
    }
    m->source[v] = index;
    instruction->out = add_stores(m, v, false, index);
}

static bool open_mapper(mapper *m, rcvi_fusion *f, rcvi_phase phase, int64_t columns) {
    rcvi_program *program = f->emitter.program;
    rcvi_pool *pool = &program->pool;
    *m = (mapper){.fusion = f, .phase = phase, .columns = columns};
    m->map.products = rcvi_pool_new(pool, RCVI_MAX_PRODUCTS, sizeof *m->map.products);
    m->map.instructions =
        rcvi_pool_new(pool, (size_t)rcvi_most_instructions(&program->machine), sizeof *m->map.instructions);
    m->map.operands = rcvi_pool_new(pool, RCVI_MAX_OPERANDS + f->store_count, sizeof *m->map.operands);
    m->map.stores = rcvi_pool_new(pool, f->store_count + 1, sizeof *m->map.stores);
    m->source = rcvi_pool_new(pool, (size_t)rcvi_fusion_value_count(f), sizeof *m->source);
    if (pool->failed) program->failed = true;
    for (int v = 0; !program->failed && v < rcvi_fusion_value_count(f); v++) m->source[v] = RCVI_NONE;
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
                      .rows = m->phase == RCVI_IN_LOOP ? f->time_map.batch : f->time_map.chunk * f->time_map.batch,
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
            if (rcvi_fusion_value(f, a->matrices[i])->arguments[0] ==
                rcvi_fusion_value(f, b->matrices[k])->arguments[0])
                return true;
        }
    }
    return false;
}

/* Storage of this size that is cleared at every step is cleared by the first map of the size. */
static void add_zeros(mapper *m) {
    rcvi_fusion *f = m->fusion;
    for (int i = 0; i < f->zero_count; i++) {
        if (f->zero_columns[i] != m->columns) continue;
        f->zero_columns[i] = -m->columns; /* negative: done, until the phase is emitted again */
        rcvi_instruction *zero = &m->map.instructions[m->map.instruction_count++];
        *zero = (rcvi_instruction){.operation = RCVI_ADD, .from = {RCVI_FROM_NUMBER, RCVI_FROM_NUMBER}};
        zero->out = add_operand(m, rcvi_fusion_view_of(f, &f->zeros[i], false), false);
    }
}

/* Is it computed in a map of this phase and level? */
static bool is_in_map(const rcvi_fusion *f, int v, rcvi_phase phase, int level) {
    if (f->method[v] != RCVI_AFFINE && f->method[v] != RCVI_MAPPED) return false;
    const rcvi_form *form = f->method[v] == RCVI_AFFINE ? &f->forms[f->form_of[v]] : NULL;
    if (form && form->by_library && (!form->split || rcvi_fusion_has_library_only(f))) return false;
    return f->phase[v] == (unsigned char)phase && f->level[v] == level;
}

/* Does an instruction of its own map use it? */
static bool is_used_in_map(const rcvi_fusion *f, int v) {
    for (int c = v + 1; c < rcvi_fusion_value_count(f); c++) {
        if (!f->emitter.live[c] || !rcvi_fusion_is_in_register(f, v, c)) continue;
        for (int a = 0; a < rcvi_fusion_argument_count(f, c); a++) {
            if (rcvi_fusion_resolve_alias(f, rcvi_fusion_value(f, c)->arguments[a]) == v) return true;
        }
    }
    return false;
}

/* The map of its level that computes a value: RCVI_NONE, the main map, or a map of products that share operands, named by the first of
 * them. On a GPU products that no instruction uses are steps of their own, unless they share operands with products of the main map: one
 * launch may merge several such steps, while in one step each product would wait for the operands of all. */
static int map_of(const rcvi_fusion *f, int v) {
    if (!f->emitter.program->machine.gpu || f->method[v] != RCVI_AFFINE || is_used_in_map(f, v)) return RCVI_NONE;
    int first = v;
    for (int c = 0; c < rcvi_fusion_value_count(f); c++) {
        bool is_candidate = f->method[c] == RCVI_AFFINE && f->phase[c] == f->phase[v] && f->level[c] == f->level[v] &&
                            rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v);
        if (!is_candidate || !share_operands(f, c, v)) continue;
        if (is_used_in_map(f, c)) return RCVI_NONE;
        if (c < first) first = c;
    }
    return first;
}

bool rcvi_fusion_is_unfused(const rcvi_fusion *f, int v) { return map_of(f, v) != RCVI_NONE; }

/* One map: the products and instructions of a level and size. `only` is the one value that it computes, or RCVI_NONE. */
static void emit_map(rcvi_fusion *f, rcvi_phase phase, int level, int64_t columns, int map, int only) {
    rcvi_program *program = f->emitter.program;
    mapper m;
    if (!open_mapper(&m, f, phase, columns)) return;
    for (int v = 0; v < rcvi_fusion_value_count(f) && !program->failed; v++) {
        if (!is_in_map(f, v, phase, level) || rcvi_fusion_columns(f, v) != columns) continue;
        if (only != RCVI_NONE ? v != only : map_of(f, v) != map) continue;
        if (f->method[v] == RCVI_AFFINE) add_product(&m, &f->forms[f->form_of[v]], false);
        if (f->method[v] == RCVI_MAPPED) add_instruction(&m, v);
    }
    if (phase == RCVI_IN_LOOP && map == RCVI_NONE) add_zeros(&m);
    emit_mapper(&m);
}

/* The early terms of forms of this size, as many as one map takes. */
static void emit_early(rcvi_fusion *f, int level, int64_t columns, int *next) {
    mapper m;
    if (!open_mapper(&m, f, RCVI_BEFORE_LOOP, columns)) return;
    for (; *next < f->form_count && m.map.product_count < RCVI_MAX_PRODUCTS; ++*next) {
        const rcvi_form *form = &f->forms[*next];
        bool here = f->form_of[form->value] == *next && form->split && !form->by_library && form->early_level == level;
        if (here && rcvi_fusion_features(f, form->value) == columns) add_product(&m, form, true);
    }
    emit_mapper(&m);
}

/* Is it the first split form of its size? */
static bool is_first_of_size(const rcvi_fusion *f, int form) {
    for (int i = 0; i < form; i++) {
        bool other = f->form_of[f->forms[i].value] == i && f->forms[i].split;
        if (other && rcvi_fusion_features(f, f->forms[i].value) == rcvi_fusion_features(f, f->forms[form].value))
            return false;
    }
    return true;
}

static void emit_maps(rcvi_fusion *f, rcvi_phase phase, int level) {
    bool one_value_a_step = !f->rungs->fuse && !f->rungs->combine; /* one product in each step */
    for (int i = 0; phase == RCVI_BEFORE_LOOP && i < f->form_count; i++) {
        if (f->form_of[f->forms[i].value] != i || !f->forms[i].split || !is_first_of_size(f, i)) continue;
        for (int next = 0; next < f->form_count && !f->emitter.program->failed;)
            emit_early(f, level, rcvi_fusion_features(f, f->forms[i].value), &next);
    }
    for (int v = 0; v < rcvi_fusion_value_count(f) && !f->emitter.program->failed; v++) {
        if (!is_in_map(f, v, phase, level)) continue;
        bool first = true;
        int map = one_value_a_step ? RCVI_NONE : map_of(f, v);
        for (int c = 0; c < v && !one_value_a_step; c++)
            first &= !(is_in_map(f, c, phase, level) && rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v) &&
                       map_of(f, c) == map);
        if (first) emit_map(f, phase, level, rcvi_fusion_columns(f, v), map, one_value_a_step ? v : RCVI_NONE);
    }
}

/* A group of matrices with adjacent parameters as one gemm. */
static void emit_group(rcvi_fusion *f, int first, int64_t rows) {
    const rcvi_param_layout *param = &f->emitter.params[rcvi_fusion_value(f, first)->index];
    rcvi_step step = {.kind = RCVI_STEP_GEMM,
                      .rows = rows,
                      .columns = f->storage[first].row,
                      .out = f->emitter.views[first],
                      .a = f->emitter.views[rcvi_fusion_value(f, first)->arguments[0]],
                      .b = rcvi_program_parameters(f->emitter.program, RCVI_PARAMETERS, param->offset, param->columns),
                      .mask = rcvi_no_view(),
                      .gemm = {.depth = param->columns, .transpose_b = true, .batch = 1}};
    rcvi_program_step(f->emitter.program, &step);
}

static void emit_own_steps(rcvi_fusion *f, rcvi_phase phase, int level) {
    for (int v = 0; v < rcvi_fusion_value_count(f) && !f->emitter.program->failed; v++) {
        bool here = f->method[v] == RCVI_OWN_STEP && f->phase[v] == (unsigned char)phase && f->level[v] == level;
        if (!here) continue;
        if (f->group[v] != RCVI_NONE) {
            if (f->group[v] == v) emit_group(f, v, f->emitter.batch);
            continue;
        }
        rcvi_fusion_allocate(f, v);
        rcvi_emit_value(&f->emitter, v);
        for (size_t i = 0; i < f->store_count; i++) {
            if (f->stores[i].value == v)
                rcvi_emit_result(&f->emitter, v, rcvi_fusion_view_of(f, &f->stores[i].storage, phase != RCVI_IN_LOOP));
        }
    }
}

void rcvi_fusion_emit(rcvi_fusion *f, rcvi_phase phase) {
    rcvi_program *program = f->emitter.program;
    rcvi_time before = program->time;
    int levels = 0;
    for (int v = 0; v < rcvi_fusion_value_count(f); v++) {
        if (f->level[v] >= levels) levels = f->level[v] + 1;
    }
    for (int i = 0; i < f->form_count; i++) {
        if (f->forms[i].early_level >= levels) levels = f->forms[i].early_level + 1;
    }
    program->time = phase == RCVI_IN_LOOP ? f->time_map.step : f->time_map.span;
    f->emitter.batch = phase == RCVI_IN_LOOP ? f->time_map.batch : f->time_map.chunk * f->time_map.batch;
    set_views(f, phase);
    for (int v = 0; phase == RCVI_IN_LOOP && v < rcvi_fusion_value_count(f); v++) {
        if (f->chunk_copy[v].kind != RCVI_NOT_STORED && f->given[v])
            rcvi_emit_copy(program, f->time_map.batch, rcvi_fusion_features(f, v),
                           rcvi_fusion_view_of(f, &f->chunk_copy[v], false), f->emitter.views[v]);
    }
    for (int level = 0; level < levels && !program->failed; level++) {
        set_alias_views(f);
        emit_own_steps(f, phase, level);
        rcvi_fusion_emit_library_products(f, phase, level);
        set_alias_views(f);
        emit_maps(f, phase, level);
    }
    set_alias_views(f);
    for (int i = 0; i < f->zero_count && phase == RCVI_IN_LOOP; i++) {
        bool done = f->zero_columns[i] < 0; /* by a map of its size */
        if (!done)
            rcvi_emit_fill(program, f->time_map.batch, f->zero_columns[i], rcvi_fusion_view_of(f, &f->zeros[i], false),
                           0);
        if (done) f->zero_columns[i] = -f->zero_columns[i];
    }
    program->time = before;
}

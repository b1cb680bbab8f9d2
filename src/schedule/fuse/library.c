/* Products by the device's library: large products of the whole sequence as gemm steps; with `interpret`, all products.
 *
 * Applies where the machine sets min_library_product, with combine, fuse and pack, and one chunk of all steps. Of a split form the early
 * terms are such a product; of others, all terms are. With `interpret` it applies to every form in every phase: the later terms of a split
 * form are added to the sums of its early ones, where these are. Matrices with one operand whose parameters are adjacent in memory (W x of all gates)
 * are one gemm, and their sums are adjacent columns: a stack. In a derivative the sum of W^T x over such matrices is one gemm where the
 * operands are adjacent. The biases of a stack are one row from which all its sums start. In plans of a 16-bit type the weights are a
 * rounded copy with rows at multiples of 16 bytes, which both passes share; with `interpret` they are the parameters. */
#include "schedule/fuse/internal.h"

/* Which matrices of a form: those that come first, of a split form the early ones, else all; or those that a split form adds later. */
typedef enum { FIRST, LATER } form_part;

typedef struct {
    int count; /* matrices */
    bool transposed;
    rcvi_view a;                   /* the operands, in adjacent columns */
    int64_t offset, rows, columns; /* of the parameters */
} gemm_operands;

static const rcvi_value *value_of(const rcvi_fusion *f, int v) { return &f->emitter.graph->values[v]; }
static int64_t features(const rcvi_fusion *f, int v) { return rcvi_features(f->emitter.graph, value_of(f, v)->size); }
static const rcvi_param_layout *param_of(const rcvi_fusion *f, int v) {
    return &f->emitter.params[value_of(f, v)->index];
}
static bool is_form(const rcvi_fusion *f, int i) { return f->form_of[f->forms[i].value] == i; }
static bool is_in_part(const rcvi_form *form, int matrix, form_part part) {
    return (!form->split || form->early[matrix]) == (part == FIRST);
}
static bool is_transposed(const rcvi_fusion *f, int v) { return value_of(f, v)->operation == RCVI_MATRIX_TRANSPOSE; }

static rcvi_phase phase_of(const rcvi_fusion *f, const rcvi_form *form) {
    return form->split ? RCVI_BEFORE_LOOP : (rcvi_phase)f->phase[form->value];
}

static rcvi_phase part_phase(const rcvi_fusion *f, const rcvi_form *form, form_part part) {
    return part == LATER ? (rcvi_phase)f->phase[form->value] : phase_of(f, form);
}

static int level_of(const rcvi_fusion *f, const rcvi_form *form) {
    return form->split ? form->early_level : f->level[form->value];
}

/* ---- which forms, and their storage ---- */

/* Multiply-adds over the longest sequences and the largest batch. */
static double work_of(const rcvi_fusion *f, const rcvi_form *form) {
    double depth = 0;
    for (int m = 0; m < form->matrix_count; m++) {
        const rcvi_param_layout *param = param_of(f, form->matrices[m]);
        if (is_in_part(form, m, FIRST))
            depth += (double)(is_transposed(f, form->matrices[m]) ? param->rows : param->columns);
    }
    const rcv_plan_options *most = &f->emitter.program->options;
    return (double)most->steps * (double)most->batch * (double)features(f, form->value) * depth;
}

bool rcvi_fusion_is_scan(const rcvi_fusion *f) { return f->rungs->scan && f->emitter.program->machine.gpu; }

/* Are products of the whole sequence for the library? */
static bool is_enabled(const rcvi_fusion *f) {
    bool has_rungs =
        f->emitter.program->machine.min_library_product > 0 && f->rungs->combine && f->rungs->fuse && f->rungs->pack;
    return has_rungs && f->time_map.chunk > 1 && f->time_map.chunk == f->time_map.steps;
}

bool rcvi_fusion_is_scan_product(const rcvi_fusion *f, int v) {
    const rcvi_form *form = f->form_of[v] == RCVI_NONE ? NULL : &f->forms[f->form_of[v]];
    if (!form || !rcvi_fusion_is_scan(f) || !is_enabled(f) || form->split || f->phase[v] == RCVI_IN_LOOP) return false;
    return work_of(f, form) >= (double)f->emitter.program->machine.min_library_product;
}

/* The product must be of the whole sequence, and its sum be stored once, unrounded. */
static bool is_by_library(const rcvi_fusion *f, const rcvi_form *form) {
    const rcvi_program *program = f->emitter.program;
    int v = form->value;
    if (!is_enabled(f)) return false;
    bool kept = f->kept[v] && !(rcvi_fusion_is_scan_product(f, v) && f->storage[v].kind != RCVI_NOT_STORED);
    if (!form->split && (f->phase[v] == RCVI_IN_LOOP || f->needed[v] || kept || !rcvi_fusion_is_unfused(f, v)))
        return false;
    for (size_t i = 0; i < f->store_count && !form->split; i++) {
        if (f->stores[i].value == v) return false;
    }
    return work_of(f, form) >= (double)program->machine.min_library_product;
}

/* The n-th matrix of a part of a form, or RCVI_NONE. */
static int part_matrix(const rcvi_form *form, form_part part, int n) {
    for (int m = 0; m < form->matrix_count; m++) {
        if (is_in_part(form, m, part) && n-- == 0) return form->matrices[m];
    }
    return RCVI_NONE;
}

/* May it be stacked? Not where it has storage already. */
static bool is_stackable(const rcvi_fusion *f, const rcvi_form *form) {
    int v = form->value;
    if (form->split) return true;
    bool free = f->storage[v].kind == RCVI_NOT_STORED && !rcvi_fusion_is_factor(f->emitter.graph, v);
    if (rcvi_fusion_has_library_only(f) && (f->needed[v] || f->kept[v])) return false;
    return free && (rcvi_fusion_crosses_phases(f, v) || rcvi_fusion_has_library_only(f));
}

static bool matrix_follows(const rcvi_fusion *f, int x, int y) {
    if (x == RCVI_NONE || y == RCVI_NONE || is_transposed(f, x) || is_transposed(f, y)) return false;
    const rcvi_param_layout *p = param_of(f, x), *q = param_of(f, y);
    return value_of(f, x)->arguments[0] == value_of(f, y)->arguments[0] && p->columns == q->columns &&
           p->offset + p->rows * p->columns == q->offset &&
           rcvi_program_is_one_array(f->emitter.program, p->offset, q->offset);
}

static bool part_follows(const rcvi_fusion *f, const rcvi_form *a, const rcvi_form *b, form_part part) {
    int n = 0;
    while (matrix_follows(f, part_matrix(a, part, n), part_matrix(b, part, n))) n++;
    bool several = n > 1 && (rcvi_fusion_is_scan(f) || rcvi_fusion_has_library_only(f));
    return (n == 1 || several) && part_matrix(a, part, n) == RCVI_NONE && part_matrix(b, part, n) == RCVI_NONE;
}

/* Do the parameters of form b follow those of form a in memory, matrix by matrix, with all else equal? Where the library computes all products,
 * those of the loop follow as well. */
static bool follows(const rcvi_fusion *f, const rcvi_form *a, const rcvi_form *b) {
    bool only = rcvi_fusion_has_library_only(f);
    if (!is_stackable(f, a) || !is_stackable(f, b) || phase_of(f, a) != phase_of(f, b)) return false;
    if (phase_of(f, a) != RCVI_BEFORE_LOOP && !only) return false;
    if (level_of(f, a) != level_of(f, b) || !a->vector_count != !b->vector_count) return false;
    if (only && (a->split != b->split || (a->split && f->level[a->value] != f->level[b->value]))) return false;
    return part_follows(f, a, b, FIRST) && (!only || !a->split || part_follows(f, a, b, LATER));
}

/* The large form that this one follows, or RCVI_NONE. */
static int find_predecessor(const rcvi_fusion *f, int form) {
    for (int i = 0; i < f->form_count; i++) {
        if (i != form && is_form(f, i) && f->forms[i].by_library && follows(f, &f->forms[i], &f->forms[form])) return i;
    }
    return RCVI_NONE;
}

static int64_t stack_columns(const rcvi_fusion *f, int first) {
    int64_t columns = 0;
    for (int i = 0; i < f->form_count; i++) {
        if (is_form(f, i) && f->forms[i].by_library && f->forms[i].stack == first)
            columns += features(f, f->forms[i].value);
    }
    return columns;
}

static void place_stack(rcvi_fusion *f, int first) {
    int buffer = RCVI_NONE;
    int64_t total = stack_columns(f, first);
    for (int i = 0; i < f->form_count && !f->emitter.program->failed; i++) {
        rcvi_form *form = &f->forms[i];
        if (!is_form(f, i) || !form->by_library || form->stack != first) continue;
        bool unplaced = form->split || f->storage[form->value].kind == RCVI_NOT_STORED;
        if (!unplaced || (!form->split && total == features(f, form->value)))
            continue; /* it gets storage as any other value */
        bool inside = phase_of(f, form) == RCVI_IN_LOOP;
        if (buffer == RCVI_NONE) {
            buffer =
                rcvi_fusion_buffer(f, inside ? 1 : f->time_map.chunk, total, inside ? "gates" : "early", form->value);
            if (!f->emitter.program->failed && !form->split && rcvi_fusion_is_scan(f))
                f->emitter.program->buffers[buffer].rounding = RCVI_ROUNDED;
        }
        rcvi_storage storage = {
            .kind = inside ? RCVI_FIXED : RCVI_OVER_CHUNK, .buffer = buffer, .offset = form->column, .row = total};
        if (form->split)
            form->early_storage = storage;
        else
            f->storage[form->value] = storage;
        /* The products of the loop are added in place. */
        if (form->split && rcvi_fusion_has_library_only(f) && f->storage[form->value].kind == RCVI_NOT_STORED)
            f->storage[form->value] = storage;
    }
}

void rcvi_fusion_find_library_products(rcvi_fusion *f) {
    for (int i = 0; i < f->form_count; i++) {
        f->forms[i].stack = i;
        f->forms[i].by_library = is_form(f, i) && (rcvi_fusion_has_library_only(f) || is_by_library(f, &f->forms[i]));
    }
    for (int i = 0; i < f->form_count; i++) {
        rcvi_form *form = &f->forms[i];
        for (int other = form->by_library ? find_predecessor(f, i) : RCVI_NONE; other != RCVI_NONE;
             other = find_predecessor(f, other)) {
            form->stack = other;
            form->column += features(f, f->forms[other].value);
        }
    }
    for (int i = 0; i < f->form_count; i++) {
        if (f->forms[i].by_library && f->forms[i].stack == i) place_stack(f, i);
    }
}

/* ---- steps that depend on the parameters only ---- */

/* Are the parameters declared in the plan's 16-bit type, with rows that begin at multiples of 16 bytes in the array? */
static bool is_rounded(const rcvi_program *program, const rcvi_view *given) {
    int64_t each = 16 / (int64_t)rcvi_element_bytes(program, RCVI_ACTIVATION);
    return program->buffers[given->buffer].element == RCVI_ACTIVATION && given->offset % each == 0 &&
           given->row % each == 0;
}

/* A matrix of parameters as the gemm reads it: as it is, or a rounded copy, which is written once. */
static rcvi_view weights(rcvi_fusion *f, int64_t offset, int64_t rows, int64_t columns) {
    rcvi_program *program = f->emitter.program;
    rcvi_view given = rcvi_program_parameters(program, RCVI_PARAMETERS, offset, columns);
    if (!rcvi_dtype_is_narrow(program->options.dtype) || program->failed || is_rounded(program, &given) ||
        rcvi_fusion_has_library_only(f))
        return given;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_COPY && step->when == RCVI_WHEN_PARAMETERS_CHANGED && step->rows == rows &&
            step->columns == columns && rcvi_view_equal(&step->a, &given))
            return step->out;
    }
    int64_t row = rcvi_program_row(program, columns);
    rcvi_view copy = {.buffer = rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL,
                                                    rcvi_program_product(program, rows, row, 1), "%sweights.%lld",
                                                    f->emitter.label, (long long)offset),
                      .row = row,
                      .column = 1};
    if (program->failed) return given;
    program->buffers[copy.buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    rcvi_emit_copy(program, rows, columns, copy, given);
    rcvi_fusion_mark_prepared(program, copy.buffer);
    return copy;
}

/* The next matrices of a form, in the order of their parameters, that are one gemm; false where none is left. */
static bool next_operands(const rcvi_fusion *f, const rcvi_form *form, form_part part, bool *done, gemm_operands *r) {
    bool over_chunk = part_phase(f, form, part) != RCVI_IN_LOOP;
    for (*r = (gemm_operands){.count = 0};; r->count++) {
        int next = RCVI_NONE;
        for (int m = 0; m < form->matrix_count; m++) {
            if (done[m] || !is_in_part(form, m, part)) continue;
            if (next == RCVI_NONE || param_of(f, form->matrices[m])->offset < param_of(f, form->matrices[next])->offset)
                next = m;
        }
        if (next == RCVI_NONE) return r->count > 0;
        int v = form->matrices[next];
        const rcvi_param_layout *param = param_of(f, v);
        rcvi_view a = rcvi_fusion_view(f, value_of(f, v)->arguments[0], over_chunk), beside = r->a;
        beside.offset += r->rows;
        if (r->count == 0) {
            r->a = a;
            r->transposed = is_transposed(f, v);
            r->offset = param->offset;
            r->columns = param->columns;
        } else if (!r->transposed || !is_transposed(f, v) || param->columns != r->columns ||
                   param->offset != r->offset + r->rows * r->columns || !rcvi_view_equal(&a, &beside) ||
                   !rcvi_program_is_one_array(f->emitter.program, r->offset, param->offset)) {
            return true;
        }
        r->rows += param->rows;
        done[next] = true;
    }
}

/* The matrices of a whole stack are one gemm: they have one operand. */
static void widen_to_stack(const rcvi_fusion *f, int first, gemm_operands *r) {
    int64_t columns = stack_columns(f, first);
    if (!r->transposed && columns > r->rows) r->rows = columns;
}

/* The sum of the form's vectors, in its columns of the stack's biases. */
static void prepare_bias(rcvi_fusion *f, int i) {
    rcvi_program *program = f->emitter.program;
    rcvi_form *form = &f->forms[i], *first = &f->forms[form->stack];
    int64_t columns = features(f, form->value);
    if (!form->vector_count) form->bias = rcvi_no_view();
    if (!form->vector_count) return;
    if (first->bias.column == 0) {
        int buffer = rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, stack_columns(f, form->stack), "%sbias.v%d",
                                         f->emitter.label, first->value);
        first->bias = (rcvi_view){.buffer = buffer, .row = 0, .column = 1};
        if (!program->failed && rcvi_fusion_is_scan(f) && !form->split)
            program->buffers[buffer].rounding = RCVI_ROUNDED; /* like the sums that start from it */
    }
    rcvi_view sum = first->bias, one = rcvi_fusion_vector(f, form->vectors[0]);
    sum.offset = form->column;
    if (form->vector_count == 1) {
        rcvi_emit_copy(program, 1, columns, sum, one);
        rcvi_fusion_mark_prepared(program, sum.buffer);
    }
    for (int k = 1; k < form->vector_count && !program->failed; k++) {
        rcvi_emit_add(program, 1, columns, sum, k == 1 ? one : sum, rcvi_fusion_vector(f, form->vectors[k]));
        rcvi_fusion_mark_prepared(program, sum.buffer);
    }
    form->bias = sum;
}

void rcvi_fusion_prepare_library_product(rcvi_fusion *f, int i) {
    bool done[RCVI_MAX_TERMS] = {false};
    gemm_operands r;
    prepare_bias(f, i);
    if (rcvi_fusion_has_library_only(f)) return; /* products read the parameters */
    while (f->forms[i].stack == i && !f->emitter.program->failed && next_operands(f, &f->forms[i], FIRST, done, &r)) {
        widen_to_stack(f, i, &r);
        weights(f, r.offset, r.rows, r.columns);
    }
}

/* ---- emission ---- */

static const rcvi_view *copy_view(rcvi_program *program, rcvi_view view) {
    rcvi_view *kept = rcvi_pool_new(&program->pool, 1, sizeof *kept);
    if (!kept) program->failed = true;
    if (kept) *kept = view;
    return kept;
}

/* Further storage of the values of a stack whose sums are complete. */
static void emit_stores(rcvi_fusion *f, int stack, bool over_chunk) {
    for (int i = 0; i < f->form_count && !f->emitter.program->failed; i++) {
        const rcvi_form *form = &f->forms[i];
        int v = form->value;
        if (!is_form(f, i) || !form->by_library || form->stack != stack) continue;
        const rcvi_storage *own = &f->storage[v];
        if (form->split) f->emitter.views[v] = rcvi_fusion_view_of(f, &form->early_storage, over_chunk);
        if (form->split && own->buffer != form->early_storage.buffer)
            rcvi_emit_result(&f->emitter, v, rcvi_fusion_view_of(f, own, over_chunk));
        for (size_t k = 0; k < f->store_count; k++) {
            if (f->stores[k].value == v)
                rcvi_emit_result(&f->emitter, v, rcvi_fusion_view_of(f, &f->stores[k].storage, over_chunk));
        }
    }
}

static void emit_stack(rcvi_fusion *f, int i, form_part part) {
    rcvi_program *program = f->emitter.program;
    const rcvi_form *form = &f->forms[i];
    bool done[RCVI_MAX_TERMS] = {false}, adds = part == LATER;
    bool over_chunk = part_phase(f, form, part) != RCVI_IN_LOOP;
    gemm_operands r;
    if (!form->split) rcvi_fusion_allocate(f, form->value);
    rcvi_view out =
        form->split ? rcvi_fusion_view_of(f, &form->early_storage, over_chunk) : f->emitter.views[form->value];
    for (bool first = true; !program->failed && next_operands(f, form, part, done, &r); first = false) {
        widen_to_stack(f, i, &r);
        rcvi_step step = {
            .kind = RCVI_STEP_GEMM,
            .rows = f->emitter.batch,
            .columns = r.transposed ? r.columns : r.rows,
            .out = out,
            .a = r.a,
            .b = weights(f, r.offset, r.rows, r.columns),
            .mask = rcvi_no_view(),
            .accumulate = !first || adds,
            .gemm = {.depth = r.transposed ? r.rows : r.columns,
                     .transpose_b = !r.transposed,
                     .batch = 1,
                     .start = first && !adds && form->vector_count ? copy_view(program, form->bias) : NULL}};
        rcvi_program_step(program, &step);
    }
    bool is_complete = !form->split || adds;
    if (rcvi_fusion_has_library_only(f) && is_complete) emit_stores(f, i, over_chunk);
}

void rcvi_fusion_emit_library_products(rcvi_fusion *f, rcvi_phase phase, int level) {
    bool only = rcvi_fusion_has_library_only(f);
    for (int i = 0; i < f->form_count && !f->emitter.program->failed; i++) {
        const rcvi_form *form = &f->forms[i];
        if (!is_form(f, i) || !form->by_library || form->stack != i) continue;
        if (phase_of(f, form) == phase && level_of(f, form) == level) emit_stack(f, i, FIRST);
        bool continues = only && form->split && phase == part_phase(f, form, LATER);
        if (continues && f->level[form->value] == level) emit_stack(f, i, LATER);
    }
}

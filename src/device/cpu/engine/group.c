/* Which steps may be taken at once, and along what they are cut. */
#include "device/cpu/engine/engine.h"

/* ---- rows that go their own way ---- */

/* Does row r of the view hold what belongs to row r of the batch, at every time? True where rows lie one behind the
 * other and everything that moves moves by whole batches of them. */
static bool keeps_rows(const rcvi_access *access, int64_t batch) {
    const rcvi_view *v = access->view;
    if (!access->spans || (v->row == 0 && !access->written)) return !access->written; /* weights, biases */
    int64_t whole = batch * v->row;
    if (access->rows != batch || whole <= 0 || v->offset < 0) return false;
    bool moves = v->stride % whole || v->outer % whole || v->slot % whole;
    return !moves && v->offset / v->row % batch == 0 && v->offset % v->row + access->columns <= v->row;
}

static bool is_rowwise(const rcvi_step *step, int64_t batch) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    bool kind = step->kind == RCVI_STEP_MAP || step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_FILL ||
                step->kind == RCVI_STEP_SELECT || (step->kind == RCVI_STEP_GEMM && !step->gemm.transpose_a) ||
                (step->kind == RCVI_STEP_REDUCE && !step->reduce.over_rows);
    if (!kind || step->rows != batch) return false;
    int count = rcvi_step_accesses(step, accesses);
    for (int i = 0; i < count; i++) {
        if (!keeps_rows(&accesses[i], batch)) return false;
    }
    return true;
}

static bool is_private_loop(const rcvi_program *program, size_t loop) {
    int64_t batch = program->options.batch;
    for (int i = 1; i <= program->steps[loop].loop.body; i++) {
        const rcvi_step *step = &program->steps[loop + (size_t)i];
        if (step->kind == RCVI_STEP_LOOP || !is_rowwise(step, batch)) return false;
    }
    return true;
}

/* ---- columns that go their own way ---- */

static bool goes_by_columns(const rcvi_step *step) {
    bool map = step->kind == RCVI_STEP_MAP && step->map->product_count == 0;
    return map || step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_FILL || step->kind == RCVI_STEP_SELECT;
}

/* Does the view show the same columns of its buffer's rows, at every time? */
static bool keeps_columns(const rcvi_access *access) {
    const rcvi_view *v = access->view;
    if (v->row == 0 || v->column == 0) return !access->written; /* biases, masks */
    if (v->column != 1 || v->row < 0 || v->offset < 0) return false;
    bool moves = v->stride % v->row || v->outer % v->row || v->slot % v->row;
    return !moves && v->offset % v->row + access->columns <= v->row;
}

/* Of two views of a buffer, one of them written: are column c of one and column c of the other the same, or no two of them? */
static bool agree(const rcvi_access *a, const rcvi_access *b) {
    const rcvi_view *x = a->view, *y = b->view;
    if (x->row == 0 || x->column == 0 || y->row == 0 || y->column == 0 || x->row != y->row) return false;
    int64_t first = x->offset % x->row, second = y->offset % y->row;
    return first == second || first + a->columns <= second || second + b->columns <= first;
}

static bool steps_agree(const rcvi_step *s, const rcvi_step *t) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(s, a), n = rcvi_step_accesses(t, b);
    for (int i = 0; i < m; i++) {
        if (!keeps_columns(&a[i])) return false;
        for (int k = 0; k < n; k++) {
            bool meet = a[i].view->buffer == b[k].view->buffer && (a[i].written || b[k].written);
            if (meet && !agree(&a[i], &b[k])) return false;
        }
    }
    return true;
}

/* Is every step taken element by element, and no column of one a neighbour's of another? */
static bool is_columnwise_loop(const rcvi_program *program, size_t loop) {
    const rcvi_step *first = &program->steps[loop + 1];
    int body = program->steps[loop].loop.body;
    for (int i = 0; i < body; i++) {
        if (!goes_by_columns(&first[i]) || first[i].columns != first->columns) return false;
    }
    for (int i = 0; i < body * body; i++) {
        if (!steps_agree(&first[i / body], &first[i % body])) return false;
    }
    return body > 0;
}

/* ---- cuts ---- */

static rcvi_cut cut_of(const rcvi_engine *engine, const rcvi_step *step) {
    int64_t grain = engine->kernels->products[engine->type].grain;
    switch (step->kind) {
    case RCVI_STEP_PACK: return RCVI_CUT_PANELS;
    case RCVI_STEP_GEMM: return engine->is_reference ? RCVI_CUT_ROWS : RCVI_CUT_MATMUL;
    case RCVI_STEP_REDUCE: return step->reduce.over_rows ? RCVI_CUT_COLUMNS : RCVI_CUT_ROWS;
    case RCVI_STEP_MAP:
        if (engine->is_reference) return RCVI_CUT_ROWS;
        if (step->map->product_count && step->columns >= grain * engine->members) return RCVI_CUT_COLUMNS;
        return step->rows >= engine->members ? RCVI_CUT_ROWS : RCVI_CUT_COLUMNS;
    case RCVI_STEP_COPY:
    case RCVI_STEP_FILL:
    case RCVI_STEP_SELECT: return step->rows >= engine->members ? RCVI_CUT_ROWS : RCVI_CUT_COLUMNS;
    case RCVI_STEP_DROPOUT: return RCVI_CUT_ROWS;
    default: return RCVI_CUT_NOT;
    }
}

/* Work of one row or column of a step, in multiply-adds or their like. */
static double cost_of(const rcvi_step *step, rcvi_cut cut) {
    double across = (double)(cut == RCVI_CUT_ROWS ? step->columns : step->rows), each = 4;
    if (step->kind == RCVI_STEP_MAP) {
        each += 8.0 * step->map->instruction_count;
        for (int p = 0; p < step->map->product_count; p++) {
            for (int t = 0; t < step->map->products[p].term_count; t++)
                each += (double)step->map->products[p].terms[t].depth;
        }
    }
    return across * each;
}

/* Steps of a group are cut by cost, which a matmul or a single member's step does not take part in. */
static bool shares_out(const rcvi_ready *ready) {
    return ready->cut == RCVI_CUT_ROWS || ready->cut == RCVI_CUT_COLUMNS;
}

static void group_from(rcvi_engine *engine, size_t first, size_t end) {
    const rcvi_program *program = engine->program;
    size_t last = first + 1;
    while (last < end && program->steps[last].kind != RCVI_STEP_LOOP && shares_out(&engine->ready[first]) &&
           shares_out(&engine->ready[last])) {
        bool free = true;
        for (size_t i = first; free && i < last; i++)
            free = !rcvi_steps_conflict(program, &program->steps[i], &program->steps[last]);
        if (!free) break;
        last++;
    }
    for (size_t i = first; i < last; i++) engine->ready[i].group_end = (int)last;
}

void rcvi_engine_group(rcvi_engine *engine) {
    const rcvi_program *program = engine->program;
    size_t ends[2] = {0, 0};
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_ready *ready = &engine->ready[i];
        ready->cut = cut_of(engine, &program->steps[i]);
        ready->cost = program->steps[i].kind == RCVI_STEP_LOOP ? 0 : cost_of(&program->steps[i], ready->cut);
    }
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        rcvi_ready *ready = &engine->ready[i];
        if (i >= ends[0]) ends[0] = 0;
        if (i >= ends[1]) ends[1] = 0;
        if (step->kind == RCVI_STEP_LOOP) {
            size_t end = i + 1 + (size_t)step->loop.body;
            bool rows = program->rungs.split_rows && engine->members > 1 && is_private_loop(program, i);
            ready->is_private =
                rows || (engine->members > 1 && !engine->is_reference && is_columnwise_loop(program, i));
            ready->group_end = (int)i + 1;
            for (size_t k = i + 1; ready->is_private && k < end; k++) {
                engine->ready[k] = (rcvi_ready){.cut = rows ? RCVI_CUT_ROWS : RCVI_CUT_COLUMNS,
                                                .group_end = (int)k + 1,
                                                .is_private = true,
                                                .compiled = engine->ready[k].compiled};
            }
            ends[ends[0] ? 1 : 0] = end;
            if (ready->is_private) i = end - 1;
            continue;
        }
        size_t limit = ends[1] ? ends[1] : ends[0] ? ends[0] : program->step_count;
        if (i < program->forward_count && limit > program->forward_count) limit = program->forward_count;
        if (ready->group_end == 0) group_from(engine, i, limit);
    }
}

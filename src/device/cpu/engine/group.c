/* Divides a program's steps into groups that run concurrently, finds private loops, and chooses how each step is divided among
 * the members of the team. */
#include "device/cpu/engine/engine.h"

/* ---- loops whose rows are independent ---- */

/* True if row r of the view belongs to row r of the batch in every iteration: rows follow each other in memory, and all strides
 * over iterations are multiples of a whole batch of rows. */
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

/* ---- loops whose columns are independent ---- */

static bool is_elementwise(const rcvi_step *step) {
    bool map = step->kind == RCVI_STEP_MAP && step->map->product_count == 0;
    return map || step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_FILL || step->kind == RCVI_STEP_SELECT;
}

/* True if the view shows the same columns of its buffer's rows in every iteration. */
static bool keeps_columns(const rcvi_access *access) {
    const rcvi_view *v = access->view;
    if (v->row == 0 || v->column == 0) return !access->written; /* biases, masks */
    if (v->column != 1 || v->row < 0 || v->offset < 0) return false;
    bool moves = v->stride % v->row || v->outer % v->row || v->slot % v->row;
    return !moves && v->offset % v->row + access->columns <= v->row;
}

/* For two views of a buffer, one of them written: true if column c of one is column c of the other, or if the views have no
 * column in common. */
static bool columns_agree(const rcvi_access *a, const rcvi_access *b) {
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
            bool conflicts = a[i].view->buffer == b[k].view->buffer && (a[i].written || b[k].written);
            if (conflicts && !columns_agree(&a[i], &b[k])) return false;
        }
    }
    return true;
}

/* True if every step is elementwise, and no step accesses, for one column, another column that a step writes. */
static bool is_columnwise_loop(const rcvi_program *program, size_t loop) {
    const rcvi_step *first = &program->steps[loop + 1];
    int body = program->steps[loop].loop.body;
    for (int i = 0; i < body; i++) {
        if (!is_elementwise(&first[i]) || first[i].columns != first->columns) return false;
    }
    for (int i = 0; i < body * body; i++) {
        if (!steps_agree(&first[i / body], &first[i % body])) return false;
    }
    return body > 0;
}

/* ---- partitions ---- */

static rcvi_partition choose_partition(const rcvi_engine *engine, const rcvi_step *step) {
    int64_t grain = engine->kernels->products[engine->type].grain;
    switch (step->kind) {
    case RCVI_STEP_PACK: return RCVI_PARTITION_PANELS;
    case RCVI_STEP_GEMM: return engine->is_reference ? RCVI_PARTITION_ROWS : RCVI_PARTITION_MATMUL;
    case RCVI_STEP_REDUCE: return step->reduce.over_rows ? RCVI_PARTITION_COLUMNS : RCVI_PARTITION_ROWS;
    case RCVI_STEP_MAP:
        if (engine->is_reference) return RCVI_PARTITION_ROWS;
        return step->map->product_count && step->columns >= grain * engine->members ? RCVI_PARTITION_COLUMNS
                                                                                    : RCVI_PARTITION_ROWS;
    case RCVI_STEP_COPY:
    case RCVI_STEP_FILL:
    case RCVI_STEP_SELECT: return RCVI_PARTITION_ROWS;
    case RCVI_STEP_DROPOUT: return RCVI_PARTITION_ROWS;
    default: return RCVI_PARTITION_NONE;
    }
}

/* Can it be divided either way? The kernels are the same; so are the results. */
static bool is_by_rows_or_columns(const rcvi_engine *engine, const rcvi_step *step) {
    int64_t grain = engine->kernels->products[engine->type].grain;
    switch (step->kind) {
    case RCVI_STEP_MAP:
        return !engine->is_reference && !(step->map->product_count && step->columns >= grain * engine->members);
    case RCVI_STEP_COPY:
    case RCVI_STEP_FILL:
    case RCVI_STEP_SELECT: return true;
    default: return false;
    }
}

/* Work of one element of a step, in multiply-adds: an instruction counts as 8, a load and store as 4. */
static double cost_of(const rcvi_step *step) {
    double each = 4;
    if (step->kind == RCVI_STEP_MAP) {
        each += 8.0 * step->map->instruction_count;
        for (int p = 0; p < step->map->product_count; p++) {
            for (int t = 0; t < step->map->products[p].term_count; t++)
                each += (double)step->map->products[p].terms[t].depth;
        }
    }
    return each;
}

/* Groups have only steps that are divided by their cost: rows or columns, not matmuls or steps of one member. */
static bool is_divided_by_cost(const rcvi_prepared_step *prepared) {
    return prepared->partition == RCVI_PARTITION_ROWS || prepared->partition == RCVI_PARTITION_COLUMNS;
}

static void form_group(rcvi_engine *engine, size_t first, size_t end) {
    const rcvi_program *program = engine->program;
    size_t last = first + 1;
    while (last < end && program->steps[last].kind != RCVI_STEP_LOOP && is_divided_by_cost(&engine->prepared[first]) &&
           is_divided_by_cost(&engine->prepared[last])) {
        bool independent = true;
        for (size_t i = first; independent && i < last; i++)
            independent = !rcvi_steps_conflict(program, &program->steps[i], &program->steps[last]);
        if (!independent) break;
        last++;
    }
    for (size_t i = first; i < last; i++) engine->prepared[i].group_end = (int)last;
}

void rcvi_engine_group(rcvi_engine *engine) {
    const rcvi_program *program = engine->program;
    size_t ends[2] = {0, 0};
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_prepared_step *prepared = &engine->prepared[i];
        prepared->partition = choose_partition(engine, &program->steps[i]);
        prepared->by_rows_or_columns = is_by_rows_or_columns(engine, &program->steps[i]);
        prepared->cost = program->steps[i].kind == RCVI_STEP_LOOP ? 0 : cost_of(&program->steps[i]);
    }
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        rcvi_prepared_step *prepared = &engine->prepared[i];
        if (i >= ends[0]) ends[0] = 0;
        if (i >= ends[1]) ends[1] = 0;
        if (step->kind == RCVI_STEP_LOOP) {
            size_t end = i + 1 + (size_t)step->loop.body;
            bool rows = program->rungs.split_rows && engine->members > 1 && is_private_loop(program, i);
            prepared->is_private =
                rows || (engine->members > 1 && !engine->is_reference && is_columnwise_loop(program, i));
            prepared->group_end = (int)i + 1;
            for (size_t k = i + 1; prepared->is_private && k < end; k++) {
                engine->prepared[k] =
                    (rcvi_prepared_step){.partition = rows ? RCVI_PARTITION_ROWS : RCVI_PARTITION_COLUMNS,
                                         .group_end = (int)k + 1,
                                         .is_private = true,
                                         .compiled = engine->prepared[k].compiled};
            }
            ends[ends[0] ? 1 : 0] = end;
            if (prepared->is_private) i = end - 1;
            continue;
        }
        size_t limit = ends[1] ? ends[1] : ends[0] ? ends[0] : program->step_count;
        if (i < program->forward_count && limit > program->forward_count) limit = program->forward_count;
        if (prepared->group_end == 0) form_group(engine, i, limit);
    }
}

/* Plain steps: see emit.h. */
#include "schedule/emit.h"

bool rcvi_emitter_init(rcvi_emitter *e, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_layout *params,
                       const char *label) {
    rcv_context *context = program->pool.context;
    *e = (rcvi_emitter){.program = program,
                        .graph = graph,
                        .params = params,
                        .label = label,
                        .constants = RCVI_NONE,
                        .dconstants = RCVI_NONE,
                        .batch = program->sizes.batch};
    e->views = rcvi_new(context, graph->value_count, sizeof *e->views);
    e->live = rcvi_new(context, graph->value_count, sizeof *e->live);
    if (!e->views || !e->live) {
        program->failed = true;
        return false;
    }
    for (size_t v = 0; v < graph->value_count; v++) e->views[v] = rcvi_no_view();
    rcvi_graph_find_live(graph, e->live);
    return true;
}

void rcvi_emitter_free(rcvi_emitter *e) {
    rcvi_free(e->program->pool.context, e->views);
    rcvi_free(e->program->pool.context, e->live);
}

static rcvi_step new_step(rcvi_step_kind kind, int64_t rows, int64_t columns, rcvi_view out, rcvi_view a) {
    return (rcvi_step){.kind = kind,
                       .rows = rows,
                       .columns = columns,
                       .out = out,
                       .a = a,
                       .b = rcvi_no_view(),
                       .mask = rcvi_no_view()};
}

void rcvi_emit_copy(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, rcvi_view a) {
    rcvi_step step = new_step(RCVI_STEP_COPY, rows, columns, out, a);
    rcvi_program_step(program, &step);
}

void rcvi_emit_fill(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, double number) {
    rcvi_step step = new_step(RCVI_STEP_FILL, rows, columns, out, rcvi_no_view());
    step.fill.number = number;
    rcvi_program_step(program, &step);
}

void rcvi_emit_select(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view mask, rcvi_view out, rcvi_view a,
                      rcvi_view b) {
    rcvi_step step = new_step(RCVI_STEP_SELECT, rows, columns, out, a);
    step.b = b;
    step.mask = mask;
    rcvi_program_step(program, &step);
}

/* A map of one instruction; its operands are views, out last. */
static void emit_map(rcvi_program *program, int64_t rows, int64_t columns, rcvi_instruction instruction,
                     const rcvi_view *operands, int count) {
    rcvi_map *map = rcvi_pool_new(&program->pool, 1, sizeof *map);
    rcvi_instruction *kept = rcvi_pool_new(&program->pool, 1, sizeof *kept);
    rcvi_view *views = rcvi_pool_new(&program->pool, (size_t)count, sizeof *views);
    if (!map || !kept || !views) {
        program->failed = true;
        return;
    }
    *kept = instruction;
    kept->out = count - 1;
    map->instructions = kept;
    map->instruction_count = 1;
    map->operands = views;
    map->operand_count = count;
    for (int i = 0; i < count; i++) map->operands[i] = operands[i];
    rcvi_step step = new_step(RCVI_STEP_MAP, rows, columns, rcvi_no_view(), rcvi_no_view());
    step.map = map;
    rcvi_program_step(program, &step);
}

void rcvi_emit_add(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, rcvi_view a, rcvi_view b) {
    rcvi_instruction add = {.operation = RCVI_ADD, .from = {RCVI_FROM_VIEW, RCVI_FROM_VIEW}, .source = {0, 1}};
    emit_map(program, rows, columns, add, (rcvi_view[]){a, b, out}, 3);
}

/* ---- values ---- */

static int64_t features(const rcvi_emitter *e, int value) {
    return rcvi_features(e->graph, e->graph->values[value].size);
}

static rcvi_view own_buffer(rcvi_emitter *e, int value) {
    const char *name = e->graph->values[value].name;
    int64_t columns = features(e, value), count = 0;
    if (!rcvi_multiply(e->batch, columns, &count)) count = -1;
    int buffer = name ? rcvi_program_buffer(e->program, RCVI_ARENA, 0, RCVI_REAL, count, "%s%s", e->label, name)
                      : rcvi_program_buffer(e->program, RCVI_ARENA, 0, RCVI_REAL, count, "%sv%d", e->label, value);
    return (rcvi_view){.buffer = buffer, .row = columns, .column = 1};
}

static void emit_elementwise(rcvi_emitter *e, int value) {
    const rcvi_value *v = &e->graph->values[value];
    rcvi_instruction instruction = {.operation = v->operation};
    rcvi_view operands[3];
    int count = 0;
    for (int a = 0; a < rcvi_operations[v->operation].arguments; a++) {
        int argument = v->arguments[a];
        if (rcvi_graph_is_number(e->graph, argument)) {
            instruction.from[a] = RCVI_FROM_NUMBER;
            instruction.number[a] = e->graph->values[argument].number;
        } else {
            instruction.from[a] = RCVI_FROM_VIEW;
            instruction.source[a] = count;
            operands[count++] = e->views[argument];
        }
    }
    operands[count++] = e->views[value];
    emit_map(e->program, e->batch, features(e, value), instruction, operands, count);
}

/* A value as products read it: a learned vector is one row for all sequences, so it is copied to a row for each. */
static rcvi_view operand_of(rcvi_emitter *e, int value) {
    rcvi_view view = e->views[value];
    if (e->graph->values[value].operation != RCVI_VECTOR || view.row != 0 || e->program->options.batch == 1)
        return view;
    rcvi_view rows = own_buffer(e, value);
    rcvi_emit_copy(e->program, e->batch, features(e, value), rows, view);
    return rows;
}

/* out[batch, rows] = a[batch, columns] W^T, or out[batch, columns] = a[batch, rows] W for the transpose; block by
 * block. */
static void emit_matrix(rcvi_emitter *e, int value) {
    const rcvi_value *v = &e->graph->values[value];
    const rcvi_param_layout *param = &e->params[v->index];
    bool transpose = v->operation == RCVI_MATRIX_TRANSPOSE;
    int64_t to = transpose ? param->columns : param->rows, from = transpose ? param->rows : param->columns;
    rcvi_view weights = rcvi_program_parameters(e->program, RCVI_PARAMETERS, param->offset, param->columns);
    rcvi_step step = new_step(RCVI_STEP_GEMM, e->batch, to, e->views[value], operand_of(e, v->arguments[0]));
    step.b = weights;
    step.gemm.depth = from;
    step.gemm.transpose_b = !transpose;
    step.gemm.batch = param->blocks;
    step.gemm.step_out = to;
    step.gemm.step_a = from;
    step.gemm.step_b = param->rows * param->columns;
    rcvi_program_step(e->program, &step);
}

rcvi_view rcvi_emitter_vector(const rcvi_emitter *e, int param) {
    const rcvi_param_layout *layout = &e->params[param];
    if (!layout->constant) return rcvi_program_parameters(e->program, RCVI_PARAMETERS, layout->offset, 0);
    return (rcvi_view){.buffer = e->constants, .offset = layout->offset, .row = 0, .column = 1};
}

void rcvi_emit_value(rcvi_emitter *e, int value) {
    const rcvi_value *v = &e->graph->values[value];
    if (v->operation == RCVI_NUMBER || v->operation == RCVI_INPUT || v->operation == RCVI_STATE) return;
    if (v->operation == RCVI_VECTOR) {
        e->views[value] = rcvi_emitter_vector(e, v->index);
        return;
    }
    if (e->views[value].buffer == RCVI_NONE) e->views[value] = own_buffer(e, value);
    switch (v->operation) {
    case RCVI_MATRIX:
    case RCVI_MATRIX_TRANSPOSE: emit_matrix(e, value); break;
    case RCVI_SUM: {
        rcvi_step step = new_step(RCVI_STEP_REDUCE, e->batch, features(e, v->arguments[0]), e->views[value],
                                  e->views[v->arguments[0]]);
        rcvi_program_step(e->program, &step);
        break;
    }
    case RCVI_SPREAD:
        if (rcvi_graph_is_number(e->graph, v->arguments[0])) {
            rcvi_emit_fill(e->program, e->batch, features(e, value), e->views[value],
                           e->graph->values[v->arguments[0]].number);
        } else {
            rcvi_view one = e->views[v->arguments[0]];
            one.column = 0;
            rcvi_emit_copy(e->program, e->batch, features(e, value), e->views[value], one);
        }
        break;
    default: emit_elementwise(e, value);
    }
}

void rcvi_emit_values(rcvi_emitter *e) {
    for (size_t v = 0; v < e->graph->value_count && !e->program->failed; v++) {
        if (e->live[v]) rcvi_emit_value(e, (int)v);
    }
}

void rcvi_emit_result(rcvi_emitter *e, int value, rcvi_view out) {
    rcvi_emit_copy(e->program, e->batch, features(e, value), out, e->views[value]);
}

/* ---- gradients ---- */

void rcvi_emit_gradient(const rcvi_emitter *e, const rcvi_param_layout *param, int64_t rows, rcvi_view left,
                        rcvi_view right, int64_t depth) {
    rcvi_view out = {.buffer = e->dconstants, .offset = param->offset, .row = param->columns, .column = 1};
    if (!param->constant) out = rcvi_program_parameters(e->program, RCVI_DPARAMETERS, param->offset, param->columns);
    rcvi_step step;
    if (right.buffer == RCVI_NONE) {
        out.row = rows;
        step = new_step(RCVI_STEP_REDUCE, depth, rows, out, left);
        step.reduce.over_rows = true;
    } else {
        step = new_step(RCVI_STEP_GEMM, rows, param->columns, out, left);
        step.b = right;
        step.gemm.transpose_a = true;
        step.gemm.depth = depth;
        step.gemm.batch = param->blocks;
        step.gemm.step_out = param->rows * param->columns;
        step.gemm.step_a = param->rows;
        step.gemm.step_b = param->columns;
    }
    step.accumulate = true;
    rcvi_program_step(e->program, &step);
}

void rcvi_emit_gradients(rcvi_emitter *e) {
    for (size_t i = 0; i < e->graph->gradient_count; i++) {
        const rcvi_gradient *gradient = &e->graph->gradients[i];
        const rcvi_param_layout *param = &e->params[gradient->param];
        rcvi_view right = gradient->right == RCVI_NONE ? rcvi_no_view() : operand_of(e, gradient->right);
        rcvi_emit_gradient(e, param, param->rows, e->views[gradient->left], right, e->batch);
    }
}

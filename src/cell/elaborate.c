/* Size inference and construction of the graph. For each equation in topological order, sizes are inferred bottom-up from the operands; then values are
 * built top-down with the size of the equation, which determines the sizes that were still open: rows of matrices and vectors. A size that
 * stays open is `hidden`. */
#include "cell/checker.h"

#include <string.h>

enum { OPEN = -2 }; /* determined by the context: the size of W x, of a vector */

typedef struct {
    rcvi_checker *c;
    const char *name; /* of the equation being built */
} builder;

static const char *size_name(const rcvi_checker *c, int size) { return size >= 0 ? c->graph->sizes[size].name : "any"; }

/* ---- bottom-up: sizes of expressions ---- */

static rcv_status size_of(rcvi_checker *c, const rcvi_expr *e, int *size);

static rcv_status size_of_lag(rcvi_checker *c, const rcvi_expr *e, int *size) {
    bool input = !strcmp(e->name, c->ast->input);
    *size = input ? RCVI_SIZE_INPUT : c->info[rcvi_find_equation(c, e->name, false)].size;
    return RCV_OK;
}

static rcv_status size_of_name(rcvi_checker *c, const rcvi_expr *e, int *size) {
    int state = rcvi_find_state(c, e->name);
    if (state != RCVI_NONE) {
        *size = c->graph->states[state].size;
    } else if (!strcmp(e->name, c->ast->input)) {
        *size = RCVI_SIZE_INPUT;
    } else {
        int equation = rcvi_find_equation(c, e->name, false);
        *size = equation == RCVI_NONE ? OPEN : c->info[equation].size;
    }
    return RCV_OK;
}

/* Elementwise: numbers and values of size one match any size. */
static rcv_status combine(const rcvi_checker *c, rcvi_text_position position, int left, int right, int *size) {
    if (left == RCVI_SIZE_ANY || left == right) {
        *size = right;
    } else if (right == RCVI_SIZE_ANY) {
        *size = left;
    } else if (left == RCVI_SIZE_ONE || left == OPEN) {
        *size = right == RCVI_SIZE_ONE ? left : right;
    } else if (right == RCVI_SIZE_ONE || right == OPEN) {
        *size = left;
    } else {
        return rcvi_syntax_error(c->ast, position, "sizes do not match: '%s' on the left and '%s' on the right",
                                 size_name(c, left), size_name(c, right));
    }
    return RCV_OK;
}

static rcv_status size_of_call(rcvi_checker *c, const rcvi_expr *e, int *size) {
    int left = 0, right = 0;
    RCVI_TRY(size_of(c, e->left, &left));
    if (e->right) {
        RCVI_TRY(size_of(c, e->right, &right));
        return combine(c, e->position, left, right, size);
    }
    bool reduces = !strcmp(e->name, "sum") || !strcmp(e->name, "mean") || !strcmp(e->name, "layernorm");
    if (reduces && left == RCVI_SIZE_ANY) {
        return rcvi_syntax_error(c->ast, e->position, "'%s' needs a value with features, not a number", e->name);
    }
    *size = !strcmp(e->name, "sum") || !strcmp(e->name, "mean") ? RCVI_SIZE_ONE
            : !strcmp(e->name, "shortcut")                      ? OPEN
                                                                : left;
    return RCV_OK;
}

static rcv_status size_of(rcvi_checker *c, const rcvi_expr *e, int *size) {
    int left = 0, right = 0;
    switch (e->kind) {
    case RCVI_EXPR_NUMBER: *size = RCVI_SIZE_ANY; return RCV_OK;
    case RCVI_EXPR_NAME: return size_of_name(c, e, size);
    case RCVI_EXPR_NEXT: *size = c->graph->states[rcvi_find_state(c, e->name)].size; return RCV_OK;
    case RCVI_EXPR_LAG: return size_of_lag(c, e, size);
    case RCVI_EXPR_APPLY:
        RCVI_TRY(size_of(c, e->left, &left)); /* to report its errors */
        *size = OPEN;
        return RCV_OK;
    case RCVI_EXPR_CALL: return size_of_call(c, e, size);
    case RCVI_EXPR_NEGATE: return size_of(c, e->left, size);
    case RCVI_EXPR_BINARY:
        RCVI_TRY(size_of(c, e->left, &left));
        RCVI_TRY(size_of(c, e->right, &right));
        return combine(c, e->position, left, right, size);
    }
    return RCV_OK;
}

/* ---- top-down: values ---- */

static rcv_status build(builder *b, const rcvi_expr *e, int expected, int *value);

/* Builds an operand whose size does not come from the context. */
static rcv_status build_operand(builder *b, const rcvi_expr *e, int *value) {
    int size = 0;
    RCVI_TRY(size_of(b->c, e, &size));
    return build(b, e, size == OPEN ? RCVI_SIZE_HIDDEN : size, value);
}

static rcv_status find_param(builder *b, rcvi_text_position position, const rcvi_param *wanted, int *param) {
    rcvi_graph *graph = b->c->graph;
    for (size_t i = 0; i < graph->param_count; i++) {
        const rcvi_param *old = &graph->params[i];
        if (strcmp(old->equation, wanted->equation) || strcmp(old->symbol, wanted->symbol)) continue;
        if (old->rows != wanted->rows || old->columns != wanted->columns) {
            return rcvi_syntax_error(b->c->ast, position, "'%s' has two shapes in one equation: [%s, %s] and [%s, %s]",
                                     wanted->symbol, size_name(b->c, old->rows), size_name(b->c, old->columns),
                                     size_name(b->c, wanted->rows), size_name(b->c, wanted->columns));
        }
        *param = (int)i;
        return RCV_OK;
    }
    *param = rcvi_graph_add_param(graph, wanted);
    return *param == RCVI_NONE ? RCV_NO_MEMORY : RCV_OK;
}

static rcvi_param new_param(const builder *b, const rcvi_symbol *s, int rows, int columns) {
    return (rcvi_param){.equation = b->name,
                        .symbol = s->name,
                        .stored = s->stored,
                        .suffix = "",
                        .rows = rows,
                        .columns = columns,
                        .blocks = s->blocks,
                        .vector = s->vector,
                        .constant = s->constant,
                        .initial = s->initial};
}

static rcv_status build_matrix(builder *b, const rcvi_expr *e, int expected, int *value) {
    rcvi_symbol *s = rcvi_find_symbol(b->c, e->name);
    s->used = true;
    int argument = RCVI_NONE, param = RCVI_NONE, columns = 0;
    RCVI_TRY(build_operand(b, e->left, &argument));
    if (argument == RCVI_NONE) return RCV_NO_MEMORY;
    columns = b->c->graph->values[argument].size;
    if (columns == RCVI_SIZE_ANY) {
        return rcvi_syntax_error(b->c->ast, e->left->position,
                                 "the matrix '%s' multiplies a number; write a product with '*'", e->name);
    }
    rcvi_param wanted = new_param(b, s, expected < 0 ? RCVI_SIZE_HIDDEN : expected, columns);
    RCVI_TRY(find_param(b, e->position, &wanted, &param));
    *value = rcvi_graph_matrix(b->c->graph, RCVI_MATRIX, param, argument);
    return RCV_OK;
}

static rcv_status build_shortcut(builder *b, const rcvi_expr *e, int expected, int *value) {
    static const rcvi_symbol shortcut = {.name = "shortcut", .stored = "weight_shortcut"};
    int argument = RCVI_NONE, param = RCVI_NONE;
    RCVI_TRY(build_operand(b, e->left, &argument));
    if (argument == RCVI_NONE) return RCV_NO_MEMORY;
    int columns = b->c->graph->values[argument].size, rows = expected < 0 ? RCVI_SIZE_HIDDEN : expected;
    if (columns == RCVI_SIZE_ANY || columns == RCVI_SIZE_ONE || columns == rows) {
        *value = argument;
        return RCV_OK;
    }
    rcvi_param wanted = new_param(b, &shortcut, rows, columns);
    wanted.shortcut = true;
    RCVI_TRY(find_param(b, e->position, &wanted, &param));
    *value = rcvi_graph_matrix(b->c->graph, RCVI_MATRIX, param, argument);
    return RCV_OK;
}

static int mean(rcvi_graph *graph, int argument) {
    if (argument == RCVI_NONE || graph->values[argument].size == RCVI_SIZE_ONE) return argument;
    return rcvi_graph_apply(graph, RCVI_DIVIDE, rcvi_graph_sum(graph, argument),
                            rcvi_graph_size(graph, graph->values[argument].size));
}

static int layernorm(rcvi_graph *graph, int argument) {
    int centred = rcvi_graph_apply(graph, RCVI_SUBTRACT, argument, mean(graph, argument));
    int variance = mean(graph, rcvi_graph_apply(graph, RCVI_MULTIPLY, centred, centred));
    int deviation = rcvi_graph_apply(
        graph, RCVI_SQRT, rcvi_graph_apply(graph, RCVI_ADD, variance, rcvi_graph_number(graph, 1e-5)), RCVI_NONE);
    return rcvi_graph_apply(graph, RCVI_DIVIDE, centred, deviation);
}

static rcv_status build_call(builder *b, const rcvi_expr *e, int expected, int *value) {
    rcvi_graph *graph = b->c->graph;
    int left = RCVI_NONE, right = RCVI_NONE;
    if (!strcmp(e->name, "shortcut")) return build_shortcut(b, e, expected, value);
    if (!strcmp(e->name, "sum") || !strcmp(e->name, "mean")) {
        RCVI_TRY(build_operand(b, e->left, &left));
        *value = !strcmp(e->name, "sum") ? rcvi_graph_sum(graph, left) : mean(graph, left);
        return RCV_OK;
    }
    RCVI_TRY(build(b, e->left, expected, &left));
    if (e->right) RCVI_TRY(build(b, e->right, expected, &right));
    *value = !strcmp(e->name, "layernorm")
                 ? layernorm(graph, left)
                 : rcvi_graph_apply(graph, (rcvi_operation)rcvi_find_function(e->name), left, right);
    return RCV_OK;
}

static rcv_status build_name(builder *b, const rcvi_expr *e, int expected, int *value) {
    rcvi_checker *c = b->c;
    int state = rcvi_find_state(c, e->name), equation = rcvi_find_equation(c, e->name, false), param = RCVI_NONE;
    if (state != RCVI_NONE) {
        *value = c->graph->states[state].value;
    } else if (!strcmp(e->name, c->ast->input)) {
        *value = c->graph->inputs[0].value;
    } else if (equation != RCVI_NONE) {
        *value = c->info[equation].value;
    } else {
        rcvi_symbol *s = rcvi_find_symbol(c, e->name);
        s->used = true;
        rcvi_param wanted = new_param(b, s, expected < 0 ? RCVI_SIZE_HIDDEN : expected, RCVI_SIZE_ONE);
        RCVI_TRY(find_param(b, e->position, &wanted, &param));
        *value = rcvi_graph_vector(c->graph, param);
    }
    return RCV_OK;
}

static int lag_value(const rcvi_checker *c, const rcvi_expr *e) {
    bool input = !strcmp(e->name, c->ast->input);
    const rcvi_equation_info *info = &c->info[input ? rcvi_input_index(c) : rcvi_find_equation(c, e->name, false)];
    return c->graph->states[info->lag_states + e->lag - 1].value;
}

static rcv_status build(builder *b, const rcvi_expr *e, int expected, int *value) {
    static const char operators[] = "+-*/";
    static const rcvi_operation operations[] = {RCVI_ADD, RCVI_SUBTRACT, RCVI_MULTIPLY, RCVI_DIVIDE};
    rcvi_graph *graph = b->c->graph;
    int left = RCVI_NONE, right = RCVI_NONE;
    switch (e->kind) {
    case RCVI_EXPR_NUMBER: *value = rcvi_graph_number(graph, e->number); break;
    case RCVI_EXPR_NAME: RCVI_TRY(build_name(b, e, expected, value)); break;
    case RCVI_EXPR_NEXT: *value = b->c->info[rcvi_find_equation(b->c, e->name, true)].value; break;
    case RCVI_EXPR_LAG: *value = lag_value(b->c, e); break;
    case RCVI_EXPR_APPLY: RCVI_TRY(build_matrix(b, e, expected, value)); break;
    case RCVI_EXPR_CALL: RCVI_TRY(build_call(b, e, expected, value)); break;
    case RCVI_EXPR_NEGATE:
        RCVI_TRY(build(b, e->left, expected, &left));
        *value = rcvi_graph_apply(graph, RCVI_NEGATE, left, RCVI_NONE);
        break;
    case RCVI_EXPR_BINARY:
        RCVI_TRY(build(b, e->left, expected, &left));
        RCVI_TRY(build(b, e->right, expected, &right));
        *value = rcvi_graph_apply(graph, operations[strchr(operators, e->operator) - operators], left, right);
        break;
    }
    return *value == RCVI_NONE ? RCV_NO_MEMORY : RCV_OK;
}

/* ---- equations ---- */

static rcv_status equation_size(rcvi_checker *c, int equation, int *size) {
    const rcvi_expr *value = rcvi_equation_value(c, equation);
    int below = 0;
    RCVI_TRY(size_of(c, value, &below));
    int declared = OPEN;
    if (equation != rcvi_return_index(c)) {
        const rcvi_equation *e = &c->ast->equations[equation];
        if (e->next) declared = c->graph->states[rcvi_find_state(c, e->name)].size;
        if (e->size) {
            declared = rcvi_find_size(c, e->size);
            if (declared == RCVI_NONE) return rcvi_unknown_size(c, e->size_position, e->size);
        }
    }
    if (declared != OPEN && below >= 0 && below != declared && below != RCVI_SIZE_ONE) {
        return rcvi_syntax_error(c->ast, value->position, "this has size '%s' but '%s' is expected",
                                 size_name(c, below), size_name(c, declared));
    }
    *size = declared != OPEN ? declared : below == OPEN ? RCVI_SIZE_HIDDEN : below;
    if (equation == rcvi_return_index(c) && (*size == RCVI_SIZE_ANY)) *size = RCVI_SIZE_HIDDEN;
    return RCV_OK;
}

/* Lags are states: the next value of [t-1] is the value itself, that of [t-2] is [t-1], and so on. */
static rcv_status add_lag_states(rcvi_checker *c, int equation, const char *name, int size) {
    rcvi_equation_info *info = &c->info[equation];
    info->lag_states = (int)c->graph->state_count;
    for (int lag = 1; lag <= info->lags; lag++) {
        const char *text = rcvi_pool_format(c->graph->pool, "%s[t-%d]", name, lag);
        int state = text ? rcvi_graph_add_state(c->graph, text, size) : RCVI_NONE;
        if (state == RCVI_NONE) return RCV_NO_MEMORY;
        c->graph->states[state].lag = true;
        if (lag > 1) c->graph->states[state].next = c->graph->states[state - 1].value;
    }
    return RCV_OK;
}

/* Adds all lag states before any equation is built. The size of a lag is the annotated size of its equation, else hidden; the latter is
 * checked when the size of the equation is inferred. */
static rcv_status declare_lags(rcvi_checker *c) {
    rcvi_equation_info *input = &c->info[rcvi_input_index(c)];
    if (input->lags) {
        RCVI_TRY(add_lag_states(c, rcvi_input_index(c), c->ast->input, RCVI_SIZE_INPUT));
        c->graph->states[input->lag_states].next = c->graph->inputs[0].value;
    }
    for (size_t e = 0; e < c->ast->equation_count; e++) {
        const rcvi_equation *equation = &c->ast->equations[e];
        if (!c->info[e].lags) continue;
        int size = equation->size ? rcvi_find_size(c, equation->size) : RCVI_SIZE_HIDDEN;
        if (size == RCVI_NONE) return rcvi_unknown_size(c, equation->size_position, equation->size);
        RCVI_TRY(add_lag_states(c, (int)e, equation->name, size));
        c->info[e].size = size;
    }
    return RCV_OK;
}

static rcv_status build_equation(rcvi_checker *c, int equation) {
    rcvi_equation_info *info = &c->info[equation];
    bool returned = equation == rcvi_return_index(c);
    builder b = {.c = c, .name = returned ? "return" : c->ast->equations[equation].name};
    int size = 0, value = RCVI_NONE;
    RCVI_TRY(equation_size(c, equation, &size));
    if (info->lags && size != info->size && size != RCVI_SIZE_ANY && size != RCVI_SIZE_ONE) {
        return rcvi_syntax_error(c->ast, info->lag_position, "the lag of '%s' needs its size written: %s[%s] = ...",
                                 b.name, b.name, size_name(c, size));
    }
    if (info->lags) size = info->size;
    RCVI_TRY(build(&b, rcvi_equation_value(c, equation), size, &value));
    rcvi_value *built = &c->graph->values[value];
    bool needs_all = returned || info->lags || c->ast->equations[equation].next || c->ast->equations[equation].size;
    if (needs_all && built->size != size) {
        value = rcvi_graph_spread(c->graph, value, size);
        if (value == RCVI_NONE) return RCV_NO_MEMORY;
        built = &c->graph->values[value];
    }
    info->size = built->size;
    info->value = value;
    if (returned) {
        rcvi_graph_add_output(c->graph, "y", value);
        return RCV_OK;
    }
    const rcvi_equation *e = &c->ast->equations[equation];
    if (!built->name && rcvi_operations[built->operation].arguments > 0) {
        built->name = e->next ? rcvi_pool_format(c->graph->pool, "%s'", e->name) : e->name;
    }
    if (e->next) c->graph->states[rcvi_find_state(c, e->name)].next = value;
    if (info->lags) c->graph->states[info->lag_states].next = value;
    return RCV_OK;
}

/* ---- parameters in the order of files ---- */

static int symbol_rank(const rcvi_checker *c, const char *name) {
    for (size_t i = 0; i < c->symbol_count; i++) {
        if (!strcmp(c->symbols[i].name, name)) return (int)i;
    }
    return (int)c->symbol_count;
}

static int equation_rank(const rcvi_checker *c, const char *name) {
    for (size_t i = 0; i < c->ast->equation_count; i++) {
        if (!strcmp(c->ast->equations[i].name, name)) return (int)i;
    }
    return (int)c->ast->equation_count;
}

static rcv_status sort_params(rcvi_checker *c) {
    rcvi_graph *graph = c->graph;
    rcv_context *context = graph->pool->context;
    size_t count = graph->param_count;
    rcvi_param *sorted = rcvi_new(context, count, sizeof *sorted);
    int *place = rcvi_new(context, count, sizeof *place);
    int64_t *key = rcvi_new(context, count, sizeof *key);
    bool failed = !sorted || !place || !key;
    for (size_t i = 0; !failed && i < count; i++) {
        key[i] = symbol_rank(c, graph->params[i].symbol) * (int64_t)RCVI_MAX_EQUATIONS * 2 +
                 equation_rank(c, graph->params[i].equation);
    }
    for (size_t i = 0; !failed && i < count; i++) {
        for (size_t j = 0; j < count; j++) place[i] += key[j] < key[i]; /* keys are distinct */
        sorted[place[i]] = graph->params[i];
    }
    if (!failed && count) memcpy(graph->params, sorted, count * sizeof *sorted);
    for (size_t v = 0; !failed && v < graph->value_count; v++) {
        rcvi_operation operation = graph->values[v].operation;
        if (operation == RCVI_VECTOR || operation == RCVI_MATRIX)
            graph->values[v].index = place[graph->values[v].index];
    }
    rcvi_free(context, sorted);
    rcvi_free(context, place);
    rcvi_free(context, key);
    return failed ? RCV_NO_MEMORY : RCV_OK;
}

/* Parameters of one symbol are stacked in files if their columns are equal; else each is stored with the name of its equation as prefix. */
static rcv_status name_unstackable(rcvi_checker *c) {
    rcvi_graph *graph = c->graph;
    for (size_t first = 0, end; first < graph->param_count; first = end) {
        const rcvi_param *p = &graph->params[first];
        const char *symbol = p->symbol;
        bool stackable = true;
        for (end = first; end < graph->param_count && !strcmp(graph->params[end].symbol, symbol); end++) {
            const rcvi_param *q = &graph->params[end];
            stackable &= p->columns == q->columns && (p->blocks == RCVI_SIZE_ONE || p->rows == q->rows);
        }
        for (size_t i = first; !stackable && i < end; i++) {
            rcvi_param *q = &graph->params[i];
            q->stored = rcvi_pool_format(graph->pool, "%s.%s", q->equation, q->stored);
            if (!q->stored) return RCV_NO_MEMORY;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_elaborate(rcvi_checker *c) {
    RCVI_TRY(declare_lags(c));
    for (size_t i = 0; i < c->order_count; i++) RCVI_TRY(build_equation(c, c->order[i]));
    if (c->graph->failed) return RCV_NO_MEMORY;
    RCVI_TRY(sort_params(c));
    return name_unstackable(c);
}

/* Binding: rewrites a graph value by value for known sizes. Shortcuts, removed biases and low-rank factors are resolved here, so that later passes see
 * plain matrices only. */
#include "cell/cell.h"

#include <string.h>

typedef struct {
    const rcvi_graph *graph;
    rcvi_graph *bound;
    int *replaced; /* [values]: index of the value in the bound graph */
    int *
        params; /* [params]: index in the bound graph, RCVI_NONE until it is used. Of a low-rank pair: A; B is in `factors` */
    int *factors; /* [params]: B of a low-rank pair */
    bool no_bias;
    int64_t rank;
    int rank_size;
} binding;

static int64_t size_value(const binding *b, int size) { return b->bound->sizes[size].value; }

static bool is_identity(const binding *b, const rcvi_param *param) {
    return param->shortcut && size_value(b, param->rows) == size_value(b, param->columns);
}

/* The stacked matrix that holds this parameter in files. */
static int64_t stacked_rows(const binding *b, const rcvi_param *param) {
    int64_t rows = 0;
    for (size_t i = 0; i < b->graph->param_count; i++) {
        const rcvi_param *other = &b->graph->params[i];
        if (!strcmp(other->stored, param->stored) && !is_identity(b, other)) rows += size_value(b, other->rows);
    }
    return rows;
}

static bool is_low_rank(const binding *b, const rcvi_param *param) {
    return b->rank > 0 && !param->vector && param->blocks == RCVI_SIZE_ONE && stacked_rows(b, param) > b->rank &&
           size_value(b, param->columns) > b->rank;
}

static bool is_left_out(const binding *b, const rcvi_param *param) {
    return b->no_bias && param->vector && !strncmp(param->stored, "bias_", 5);
}

/* Whether this is the last used parameter of its stack. */
static bool is_last_of_stack(const binding *b, size_t index) {
    for (size_t i = index + 1; i < b->graph->param_count; i++) {
        const rcvi_param *later = &b->graph->params[i];
        if (!strcmp(later->stored, b->graph->params[index].stored) && !is_identity(b, later)) return false;
    }
    return true;
}

/* Parameters keep their order; the B factors of a stack follow all its A factors. */
static void bind_params(binding *b) {
    const rcvi_graph *graph = b->graph;
    for (size_t i = 0; i < graph->param_count; i++) {
        rcvi_param param = graph->params[i];
        b->params[i] = b->factors[i] = RCVI_NONE;
        if (is_identity(b, &param) || is_left_out(b, &param)) continue;
        bool low_rank = is_low_rank(b, &param);
        if (low_rank) {
            param.columns = b->rank_size;
            param.suffix = ".A";
        }
        b->params[i] = rcvi_graph_add_param(b->bound, &param);
        if (!low_rank || !is_last_of_stack(b, i)) continue;
        rcvi_param factor = graph->params[i];
        factor.equation = NULL;
        factor.rows = b->rank_size;
        factor.suffix = ".B";
        int added = rcvi_graph_add_param(b->bound, &factor);
        for (size_t j = 0; j <= i; j++) {
            if (!strcmp(graph->params[j].stored, param.stored)) b->factors[j] = added;
        }
    }
}

static int bind_matrix(binding *b, const rcvi_value *value, int argument) {
    const rcvi_param *param = &b->graph->params[value->index];
    if (is_identity(b, param)) return argument;
    if (b->factors[value->index] != RCVI_NONE) {
        argument = rcvi_graph_matrix(b->bound, RCVI_MATRIX, b->factors[value->index], argument);
    }
    return rcvi_graph_matrix(b->bound, RCVI_MATRIX, b->params[value->index], argument);
}

static int bind_value(binding *b, const rcvi_value *value) {
    int left = value->arguments[0] == RCVI_NONE ? RCVI_NONE : b->replaced[value->arguments[0]];
    int right = value->arguments[1] == RCVI_NONE ? RCVI_NONE : b->replaced[value->arguments[1]];
    switch (value->operation) {
    case RCVI_INPUT: return b->bound->inputs[value->index].value;
    case RCVI_STATE: return b->bound->states[value->index].value;
    case RCVI_NUMBER: return rcvi_graph_number(b->bound, value->number);
    case RCVI_SIZE: return rcvi_graph_number(b->bound, (double)size_value(b, value->index));
    case RCVI_VECTOR:
        if (is_left_out(b, &b->graph->params[value->index])) return rcvi_graph_number(b->bound, 0);
        return rcvi_graph_vector(b->bound, b->params[value->index]);
    case RCVI_MATRIX: return bind_matrix(b, value, left);
    case RCVI_SUM:
        if (rcvi_graph_is_number(b->bound, left)) { /* the bias was removed */
            int size = b->graph->values[value->arguments[0]].size;
            return rcvi_graph_number(b->bound, b->bound->values[left].number * (double)size_value(b, size));
        }
        return rcvi_graph_sum(b->bound, left);
    case RCVI_SPREAD: return rcvi_graph_spread(b->bound, left, value->size);
    default: return rcvi_graph_apply(b->bound, value->operation, left, right);
    }
}

static void bind_graph(binding *b, const int64_t *sizes) {
    const rcvi_graph *graph = b->graph;
    rcvi_graph *bound = b->bound;
    for (size_t i = 0; i < graph->size_count; i++) rcvi_graph_add_size(bound, graph->sizes[i].name, sizes[i]);
    b->rank_size = rcvi_graph_add_size(bound, "rank", b->rank);
    if (bound->failed) return;
    bind_params(b);
    for (size_t i = 0; i < graph->input_count; i++) {
        rcvi_graph_add_input(bound, graph->inputs[i].name, graph->inputs[i].size, graph->inputs[i].source);
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        int state = rcvi_graph_add_state(bound, graph->states[i].name, graph->states[i].size);
        if (state != RCVI_NONE) bound->states[state].lag = graph->states[i].lag;
    }
    for (size_t v = 0; v < graph->value_count && !bound->failed; v++) {
        int value = bind_value(b, &graph->values[v]);
        b->replaced[v] = value;
        if (value != RCVI_NONE && !bound->values[value].name &&
            rcvi_operations[bound->values[value].operation].arguments) {
            bound->values[value].name = graph->values[v].name;
        }
    }
    /* a result without a size (for example a removed bias alone) is broadcast to its size */
    for (size_t i = 0; i < graph->state_count && !bound->failed; i++) {
        bound->states[i].next = rcvi_graph_spread(bound, b->replaced[graph->states[i].next], graph->states[i].size);
    }
    for (size_t i = 0; i < graph->output_count && !bound->failed; i++) {
        int value = graph->outputs[i].value;
        rcvi_graph_add_output(bound, graph->outputs[i].name,
                              rcvi_graph_spread(bound, b->replaced[value], graph->values[value].size));
    }
}

rcv_status rcvi_bind(const rcvi_graph *graph, const int64_t *sizes, bool no_bias, int64_t rank, rcvi_graph *bound) {
    rcv_context *context = bound->pool->context;
    binding b = {.graph = graph, .bound = bound, .no_bias = no_bias, .rank = rank};
    b.replaced = rcvi_new(context, graph->value_count, sizeof *b.replaced);
    b.params = rcvi_new(context, graph->param_count, sizeof *b.params);
    b.factors = rcvi_new(context, graph->param_count, sizeof *b.factors);
    bool ok = b.replaced && b.params && b.factors;
    if (ok) bind_graph(&b, sizes);
    rcvi_free(context, b.replaced);
    rcvi_free(context, b.params);
    rcvi_free(context, b.factors);
    return ok && !bound->failed ? RCV_OK : RCV_NO_MEMORY;
}

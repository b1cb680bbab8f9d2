/* Retiming of an adjoint: see retime.h. */
#include "schedule/retime.h"

enum { MOST_STATES = 16 }; /* a cleared state takes an instruction of a map */

typedef struct {
    const rcvi_graph *adjoint;
    rcvi_retimed *to;
    int *replaced; /* [values] in the retimed graph */
    int *operand;  /* [values] which operand it is, or RCVI_NONE */
    int *delayed;  /* [operands] values of the retimed graph: of the step before */
    int *operands; /* [operands] values of the adjoint */
    int count;
} retiming;

static bool is_matrix(const rcvi_value *value) {
    return value->operation == RCVI_MATRIX || value->operation == RCVI_MATRIX_TRANSPOSE;
}

/* Is it stored for every step, as a left factor of a matrix's gradient? */
static bool is_factor(const rcvi_graph *graph, int v) {
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (graph->gradients[g].left == v && graph->gradients[g].right != RCVI_NONE) return true;
    }
    return false;
}

/* A product of a full matrix with a value that is stored for every step. */
static bool is_late_term(const rcvi_graph *graph, int v) {
    const rcvi_value *value = &graph->values[v];
    if (!is_matrix(value) || graph->params[value->index].blocks != RCVI_SIZE_ONE) return false;
    int operand = value->arguments[0];
    return rcvi_operations[graph->values[operand].operation].arguments > 0 && is_factor(graph, operand);
}

/* The number of such products in a sum; adds the number of its other terms to `others`. */
static int count_terms(const rcvi_graph *graph, int v, int *others) {
    const rcvi_value *value = &graph->values[v];
    if (value->operation == RCVI_ADD)
        return count_terms(graph, value->arguments[0], others) + count_terms(graph, value->arguments[1], others);
    bool late = is_late_term(graph, v);
    *others += !late;
    return late;
}

/* How often the value is used: by others, as a next state, as the output, in gradients. */
static int count_uses(const rcvi_graph *graph, int v) {
    int uses = 0;
    for (size_t c = 0; c < graph->value_count; c++) {
        for (int a = 0; a < rcvi_operations[graph->values[c].operation].arguments; a++)
            uses += graph->values[c].arguments[a] == v;
    }
    for (size_t s = 0; s < graph->state_count; s++) uses += graph->states[s].next == v;
    for (size_t o = 0; o < graph->output_count; o++) uses += graph->outputs[o].value == v;
    for (size_t g = 0; g < graph->gradient_count; g++)
        uses += (graph->gradients[g].left == v) + (graph->gradients[g].right == v);
    return uses;
}

static bool may_be_late(const rcvi_graph *graph, int v, bool *has_rest) {
    int others = 0, terms = count_terms(graph, v, &others);
    *has_rest = others > 0;
    return terms > 0 && terms <= RCVI_MAX_TERMS && count_uses(graph, v) == 1;
}

static void find_operands(retiming *r, int v) {
    const rcvi_value *value = &r->adjoint->values[v];
    if (value->operation == RCVI_ADD) {
        find_operands(r, value->arguments[0]);
        find_operands(r, value->arguments[1]);
    } else if (is_late_term(r->adjoint, v) && r->operand[value->arguments[0]] == RCVI_NONE) {
        r->operand[value->arguments[0]] = r->count;
        r->operands[r->count++] = value->arguments[0];
    }
}

static int add(rcvi_graph *graph, int left, int right) {
    if (left == RCVI_NONE || right == RCVI_NONE) return left == RCVI_NONE ? right : left;
    return rcvi_graph_apply(graph, RCVI_ADD, left, right);
}

/* The late products of a sum, built in another graph with these values for the operands. */
static int build_late(const retiming *r, rcvi_graph *graph, int v, const int *operands) {
    const rcvi_value *value = &r->adjoint->values[v];
    if (value->operation == RCVI_ADD) {
        int left = build_late(r, graph, value->arguments[0], operands);
        return add(graph, left, build_late(r, graph, value->arguments[1], operands));
    }
    if (!is_late_term(r->adjoint, v)) return RCVI_NONE;
    return rcvi_graph_matrix(graph, value->operation, value->index, operands[r->operand[value->arguments[0]]]);
}

/* The rest of the sum; RCVI_NONE where there is none. */
static int build_rest(const retiming *r, int v) {
    const rcvi_value *value = &r->adjoint->values[v];
    if (is_late_term(r->adjoint, v)) return RCVI_NONE;
    if (value->operation != RCVI_ADD) return r->replaced[v];
    int left = build_rest(r, value->arguments[0]);
    return add(&r->to->graph, left, build_rest(r, value->arguments[1]));
}

static void begin_graph(const retiming *r, rcvi_graph *graph, rcvi_pool *pool) {
    rcvi_graph_init(graph, pool);
    for (size_t i = 0; i < r->adjoint->size_count; i++)
        rcvi_graph_add_size(graph, r->adjoint->sizes[i].name, r->adjoint->sizes[i].value);
    for (size_t i = 0; i < r->adjoint->param_count; i++) rcvi_graph_add_param(graph, &r->adjoint->params[i]);
}

static int build_value(const retiming *r, int v) {
    rcvi_graph *graph = &r->to->graph;
    const rcvi_value *value = &r->adjoint->values[v];
    int left = value->arguments[0] == RCVI_NONE ? RCVI_NONE : r->replaced[value->arguments[0]];
    int right = value->arguments[1] == RCVI_NONE ? RCVI_NONE : r->replaced[value->arguments[1]];
    switch (value->operation) {
    case RCVI_INPUT: return graph->inputs[value->index].value;
    case RCVI_STATE: {
        const rcvi_graph_state *state = &r->adjoint->states[value->index];
        int own = graph->states[value->index].value;
        if (!r->to->is_late[value->index]) return own;
        return rcvi_graph_apply(graph, RCVI_ADD, own, build_late(r, graph, state->next, r->delayed));
    }
    case RCVI_VECTOR: return rcvi_graph_vector(graph, value->index);
    case RCVI_NUMBER: return rcvi_graph_number(graph, value->number);
    case RCVI_SIZE: return rcvi_graph_size(graph, value->index);
    case RCVI_MATRIX:
    case RCVI_MATRIX_TRANSPOSE: return rcvi_graph_matrix(graph, value->operation, value->index, left);
    case RCVI_SUM: return rcvi_graph_sum(graph, left);
    case RCVI_SPREAD: return rcvi_graph_spread(graph, left, value->size);
    default: return rcvi_graph_apply(graph, value->operation, left, right);
    }
}

/* States first, then what uses them; next states last. */
static void build_graph(retiming *r, rcvi_pool *pool) {
    const rcvi_graph *adjoint = r->adjoint;
    rcvi_graph *graph = &r->to->graph;
    begin_graph(r, graph, pool);
    for (size_t i = 0; i < adjoint->input_count; i++)
        rcvi_graph_add_input(graph, adjoint->inputs[i].name, adjoint->inputs[i].size, adjoint->inputs[i].source);
    for (size_t s = 0; s < adjoint->state_count; s++)
        rcvi_graph_add_state(graph, adjoint->states[s].name, adjoint->states[s].size);
    for (int i = 0; i < r->count && !graph->failed; i++) {
        int state = rcvi_graph_add_state(graph, "late", adjoint->values[r->operands[i]].size);
        r->delayed[i] = graph->failed ? RCVI_NONE : graph->states[state].value;
    }
    for (size_t v = 0; v < adjoint->value_count && !graph->failed; v++) {
        r->replaced[v] = build_value(r, (int)v);
        if (r->replaced[v] != RCVI_NONE && !graph->values[r->replaced[v]].name)
            graph->values[r->replaced[v]].name = adjoint->values[v].name;
    }
    int zero = rcvi_graph_number(graph, 0);
    if (graph->failed) return;
    for (size_t s = 0; s < adjoint->state_count; s++) {
        int next = adjoint->states[s].next;
        graph->states[s].next = !r->to->is_late[s]   ? r->replaced[next]
                                : r->to->has_rest[s] ? build_rest(r, next)
                                                     : zero;
    }
    for (int i = 0; i < r->count; i++) {
        r->to->operands[i] = r->replaced[r->operands[i]];
        graph->states[adjoint->state_count + (size_t)i].next = r->to->operands[i];
    }
    int out = adjoint->outputs[0].value;
    rcvi_graph_add_output(graph, adjoint->outputs[0].name,
                          r->to->output_late ? build_late(r, graph, out, r->delayed) : r->replaced[out]);
    for (size_t g = 0; g < adjoint->gradient_count; g++) {
        const rcvi_gradient *gradient = &adjoint->gradients[g];
        int right = gradient->right == RCVI_NONE ? RCVI_NONE : r->replaced[gradient->right];
        rcvi_graph_add_gradient(graph, gradient->param, r->replaced[gradient->left], right);
    }
}

static void build_last(retiming *r, rcvi_pool *pool) {
    const rcvi_graph *adjoint = r->adjoint;
    rcvi_graph *graph = &r->to->last;
    begin_graph(r, graph, pool);
    for (int i = 0; i < r->count; i++)
        r->delayed[i] = rcvi_graph_add_input(graph, "operand", adjoint->values[r->operands[i]].size, RCVI_NONE);
    for (size_t s = 0; s < adjoint->state_count; s++) {
        if (!r->to->is_late[s]) continue;
        int rest = RCVI_NONE;
        if (r->to->has_rest[s])
            rest = rcvi_graph_add_input(graph, adjoint->states[s].name, adjoint->states[s].size, RCVI_NONE);
        int sum = build_late(r, graph, adjoint->states[s].next, r->delayed);
        rcvi_graph_add_output(graph, adjoint->states[s].name, add(graph, rest, sum));
    }
    if (r->to->output_late)
        rcvi_graph_add_output(graph, adjoint->outputs[0].name,
                              build_late(r, graph, adjoint->outputs[0].value, r->delayed));
}

static bool find_late(retiming *r, bool output) {
    const rcvi_graph *adjoint = r->adjoint;
    bool found = false;
    for (size_t s = 0; s < adjoint->state_count; s++) {
        r->to->is_late[s] = may_be_late(adjoint, adjoint->states[s].next, &r->to->has_rest[s]);
        if (r->to->is_late[s]) find_operands(r, adjoint->states[s].next);
        found |= r->to->is_late[s];
    }
    int out = adjoint->outputs[0].value;
    bool has_rest = false;
    r->to->output_late = found && output && may_be_late(adjoint, out, &has_rest) && !has_rest;
    if (r->to->output_late) find_operands(r, out);
    return found;
}

/* A sum over features needs a launch of its own in any case; then products stay at the end of the step. */
static bool has_sums(const rcvi_graph *graph) {
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].operation == RCVI_SUM) return true;
    }
    return false;
}

bool rcvi_retime(rcvi_program *program, const rcvi_graph *adjoint, bool output_may_be_late, rcvi_retimed *to) {
    rcvi_pool *pool = &program->pool;
    size_t values = adjoint->value_count;
    *to = (rcvi_retimed){.states = adjoint->state_count,
                         .is_late = rcvi_pool_new(pool, adjoint->state_count, sizeof(bool)),
                         .has_rest = rcvi_pool_new(pool, adjoint->state_count, sizeof(bool)),
                         .operands = rcvi_pool_new(pool, values, sizeof(int))};
    retiming r = {.adjoint = adjoint,
                  .to = to,
                  .replaced = rcvi_pool_new(pool, values, sizeof(int)),
                  .operand = rcvi_pool_new(pool, values, sizeof(int)),
                  .delayed = rcvi_pool_new(pool, values, sizeof(int)),
                  .operands = rcvi_pool_new(pool, values, sizeof(int))};
    if (pool->failed) {
        program->failed = true;
        return false;
    }
    for (size_t v = 0; v < values; v++) r.operand[v] = RCVI_NONE;
    if (adjoint->state_count > MOST_STATES || has_sums(adjoint) || !find_late(&r, output_may_be_late)) return false;
    to->operand_count = r.count;
    build_graph(&r, pool);
    build_last(&r, pool);
    if (to->graph.failed || to->last.failed) program->failed = true;
    return true;
}

void rcvi_retimed_free(rcvi_retimed *retimed) {
    rcvi_graph_free(&retimed->graph);
    rcvi_graph_free(&retimed->last);
}

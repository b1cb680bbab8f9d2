/* Reverse-mode differentiation of one step. The result, the adjoint graph, computes the adjoints of a step.
 *
 * The adjoint graph is built twice. The first pass finds which forward values it reads. A value that one operation computes from other
 * available values is then recomputed instead of stored, and the second pass builds the graph with that decision. Always available are the input
 * and the states of all steps, and thus the next values of states. */
#include "cell/cell.h"

#include <string.h>

typedef struct {
    const rcvi_graph *forward;
    rcvi_graph *adjoint;
    int *adjoints; /* [values]: sum of the adjoint terms so far, without matrix products, or RCVI_NONE */
    int *
        products; /* [values]: sum of the terms that are matrix products, or RCVI_NONE. Kept separate so that products are adjacent and can be fused */
    int *replicas;   /* [values]: forward values in the adjoint graph, or RCVI_NONE */
    bool *is_read;   /* [values]: the adjoint reads the value */
    bool *recompute; /* [values]: from its operands */
} derivation;

/* ---- forward values ---- */

static void decide_recomputation(derivation *d) {
    for (size_t v = 0; v < d->forward->value_count; v++) {
        const rcvi_value *value = &d->forward->values[v];
        if (!d->is_read[v] || rcvi_graph_is_available(d->forward, (int)v)) continue;
        bool possible = rcvi_operations[value->operation].elementwise || value->operation == RCVI_SPREAD;
        for (int a = 0; a < 2; a++) {
            int argument = value->arguments[a];
            if (argument != RCVI_NONE && !d->is_read[argument] && !rcvi_graph_is_available(d->forward, argument))
                possible = false;
        }
        d->recompute[v] = possible;
    }
}

static const char *value_name(derivation *d, int value) {
    const rcvi_value *v = &d->forward->values[value];
    if (v->name) return v->name;
    int state = rcvi_graph_state_of_next(d->forward, value);
    if (state != RCVI_NONE) return rcvi_pool_format(d->adjoint->pool, "%s'", d->forward->states[state].name);
    rcvi_text text;
    rcvi_text_init(&text, d->adjoint->pool->context);
    rcvi_graph_print_value(d->forward, value, &text);
    char *bytes = NULL;
    if (rcvi_text_take(&text, &bytes)) {
        d->adjoint->failed = true;
        return "";
    }
    const char *name = rcvi_pool_format(d->adjoint->pool, "(%s)", bytes);
    rcvi_free(d->adjoint->pool->context, bytes);
    return name;
}

/* The forward value in the adjoint graph: an input, or recomputed. */
static int replica(derivation *d, int value) {
    if (d->replicas[value] != RCVI_NONE) return d->replicas[value];
    const rcvi_value *v = &d->forward->values[value];
    rcvi_graph *adjoint = d->adjoint;
    int built;
    d->is_read[value] = true;
    if (v->operation == RCVI_NUMBER) {
        built = rcvi_graph_number(adjoint, v->number);
    } else if (v->operation == RCVI_SIZE) {
        built = rcvi_graph_size(adjoint, v->index);
    } else if (v->operation == RCVI_VECTOR) {
        built = rcvi_graph_vector(adjoint, v->index);
    } else if (d->recompute[value] && v->operation == RCVI_SPREAD) {
        built = rcvi_graph_spread(adjoint, replica(d, v->arguments[0]), v->size);
    } else if (d->recompute[value]) {
        int left = replica(d, v->arguments[0]);
        built = rcvi_graph_apply(adjoint, v->operation, left,
                                 v->arguments[1] == RCVI_NONE ? RCVI_NONE : replica(d, v->arguments[1]));
    } else {
        built = rcvi_graph_add_input(adjoint, value_name(d, value), v->size, value);
    }
    d->replicas[value] = built;
    return built;
}

/* ---- one operation ---- */

/* Whether the value has an adjoint. */
static bool has_adjoint(const derivation *d, int value) {
    const rcvi_value *v = &d->forward->values[value];
    bool fixed = v->operation == RCVI_INPUT && d->forward->inputs[v->index].fixed;
    return !fixed && v->operation != RCVI_NUMBER && v->operation != RCVI_SIZE;
}

static void add_adjoint(derivation *d, int value, int adjoint) {
    if (!has_adjoint(d, value)) return;
    bool product = adjoint != RCVI_NONE && d->adjoint->values[adjoint].operation == RCVI_MATRIX_TRANSPOSE;
    int *sum = product ? &d->products[value] : &d->adjoints[value];
    *sum = *sum == RCVI_NONE ? adjoint : rcvi_graph_apply(d->adjoint, RCVI_ADD, *sum, adjoint);
}

/* The sum of all terms added so far, or RCVI_NONE. */
static int adjoint_of(derivation *d, int value) {
    int *sum = &d->adjoints[value], *products = &d->products[value];
    if (*products != RCVI_NONE)
        *sum = *sum == RCVI_NONE ? *products : rcvi_graph_apply(d->adjoint, RCVI_ADD, *products, *sum);
    *products = RCVI_NONE;
    return *sum;
}

static int times(derivation *d, int a, int b) { return rcvi_graph_apply(d->adjoint, RCVI_MULTIPLY, a, b); }
static int over(derivation *d, int a, int b) { return rcvi_graph_apply(d->adjoint, RCVI_DIVIDE, a, b); }
static int minus(derivation *d, int a, int b) { return rcvi_graph_apply(d->adjoint, RCVI_SUBTRACT, a, b); }
static int unary(derivation *d, rcvi_operation operation, int a) {
    return rcvi_graph_apply(d->adjoint, operation, a, RCVI_NONE);
}
static int number(derivation *d, double value) { return rcvi_graph_number(d->adjoint, value); }

/* The derivative of a one-operand elementwise operation at the forward value `v`. */
static int derivative_of(derivation *d, int v) {
    int argument = d->forward->values[v].arguments[0];
    switch (d->forward->values[v].operation) {
    case RCVI_SIGMOID: return times(d, replica(d, v), minus(d, number(d, 1), replica(d, v)));
    case RCVI_TANH: return minus(d, number(d, 1), times(d, replica(d, v), replica(d, v)));
    case RCVI_RELU: return unary(d, RCVI_STEP, replica(d, v));
    case RCVI_EXP: return replica(d, v);
    case RCVI_LOG: return over(d, number(d, 1), replica(d, argument));
    case RCVI_SOFTPLUS: return unary(d, RCVI_SIGMOID, replica(d, argument));
    case RCVI_ABS: return unary(d, RCVI_SIGN, replica(d, argument));
    case RCVI_SQRT: return over(d, number(d, 0.5), replica(d, v));
    case RCVI_NEGATE: return number(d, -1);
    default: return number(d, 0); /* step, sign */
    }
}

/* 1 where min or max selects its first operand, else 0. */
static int selects_first(derivation *d, int v) {
    const rcvi_value *value = &d->forward->values[v];
    int left = replica(d, value->arguments[0]), right = replica(d, value->arguments[1]);
    return unary(d, RCVI_STEP, value->operation == RCVI_MAX ? minus(d, left, right) : minus(d, right, left));
}

static void propagate_adjoint(derivation *d, int v) {
    const rcvi_value *value = &d->forward->values[v];
    int g = adjoint_of(d, v), left = value->arguments[0], right = value->arguments[1];
    switch (value->operation) {
    case RCVI_INPUT:
    case RCVI_STATE:
    case RCVI_NUMBER:
    case RCVI_SIZE: break;
    case RCVI_VECTOR: rcvi_graph_add_gradient(d->adjoint, value->index, g, RCVI_NONE); break;
    case RCVI_MATRIX:
        add_adjoint(d, left, rcvi_graph_matrix(d->adjoint, RCVI_MATRIX_TRANSPOSE, value->index, g));
        rcvi_graph_add_gradient(d->adjoint, value->index, g, replica(d, left));
        break;
    case RCVI_SUM: add_adjoint(d, left, rcvi_graph_spread(d->adjoint, g, d->forward->values[left].size)); break;
    case RCVI_SPREAD: add_adjoint(d, left, rcvi_graph_sum(d->adjoint, g)); break;
    case RCVI_ADD:
        add_adjoint(d, left, g);
        add_adjoint(d, right, g);
        break;
    case RCVI_SUBTRACT:
        add_adjoint(d, left, g);
        add_adjoint(d, right, unary(d, RCVI_NEGATE, g));
        break;
    case RCVI_MULTIPLY:
        if (has_adjoint(d, left)) add_adjoint(d, left, times(d, g, replica(d, right)));
        if (has_adjoint(d, right)) add_adjoint(d, right, times(d, g, replica(d, left)));
        break;
    case RCVI_DIVIDE:
        if (!rcvi_graph_is_number(d->forward, left)) add_adjoint(d, left, over(d, g, replica(d, right)));
        if (!rcvi_graph_is_number(d->forward, right) && d->forward->values[right].operation != RCVI_SIZE) {
            add_adjoint(d, right, unary(d, RCVI_NEGATE, over(d, times(d, g, replica(d, v)), replica(d, right))));
        }
        break;
    case RCVI_MIN:
    case RCVI_MAX: {
        int first = selects_first(d, v);
        add_adjoint(d, left, times(d, g, first));
        add_adjoint(d, right, times(d, g, minus(d, number(d, 1), first)));
        break;
    }
    case RCVI_NEGATE: add_adjoint(d, left, unary(d, RCVI_NEGATE, g)); break;
    default: add_adjoint(d, left, times(d, g, derivative_of(d, v))); break;
    }
}

/* ---- the whole step ---- */

static const char *adjoint_name(derivation *d, const char *name) {
    const char *text = rcvi_pool_format(d->adjoint->pool, "d.%s", name);
    if (!text) d->adjoint->failed = true;
    return text;
}

static void begin_adjoint(derivation *d) {
    const rcvi_graph *forward = d->forward;
    for (size_t i = 0; i < forward->value_count; i++) d->adjoints[i] = d->products[i] = d->replicas[i] = RCVI_NONE;
    for (size_t i = 0; i < forward->size_count; i++)
        rcvi_graph_add_size(d->adjoint, forward->sizes[i].name, forward->sizes[i].value);
    for (size_t i = 0; i < forward->param_count; i++) rcvi_graph_add_param(d->adjoint, &forward->params[i]);
    for (size_t i = 0; i < forward->output_count; i++) {
        int value = forward->outputs[i].value;
        int input = rcvi_graph_add_input(d->adjoint, adjoint_name(d, forward->outputs[i].name),
                                         forward->values[value].size, RCVI_NONE);
        add_adjoint(d, value, input);
    }
    for (size_t s = 0; s < forward->state_count; s++) {
        const rcvi_graph_state *state = &forward->states[s];
        int added = rcvi_graph_add_state(d->adjoint, adjoint_name(d, state->name), state->size);
        if (added != RCVI_NONE) add_adjoint(d, state->next, d->adjoint->states[added].value);
    }
}

static void finish_adjoint(derivation *d) {
    const rcvi_graph *forward = d->forward;
    rcvi_graph *adjoint = d->adjoint;
    for (size_t s = 0; s < forward->state_count && !adjoint->failed; s++) {
        int value = adjoint_of(d, forward->states[s].value);
        if (value == RCVI_NONE) value = rcvi_graph_spread(adjoint, number(d, 0), forward->states[s].size);
        adjoint->states[s].next = value;
    }
    for (size_t i = 0; i < forward->input_count; i++) {
        if (forward->inputs[i].fixed) continue;
        int value = adjoint_of(d, forward->inputs[i].value);
        if (value == RCVI_NONE) value = rcvi_graph_spread(adjoint, number(d, 0), forward->inputs[i].size);
        rcvi_graph_add_output(adjoint, adjoint_name(d, forward->inputs[i].name), value);
    }
}

/* d.i for an intermediate value i; d.h' for a state's previous value, which is the next value of the adjoint state d.h;
 * sum.h for a state's next value: the sum of d.h and the terms of this step. */
static const char *sum_name(derivation *d, int v) {
    const rcvi_value *value = &d->forward->values[v];
    bool previous = value->operation == RCVI_STATE;
    int state = previous ? RCVI_NONE : rcvi_graph_state_of_next(d->forward, v);
    const char *format = previous ? "d.%s'" : state == RCVI_NONE ? "d.%s" : "sum.%s";
    const char *name = state == RCVI_NONE ? value->name : d->forward->states[state].name;
    if (!name) return NULL;
    const char *text = rcvi_pool_format(d->adjoint->pool, format, name);
    if (!text) d->adjoint->failed = true;
    return text;
}

static void build_adjoint(derivation *d) {
    begin_adjoint(d);
    for (size_t v = 0; v < d->forward->value_count && !d->adjoint->failed; v++) {
        if (d->recompute[v]) replica(d, (int)v); /* in order, which bounds the recursion */
    }
    for (size_t v = d->forward->value_count; v-- > 0 && !d->adjoint->failed;) {
        int g = adjoint_of(d, (int)v);
        if (g == RCVI_NONE) continue;
        rcvi_value *value = &d->adjoint->values[g];
        if (!value->name && rcvi_operations[value->operation].arguments > 0) value->name = sum_name(d, (int)v);
        propagate_adjoint(d, (int)v);
    }
    finish_adjoint(d);
}

/* Removes inputs that were added during construction and are not used in the end. */
static rcv_status drop_unused_inputs(rcvi_graph *graph) {
    bool *live = rcvi_new(graph->pool->context, graph->value_count, sizeof *live);
    if (!live) return RCV_NO_MEMORY;
    rcvi_graph_find_live(graph, live);
    size_t kept = 0;
    for (size_t i = 0; i < graph->input_count; i++) {
        rcvi_graph_input input = graph->inputs[i];
        if (input.source != RCVI_NONE && !live[input.value]) continue;
        graph->values[input.value].index = (int)kept;
        graph->inputs[kept++] = input;
    }
    graph->input_count = kept;
    rcvi_free(graph->pool->context, live);
    return RCV_OK;
}

rcv_status rcvi_differentiate(const rcvi_graph *forward, rcvi_graph *adjoint, bool *recomputed) {
    rcv_context *context = adjoint->pool->context;
    size_t count = forward->value_count;
    derivation d = {.forward = forward, .adjoint = adjoint};
    d.adjoints = rcvi_new(context, count, sizeof *d.adjoints);
    d.products = rcvi_new(context, count, sizeof *d.products);
    d.replicas = rcvi_new(context, count, sizeof *d.replicas);
    d.is_read = rcvi_new(context, count, sizeof *d.is_read);
    d.recompute = rcvi_new(context, count, sizeof *d.recompute);
    bool failed = !d.adjoints || !d.products || !d.replicas || !d.is_read || !d.recompute;
    if (!failed) {
        rcvi_graph draft;
        rcvi_graph_init(&draft, adjoint->pool);
        d.adjoint = &draft;
        build_adjoint(&d);
        failed = draft.failed || adjoint->pool->failed;
        rcvi_graph_free(&draft);
        d.adjoint = adjoint;
    }
    if (!failed) {
        decide_recomputation(&d);
        build_adjoint(&d);
        failed = adjoint->failed || adjoint->pool->failed || drop_unused_inputs(adjoint) != RCV_OK;
    }
    for (size_t v = 0; recomputed && !failed && v < count; v++) recomputed[v] = d.recompute[v];
    rcvi_free(context, d.adjoints);
    rcvi_free(context, d.products);
    rcvi_free(context, d.replicas);
    rcvi_free(context, d.is_read);
    rcvi_free(context, d.recompute);
    return failed ? RCV_NO_MEMORY : RCV_OK;
}

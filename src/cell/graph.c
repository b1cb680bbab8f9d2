/* Builders of graphs: growing arrays, common subexpression elimination by a hash table, constant folding, and liveness. */
#include "cell/graph.h"

#include <math.h>
#include <string.h>

void rcvi_graph_init(rcvi_graph *graph, rcvi_pool *pool) { *graph = (rcvi_graph){.pool = pool}; }

void rcvi_graph_free(rcvi_graph *graph) {
    if (!graph->pool) return;
    rcv_context *context = graph->pool->context;
    void *arrays[] = {graph->values, graph->sizes,   graph->params,    graph->states,
                      graph->inputs, graph->outputs, graph->gradients, graph->buckets};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_free(context, arrays[i]);
    *graph = (rcvi_graph){0};
}

/* Appends `element` to an array of the graph; returns its index. */
#define APPEND(graph, array, element)                                                                                  \
    append(graph, (void *)&(graph)->array##s, &(graph)->array##_count, &(graph)->array##_capacity, &(element),         \
           sizeof(element))

static int append(rcvi_graph *graph, void *array_pointer, size_t *count, size_t *capacity, const void *element,
                  size_t size) {
    if (graph->failed || !rcvi_grow(graph->pool->context, array_pointer, capacity, *count + 1, size)) {
        graph->failed = true;
        return RCVI_NONE;
    }
    char *array;
    memcpy(&array, array_pointer, sizeof array);
    memcpy(array + *count * size, element, size);
    return (int)(*count)++;
}

/* ---- common subexpression elimination ---- */

static size_t hash_value(const rcvi_value *value) {
    uint64_t bits, hash = 1469598103934665603u;
    memcpy(&bits, &value->number, sizeof bits);
    uint64_t words[] = {value->operation,      (uint32_t)value->arguments[0], (uint32_t)value->arguments[1],
                        (uint32_t)value->size, (uint32_t)value->index,        bits};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) hash = (hash ^ words[i]) * 1099511628211u ^ (hash >> 29);
    return (size_t)hash;
}

static bool same_value(const rcvi_value *a, const rcvi_value *b) {
    return a->operation == b->operation && a->arguments[0] == b->arguments[0] && a->arguments[1] == b->arguments[1] &&
           a->size == b->size && a->index == b->index && !memcmp(&a->number, &b->number, sizeof a->number);
}

static bool rehash(rcvi_graph *graph) {
    size_t wanted = 64; /* at least four times the number of values: the table stays sparse */
    while (wanted < 4 * (graph->value_count + 1)) wanted *= 2;
    int *buckets = rcvi_new(graph->pool->context, wanted, sizeof *buckets);
    if (!buckets) return false;
    for (size_t i = 0; i < wanted; i++) buckets[i] = RCVI_NONE;
    for (size_t v = 0; v < graph->value_count; v++) {
        size_t slot = hash_value(&graph->values[v]) % wanted;
        while (buckets[slot] != RCVI_NONE) slot = (slot + 1) % wanted;
        buckets[slot] = (int)v;
    }
    rcvi_free(graph->pool->context, graph->buckets);
    graph->buckets = buckets;
    graph->bucket_count = wanted;
    return true;
}

static int add_value(rcvi_graph *graph, rcvi_value value) {
    if (graph->failed) return RCVI_NONE;
    if (graph->value_count * 2 >= graph->bucket_count && !rehash(graph)) {
        graph->failed = true;
        return RCVI_NONE;
    }
    size_t slot = hash_value(&value) % graph->bucket_count;
    for (; graph->buckets[slot] != RCVI_NONE; slot = (slot + 1) % graph->bucket_count) {
        if (same_value(&graph->values[graph->buckets[slot]], &value)) return graph->buckets[slot];
    }
    int index = APPEND(graph, value, value);
    if (index != RCVI_NONE) graph->buckets[slot] = index;
    return index;
}

static rcvi_value new_value(rcvi_operation operation, int left, int right, int size, int index) {
    return (rcvi_value){.operation = operation, .arguments = {left, right}, .size = size, .index = index};
}

/* ---- builders ---- */

int rcvi_graph_add_size(rcvi_graph *graph, const char *name, int64_t value) {
    rcvi_size size = {name, value};
    return APPEND(graph, size, size);
}

int rcvi_graph_add_param(rcvi_graph *graph, const rcvi_param *param) { return APPEND(graph, param, *param); }

int rcvi_graph_add_state(rcvi_graph *graph, const char *name, int size) {
    rcvi_graph_state state = {.name = name, .size = size, .next = RCVI_NONE};
    rcvi_value value = new_value(RCVI_STATE, RCVI_NONE, RCVI_NONE, size, (int)graph->state_count);
    value.name = name;
    state.value = add_value(graph, value);
    return APPEND(graph, state, state);
}

int rcvi_graph_add_input(rcvi_graph *graph, const char *name, int size, int source) {
    rcvi_graph_input input = {.name = name, .size = size, .source = source};
    rcvi_value value = new_value(RCVI_INPUT, RCVI_NONE, RCVI_NONE, size, (int)graph->input_count);
    value.name = name;
    input.value = add_value(graph, value);
    APPEND(graph, input, input);
    return input.value;
}

void rcvi_graph_add_output(rcvi_graph *graph, const char *name, int value) {
    rcvi_graph_output output = {name, value};
    APPEND(graph, output, output);
}

void rcvi_graph_add_gradient(rcvi_graph *graph, int param, int left, int right) {
    rcvi_gradient gradient = {param, left, right};
    APPEND(graph, gradient, gradient);
}

int rcvi_graph_number(rcvi_graph *graph, double number) {
    rcvi_value value = new_value(RCVI_NUMBER, RCVI_NONE, RCVI_NONE, RCVI_SIZE_ANY, 0);
    value.number = number;
    return add_value(graph, value);
}

int rcvi_graph_size(rcvi_graph *graph, int size) {
    return add_value(graph, new_value(RCVI_SIZE, RCVI_NONE, RCVI_NONE, RCVI_SIZE_ANY, size));
}

int rcvi_graph_vector(rcvi_graph *graph, int param) {
    if (graph->failed) return RCVI_NONE;
    return add_value(graph, new_value(RCVI_VECTOR, RCVI_NONE, RCVI_NONE, graph->params[param].rows, param));
}

int rcvi_graph_matrix(rcvi_graph *graph, rcvi_operation operation, int param, int argument) {
    if (graph->failed || argument == RCVI_NONE) return RCVI_NONE;
    const rcvi_param *matrix = &graph->params[param];
    int size = operation == RCVI_MATRIX ? matrix->rows : matrix->columns;
    int from = operation == RCVI_MATRIX ? matrix->columns : matrix->rows;
    return add_value(graph, new_value(operation, rcvi_graph_spread(graph, argument, from), RCVI_NONE, size, param));
}

int rcvi_graph_sum(rcvi_graph *graph, int argument) {
    if (graph->failed || argument == RCVI_NONE) return RCVI_NONE;
    if (graph->values[argument].size == RCVI_SIZE_ONE) return argument;
    return add_value(graph, new_value(RCVI_SUM, argument, RCVI_NONE, RCVI_SIZE_ONE, 0));
}

int rcvi_graph_spread(rcvi_graph *graph, int argument, int size) {
    if (graph->failed || argument == RCVI_NONE) return RCVI_NONE;
    int own =
        graph->values[argument].size; /* different sizes with the same number: a shortcut that became the identity */
    if (own == size || (own != RCVI_SIZE_ONE && own != RCVI_SIZE_ANY)) return argument;
    return add_value(graph, new_value(RCVI_SPREAD, argument, RCVI_NONE, size, 0));
}

int rcvi_graph_state_of_next(const rcvi_graph *graph, int value) {
    for (size_t s = 0; s < graph->state_count; s++) {
        if (graph->states[s].next == value) return (int)s;
    }
    return RCVI_NONE;
}

bool rcvi_graph_is_available(const rcvi_graph *graph, int value) {
    return rcvi_operations[graph->values[value].operation].arguments == 0 ||
           rcvi_graph_state_of_next(graph, value) != RCVI_NONE;
}

bool rcvi_graph_is_number(const rcvi_graph *graph, int value) {
    return value >= 0 && graph->values[value].operation == RCVI_NUMBER;
}

static bool is_constant(const rcvi_graph *graph, int value, double number) {
    return rcvi_graph_is_number(graph, value) && graph->values[value].number == number;
}

/* Algebraic simplification with neutral elements: the simpler value, or RCVI_NONE. */
static int simplify(rcvi_graph *graph, rcvi_operation operation, int left, int right) {
    switch (operation) {
    case RCVI_ADD:
        if (is_constant(graph, left, 0)) return right;
        return is_constant(graph, right, 0) ? left : RCVI_NONE;
    case RCVI_SUBTRACT: return is_constant(graph, right, 0) ? left : RCVI_NONE;
    case RCVI_MULTIPLY:
        if (is_constant(graph, left, 1)) return right;
        return is_constant(graph, right, 1) ? left : RCVI_NONE;
    case RCVI_DIVIDE: return is_constant(graph, right, 1) ? left : RCVI_NONE;
    case RCVI_NEGATE:
        return graph->values[left].operation == RCVI_NEGATE ? graph->values[left].arguments[0] : RCVI_NONE;
    default: return RCVI_NONE;
    }
}

int rcvi_graph_apply(rcvi_graph *graph, rcvi_operation operation, int left, int right) {
    const rcvi_operation_info *info = &rcvi_operations[operation];
    if (graph->failed || left == RCVI_NONE || (info->arguments == 2 && right == RCVI_NONE)) return RCVI_NONE;
    if (info->arguments == 1) right = RCVI_NONE;
    if (rcvi_graph_is_number(graph, left) && (right == RCVI_NONE || rcvi_graph_is_number(graph, right))) {
        double b = right == RCVI_NONE ? 0 : graph->values[right].number;
        double folded = info->evaluate(graph->values[left].number, b);
        if (isfinite(folded)) return rcvi_graph_number(graph, folded);
    }
    int simple = simplify(graph, operation, left, right);
    if (simple != RCVI_NONE) return simple;
    int size = graph->values[left].size;
    if (right != RCVI_NONE) {
        int other = graph->values[right].size;
        if (size == RCVI_SIZE_ANY) {
            size = other;
        } else if (size == RCVI_SIZE_ONE && other != RCVI_SIZE_ANY) {
            size = other;
            left = rcvi_graph_spread(graph, left, size);
        } else {
            right = other == RCVI_SIZE_ONE ? rcvi_graph_spread(graph, right, size) : right;
        }
    }
    return add_value(graph, new_value(operation, left, right, size, 0));
}

void rcvi_graph_find_live(const rcvi_graph *graph, bool *live) {
    memset(live, 0, graph->value_count * sizeof *live);
    for (size_t i = 0; i < graph->state_count; i++) live[graph->states[i].next] = true;
    for (size_t i = 0; i < graph->output_count; i++) live[graph->outputs[i].value] = true;
    for (size_t i = 0; i < graph->gradient_count; i++) {
        live[graph->gradients[i].left] = true;
        if (graph->gradients[i].right != RCVI_NONE) live[graph->gradients[i].right] = true;
    }
    for (size_t v = graph->value_count; v-- > 0;) {
        if (!live[v]) continue;
        for (int a = 0; a < 2; a++) {
            if (graph->values[v].arguments[a] != RCVI_NONE) live[graph->values[v].arguments[a]] = true;
        }
    }
}

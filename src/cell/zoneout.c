/* Zoneout: a state keeps part of its previous value. An added input z of the graph is the fraction that the step updates:
 *
 *     h' = z * new + (h - z * h)
 *
 * This is exactly `new` for z = 1 and exactly h for z = 0. In the equations of the next states, a next value h' means `new`, the value before
 * zoneout; in the output it means the value after zoneout. */
#include "cell/cell.h"

#include <string.h>

typedef struct {
    rcvi_graph *graph;
    size_t count;    /* values of the graph before zoneout */
    bool *in_output; /* [count] the output depends on it, not only through a next value */
    int *replaced;   /* [count] the value that replaces it in the output */
} zoneout_work;

static int argument_count(const rcvi_graph *graph, int v) {
    return rcvi_operations[graph->values[v].operation].arguments;
}

static bool is_next(const rcvi_graph *graph, int value) {
    bool next = false;
    for (size_t s = 0; s < graph->state_count; s++) next |= graph->states[s].next == value && !graph->states[s].lag;
    return next;
}

static void find_output_values(zoneout_work *z) {
    const rcvi_graph *graph = z->graph;
    for (size_t o = 0; o < graph->output_count; o++) z->in_output[graph->outputs[o].value] = true;
    for (int v = (int)z->count; v-- > 0;) {
        if (!z->in_output[v] || is_next(graph, v)) continue;
        for (int a = 0; a < argument_count(graph, v); a++) z->in_output[graph->values[v].arguments[a]] = true;
    }
}

/* If two states have the same next value, the output reads the first state. A next value without operands (h' = x) is replaced only where it is
 * itself the output. */
static void replace_in_output(zoneout_work *z, int next, int zoned) {
    rcvi_graph *graph = z->graph;
    if (argument_count(graph, next)) {
        if (z->replaced[next] == next) z->replaced[next] = zoned;
        return;
    }
    for (size_t o = 0; o < graph->output_count; o++) {
        if (graph->outputs[o].value == next) graph->outputs[o].value = zoned;
    }
}

static void add_to_state(zoneout_work *z, size_t index) {
    rcvi_graph *graph = z->graph;
    int next = graph->states[index].next, state = graph->states[index].value, size = graph->states[index].size;
    const char *name = graph->states[index].name;
    int updated = rcvi_graph_add_input(graph, rcvi_pool_format(graph->pool, "zone.%s", name), size, RCVI_NONE);
    int kept = rcvi_graph_apply(graph, RCVI_MULTIPLY, updated, state);
    kept = rcvi_graph_apply(graph, RCVI_SUBTRACT, state, kept);
    int zoned = rcvi_graph_apply(graph, RCVI_ADD, rcvi_graph_apply(graph, RCVI_MULTIPLY, updated, next), kept);
    if (zoned == RCVI_NONE) return;
    graph->inputs[graph->input_count - 1].fixed = true;
    graph->values[zoned].name = rcvi_pool_format(graph->pool, "%s'", name);
    if (argument_count(graph, next)) graph->values[next].name = rcvi_pool_format(graph->pool, "new.%s", name);
    replace_in_output(z, next, zoned);
    graph->states[index].next = zoned;
}

static int rebuild(const zoneout_work *z, int v) {
    rcvi_graph *graph = z->graph;
    rcvi_value value = graph->values[v];
    int left = z->replaced[value.arguments[0]];
    int right = value.arguments[1] == RCVI_NONE ? RCVI_NONE : z->replaced[value.arguments[1]];
    if (left == value.arguments[0] && right == value.arguments[1]) return v;
    switch (value.operation) {
    case RCVI_MATRIX: return rcvi_graph_matrix(graph, RCVI_MATRIX, value.index, left);
    case RCVI_SUM: return rcvi_graph_sum(graph, left);
    case RCVI_SPREAD: return rcvi_graph_spread(graph, left, value.size);
    default: return rcvi_graph_apply(graph, value.operation, left, right);
    }
}

static void add_zoneout(zoneout_work *z) {
    rcvi_graph *graph = z->graph;
    find_output_values(z);
    for (size_t v = 0; v < z->count; v++) z->replaced[v] = (int)v;
    for (size_t s = 0; s < graph->state_count && !graph->failed; s++) {
        if (!graph->states[s].lag) add_to_state(z, s);
    }
    for (int v = 0; v < (int)z->count && !graph->failed; v++) {
        if (z->in_output[v] && z->replaced[v] == v && argument_count(graph, v)) z->replaced[v] = rebuild(z, v);
    }
    for (size_t o = 0; o < graph->output_count && !graph->failed; o++) {
        size_t v = (size_t)graph->outputs[o].value;
        if (v < z->count) graph->outputs[o].value = z->replaced[v];
    }
}

rcv_status rcvi_add_zoneout(rcvi_graph *graph) {
    rcv_context *context = graph->pool->context;
    zoneout_work z = {.graph = graph, .count = graph->value_count};
    z.in_output = rcvi_new(context, z.count, sizeof *z.in_output);
    z.replaced = rcvi_new(context, z.count, sizeof *z.replaced);
    bool ok = z.in_output && z.replaced;
    if (ok) add_zoneout(&z);
    rcvi_free(context, z.in_output);
    rcvi_free(context, z.replaced);
    return ok && !graph->failed && !graph->pool->failed ? RCV_OK : RCV_NO_MEMORY;
}

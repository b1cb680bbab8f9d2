/* Zoneout: the next value of a state is in part what the state was. An input z of the graph says how much of it is new:
 *
 *     h' = z * new + (h - z * h)
 *
 * which is exactly `new` where z is 1 and exactly h where it is 0. Next states are computed of what the cell calls next values,
 * as it says it; what it returns is computed of what the states became. */
#include "cell/cell.h"

#include <string.h>

typedef struct {
    rcvi_graph *graph;
    size_t count;  /* values of the cell itself */
    bool *shown;   /* [count] the output depends on it, other than through a state's next value */
    int *replaced; /* [count] what stands for it in the output */
} zoning;

static int argument_count(const rcvi_graph *graph, int v) {
    return rcvi_operations[graph->values[v].operation].arguments;
}

static bool is_next(const rcvi_graph *graph, int value) {
    bool next = false;
    for (size_t s = 0; s < graph->state_count; s++) next |= graph->states[s].next == value && !graph->states[s].lag;
    return next;
}

static void find_shown(zoning *z) {
    const rcvi_graph *graph = z->graph;
    for (size_t o = 0; o < graph->output_count; o++) z->shown[graph->outputs[o].value] = true;
    for (int v = (int)z->count; v-- > 0;) {
        if (!z->shown[v] || is_next(graph, v)) continue;
        for (int a = 0; a < argument_count(graph, v); a++) z->shown[graph->values[v].arguments[a]] = true;
    }
}

/* Of two states that become the same the output shows the first. What is given may become a state as it is (h' = x): where it
 * is not the output itself, it is still read as what it is. */
static void replace(zoning *z, int next, int zoned) {
    rcvi_graph *graph = z->graph;
    if (argument_count(graph, next)) {
        if (z->replaced[next] == next) z->replaced[next] = zoned;
        return;
    }
    for (size_t o = 0; o < graph->output_count; o++) {
        if (graph->outputs[o].value == next) graph->outputs[o].value = zoned;
    }
}

static void zone_state(zoning *z, size_t index) {
    rcvi_graph *graph = z->graph;
    int next = graph->states[index].next, state = graph->states[index].value, size = graph->states[index].size;
    const char *name = graph->states[index].name;
    int fresh = rcvi_graph_add_input(graph, rcvi_pool_format(graph->pool, "zone.%s", name), size, RCVI_NONE);
    int kept = rcvi_graph_apply(graph, RCVI_MULTIPLY, fresh, state);
    kept = rcvi_graph_apply(graph, RCVI_SUBTRACT, state, kept);
    int zoned = rcvi_graph_apply(graph, RCVI_ADD, rcvi_graph_apply(graph, RCVI_MULTIPLY, fresh, next), kept);
    if (zoned == RCVI_NONE) return;
    graph->inputs[graph->input_count - 1].fixed = true;
    graph->values[zoned].name = rcvi_pool_format(graph->pool, "%s'", name);
    if (argument_count(graph, next)) graph->values[next].name = rcvi_pool_format(graph->pool, "new.%s", name);
    replace(z, next, zoned);
    graph->states[index].next = zoned;
}

static int rebuild(const zoning *z, int v) {
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

static void zone(zoning *z) {
    rcvi_graph *graph = z->graph;
    find_shown(z);
    for (size_t v = 0; v < z->count; v++) z->replaced[v] = (int)v;
    for (size_t s = 0; s < graph->state_count && !graph->failed; s++) {
        if (!graph->states[s].lag) zone_state(z, s);
    }
    for (int v = 0; v < (int)z->count && !graph->failed; v++) {
        if (z->shown[v] && z->replaced[v] == v && argument_count(graph, v)) z->replaced[v] = rebuild(z, v);
    }
    for (size_t o = 0; o < graph->output_count && !graph->failed; o++) {
        size_t v = (size_t)graph->outputs[o].value;
        if (v < z->count) graph->outputs[o].value = z->replaced[v];
    }
}

rcv_status rcvi_add_zoneout(rcvi_graph *graph) {
    rcv_context *context = graph->pool->context;
    zoning z = {.graph = graph, .count = graph->value_count};
    z.shown = rcvi_new(context, z.count, sizeof *z.shown);
    z.replaced = rcvi_new(context, z.count, sizeof *z.replaced);
    bool ok = z.shown && z.replaced;
    if (ok) zone(&z);
    rcvi_free(context, z.shown);
    rcvi_free(context, z.replaced);
    return ok && !graph->failed && !graph->pool->failed ? RCV_OK : RCV_NO_MEMORY;
}

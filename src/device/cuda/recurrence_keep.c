/* What a scan keeps of a position until the state is known: the fewest bytes from which all that is needed then can be computed again.
 *
 * Values that are known early are a graph: views lead to registers, registers to registers. Those that are needed late are at its end. A
 * set of values through which all ways from views to them pass is enough, and the smallest is a minimal cut of the graph whose nodes have
 * their sizes as capacities: found by flow along the shortest ways. Of several, the one nearest to the end is taken: it leaves least to
 * be computed again. */
#include "device/cuda/recurrence.h"

#include <limits.h>
#include <string.h>

/* Nodes: instructions, then operands; each as a pair, what comes in (2n) and what goes out (2n + 1). Then source and sink. */
typedef struct {
    const rcvi_cuda_recurrence *c;
    int count;      /* of nodes with source and sink */
    int *capacity;  /* [count, count] that is left */
    int *came_from; /* [count] */
    int *queue;     /* [count] */
} graph;

static int in_of(int node) { return 2 * node; }
static int out_of(int node) { return 2 * node + 1; }
static int of_view(const graph *g, int v) { return g->c->r->map.instruction_count + v; }
static int source(const graph *g) { return g->count - 2; }
static int sink(const graph *g) { return g->count - 1; }

static void join(graph *g, int from, int to, int capacity) { g->capacity[from * g->count + to] += capacity; }

static void add_values(graph *g) {
    const rcvi_cuda_recurrence *c = g->c;
    for (int v = 0; v < c->r->map.operand_count; v++) {
        if (c->readings[v] != RCVI_READ_EARLY) continue;
        join(g, source(g), in_of(of_view(g, v)), INT_MAX / 2);
        join(g, in_of(of_view(g, v)), out_of(of_view(g, v)), (int)rcvi_cuda_bytes(c->types[v]));
        if (c->kept_view[v]) join(g, out_of(of_view(g, v)), sink(g), INT_MAX / 2);
    }
    for (int k = 0; k < c->r->map.instruction_count; k++) {
        const rcvi_instruction *instruction = &c->r->map.instructions[k];
        if (!c->early[k]) continue;
        join(g, in_of(k), out_of(k), (int)sizeof(float));
        if (c->kept[k] || k == c->r->scale || k == c->r->offset) join(g, out_of(k), sink(g), INT_MAX / 2);
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            int from = instruction->source[a];
            if (instruction->from[a] == RCVI_FROM_REGISTER) join(g, out_of(from), in_of(k), INT_MAX / 2);
            if (instruction->from[a] == RCVI_FROM_VIEW && c->readings[from] == RCVI_READ_EARLY)
                join(g, out_of(of_view(g, from)), in_of(k), INT_MAX / 2);
        }
    }
}

/* Breadth first along (or, backwards, against) what capacity is left; came_from: where a node was reached from, or RCVI_NONE. */
static bool reach(graph *g, int from, int to, bool backwards) {
    int head = 0, tail = 0;
    for (int n = 0; n < g->count; n++) g->came_from[n] = RCVI_NONE;
    g->queue[tail++] = from;
    g->came_from[from] = from;
    while (head < tail) {
        int at = g->queue[head++];
        for (int n = 0; n < g->count; n++) {
            int left = backwards ? g->capacity[n * g->count + at] : g->capacity[at * g->count + n];
            if (g->came_from[n] != RCVI_NONE || left <= 0) continue;
            g->came_from[n] = at;
            g->queue[tail++] = n;
        }
    }
    return g->came_from[to] != RCVI_NONE;
}

static void fill(graph *g) {
    while (reach(g, source(g), sink(g), false)) {
        int most = INT_MAX;
        for (int n = sink(g); n != source(g); n = g->came_from[n]) {
            int left = g->capacity[g->came_from[n] * g->count + n];
            if (left < most) most = left;
        }
        for (int n = sink(g); n != source(g); n = g->came_from[n]) {
            g->capacity[g->came_from[n] * g->count + n] -= most;
            g->capacity[n * g->count + g->came_from[n]] += most;
        }
    }
}

/* Nodes that the sink is still reached from lie behind the cut. */
static bool is_cut(const graph *g, int node) {
    return g->came_from[in_of(node)] == RCVI_NONE && g->came_from[out_of(node)] != RCVI_NONE;
}

static void take_cut(graph *g, rcvi_cuda_recurrence *c) {
    reach(g, sink(g), source(g), true);
    for (int v = 0; v < c->r->map.operand_count; v++)
        c->kept_view[v] = c->readings[v] == RCVI_READ_EARLY && is_cut(g, of_view(g, v));
    for (int k = 0; k < c->r->map.instruction_count; k++) {
        c->again[k] = c->early[k] && g->came_from[in_of(k)] != RCVI_NONE;
        c->kept[k] = c->early[k] && is_cut(g, k);
    }
}

rcv_status rcvi_recurrence_keep(rcv_context *context, rcvi_cuda_recurrence *c) {
    graph g = {.c = c, .count = 2 * (c->r->map.instruction_count + c->r->map.operand_count) + 2};
    size_t count = (size_t)g.count;
    int *room = rcvi_new(context, count * count + 2 * count, sizeof *room);
    if (!room) return RCV_NO_MEMORY;
    g.capacity = room;
    g.came_from = room + count * count;
    g.queue = g.came_from + count;
    add_values(&g);
    fill(&g);
    take_cut(&g, c);
    rcvi_free(context, room);
    return RCV_OK;
}

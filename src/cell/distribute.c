/* Loop distribution: finds which states depend on each other over time, orders these groups, and assigns every value to a part. */
#include "cell/distribute.h"

typedef struct {
    const rcvi_graph *graph;
    int states, values;
    bool *reaches; /* [states, states] the next value of the first depends on the second, over one or more steps */
    int *level;    /* [states] length of the longest chain of recurrences before it */
    int *ready;    /* [values] the first part in which it can be computed */
} work;

static bool reaches(const work *w, int s, int t) { return w->reaches[s * w->states + t]; }
static bool is_recurrent(const work *w, int s) { return reaches(w, s, s); }
static bool are_coupled(const work *w, int s, int t) { return s == t || (reaches(w, s, t) && reaches(w, t, s)); }

static int argument_count(const rcvi_graph *graph, int v) {
    return rcvi_operations[graph->values[v].operation].arguments;
}

/* Dependences of one step, then their transitive closure. */
static void find_dependences(work *w, bool *marked) {
    for (int s = 0; s < w->states; s++) {
        for (int v = 0; v < w->values; v++) marked[v] = false;
        marked[w->graph->states[s].next] = true;
        for (int v = w->values; v-- > 0;) {
            const rcvi_value *value = &w->graph->values[v];
            if (marked[v] && value->operation == RCVI_STATE) w->reaches[s * w->states + value->index] = true;
            for (int a = 0; marked[v] && a < argument_count(w->graph, v); a++) marked[value->arguments[a]] = true;
        }
    }
    for (int k = 0; k < w->states; k++) {
        for (int s = 0; s < w->states; s++) {
            for (int t = 0; t < w->states; t++) w->reaches[s * w->states + t] |= reaches(w, s, k) && reaches(w, k, t);
        }
    }
}

static void find_levels(work *w) {
    for (int round = 0; round < w->states; round++) {
        for (int s = 0; s < w->states; s++) {
            for (int t = 0; t < w->states; t++) {
                bool waits = reaches(w, s, t) && !are_coupled(w, s, t);
                if (waits && w->level[t] >= w->level[s]) w->level[s] = w->level[t] + 1;
            }
        }
    }
}

/* Numbers parts by level. Each recurrence of a level is a part; all lags of a level together are one. */
static void number_parts(work *w, rcvi_distribution *d) {
    d->count = 0;
    for (int s = 0; s < w->states; s++) d->of_state[s] = RCVI_NONE;
    for (int level = 0; level < w->states; level++) {
        for (int recurrent = 0; recurrent < 2; recurrent++) {
            for (int s = 0; s < w->states; s++) {
                if (w->level[s] != level || is_recurrent(w, s) != recurrent || d->of_state[s] != RCVI_NONE) continue;
                for (int t = s; t < w->states; t++) {
                    bool same = recurrent ? are_coupled(w, s, t) : !is_recurrent(w, t) && w->level[t] == level;
                    if (same) d->of_state[t] = d->count;
                }
                d->count++;
            }
        }
    }
    if (d->count == 0) d->count = 1;
}

static int larger(int a, int b) { return a > b ? a : b; }

static void find_ready(work *w, const rcvi_distribution *d) {
    for (int v = 0; v < w->values; v++) {
        const rcvi_value *value = &w->graph->values[v];
        w->ready[v] = value->operation == RCVI_STATE ? d->of_state[value->index] : 0;
        for (int a = 0; a < argument_count(w->graph, v); a++)
            w->ready[v] = larger(w->ready[v], w->ready[value->arguments[a]]);
    }
}

static void require(rcvi_distribution *d, int v, int part) {
    if (v != RCVI_NONE && (d->part_of[v] == RCVI_NONE || part < d->part_of[v])) d->part_of[v] = part;
}

/* A value belongs to the first part that needs it; a value that no state needs, to the first part in which it can be computed. */
static void assign_values(const work *w, rcvi_distribution *d) {
    const rcvi_graph *graph = w->graph;
    for (int v = 0; v < w->values; v++) d->part_of[v] = RCVI_NONE;
    for (size_t s = 0; s < graph->state_count; s++) require(d, graph->states[s].next, d->of_state[s]);
    for (size_t o = 0; o < graph->output_count; o++)
        require(d, graph->outputs[o].value, w->ready[graph->outputs[o].value]);
    for (size_t g = 0; g < graph->gradient_count; g++) {
        int left = graph->gradients[g].left, right = graph->gradients[g].right;
        require(d, left, w->ready[left]);
        if (right != RCVI_NONE) require(d, right, w->ready[right]);
    }
    for (int v = w->values; v-- > 0;) {
        for (int a = 0; d->part_of[v] != RCVI_NONE && a < argument_count(graph, v); a++)
            require(d, graph->values[v].arguments[a], d->part_of[v]);
    }
}

static bool find_classes(rcv_context *context, const rcvi_graph *graph, rcvi_distribution *d) {
    rcvi_analysis analysis;
    if (rcvi_analyse(context, graph, &analysis) != RCV_OK) return false;
    for (int part = 0; part < d->count; part++) d->classes[part] = RCVI_MAP;
    for (size_t s = 0; s < graph->state_count; s++) {
        int stage = analysis.stage_of[graph->states[s].value];
        rcvi_class class = stage == RCVI_NONE ? RCVI_MAP : analysis.stages[stage].class;
        if (class > d->classes[d->of_state[s]]) d->classes[d->of_state[s]] = class;
    }
    rcvi_analysis_free(context, &analysis);
    return true;
}

bool rcvi_distribute(rcvi_pool *pool, const rcvi_graph *graph, bool separate, rcvi_distribution *d) {
    size_t states = graph->state_count, values = graph->value_count;
    work w = {.graph = graph, .states = (int)states, .values = (int)values};
    *d = (rcvi_distribution){.count = 1};
    d->part_of = rcvi_pool_new(pool, values, sizeof *d->part_of);
    d->of_state = rcvi_pool_new(pool, states + 1, sizeof *d->of_state);
    d->classes = rcvi_pool_new(pool, states + 1, sizeof *d->classes);
    w.reaches = rcvi_pool_new(pool, states * states + 1, sizeof *w.reaches);
    w.level = rcvi_pool_new(pool, states + 1, sizeof *w.level);
    w.ready = rcvi_pool_new(pool, values, sizeof *w.ready);
    bool *marked = rcvi_pool_new(pool, values, sizeof *marked);
    if (pool->failed) return false;
    find_dependences(&w, marked);
    if (separate) {
        find_levels(&w);
        number_parts(&w, d);
    }
    find_ready(&w, d);
    assign_values(&w, d);
    return find_classes(pool->context, graph, d);
}

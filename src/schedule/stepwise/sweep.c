/* Sweeps in parts: see sweep.h. */
#include "schedule/stepwise/sweep.h"

bool rcvi_sweep_open(rcvi_sweep *s, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_layout *params,
                     const char *label, rcvi_time_map time_map, bool distribute) {
    rcvi_pool *pool = &program->pool;
    *s = (rcvi_sweep){.program = program, .graph = graph, .time_map = time_map};
    s->states = rcvi_pool_new(pool, graph->state_count, sizeof *s->states);
    s->kept = rcvi_pool_new(pool, graph->value_count, sizeof *s->kept);
    bool ok = rcvi_distribute(pool, graph, distribute, &s->parts);
    s->fusions = ok ? rcvi_pool_new(pool, (size_t)s->parts.count, sizeof *s->fusions) : NULL;
    if (!s->states || !s->kept || !s->fusions) program->failed = true;
    while (!program->failed && s->open < s->parts.count) {
        rcvi_fusion_init(&s->fusions[s->open], program, graph, params, label, time_map);
        s->open++;
    }
    return !program->failed;
}

void rcvi_sweep_close(rcvi_sweep *s) {
    for (int p = 0; p < s->open; p++) rcvi_fusion_free(&s->fusions[p]);
}

static bool is_computed(const rcvi_graph *graph, int v) {
    return rcvi_operations[graph->values[v].operation].arguments > 0;
}

rcvi_fusion *rcvi_sweep_fusion_of(const rcvi_sweep *s, int v) {
    bool somewhere = is_computed(s->graph, v) && s->parts.part_of[v] != RCVI_NONE;
    return &s->fusions[somewhere ? s->parts.part_of[v] : s->parts.count - 1];
}

/* The part after which a value is known at all steps. */
static int last_part_of(const rcvi_sweep *s, int v) {
    const rcvi_value *value = &s->graph->values[v];
    if (value->operation == RCVI_STATE) return s->parts.of_state[value->index];
    return is_computed(s->graph, v) ? s->parts.part_of[v] : 0;
}

/* The part that sums up a gradient: the later one of its factors'. */
static int part_of_gradient(const rcvi_sweep *s, size_t g) {
    int left = last_part_of(s, s->graph->gradients[g].left), right = s->graph->gradients[g].right;
    int other = right == RCVI_NONE ? 0 : last_part_of(s, right);
    return left > other ? left : other;
}

static void mark_used(const rcvi_sweep *s, int part, int v, bool *used) {
    if (v != RCVI_NONE && (!is_computed(s->graph, v) || s->parts.part_of[v] <= part)) used[v] = true;
}

/* What a part reads from other parts or from outside. used: [values] */
static void find_used(const rcvi_sweep *s, int part, const bool *live, bool *used) {
    const rcvi_graph *graph = s->graph;
    for (size_t v = 0; v < graph->value_count; v++) used[v] = false;
    for (int v = 0; v < (int)graph->value_count; v++) {
        bool own = live[v] && is_computed(graph, v) && s->parts.part_of[v] == part;
        for (int a = 0; own && a < rcvi_operations[graph->values[v].operation].arguments; a++)
            mark_used(s, part, graph->values[v].arguments[a], used);
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        if (s->parts.of_state[i] == part) mark_used(s, part, graph->states[i].next, used);
    }
    for (size_t o = 0; o < graph->output_count; o++) {
        int v = graph->outputs[o].value;
        if (rcvi_sweep_fusion_of(s, v) == &s->fusions[part]) mark_used(s, part, v, used);
    }
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (part_of_gradient(s, g) != part) continue;
        mark_used(s, part, graph->gradients[g].left, used);
        mark_used(s, part, graph->gradients[g].right, used);
    }
}

void rcvi_sweep_restrict(rcvi_sweep *s, int part) {
    rcvi_fusion *f = &s->fusions[part];
    const rcvi_graph *graph = s->graph;
    bool *live = f->emitter.live;
    if (s->parts.count == 1) return;
    bool *used = rcvi_pool_new(&s->program->pool, graph->value_count, sizeof *used);
    if (!used) {
        s->program->failed = true;
        return;
    }
    /* What later parts read of this one must be stored. */
    for (int other = part + 1; other < s->parts.count; other++) {
        find_used(s, other, live, used);
        for (size_t v = 0; v < graph->value_count; v++) {
            if (used[v] && is_computed(graph, (int)v) && s->parts.part_of[v] == part) f->needed[v] = true;
        }
    }
    find_used(s, part, live, used);
    for (int v = 0; v < (int)graph->value_count; v++) {
        if (!is_computed(graph, v)) {
            live[v] = live[v] && used[v];
        } else if (s->parts.part_of[v] != part) {
            live[v] = false;
            if (!used[v]) continue;
            const rcvi_fusion *from = rcvi_sweep_fusion_of(s, v);
            f->given[v] = true;
            f->storage[v] = from->chunk_copy[v].kind != RCVI_NOT_STORED ? from->chunk_copy[v] : from->storage[v];
        }
    }
    for (size_t i = 0; i < graph->state_count; i++) f->known[i] = s->parts.of_state[i] < part;
    for (size_t g = 0; g < graph->gradient_count; g++) f->skipped[g] = part_of_gradient(s, g) != part;
}

/* Storage over the chunk for a value that other parts read. Where chunks are single steps, a part's loop is over all steps. */
static void store_over_chunk(rcvi_sweep *s, rcvi_fusion *f, int v) {
    rcvi_program *program = s->program;
    const rcvi_graph *graph = f->emitter.graph;
    int64_t row = rcvi_program_row(program, rcvi_features(graph, graph->values[v].size));
    bool chunked = s->time_map.chunk > 1;
    int64_t slots = chunked ? s->time_map.chunk : s->time_map.steps;
    int buffer = rcvi_fusion_buffer(f, slots, row, "shared", v);
    if (program->failed) return;
    rcvi_fusion_store(f, v,
                      (rcvi_storage){.kind = chunked ? RCVI_OVER_CHUNK : RCVI_OVER_TIME, .buffer = buffer, .row = row});
}

void rcvi_sweep_store_shared(rcvi_sweep *s, int part, bool next_states) {
    rcvi_fusion *f = &s->fusions[part];
    const rcvi_graph *graph = s->graph;
    rcvi_pool *pool = &s->program->pool;
    bool *used = rcvi_pool_new(pool, graph->value_count, sizeof *used);
    bool *read_later = rcvi_pool_new(pool, graph->value_count, sizeof *read_later);
    if (!used || !read_later) {
        s->program->failed = true;
        return;
    }
    for (int other = part + 1; other < s->parts.count; other++) {
        find_used(s, other, s->fusions[other].emitter.live, used);
        for (size_t v = 0; v < graph->value_count; v++) read_later[v] |= used[v];
    }
    for (int v = 0; v < (int)graph->value_count && !s->program->failed; v++) {
        bool factor = (s->time_map.chunk > 1 || s->defers_gradients) && rcvi_fusion_is_factor(graph, v);
        bool here = next_states ? rcvi_graph_state_of_next(graph, v) != RCVI_NONE &&
                                      (read_later[v] || rcvi_fusion_crosses_phases(f, v))
                                : read_later[v] && !factor;
        if (!here || !is_computed(graph, v) || s->parts.part_of[v] != part || !rcvi_fusion_computes(f, v)) continue;
        if (f->storage[v].kind == RCVI_NOT_STORED) store_over_chunk(s, f, v);
    }
}

/* Finds the recurrences over time and classifies them. A value depends on its operands; a state's value depends on its next value (of the
 * previous step). Each strongly connected component of this relation with a cycle is a recurrent stage. All other values are constants or
 * maps: the constants are one stage, and so are the maps between two levels of recurrences. */
#include "cell/cell.h"

#include <string.h>

const char *const rcvi_class_names[] = {"constant", "map", "scan", "diagonal", "dense"};

typedef struct {
    rcv_context *context;
    const rcvi_graph *graph;
    size_t count;
    bool *live, *is_constant;
    int *component; /* [values], RCVI_NONE until known; numbered in topological order */
    int components;
    bool *recurrent, *constant; /* [components] */
    int *depth;                 /* [components]: number of recurrent stages on the longest path to it */
} analysis_work;

static bool is_analysed(const analysis_work *w, int v) {
    const rcvi_value *value = &w->graph->values[v];
    return w->live[v] && (value->operation == RCVI_STATE || rcvi_operations[value->operation].arguments > 0);
}

/* Gets dependence `i` of value v; false if there is none. *on is RCVI_NONE if the operand is not part of the analysis. */
static bool get_dependence(const analysis_work *w, int v, int i, int *on) {
    const rcvi_value *value = &w->graph->values[v];
    if (i > 1 || (value->operation == RCVI_STATE && i > 0)) return false;
    *on = value->operation == RCVI_STATE ? w->graph->states[value->index].next : value->arguments[i];
    if (*on != RCVI_NONE && !is_analysed(w, *on)) *on = RCVI_NONE;
    return true;
}

typedef struct {
    int value, next;
} frame;

/* Tarjan's algorithm for strongly connected components with an explicit stack. It completes components in topological order. */
typedef struct {
    int *index, *low, *open;
    bool *on_stack;
    frame *frames;
    size_t open_count;
    int next_index;
} tarjan;

static void enter(tarjan *t, frame *frames, size_t *depth, int v) {
    t->index[v] = t->low[v] = t->next_index++;
    t->open[t->open_count++] = v;
    t->on_stack[v] = true;
    frames[(*depth)++] = (frame){v, 0};
}

static void close_component(analysis_work *w, tarjan *t, int root) {
    int v;
    do {
        v = t->open[--t->open_count];
        t->on_stack[v] = false;
        w->component[v] = w->components;
    } while (v != root);
    w->components++;
}

static void find_components_from(analysis_work *w, tarjan *t, int root) {
    size_t depth = 0;
    enter(t, t->frames, &depth, root);
    while (depth) {
        frame *top = &t->frames[depth - 1];
        int v = top->value, on = RCVI_NONE;
        if (get_dependence(w, v, top->next++, &on)) {
            if (on == RCVI_NONE) continue;
            if (t->index[on] < 0) {
                enter(t, t->frames, &depth, on);
            } else if (t->on_stack[on] && t->index[on] < t->low[v]) {
                t->low[v] = t->index[on];
            }
            continue;
        }
        if (t->low[v] == t->index[v]) close_component(w, t, v);
        if (--depth) {
            int parent = t->frames[depth - 1].value;
            if (t->low[v] < t->low[parent]) t->low[parent] = t->low[v];
        }
    }
}

static bool find_components(analysis_work *w) {
    tarjan t = {.index = rcvi_new(w->context, w->count, sizeof(int)),
                .low = rcvi_new(w->context, w->count, sizeof(int)),
                .open = rcvi_new(w->context, w->count, sizeof(int)),
                .on_stack = rcvi_new(w->context, w->count, sizeof(bool)),
                .frames = rcvi_new(w->context, w->count, sizeof(frame))};
    bool ok = t.index && t.low && t.open && t.on_stack && t.frames;
    for (size_t v = 0; ok && v < w->count; v++) t.index[v] = -1;
    for (size_t v = 0; ok && v < w->count; v++) {
        if (is_analysed(w, (int)v) && t.index[v] < 0) find_components_from(w, &t, (int)v);
    }
    rcvi_free(w->context, t.index);
    rcvi_free(w->context, t.low);
    rcvi_free(w->context, t.open);
    rcvi_free(w->context, t.on_stack);
    rcvi_free(w->context, t.frames);
    return ok;
}

/* A component is recurrent if it contains an edge: between two values, or of a state that does not change (h' = h). A constant is a
 * component of its own. */
static void find_recurrences(analysis_work *w) {
    for (size_t v = 0; v < w->count; v++) {
        if (w->component[v] == RCVI_NONE) continue;
        w->constant[w->component[v]] = w->is_constant[v];
        for (int i = 0, on; get_dependence(w, (int)v, i, &on); i++) {
            if (on != RCVI_NONE && w->component[on] == w->component[v]) w->recurrent[w->component[v]] = true;
        }
    }
}

static void find_depths(analysis_work *w, const int *by_component) {
    for (size_t k = 0; k < w->count; k++) {
        int v = by_component[k];
        if (v == RCVI_NONE) break;
        int own = w->component[v];
        for (int i = 0, on; get_dependence(w, v, i, &on); i++) {
            if (on == RCVI_NONE || w->component[on] == own) continue;
            int through = w->depth[w->component[on]] + w->recurrent[w->component[on]];
            if (through > w->depth[own]) w->depth[own] = through;
        }
    }
}

/* Counting sort of the values by component; ends with RCVI_NONE. */
static int *sort_by_component(const analysis_work *w) {
    int *sorted = rcvi_new(w->context, w->count + 1, sizeof *sorted);
    size_t *start = rcvi_new(w->context, (size_t)w->components + 2, sizeof *start);
    if (sorted && start) {
        for (size_t v = 0; v < w->count; v++) {
            if (w->component[v] != RCVI_NONE) start[w->component[v] + 1]++;
        }
        for (int c = 0; c < w->components; c++) start[c + 1] += start[c];
        for (size_t i = 0; i <= w->count; i++) sorted[i] = RCVI_NONE;
        for (size_t v = 0; v < w->count; v++) {
            if (w->component[v] != RCVI_NONE) sorted[start[w->component[v]]++] = (int)v;
        }
    } else {
        rcvi_free(w->context, sorted);
        sorted = NULL;
    }
    rcvi_free(w->context, start);
    return sorted;
}

static bool mixes_features(rcvi_operation operation) {
    return operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE || operation == RCVI_SUM;
}

/* Whether a value of an elementwise recurrence is affine in the operands that belong to the recurrence. */
static bool is_affine(const rcvi_value *value, bool left_inside, bool right_inside) {
    switch (value->operation) {
    case RCVI_STATE:
    case RCVI_SPREAD:
    case RCVI_ADD:
    case RCVI_SUBTRACT:
    case RCVI_NEGATE: return true;
    case RCVI_MULTIPLY: return !(left_inside && right_inside);
    case RCVI_DIVIDE: return !right_inside;
    default: return false;
    }
}

static bool inside(const rcvi_analysis *analysis, int value, int stage) {
    return value != RCVI_NONE && analysis->stage_of[value] == stage;
}

static void classify(const rcvi_graph *graph, rcvi_analysis *analysis) {
    for (size_t v = 0; v < graph->value_count; v++) {
        int s = analysis->stage_of[v];
        if (s == RCVI_NONE) continue;
        rcvi_stage *stage = &analysis->stages[s];
        if (stage->class < RCVI_SCAN) continue;
        const rcvi_value *value = &graph->values[v];
        bool left = inside(analysis, value->arguments[0], s), right = inside(analysis, value->arguments[1], s);
        rcvi_class class = mixes_features(value->operation) ? RCVI_DENSE
                           : is_affine(value, left, right)  ? RCVI_SCAN
                                                            : RCVI_DIAGONAL;
        if (class > stage->class) {
            stage->class = class;
            stage->cause = (int)v;
        }
    }
}

/* One stage for the components of this depth that are constants, or else maps, if there are any. */
static void add_stage(const analysis_work *w, rcvi_analysis *analysis, int depth, rcvi_class class, int *stage_of) {
    int stage = RCVI_NONE;
    for (int c = 0; c < w->components; c++) {
        if (w->depth[c] != depth || w->recurrent[c] || w->constant[c] != (class == RCVI_CONSTANT)) continue;
        if (stage == RCVI_NONE) {
            stage = (int)analysis->stage_count++;
            analysis->stages[stage] = (rcvi_stage){class, RCVI_NONE};
        }
        stage_of[c] = stage;
    }
}

/* The constants, then for each depth: one stage with all maps of that depth, then its recurrences in order. */
static bool make_stages(analysis_work *w, rcvi_analysis *analysis) {
    int depths = 1; /* constants have depth 0 */
    for (int c = 0; c < w->components; c++) depths = w->depth[c] + 1 > depths ? w->depth[c] + 1 : depths;
    int *stage_of_component = rcvi_new(w->context, (size_t)w->components, sizeof(int));
    analysis->stages = rcvi_new(w->context, (size_t)w->components + (size_t)depths + 1, sizeof *analysis->stages);
    if (!stage_of_component || !analysis->stages) {
        rcvi_free(w->context, stage_of_component);
        return false;
    }
    add_stage(w, analysis, 0, RCVI_CONSTANT, stage_of_component);
    for (int depth = 0; depth < depths; depth++) {
        add_stage(w, analysis, depth, RCVI_MAP, stage_of_component);
        for (int c = 0; c < w->components; c++) {
            if (w->depth[c] != depth || !w->recurrent[c]) continue;
            stage_of_component[c] = (int)analysis->stage_count;
            analysis->stages[analysis->stage_count++] = (rcvi_stage){RCVI_SCAN, RCVI_NONE};
        }
    }
    for (size_t v = 0; v < w->count; v++) {
        analysis->stage_of[v] = w->component[v] == RCVI_NONE ? RCVI_NONE : stage_of_component[w->component[v]];
    }
    rcvi_free(w->context, stage_of_component);
    return true;
}

static bool analyse(analysis_work *w, rcvi_analysis *analysis) {
    if (!w->live || !w->is_constant || !w->component || !analysis->stage_of) return false;
    for (size_t v = 0; v < w->count; v++) w->component[v] = RCVI_NONE;
    rcvi_graph_find_live(w->graph, w->live);
    rcvi_find_constants(w->graph, w->is_constant);
    if (!find_components(w)) return false;
    w->recurrent = rcvi_new(w->context, (size_t)w->components, sizeof *w->recurrent);
    w->constant = rcvi_new(w->context, (size_t)w->components, sizeof *w->constant);
    w->depth = rcvi_new(w->context, (size_t)w->components, sizeof *w->depth);
    int *sorted = sort_by_component(w);
    bool ok = w->recurrent && w->constant && w->depth && sorted;
    if (ok) {
        find_recurrences(w);
        find_depths(w, sorted);
        ok = make_stages(w, analysis);
    }
    rcvi_free(w->context, sorted);
    return ok;
}

rcv_status rcvi_analyse(rcv_context *context, const rcvi_graph *graph, rcvi_analysis *analysis) {
    *analysis = (rcvi_analysis){.stage_of = rcvi_new(context, graph->value_count, sizeof(int))};
    analysis_work w = {.context = context, .graph = graph, .count = graph->value_count};
    w.live = rcvi_new(context, w.count, sizeof *w.live);
    w.is_constant = rcvi_new(context, w.count, sizeof *w.is_constant);
    w.component = rcvi_new(context, w.count, sizeof *w.component);
    bool ok = analyse(&w, analysis);
    rcvi_free(context, w.live);
    rcvi_free(context, w.is_constant);
    rcvi_free(context, w.component);
    rcvi_free(context, w.recurrent);
    rcvi_free(context, w.constant);
    rcvi_free(context, w.depth);
    if (ok) {
        classify(graph, analysis);
    } else {
        rcvi_analysis_free(context, analysis);
    }
    return ok ? RCV_OK : RCV_NO_MEMORY;
}

void rcvi_analysis_free(rcv_context *context, rcvi_analysis *analysis) {
    rcvi_free(context, analysis->stages);
    rcvi_free(context, analysis->stage_of);
    *analysis = (rcvi_analysis){0};
}

void rcvi_stage_reason(const rcvi_graph *graph, const rcvi_analysis *analysis, size_t stage, rcvi_text *out) {
    const rcvi_stage *s = &analysis->stages[stage];
    if (s->class < RCVI_SCAN) {
        rcvi_text_add(out, s->class == RCVI_MAP ? "nothing here depends on itself over time"
                                                : "depends on the parameters alone: the same at every step");
        return;
    }
    if (s->cause != RCVI_NONE) {
        rcvi_graph_print_value(graph, s->cause, out);
        rcvi_text_add(out, s->class == RCVI_DENSE ? " mixes the features of its own past: it lies on the cycle through"
                                                  : " is not affine in its own past, the cycle through");
    } else {
        rcvi_text_add(out, "element by element and affine in its own past, the cycle through");
    }
    const char *separator = " ";
    for (size_t i = 0; i < graph->state_count; i++) {
        if (!inside(analysis, graph->states[i].value, (int)stage)) continue;
        rcvi_text_add(out, "%s%s", separator, graph->states[i].name);
        separator = ", ";
    }
}

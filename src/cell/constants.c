/* Constants: values of a graph that depend on the parameters alone. They are loop-invariant: the same at every time step and for every
 * sequence. A graph with such values is split in two: `constants` computes them, and in `step` they are learned vectors. */
#include "cell/cell.h"

static int argument_count(const rcvi_value *value) { return rcvi_operations[value->operation].arguments; }

static bool is_number(const rcvi_graph *graph, int v) {
    const rcvi_value *value = &graph->values[v];
    if (value->operation == RCVI_SPREAD) value = &graph->values[value->arguments[0]];
    return value->operation == RCVI_NUMBER || value->operation == RCVI_SIZE;
}

void rcvi_find_constants(const rcvi_graph *graph, bool *is_constant) {
    for (size_t v = 0; v < graph->value_count; v++) {
        const rcvi_value *value = &graph->values[v];
        bool fixed = argument_count(value) > 0;
        bool learned = value->operation == RCVI_MATRIX || value->operation == RCVI_MATRIX_TRANSPOSE;
        for (int a = 0; a < argument_count(value); a++) {
            int argument = value->arguments[a];
            bool is_learned = graph->values[argument].operation == RCVI_VECTOR || is_constant[argument];
            learned |= is_learned;
            fixed &= is_learned || is_number(graph, argument);
        }
        is_constant[v] = fixed && learned;
    }
}

typedef struct {
    const rcvi_graph *graph;
    rcvi_graph *constants, *step;
    const bool *is_constant; /* [values] */
    bool *live;              /* [values] */
    bool *is_stored;   /* [values] a constant that every step stores: the step computes it too, from its operands */
    bool *is_read;     /* [values] another constant that the step reads */
    int *in_constants; /* [values] in `constants`, or RCVI_NONE */
    int *in_step;      /* [values] in `step`, or RCVI_NONE */
} splitting;

static bool is_in_step(const splitting *s, size_t v) { return s->live[v] && (!s->is_constant[v] || s->is_stored[v]); }

/* Next states and outputs are stored at every step: by a map that computes them, not by a copy, which is a step of its own. */
static void find_stored(splitting *s) {
    const rcvi_graph *graph = s->graph;
    for (size_t i = 0; i < graph->state_count; i++) s->is_stored[graph->states[i].next] = true;
    for (size_t i = 0; i < graph->output_count; i++) s->is_stored[graph->outputs[i].value] = true;
    for (size_t v = 0; v < graph->value_count; v++) {
        s->is_read[v] = s->is_stored[v] && s->is_constant[v];
        s->is_stored[v] = s->is_read[v] && rcvi_operations[graph->values[v].operation].elementwise;
    }
}

static void find_read(splitting *s) {
    const rcvi_graph *graph = s->graph;
    for (size_t v = 0; v < graph->value_count; v++) {
        for (int a = 0; is_in_step(s, v) && a < argument_count(&graph->values[v]); a++)
            s->is_read[graph->values[v].arguments[a]] = true;
    }
    for (size_t v = 0; v < graph->value_count; v++) s->is_read[v] &= s->is_constant[v] && !s->is_stored[v];
}

static void copy_tables(const rcvi_graph *from, rcvi_graph *to) {
    for (size_t i = 0; i < from->size_count; i++) rcvi_graph_add_size(to, from->sizes[i].name, from->sizes[i].value);
    for (size_t i = 0; i < from->param_count; i++) rcvi_graph_add_param(to, &from->params[i]);
}

/* A copy of value v in another graph, where its operands are at `copies`. */
static int copy_value(const rcvi_graph *from, rcvi_graph *to, int v, const int *copies) {
    const rcvi_value *value = &from->values[v];
    int left = value->arguments[0] == RCVI_NONE ? RCVI_NONE : copies[value->arguments[0]];
    int right = value->arguments[1] == RCVI_NONE ? RCVI_NONE : copies[value->arguments[1]];
    switch (value->operation) {
    case RCVI_INPUT: return to->inputs[value->index].value;
    case RCVI_STATE: return to->states[value->index].value;
    case RCVI_VECTOR: return rcvi_graph_vector(to, value->index);
    case RCVI_NUMBER: return rcvi_graph_number(to, value->number);
    case RCVI_SIZE: return rcvi_graph_size(to, value->index);
    case RCVI_MATRIX:
    case RCVI_MATRIX_TRANSPOSE: return rcvi_graph_matrix(to, value->operation, value->index, left);
    case RCVI_SUM: return rcvi_graph_sum(to, left);
    case RCVI_SPREAD: return rcvi_graph_spread(to, left, value->size);
    default: return rcvi_graph_apply(to, value->operation, left, right);
    }
}

static void set_name(rcvi_graph *graph, int v, const char *name) {
    if (v != RCVI_NONE && !graph->values[v].name && argument_count(&graph->values[v])) graph->values[v].name = name;
}

static const char *name_of(const rcvi_value *value) { return value->name ? value->name : "constant"; }

static void build_constants(splitting *s) {
    const rcvi_graph *graph = s->graph;
    copy_tables(graph, s->constants);
    for (size_t v = 0; v < graph->value_count && !s->constants->failed; v++) {
        bool source = graph->values[v].operation == RCVI_VECTOR || is_number(graph, (int)v);
        bool copied = s->is_constant[v] || source;
        s->in_constants[v] =
            copied && s->live[v] ? copy_value(graph, s->constants, (int)v, s->in_constants) : RCVI_NONE;
        set_name(s->constants, s->in_constants[v], graph->values[v].name);
        if (s->is_read[v]) rcvi_graph_add_output(s->constants, name_of(&graph->values[v]), s->in_constants[v]);
    }
}

/* The vector that holds a constant. */
static int add_vector(rcvi_graph *step, const rcvi_value *value) {
    rcvi_param param = {.symbol = name_of(value),
                        .stored = "",
                        .suffix = "",
                        .rows = value->size,
                        .columns = RCVI_SIZE_ONE,
                        .blocks = RCVI_SIZE_ONE,
                        .vector = true};
    return rcvi_graph_vector(step, rcvi_graph_add_param(step, &param));
}

static void build_step(splitting *s) {
    const rcvi_graph *graph = s->graph;
    rcvi_graph *step = s->step;
    copy_tables(graph, step);
    for (size_t i = 0; i < graph->input_count; i++) {
        rcvi_graph_add_input(step, graph->inputs[i].name, graph->inputs[i].size, graph->inputs[i].source);
        if (!step->failed) step->inputs[i].fixed = graph->inputs[i].fixed;
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        rcvi_graph_add_state(step, graph->states[i].name, graph->states[i].size);
        if (!step->failed) step->states[i].lag = graph->states[i].lag;
    }
    for (size_t v = 0; v < graph->value_count && !step->failed; v++) {
        s->in_step[v] = RCVI_NONE;
        if (s->is_read[v])
            s->in_step[v] = add_vector(step, &graph->values[v]);
        else if (is_in_step(s, v))
            s->in_step[v] = copy_value(graph, step, (int)v, s->in_step);
        set_name(step, s->in_step[v], graph->values[v].name);
    }
    for (size_t i = 0; i < graph->state_count && !step->failed; i++)
        step->states[i].next = s->in_step[graph->states[i].next];
    for (size_t i = 0; i < graph->output_count; i++)
        rcvi_graph_add_output(step, graph->outputs[i].name, s->in_step[graph->outputs[i].value]);
}

rcv_status rcvi_split_constants(const rcvi_graph *graph, rcvi_graph *constants, rcvi_graph *step) {
    rcvi_pool *pool = step->pool;
    size_t count = graph->value_count;
    bool *is_constant = rcvi_pool_new(pool, count, sizeof *is_constant), found = false;
    splitting s = {.graph = graph,
                   .constants = constants,
                   .step = step,
                   .is_constant = is_constant,
                   .live = rcvi_pool_new(pool, count, sizeof *s.live),
                   .is_stored = rcvi_pool_new(pool, count, sizeof *s.is_stored),
                   .is_read = rcvi_pool_new(pool, count, sizeof *s.is_read),
                   .in_constants = rcvi_pool_new(pool, count, sizeof *s.in_constants),
                   .in_step = rcvi_pool_new(pool, count, sizeof *s.in_step)};
    if (pool->failed) return RCV_NO_MEMORY;
    rcvi_find_constants(graph, is_constant);
    rcvi_graph_find_live(graph, s.live);
    find_stored(&s);
    find_read(&s);
    for (size_t v = 0; v < count; v++) found |= s.is_read[v];
    if (!found) return RCV_OK;
    build_constants(&s);
    build_step(&s);
    return constants->failed || step->failed ? RCV_NO_MEMORY : RCV_OK;
}

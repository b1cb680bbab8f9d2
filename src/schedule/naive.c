/* The baseline and the oracle: layer after layer, step after step, one GEMM per gate and operand, one loop per
 * pointwise operation, every intermediate in a buffer of its own.
 *
 * Time. A direction takes the steps in its own order: iteration k is step k, or step T-1-k in reverse. What belongs to
 * a direction (states, kept values) is stored in the order of iterations, what layers share (x, y, masks) in the order
 * of steps. The backward pass takes the iterations from the last to the first, so each of its views is a forward view
 * reversed.
 *
 * States. In training a state has T+1 slots, iteration k reading slot k and writing slot k+1; otherwise two slots, the
 * second copied to the first at the end of an iteration. A row past its sequence's length keeps its state; a row at a
 * boundary gets the restart state in its slot before it is read. */
#include "schedule/emit.h"
#include "schedule/schedule.h"

typedef struct {
    rcvi_emitter emitter; /* forward views in the order of iterations */
    int *states;          /* [state_count] buffers */
} pass;

typedef struct {
    rcvi_program *program;
    const rcv_net *net;
    int64_t steps, batch;
    bool training, ragged, resets;
    int live, boundary; /* mask buffers */
    pass *passes;       /* [layers * directions] */
    int *inputs;        /* [layers + 1] buffers of [steps, batch, width]; the last is y */
} writer;

static int64_t width(const writer *w, int64_t layer) {
    return layer < w->net->options.layers ? w->net->layers[layer].input : rcv_net_output(w->net);
}

static rcvi_view reversed(const writer *w, rcvi_view view) {
    view.offset += (w->steps - 1) * view.stride;
    view.stride = -view.stride;
    return view;
}

/* Columns from `column` on of a buffer [steps, batch, width], one step an iteration. */
static rcvi_view step_view(const writer *w, int buffer, int64_t columns, int64_t column, int64_t direction) {
    rcvi_view view = {.buffer = buffer, .offset = column, .stride = w->batch * columns, .row = columns, .column = 1};
    return direction ? reversed(w, view) : view;
}

static rcvi_view whole_view(int buffer, int64_t columns) {
    return (rcvi_view){.buffer = buffer, .row = columns, .column = 1};
}

static rcvi_view live_view(const writer *w, int64_t direction) { return step_view(w, w->live, 1, 0, direction); }

/* A reset at step t stands between t-1 and t: before step t forwards, before step t-1 in reverse. */
static rcvi_view boundary_view(const writer *w, int64_t direction) {
    rcvi_view view = step_view(w, w->boundary, 1, 0, direction);
    if (direction) view.offset += w->batch;
    return view;
}

static rcvi_view previous_slot(const writer *w, int buffer, int64_t size) {
    return (rcvi_view){.buffer = buffer, .stride = w->training ? w->batch * size : 0, .row = size, .column = 1};
}

static rcvi_view next_slot(const writer *w, int buffer, int64_t size) {
    rcvi_view view = previous_slot(w, buffer, size);
    view.offset += w->batch * size;
    return view;
}

/* The block of a layer and direction in the caller's tensor of a state. */
static rcvi_view state_block(writer *w, rcvi_role role, size_t state, int64_t layer, int64_t direction, int64_t size) {
    rcvi_view view = whole_view(rcvi_program_external(w->program, role, state), size);
    view.offset = rcvi_state_offset(w->net, state, layer, direction) * w->batch;
    return view;
}

static int64_t state_size(const rcvi_graph *graph, size_t state) {
    return rcvi_features(graph, graph->states[state].size);
}

/* ---- masks and the input ---- */

static void write_masks(writer *w) {
    rcvi_view none = rcvi_no_view(), lengths = none;
    if (w->ragged) {
        w->live = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_BYTE,
                                      rcvi_program_product(w->program, w->steps, w->batch, 1), "live");
        lengths = whole_view(rcvi_program_external(w->program, RCVI_LENGTHS, 0), w->batch);
        rcvi_step step = {.kind = RCVI_STEP_LIVE,
                          .rows = w->steps,
                          .columns = w->batch,
                          .out = whole_view(w->live, w->batch),
                          .a = lengths,
                          .b = none,
                          .mask = none};
        rcvi_program_step(w->program, &step);
    }
    if (w->resets) {
        w->boundary = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_BYTE,
                                          rcvi_program_product(w->program, w->steps + 1, w->batch, 1), "boundary");
        rcvi_view resets = whole_view(rcvi_program_external(w->program, RCVI_RESETS, 0), w->batch);
        rcvi_step step = {.kind = RCVI_STEP_BOUNDARY,
                          .rows = w->steps,
                          .columns = w->batch,
                          .out = whole_view(w->boundary, w->batch),
                          .a = resets,
                          .b = lengths,
                          .mask = none};
        rcvi_program_step(w->program, &step);
    }
}

/* What stands past a sequence's length may be anything, even NaN: it must not reach a product. */
static void write_input(writer *w) {
    w->inputs[0] = rcvi_program_external(w->program, RCVI_X, 0);
    if (!w->ragged) return;
    int64_t columns = width(w, 0), rows = w->steps * w->batch;
    int masked = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                     rcvi_program_product(w->program, w->steps, w->batch, columns), "x.live");
    rcvi_emit_select(w->program, rows, columns, whole_view(w->live, 1), whole_view(masked, columns),
                     whole_view(w->inputs[0], columns), rcvi_no_view());
    w->inputs[0] = masked;
}

/* ---- forward ---- */

/* Gives values that the derivative asks for a place that lasts: an array over iterations, unless a state's slots hold
 * them. */
static void keep_values(writer *w, rcvi_layer *layer, pass *p) {
    for (size_t i = 0; i < layer->adjoint.input_count && !w->program->failed; i++) {
        int value = layer->adjoint.inputs[i].source;
        if (value == RCVI_NONE || p->emitter.views[value].buffer != RCVI_NONE) continue;
        /* a boundary or a frozen row replaces what the slot holds, so the value itself is kept then */
        if (rcvi_graph_next_of(&layer->forward, value) != RCVI_NONE && !w->ragged && !w->resets) continue;
        int64_t columns = rcvi_features(&layer->forward, layer->forward.values[value].size);
        int64_t count = rcvi_program_product(w->program, w->steps, w->batch, columns);
        const char *name = layer->adjoint.inputs[i].name;
        int buffer =
            rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL, count, "%skept.%s", p->emitter.label, name);
        p->emitter.views[value] = step_view(w, buffer, columns, 0, 0);
    }
}

static void write_states_before(writer *w, const rcvi_graph *graph, pass *p, int64_t layer, int64_t direction,
                                int *restarts) {
    for (size_t s = 0; s < graph->state_count && !w->program->failed; s++) {
        int64_t size = state_size(graph, s), slots = w->training ? w->steps + 1 : 2;
        p->states[s] = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                           rcvi_program_product(w->program, slots, w->batch, size), "%sstate.%s",
                                           p->emitter.label, graph->states[s].name);
        rcvi_emit_copy(w->program, w->batch, size, whole_view(p->states[s], size),
                       state_block(w, RCVI_INITIAL, s, layer, direction, size));
        p->emitter.views[graph->states[s].value] = previous_slot(w, p->states[s], size);
        if (!w->resets) continue;
        restarts[s] = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                          rcvi_program_product(w->program, w->batch, size, 1), "%srestart.%s",
                                          p->emitter.label, graph->states[s].name);
        rcvi_emit_copy(w->program, w->batch, size, whole_view(restarts[s], size),
                       state_block(w, RCVI_RESTART, s, layer, direction, size));
    }
}

static void write_iteration(writer *w, const rcvi_graph *graph, pass *p, int64_t layer, int64_t direction,
                            const int *restarts) {
    rcvi_emitter *e = &p->emitter;
    for (size_t s = 0; w->resets && s < graph->state_count; s++) {
        rcvi_view slot = previous_slot(w, p->states[s], state_size(graph, s));
        rcvi_emit_select(w->program, w->batch, slot.row, boundary_view(w, direction), slot,
                         whole_view(restarts[s], slot.row), slot);
    }
    rcvi_emit_values(e);
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = state_size(graph, s);
        rcvi_view next = next_slot(w, p->states[s], size), previous = previous_slot(w, p->states[s], size);
        if (w->ragged) {
            rcvi_emit_select(w->program, w->batch, size, live_view(w, direction), next, e->views[graph->states[s].next],
                             previous);
        } else {
            rcvi_emit_result(e, graph->states[s].next, next);
        }
    }
    int64_t columns = w->net->layers[layer].output;
    rcvi_view out = step_view(w, w->inputs[layer + 1], columns * w->net->directions, direction * columns, direction);
    if (w->ragged) {
        rcvi_emit_select(w->program, w->batch, columns, live_view(w, direction), out, e->views[graph->outputs[0].value],
                         rcvi_no_view());
    } else {
        rcvi_emit_result(e, graph->outputs[0].value, out);
    }
    for (size_t s = 0; !w->training && s < graph->state_count; s++) {
        int64_t size = state_size(graph, s);
        rcvi_emit_copy(w->program, w->batch, size, previous_slot(w, p->states[s], size),
                       next_slot(w, p->states[s], size));
    }
}

static void write_forward(writer *w, int64_t layer, int64_t direction) {
    rcvi_layer *l = &w->net->layers[layer];
    const rcvi_graph *graph = &l->forward;
    pass *p = &w->passes[layer * w->net->directions + direction];
    const char *label = rcvi_pool_format(&w->program->pool, "l%lld%s.", (long long)layer, direction ? "r" : "");
    p->states = rcvi_pool_new(&w->program->pool, graph->state_count, sizeof *p->states);
    int *restarts = rcvi_pool_new(&w->program->pool, graph->state_count, sizeof *restarts);
    if (!label || !p->states || !restarts ||
        !rcvi_emitter_init(&p->emitter, w->program, graph, l->places[direction], label)) {
        w->program->failed = true;
        return;
    }
    p->emitter.views[graph->inputs[0].value] = step_view(w, w->inputs[layer], l->input, 0, direction);
    write_states_before(w, graph, p, layer, direction, restarts);
    if (w->training) keep_values(w, l, p);
    rcvi_program_loop(w->program, w->steps);
    write_iteration(w, graph, p, layer, direction, restarts);
    rcvi_program_end_loop(w->program);
    for (size_t s = 0; s < graph->state_count && !w->program->failed; s++) {
        int64_t size = state_size(graph, s);
        rcvi_view last = whole_view(p->states[s], size);
        if (w->training) last.offset = w->steps * w->batch * size;
        rcvi_emit_copy(w->program, w->batch, size, state_block(w, RCVI_FINAL, s, layer, direction, size), last);
    }
}

/* ---- dropout between layers ---- */

static bool has_dropout(const writer *w, int64_t layer) {
    return w->training && w->net->options.dropout > 0 && layer > 0;
}

/* The same mask for the values into layer `layer` and, backwards, for their adjoints. */
static int write_dropout(writer *w, int64_t layer, int from, const char *name) {
    int64_t columns = width(w, layer);
    int to = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                 rcvi_program_product(w->program, w->steps, w->batch, columns), "%s%lld", name,
                                 (long long)layer);
    rcvi_step step = {.kind = RCVI_STEP_DROPOUT,
                      .rows = w->steps * w->batch,
                      .columns = columns,
                      .out = whole_view(to, columns),
                      .a = whole_view(from, columns),
                      .b = rcvi_no_view(),
                      .mask = rcvi_no_view(),
                      .dropout = {.probability = w->net->options.dropout, .salt = (uint64_t)layer}};
    rcvi_program_step(w->program, &step);
    return to;
}

/* ---- backward ---- */

typedef struct {
    rcvi_emitter emitter;
    int *adjoints; /* [states] buffers of two slots: now, next */
    int *arriving; /* [states] what the step sees: adjoints of rows that are live */
    int *restarts; /* [states] sums of the adjoints that end at boundaries */
    int *ending;   /* [states] */
} reverse_pass;

static int state_buffer(writer *w, const reverse_pass *r, size_t state, int64_t size, int64_t slots, const char *name) {
    return rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                               rcvi_program_product(w->program, slots, w->batch, size), "%s%s.%s", r->emitter.label,
                               name, r->emitter.graph->states[state].name);
}

static rcvi_view second_slot(const writer *w, int buffer, int64_t size) {
    rcvi_view view = whole_view(buffer, size);
    view.offset = w->batch * size;
    return view;
}

static void write_adjoints_before(writer *w, reverse_pass *r, int64_t layer, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count && !w->program->failed; s++) {
        int64_t size = state_size(graph, s);
        r->adjoints[s] = state_buffer(w, r, s, size, 2, "adjoint");
        rcvi_emit_copy(w->program, w->batch, size, whole_view(r->adjoints[s], size),
                       state_block(w, RCVI_DFINAL, s, layer, direction, size));
        r->emitter.views[graph->states[s].value] = whole_view(r->adjoints[s], size);
        if (w->ragged) {
            r->arriving[s] = state_buffer(w, r, s, size, 1, "arriving");
            r->emitter.views[graph->states[s].value] = whole_view(r->arriving[s], size);
        }
        if (w->resets) {
            r->restarts[s] = state_buffer(w, r, s, size, 1, "drestart");
            r->ending[s] = state_buffer(w, r, s, size, 1, "ending");
            rcvi_emit_fill(w->program, w->batch, size, whole_view(r->restarts[s], size), 0);
        }
    }
}

/* Views of the adjoint graph's inputs: dy first, then what the forward pass kept. */
static void view_inputs(writer *w, reverse_pass *r, int64_t layer, int64_t direction, int dy) {
    const rcvi_graph *forward = &w->net->layers[layer].forward, *graph = r->emitter.graph;
    const pass *p = &w->passes[layer * w->net->directions + direction];
    int64_t columns = w->net->layers[layer].output;
    for (size_t i = 0; i < graph->input_count; i++) {
        const rcvi_graph_input *input = &graph->inputs[i];
        rcvi_view view;
        if (input->source == RCVI_NONE) {
            view = step_view(w, dy, columns * w->net->directions, direction * columns, direction);
        } else if (rcvi_operations[forward->values[input->source].operation].arguments > 0 && !w->ragged &&
                   !w->resets && rcvi_graph_next_of(forward, input->source) != RCVI_NONE) {
            size_t state = (size_t)rcvi_graph_next_of(forward, input->source);
            view = next_slot(w, p->states[state], state_size(forward, state));
        } else {
            view = p->emitter.views[input->source];
        }
        r->emitter.views[input->value] = reversed(w, view);
    }
}

static void write_adjoint_states(writer *w, reverse_pass *r, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = state_size(graph, s);
        rcvi_view now = whole_view(r->adjoints[s], size), next = second_slot(w, r->adjoints[s], size);
        if (w->ragged) {
            rcvi_view mask = reversed(w, live_view(w, direction));
            rcvi_emit_select(w->program, w->batch, size, mask, next, r->emitter.views[graph->states[s].next], now);
        } else {
            rcvi_emit_result(&r->emitter, graph->states[s].next, next);
        }
        if (w->resets) {
            rcvi_view mask = reversed(w, boundary_view(w, direction)), ending = whole_view(r->ending[s], size);
            rcvi_view sum = whole_view(r->restarts[s], size);
            rcvi_emit_select(w->program, w->batch, size, mask, ending, next, rcvi_no_view());
            rcvi_emit_add(w->program, w->batch, size, sum, sum, ending);
            rcvi_emit_select(w->program, w->batch, size, mask, next, rcvi_no_view(), next);
        }
    }
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = state_size(graph, s);
        rcvi_emit_copy(w->program, w->batch, size, whole_view(r->adjoints[s], size),
                       second_slot(w, r->adjoints[s], size));
    }
}

static void write_adjoints_after(writer *w, reverse_pass *r, int64_t layer, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count && !w->program->failed; s++) {
        int64_t size = state_size(graph, s);
        rcvi_view first = whole_view(r->adjoints[s], size),
                  restart = state_block(w, RCVI_DRESTART, s, layer, direction, size);
        if (w->resets) {
            rcvi_view sum = whole_view(r->restarts[s], size);
            rcvi_emit_copy(w->program, w->batch, size, restart, sum);
            rcvi_emit_add(w->program, w->batch, size, first, first, sum);
            if (!w->program->failed) {
                w->program->steps[w->program->step_count - 1].when = RCVI_WHEN_RESTART_IS_INITIAL;
                w->program->steps[w->program->step_count - 1].state = s;
            }
        } else {
            rcvi_emit_fill(w->program, w->batch, size, restart, 0);
        }
        rcvi_emit_copy(w->program, w->batch, size, state_block(w, RCVI_DINITIAL, s, layer, direction, size), first);
    }
}

static bool new_reverse_pass(writer *w, int64_t layer, int64_t direction, reverse_pass *r) {
    rcvi_layer *l = &w->net->layers[layer];
    size_t states = l->adjoint.state_count;
    rcvi_pool *pool = &w->program->pool;
    const char *label = rcvi_pool_format(pool, "l%lld%s.", (long long)layer, direction ? "r" : "");
    *r = (reverse_pass){.adjoints = rcvi_pool_new(pool, states, sizeof(int)),
                        .arriving = rcvi_pool_new(pool, states, sizeof(int)),
                        .restarts = rcvi_pool_new(pool, states, sizeof(int)),
                        .ending = rcvi_pool_new(pool, states, sizeof(int))};
    bool ok = rcvi_emitter_init(&r->emitter, w->program, &l->adjoint, l->places[direction], label);
    return ok && !pool->failed;
}

static void write_backward(writer *w, int64_t layer, int64_t direction, int dy, int dx) {
    reverse_pass r;
    if (!new_reverse_pass(w, layer, direction, &r)) {
        w->program->failed = true;
        rcvi_emitter_free(&r.emitter);
        return;
    }
    const rcvi_graph *graph = r.emitter.graph;
    write_adjoints_before(w, &r, layer, direction);
    view_inputs(w, &r, layer, direction, dy);
    rcvi_program_loop(w->program, w->steps);
    for (size_t s = 0; w->ragged && s < graph->state_count; s++) {
        int64_t size = state_size(graph, s);
        rcvi_emit_select(w->program, w->batch, size, reversed(w, live_view(w, direction)),
                         whole_view(r.arriving[s], size), whole_view(r.adjoints[s], size), rcvi_no_view());
    }
    rcvi_emit_values(&r.emitter);
    rcvi_emit_gradients(&r.emitter);
    int64_t columns = w->net->layers[layer].input;
    rcvi_view out = reversed(w, step_view(w, dx, columns, 0, direction));
    if (direction) {
        rcvi_emit_add(w->program, w->batch, columns, out, out, r.emitter.views[graph->outputs[0].value]);
    } else {
        rcvi_emit_result(&r.emitter, graph->outputs[0].value, out);
    }
    write_adjoint_states(w, &r, direction);
    rcvi_program_end_loop(w->program);
    write_adjoints_after(w, &r, layer, direction);
    rcvi_emitter_free(&r.emitter);
}

static void write_backward_pass(writer *w) {
    int64_t layers = w->net->options.layers, rows = w->steps * w->batch, columns = width(w, layers);
    if (w->net->parameter_elements) {
        rcvi_view gradients =
            whole_view(rcvi_program_external(w->program, RCVI_DPARAMETERS, 0), w->net->parameter_elements);
        rcvi_emit_fill(w->program, 1, w->net->parameter_elements, gradients, 0);
        if (!w->program->failed) w->program->steps[w->program->step_count - 1].when = RCVI_WHEN_OVERWRITING;
    }
    int dy = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                 rcvi_program_product(w->program, w->steps, w->batch, columns), "dy.all");
    rcvi_emit_copy(w->program, rows, columns, whole_view(dy, columns),
                   whole_view(rcvi_program_external(w->program, RCVI_DY, 0), columns));
    if (w->ragged) {
        rcvi_emit_select(w->program, rows, columns, whole_view(w->live, 1), whole_view(dy, columns),
                         whole_view(dy, columns), rcvi_no_view());
    }
    for (int64_t layer = layers; layer-- > 0 && !w->program->failed;) {
        columns = width(w, layer);
        int dx = rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                     rcvi_program_product(w->program, w->steps, w->batch, columns), "dx%lld",
                                     (long long)layer);
        for (int64_t d = 0; d < w->net->directions; d++) write_backward(w, layer, d, dy, dx);
        dy = has_dropout(w, layer) ? write_dropout(w, layer, dx, "ddropped") : dx;
    }
    rcvi_emit_copy(w->program, rows, columns, whole_view(rcvi_program_external(w->program, RCVI_DX, 0), columns),
                   whole_view(dy, columns));
}

/* ---- both ---- */

static void write_forward_pass(writer *w) {
    int64_t layers = w->net->options.layers;
    write_masks(w);
    write_input(w);
    for (int64_t layer = 0; layer < layers && !w->program->failed; layer++) {
        if (has_dropout(w, layer)) w->inputs[layer] = write_dropout(w, layer, w->inputs[layer], "dropped");
        int64_t columns = width(w, layer + 1);
        w->inputs[layer + 1] = layer + 1 == layers
                                   ? rcvi_program_external(w->program, RCVI_Y, 0)
                                   : rcvi_program_buffer(w->program, RCVI_ARENA, 0, RCVI_REAL,
                                                         rcvi_program_product(w->program, w->steps, w->batch, columns),
                                                         "y%lld", (long long)layer);
        for (int64_t d = 0; d < w->net->directions && !w->program->failed; d++) write_forward(w, layer, d);
    }
}

static void write(rcvi_program *program) {
    const rcv_net *net = program->net;
    rcv_context *context = program->pool.context;
    writer w = {.program = program,
                .net = net,
                .steps = program->options.steps,
                .batch = program->options.batch,
                .training = program->options.training,
                .ragged = program->options.lengths,
                .resets = program->options.resets};
    size_t passes = (size_t)(net->options.layers * net->directions);
    w.passes = rcvi_new(context, passes, sizeof *w.passes);
    w.inputs = rcvi_new(context, (size_t)net->options.layers + 1, sizeof *w.inputs);
    if (w.passes && w.inputs) {
        write_forward_pass(&w);
        program->forward_count = program->step_count;
        if (w.training && !program->failed) write_backward_pass(&w);
    } else {
        program->failed = true;
    }
    for (size_t i = 0; w.passes && i < passes; i++) {
        if (w.passes[i].emitter.program) rcvi_emitter_free(&w.passes[i].emitter);
    }
    rcvi_free(context, w.passes);
    rcvi_free(context, w.inputs);
}

static rcv_status applies(const rcv_net *net, const rcv_plan_options *options) {
    (void)net;
    (void)options;
    return RCV_OK;
}

const rcvi_schedule rcvi_schedule_naive = {.name = "naive", .applies = applies, .write = write};

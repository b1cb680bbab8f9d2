/* The naive schedule, the oracle that all others are compared with. It applies to every network (on the CPU not in bfloat16).
 *
 * It writes layer after layer, step after step, one gemm for each matrix, one map for each pointwise operation, and every intermediate
 * value in a buffer of its own.
 *
 * Time. A direction takes the steps in its own order: iteration k is step k, or step T-1-k in reverse. What belongs to
 * a direction (states, kept values) is stored in the order of iterations, what layers share (x, y, masks) in the order
 * of steps; between the layers of a reverse network in that of iterations. The backward pass takes the iterations from the last to the first, so each of its views is a forward view
 * reversed.
 *
 * States. In training a state has T+1 slots, iteration k reading slot k and writing slot k+1; otherwise two slots, the
 * second copied to the first at the end of an iteration. A row past its sequence's length keeps its state; a row at a
 * boundary gets the restart state in its slot before it is read. */
#include "schedule/frame.h"
#include "schedule/schedule.h"

typedef struct {
    rcvi_emitter emitter; /* forward views in the order of iterations */
    int *states;          /* [state_count] buffers */
} pass;

typedef struct {
    rcvi_frame frame;
    pass *passes; /* [layers * directions] */
} writer;

static rcvi_view reversed(const writer *w, rcvi_view view) {
    view.offset += (w->frame.steps - 1) * view.stride;
    view.stride = -view.stride;
    return view;
}

/* Columns from `column` on of a buffer [steps, batch, width], one step an iteration. */
static rcvi_view step_view(const writer *w, int buffer, int64_t columns, int64_t column, bool is_reversed) {
    rcvi_view view = {
        .buffer = buffer, .offset = column, .stride = w->frame.batch * columns, .row = columns, .column = 1};
    return is_reversed ? reversed(w, view) : view;
}

/* Does a direction read and write the values into a layer in the reverse order? */
static bool is_reversed_into(const writer *w, int64_t layer, int64_t direction) {
    return rcvi_net_is_reversed(w->frame.net, direction) && !rcvi_frame_is_in_time_order(&w->frame, layer);
}

static rcvi_view length_mask(const writer *w, int64_t direction) {
    return step_view(w, w->frame.length_mask, 1, 0, rcvi_net_is_reversed(w->frame.net, direction));
}

/* A reset at step t is a boundary between t-1 and t: before step t forwards, before step t-1 in reverse. */
static rcvi_view reset_mask(const writer *w, int64_t direction) {
    bool is_reversed = rcvi_net_is_reversed(w->frame.net, direction);
    rcvi_view view = step_view(w, w->frame.reset_mask, 1, 0, is_reversed);
    if (is_reversed) view.offset += w->frame.batch;
    return view;
}

static rcvi_view previous_slot(const writer *w, int buffer, int64_t size) {
    return (rcvi_view){
        .buffer = buffer, .stride = w->frame.training ? w->frame.batch * size : 0, .row = size, .column = 1};
}

static rcvi_view next_slot(const writer *w, int buffer, int64_t size) {
    rcvi_view view = previous_slot(w, buffer, size);
    view.offset += w->frame.batch * size;
    return view;
}

/* ---- forward ---- */

/* Stores the values that the derivative reads: in an array over iterations, unless a state's slots hold them. */
static void keep_values(writer *w, rcvi_layer *layer, pass *p) {
    for (size_t i = 0; i < layer->adjoint.input_count && !w->frame.program->failed; i++) {
        int value = layer->adjoint.inputs[i].source;
        if (value == RCVI_NONE || p->emitter.views[value].buffer != RCVI_NONE) continue;
        /* a reset or a length replaces what the slot holds; then the value itself is kept */
        if (rcvi_graph_state_of_next(&layer->forward, value) != RCVI_NONE && !w->frame.ragged && !w->frame.resets)
            continue;
        int64_t columns = rcvi_features(&layer->forward, layer->forward.values[value].size);
        int64_t count = rcvi_program_product(w->frame.program, w->frame.steps, w->frame.batch, columns);
        const char *name = layer->adjoint.inputs[i].name;
        int buffer =
            rcvi_program_buffer(w->frame.program, RCVI_ARENA, 0, RCVI_REAL, count, "%skept.%s", p->emitter.label, name);
        p->emitter.views[value] = step_view(w, buffer, columns, 0, false);
    }
}

static void write_states_before(writer *w, const rcvi_graph *graph, pass *p, int64_t layer, int64_t direction,
                                int *restarts) {
    for (size_t s = 0; s < graph->state_count && !w->frame.program->failed; s++) {
        int64_t size = rcvi_state_size(graph, s), slots = w->frame.training ? w->frame.steps + 1 : 2;
        p->states[s] = rcvi_program_buffer(w->frame.program, RCVI_ARENA, 0, RCVI_REAL,
                                           rcvi_program_product(w->frame.program, slots, w->frame.batch, size),
                                           "%sstate.%s", p->emitter.label, graph->states[s].name);
        rcvi_emit_copy(w->frame.program, w->frame.batch, size, rcvi_whole_view(p->states[s], size),
                       rcvi_state_block(&w->frame, RCVI_INITIAL, s, layer, direction, size));
        p->emitter.views[graph->states[s].value] = previous_slot(w, p->states[s], size);
        if (!w->frame.resets) continue;
        restarts[s] = rcvi_program_buffer(w->frame.program, RCVI_ARENA, 0, RCVI_REAL,
                                          rcvi_program_product(w->frame.program, w->frame.batch, size, 1),
                                          "%srestart.%s", p->emitter.label, graph->states[s].name);
        rcvi_emit_copy(w->frame.program, w->frame.batch, size, rcvi_whole_view(restarts[s], size),
                       rcvi_state_block(&w->frame, RCVI_RESTART, s, layer, direction, size));
    }
}

static void write_iteration(writer *w, const rcvi_graph *graph, pass *p, int64_t layer, int64_t direction,
                            const int *restarts) {
    rcvi_emitter *e = &p->emitter;
    for (size_t s = 0; w->frame.resets && s < graph->state_count; s++) {
        rcvi_view slot = previous_slot(w, p->states[s], rcvi_state_size(graph, s));
        rcvi_emit_select(w->frame.program, w->frame.batch, slot.row, reset_mask(w, direction), slot,
                         rcvi_whole_view(restarts[s], slot.row), slot);
    }
    rcvi_emit_values(e);
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_view next = next_slot(w, p->states[s], size), previous = previous_slot(w, p->states[s], size);
        if (w->frame.ragged) {
            rcvi_emit_select(w->frame.program, w->frame.batch, size, length_mask(w, direction), next,
                             e->views[graph->states[s].next], previous);
        } else {
            rcvi_emit_result(e, graph->states[s].next, next);
        }
    }
    int64_t columns = w->frame.net->layers[layer].output;
    rcvi_view out = step_view(w, w->frame.inputs[layer + 1], columns * w->frame.net->directions, direction * columns,
                              is_reversed_into(w, layer + 1, direction));
    if (w->frame.ragged) {
        rcvi_emit_select(w->frame.program, w->frame.batch, columns, length_mask(w, direction), out,
                         e->views[graph->outputs[0].value], rcvi_no_view());
    } else {
        rcvi_emit_result(e, graph->outputs[0].value, out);
    }
    for (size_t s = 0; !w->frame.training && s < graph->state_count; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_emit_copy(w->frame.program, w->frame.batch, size, previous_slot(w, p->states[s], size),
                       next_slot(w, p->states[s], size));
    }
}

/* The graph's inputs after x: masks of zoneout. */
static void view_zones(writer *w, const rcvi_graph *graph, pass *p, int64_t layer, int64_t direction) {
    for (size_t i = 1; i < graph->input_count && !w->frame.program->failed; i++) {
        int buffer = rcvi_frame_write_zone(&w->frame, layer, direction, i);
        int64_t size = rcvi_features(graph, graph->inputs[i].size);
        rcvi_view row = {.buffer = buffer, .column = 1};
        p->emitter.views[graph->inputs[i].value] =
            rcvi_frame_has_random_zoneout(&w->frame) ? step_view(w, buffer, size, 0, false) : row;
    }
}

static void write_forward(writer *w, int64_t layer, int64_t direction) {
    rcvi_layer *l = &w->frame.net->layers[layer];
    const rcvi_graph *graph = &l->forward;
    pass *p = &w->passes[layer * w->frame.net->directions + direction];
    const char *label = rcvi_pool_format(&w->frame.program->pool, "l%lld%s.", (long long)layer,
                                         rcvi_net_is_reversed(w->frame.net, direction) ? "r" : "");
    p->states = rcvi_pool_new(&w->frame.program->pool, graph->state_count, sizeof *p->states);
    int *restarts = rcvi_pool_new(&w->frame.program->pool, graph->state_count, sizeof *restarts);
    if (!label || !p->states || !restarts ||
        !rcvi_emitter_init(&p->emitter, w->frame.program, graph, l->layouts[direction], label)) {
        w->frame.program->failed = true;
        return;
    }
    p->emitter.views[graph->inputs[0].value] =
        step_view(w, w->frame.inputs[layer], l->input, 0, is_reversed_into(w, layer, direction));
    view_zones(w, graph, p, layer, direction);
    write_states_before(w, graph, p, layer, direction, restarts);
    if (w->frame.training) keep_values(w, l, p);
    rcvi_program_loop(w->frame.program, w->frame.steps);
    write_iteration(w, graph, p, layer, direction, restarts);
    rcvi_program_end_loop(w->frame.program);
    for (size_t s = 0; s < graph->state_count && !w->frame.program->failed; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_view last = rcvi_whole_view(p->states[s], size);
        if (w->frame.training) last.offset = w->frame.steps * w->frame.batch * size;
        rcvi_emit_copy(w->frame.program, w->frame.batch, size,
                       rcvi_state_block(&w->frame, RCVI_FINAL, s, layer, direction, size), last);
    }
}

/* ---- backward ---- */

typedef struct {
    rcvi_emitter emitter;
    int *adjoints; /* [states] buffers of two slots: now, next */
    int *incoming; /* [states] adjoints as a step reads them: zero past a sequence's length */
    int *restarts; /* [states] adjoints summed at resets */
    int *at_reset; /* [states] */
} reverse_pass;

static int state_buffer(writer *w, const reverse_pass *r, size_t state, int64_t size, int64_t slots, const char *name) {
    return rcvi_program_buffer(w->frame.program, RCVI_ARENA, 0, RCVI_REAL,
                               rcvi_program_product(w->frame.program, slots, w->frame.batch, size), "%s%s.%s",
                               r->emitter.label, name, r->emitter.graph->states[state].name);
}

static rcvi_view second_slot(const writer *w, int buffer, int64_t size) {
    rcvi_view view = rcvi_whole_view(buffer, size);
    view.offset = w->frame.batch * size;
    return view;
}

static void write_adjoints_before(writer *w, reverse_pass *r, int64_t layer, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count && !w->frame.program->failed; s++) {
        int64_t size = rcvi_state_size(graph, s);
        r->adjoints[s] = state_buffer(w, r, s, size, 2, "adjoint");
        rcvi_emit_copy(w->frame.program, w->frame.batch, size, rcvi_whole_view(r->adjoints[s], size),
                       rcvi_state_block(&w->frame, RCVI_DFINAL, s, layer, direction, size));
        r->emitter.views[graph->states[s].value] = rcvi_whole_view(r->adjoints[s], size);
        if (w->frame.ragged) {
            r->incoming[s] = state_buffer(w, r, s, size, 1, "arriving");
            r->emitter.views[graph->states[s].value] = rcvi_whole_view(r->incoming[s], size);
        }
        if (w->frame.resets) {
            r->restarts[s] = state_buffer(w, r, s, size, 1, "drestart");
            r->at_reset[s] = state_buffer(w, r, s, size, 1, "ending");
            rcvi_emit_fill(w->frame.program, w->frame.batch, size, rcvi_whole_view(r->restarts[s], size), 0);
        }
    }
}

/* Views of the adjoint graph's inputs: dy first, then what the forward pass kept. */
static void view_inputs(writer *w, reverse_pass *r, int64_t layer, int64_t direction, int dy) {
    const rcvi_graph *forward = &w->frame.net->layers[layer].forward, *graph = r->emitter.graph;
    const pass *p = &w->passes[layer * w->frame.net->directions + direction];
    int64_t columns = w->frame.net->layers[layer].output;
    for (size_t i = 0; i < graph->input_count; i++) {
        const rcvi_graph_input *input = &graph->inputs[i];
        rcvi_view view;
        if (input->source == RCVI_NONE) {
            view = step_view(w, dy, columns * w->frame.net->directions, direction * columns,
                             is_reversed_into(w, layer + 1, direction));
        } else if (rcvi_operations[forward->values[input->source].operation].arguments > 0 && !w->frame.ragged &&
                   !w->frame.resets && rcvi_graph_state_of_next(forward, input->source) != RCVI_NONE) {
            size_t state = (size_t)rcvi_graph_state_of_next(forward, input->source);
            view = next_slot(w, p->states[state], rcvi_state_size(forward, state));
        } else {
            view = p->emitter.views[input->source];
        }
        r->emitter.views[input->value] = reversed(w, view);
    }
}

static void write_adjoint_states(writer *w, reverse_pass *r, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_view now = rcvi_whole_view(r->adjoints[s], size), next = second_slot(w, r->adjoints[s], size);
        if (w->frame.ragged) {
            rcvi_view mask = reversed(w, length_mask(w, direction));
            rcvi_emit_select(w->frame.program, w->frame.batch, size, mask, next,
                             r->emitter.views[graph->states[s].next], now);
        } else {
            rcvi_emit_result(&r->emitter, graph->states[s].next, next);
        }
        if (w->frame.resets) {
            rcvi_view mask = reversed(w, reset_mask(w, direction)), at_reset = rcvi_whole_view(r->at_reset[s], size);
            rcvi_view sum = rcvi_whole_view(r->restarts[s], size);
            rcvi_emit_select(w->frame.program, w->frame.batch, size, mask, at_reset, next, rcvi_no_view());
            rcvi_emit_add(w->frame.program, w->frame.batch, size, sum, sum, at_reset);
            rcvi_emit_select(w->frame.program, w->frame.batch, size, mask, next, rcvi_no_view(), next);
        }
    }
    for (size_t s = 0; s < graph->state_count; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_emit_copy(w->frame.program, w->frame.batch, size, rcvi_whole_view(r->adjoints[s], size),
                       second_slot(w, r->adjoints[s], size));
    }
}

static void write_adjoints_after(writer *w, reverse_pass *r, int64_t layer, int64_t direction) {
    const rcvi_graph *graph = r->emitter.graph;
    for (size_t s = 0; s < graph->state_count && !w->frame.program->failed; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_frame_write_dstates(&w->frame, s, layer, direction, rcvi_whole_view(r->adjoints[s], size),
                                 rcvi_whole_view(r->restarts[s], size));
    }
}

static bool new_reverse_pass(writer *w, int64_t layer, int64_t direction, reverse_pass *r) {
    rcvi_layer *l = &w->frame.net->layers[layer];
    size_t states = l->adjoint.state_count;
    rcvi_pool *pool = &w->frame.program->pool;
    const char *label =
        rcvi_pool_format(pool, "l%lld%s.", (long long)layer, rcvi_net_is_reversed(w->frame.net, direction) ? "r" : "");
    *r = (reverse_pass){.adjoints = rcvi_pool_new(pool, states, sizeof(int)),
                        .incoming = rcvi_pool_new(pool, states, sizeof(int)),
                        .restarts = rcvi_pool_new(pool, states, sizeof(int)),
                        .at_reset = rcvi_pool_new(pool, states, sizeof(int))};
    bool ok = rcvi_emitter_init(&r->emitter, w->frame.program, &l->adjoint, l->layouts[direction], label);
    return ok && !pool->failed;
}

static void write_backward(writer *w, int64_t layer, int64_t direction, int dy, int dx) {
    reverse_pass r;
    if (!new_reverse_pass(w, layer, direction, &r)) {
        w->frame.program->failed = true;
        rcvi_emitter_free(&r.emitter);
        return;
    }
    const rcvi_graph *graph = r.emitter.graph;
    write_adjoints_before(w, &r, layer, direction);
    view_inputs(w, &r, layer, direction, dy);
    rcvi_program_loop(w->frame.program, w->frame.steps);
    for (size_t s = 0; w->frame.ragged && s < graph->state_count; s++) {
        int64_t size = rcvi_state_size(graph, s);
        rcvi_emit_select(w->frame.program, w->frame.batch, size, reversed(w, length_mask(w, direction)),
                         rcvi_whole_view(r.incoming[s], size), rcvi_whole_view(r.adjoints[s], size), rcvi_no_view());
    }
    rcvi_emit_values(&r.emitter);
    rcvi_emit_gradients(&r.emitter);
    int64_t columns = w->frame.net->layers[layer].input;
    rcvi_view out = reversed(w, step_view(w, dx, columns, 0, is_reversed_into(w, layer, direction)));
    if (direction) {
        rcvi_emit_add(w->frame.program, w->frame.batch, columns, out, out, r.emitter.views[graph->outputs[0].value]);
    } else {
        rcvi_emit_result(&r.emitter, graph->outputs[0].value, out);
    }
    write_adjoint_states(w, &r, direction);
    rcvi_program_end_loop(w->frame.program);
    write_adjoints_after(w, &r, layer, direction);
    rcvi_emitter_free(&r.emitter);
}

static void write_backward_pass(writer *w) {
    int dy = rcvi_frame_write_dy(&w->frame);
    for (int64_t layer = w->frame.net->options.layers; layer-- > 0 && !w->frame.program->failed;) {
        int dx = rcvi_frame_buffer(&w->frame, w->frame.steps, rcvi_frame_width(&w->frame, layer), "dx%lld",
                                   (long long)layer);
        for (int64_t d = 0; d < w->frame.net->directions; d++) write_backward(w, layer, d, dy, dx);
        dy = rcvi_frame_has_dropout(&w->frame, layer)
                 ? rcvi_frame_write_dropout(&w->frame, layer, dx, rcvi_frame_width(&w->frame, layer), "ddropped",
                                            RCVI_EXACT)
                 : dx;
    }
    rcvi_frame_write_dx(&w->frame, dy);
}

/* ---- both ---- */

static void write_forward_pass(writer *w) {
    rcvi_frame *frame = &w->frame;
    rcvi_frame_write_masks(frame);
    rcvi_frame_write_input(frame);
    for (int64_t layer = 0; layer < frame->net->options.layers && !frame->program->failed; layer++) {
        if (rcvi_frame_has_dropout(frame, layer))
            frame->inputs[layer] =
                rcvi_frame_write_dropout(frame, layer, frame->inputs[layer], frame->rows[layer], "dropped", RCVI_EXACT);
        rcvi_frame_open_output(frame, layer);
        for (int64_t d = 0; d < frame->net->directions && !frame->program->failed; d++) write_forward(w, layer, d);
    }
    rcvi_frame_write_output(frame);
}

static void write(rcvi_program *program) {
    const rcv_net *net = program->net;
    rcv_context *context = program->pool.context;
    size_t passes = (size_t)(net->options.layers * net->directions);
    writer w = {.passes = rcvi_new(context, passes, sizeof *w.passes)};
    if (!w.passes) program->failed = true;
    if (rcvi_frame_init(&w.frame, program) && w.passes) {
        write_forward_pass(&w);
        program->forward_count = program->step_count;
        if (w.frame.training && !program->failed) write_backward_pass(&w);
    }
    for (size_t i = 0; w.passes && i < passes; i++) {
        if (w.passes[i].emitter.program) rcvi_emitter_free(&w.passes[i].emitter);
    }
    rcvi_free(context, w.passes);
    rcvi_frame_free(&w.frame);
}

static rcv_status applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                          const rcvi_machine *machine) {
    (void)net;
    RCVI_TRY(rcvi_rungs_check_device(rungs, machine->gpu));
    if (rungs->interpret) RCVI_TRY(rcvi_rungs_check_combination(rungs));
    if (options->dtype == RCV_BFLOAT16 && !machine->gpu)
        return rcvi_fail(RCV_UNSUPPORTED, "naive has no bfloat16: products in it need packed weights (add pack)");
    return RCV_OK;
}

static void variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                     void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    (void)net;
    (void)options;
    offer(user, &(rcvi_rungs){.interpret = machine->no_compiler != NULL, .steps = 1, .threads = 1});
}

const rcvi_schedule rcvi_schedule_naive = {.name = "naive", .applies = applies, .write = write, .variants = variants};

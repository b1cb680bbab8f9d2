/* The frame of a program: see frame.h. */
#include "schedule/frame.h"

#include <stdio.h>

bool rcvi_frame_init(rcvi_frame *f, rcvi_program *program) {
    const rcv_plan_options *options = &program->options;
    *f = (rcvi_frame){.program = program,
                      .net = program->net,
                      .steps = program->sizes.steps,
                      .batch = program->sizes.batch,
                      .training = options->training,
                      .ragged = options->lengths,
                      .resets = options->resets};
    f->inputs = rcvi_new(program->pool.context, (size_t)f->net->options.layers + 1, sizeof *f->inputs);
    f->rows = rcvi_new(program->pool.context, (size_t)f->net->options.layers + 1, sizeof *f->rows);
    if (!f->inputs || !f->rows) program->failed = true;
    return f->inputs && f->rows;
}

void rcvi_frame_free(rcvi_frame *f) {
    rcvi_free(f->program->pool.context, f->inputs);
    rcvi_free(f->program->pool.context, f->rows);
}

bool rcvi_frame_is_in_time_order(const rcvi_frame *f, int64_t layer) {
    return f->net->options.reverse && layer > 0 && layer < f->net->options.layers;
}

int64_t rcvi_frame_width(const rcvi_frame *f, int64_t layer) {
    return layer < f->net->options.layers ? f->net->layers[layer].input : rcv_net_output(f->net);
}

int rcvi_frame_buffer(rcvi_frame *f, int64_t slots, int64_t columns, const char *format, ...) {
    char name[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return rcvi_program_buffer(f->program, RCVI_ARENA, 0, RCVI_REAL,
                               rcvi_program_product(f->program, slots, f->batch, columns), "%s", name);
}

rcvi_view rcvi_whole_view(int buffer, int64_t columns) {
    return (rcvi_view){.buffer = buffer, .row = columns, .column = 1};
}

rcvi_view rcvi_state_block(rcvi_frame *f, rcvi_role role, size_t state, int64_t layer, int64_t direction,
                           int64_t size) {
    rcvi_view view = rcvi_whole_view(rcvi_program_external(f->program, role, state), size);
    view.offset = rcvi_state_offset(f->net, state, layer, direction) * f->batch;
    return view;
}

int64_t rcvi_state_size(const rcvi_graph *graph, size_t state) {
    return rcvi_features(graph, graph->states[state].size);
}

/* ---- masks and the input ---- */

static int write_mask(rcvi_frame *f, rcvi_step_kind kind, int64_t rows, rcvi_view a, rcvi_view b) {
    int buffer = rcvi_program_buffer(f->program, RCVI_ARENA, 0, RCVI_BYTE,
                                     rcvi_program_product(f->program, rows, f->batch, 1), "%s", rcvi_step_names[kind]);
    rcvi_step step = {.kind = kind,
                      .rows = f->steps,
                      .columns = f->batch,
                      .out = rcvi_whole_view(buffer, f->batch),
                      .a = a,
                      .b = b,
                      .mask = rcvi_no_view()};
    rcvi_program_step(f->program, &step);
    return buffer;
}

void rcvi_frame_write_masks(rcvi_frame *f) {
    rcvi_view none = rcvi_no_view(), lengths = none;
    if (f->ragged) {
        lengths = rcvi_whole_view(rcvi_program_external(f->program, RCVI_LENGTHS, 0), f->batch);
        f->length_mask = write_mask(f, RCVI_STEP_LIVE, f->steps, lengths, none);
    }
    if (f->resets) {
        rcvi_view resets = rcvi_whole_view(rcvi_program_external(f->program, RCVI_RESETS, 0), f->batch);
        f->reset_mask = write_mask(f, RCVI_STEP_BOUNDARY, f->steps + 1, resets, lengths);
    }
}

static int64_t row_of(const rcvi_frame *f, int64_t columns) {
    return f->pads_rows ? rcvi_program_row(f->program, columns) : columns;
}

/* Is x only the operand of products? */
static bool is_operand(const rcvi_graph *graph) {
    for (size_t v = 0; v < graph->value_count; v++) {
        const rcvi_value *value = &graph->values[v];
        bool matrix = value->operation == RCVI_MATRIX || value->operation == RCVI_MATRIX_TRANSPOSE;
        for (int a = 0; !matrix && a < rcvi_operations[value->operation].arguments; a++) {
            if (value->arguments[a] == graph->inputs[0].value) return false;
        }
    }
    return true;
}

/* May steps use the caller's array itself? Not where it has another type or order than they read and write. */
static bool is_usable(const rcvi_buffer *buffer) {
    return !buffer->is_batch_major && (buffer->element == RCVI_REAL || buffer->element == RCVI_ACTIVATION);
}

/* Do dy and dx have the caller's type, where that is the plan's 16-bit type? Not in a wavefront that is one kernel: its layers would have
 * several texts, since gradients between layers are exact, and a kernel of several texts has too few registers. */
bool rcvi_frame_rounds_ends(const rcvi_frame *f) {
    const rcvi_rungs *rungs = &f->program->rungs;
    bool one_kernel = rungs->persistent && rungs->wavefront && !rungs->forward_wave && f->net->options.layers > 1;
    return !one_kernel && rcvi_program_declared(f->program, f->program->options.data) == RCVI_ACTIVATION;
}

/* A buffer in place of the caller's data. Rounding changes nothing in it where the caller's type is the plan's 16-bit type. */
static int own_buffer(rcvi_frame *f, int64_t slots, int64_t row, rcvi_rounding rounding, const char *name) {
    int own = rcvi_frame_buffer(f, slots, row, "%s", name);
    bool rounded = rcvi_program_declared(f->program, f->program->options.data) == RCVI_ACTIVATION;
    if (!f->program->failed) f->program->buffers[own].rounding = rounded ? RCVI_ROUNDED : rounding;
    return own;
}

/* Values of x past a sequence's length may be anything, even NaN: they are replaced by zeros before any product. In a 16-bit type products
 * read a rounded copy anyway: where rows of x are not aligned, it is a padded copy here. x of another type or order is copied too. */
void rcvi_frame_write_input(rcvi_frame *f) {
    int64_t columns = rcvi_frame_width(f, 0), rows = f->steps * f->batch, row = row_of(f, columns);
    rcvi_view x = rcvi_whole_view(rcvi_program_external(f->program, RCVI_X, 0), columns);
    f->inputs[0] = x.buffer;
    f->rows[0] = columns;
    if (f->program->failed) return;
    bool operand = is_operand(&f->net->layers[0].forward), narrow = rcvi_dtype_is_narrow(f->program->options.dtype);
    const rcvi_buffer *theirs = &f->program->buffers[x.buffer];
    bool usable = is_usable(theirs) && (operand || theirs->element == RCVI_REAL);
    bool padded = row != columns && narrow && operand;
    if (!f->ragged && !padded && usable) return;
    int own = own_buffer(f, f->steps, row, RCVI_ROUNDED_AS_OPERAND, f->ragged ? "x.live" : "x.rows");
    if (f->ragged)
        rcvi_emit_select(f->program, rows, columns, rcvi_whole_view(f->length_mask, 1), rcvi_whole_view(own, row), x,
                         rcvi_no_view());
    else
        rcvi_emit_copy(f->program, rows, columns, rcvi_whole_view(own, row), x);
    f->inputs[0] = own;
    f->rows[0] = row;
}

/* The output of the last layer: y, or a buffer that rcvi_frame_write_output copies there. */
static int open_y(rcvi_frame *f, int64_t columns) {
    int y = rcvi_program_external(f->program, RCVI_Y, 0);
    if (f->program->failed) return y;
    rcvi_buffer *theirs = &f->program->buffers[y];
    if (!is_usable(theirs)) return own_buffer(f, f->steps, columns, RCVI_EXACT, "y.own");
    if (theirs->element == RCVI_ACTIVATION) theirs->rounding = RCVI_ROUNDED;
    return y;
}

void rcvi_frame_write_output(rcvi_frame *f) {
    int64_t layers = f->net->options.layers, columns = f->rows[layers];
    int y = rcvi_program_external(f->program, RCVI_Y, 0);
    if (f->program->failed || f->inputs[layers] == y) return;
    rcvi_emit_copy(f->program, f->steps * f->batch, columns, rcvi_whole_view(y, columns),
                   rcvi_whole_view(f->inputs[layers], columns));
}

/* Between layers the output is an activation, unless dropout follows: then the result of dropout is. */
void rcvi_frame_open_output(rcvi_frame *f, int64_t layer) {
    f->rows[layer + 1] = rcvi_frame_width(f, layer + 1);
    if (layer + 1 == f->net->options.layers) {
        f->inputs[layer + 1] = open_y(f, f->rows[layer + 1]);
        return;
    }
    f->rows[layer + 1] = row_of(f, f->rows[layer + 1]);
    int y = rcvi_frame_buffer(f, f->steps, f->rows[layer + 1], "y%lld", (long long)layer);
    bool rounds = !f->program->failed && !rcvi_frame_has_dropout(f, layer + 1);
    if (rounds) f->program->buffers[y].rounding = RCVI_ROUNDED;
    f->inputs[layer + 1] = y;
}

/* ---- dropout between layers ---- */

bool rcvi_frame_has_dropout(const rcvi_frame *f, int64_t layer) {
    return f->training && f->net->options.dropout > 0 && layer > 0;
}

int rcvi_frame_write_dropout(rcvi_frame *f, int64_t layer, int from, int64_t row, const char *name,
                             rcvi_rounding rounding) {
    int64_t columns = rcvi_frame_width(f, layer);
    int to = rcvi_frame_buffer(f, f->steps, row, "%s%lld", name, (long long)layer);
    if (!f->program->failed) f->program->buffers[to].rounding = rounding;
    rcvi_step step = {.kind = RCVI_STEP_DROPOUT,
                      .rows = f->steps * f->batch,
                      .columns = columns,
                      .out = rcvi_whole_view(to, row),
                      .a = rcvi_whole_view(from, row),
                      .b = rcvi_no_view(),
                      .mask = rcvi_no_view(),
                      .dropout = {.probability = f->net->options.dropout,
                                  .salt = (uint64_t)(f->net->first + layer),
                                  .period = f->net->options.variational ? f->batch : 0}};
    rcvi_program_step(f->program, &step);
    return to;
}

/* ---- masks of zoneout ---- */

bool rcvi_frame_has_random_zoneout(const rcvi_frame *f) { return f->training && !f->net->options.expected_zoneout; }

/* Different from the salts of dropout, which are layer numbers. */
static uint64_t zone_salt(int64_t layer, int64_t direction, size_t input) {
    return ((uint64_t)(2 * layer + direction) << 32) + ((uint64_t)1 << 31) + input;
}

int rcvi_frame_write_zone(rcvi_frame *f, int64_t layer, int64_t direction, size_t input) {
    const rcvi_graph_input *zone = &f->net->layers[layer].forward.inputs[input];
    int64_t columns = rcvi_features(&f->net->layers[layer].forward, zone->size);
    bool chance = rcvi_frame_has_random_zoneout(f);
    int64_t rows = chance ? rcvi_program_product(f->program, f->steps, f->batch, 1) : 1;
    int buffer =
        rcvi_program_buffer(f->program, RCVI_ARENA, 0, RCVI_REAL, rcvi_program_product(f->program, rows, columns, 1),
                            "l%lld%s.%s", (long long)layer, direction ? "r" : "", zone->name);
    rcvi_view out = rcvi_whole_view(buffer, columns);
    if (!chance) {
        rcvi_emit_fill(f->program, 1, columns, out, 1 - f->net->options.zoneout);
        return buffer;
    }
    if (!f->program->failed) f->program->buffers[buffer].rounding = RCVI_ROUNDED; /* 0 and 1 stay what they are */
    rcvi_step step = {.kind = RCVI_STEP_DROPOUT,
                      .rows = rows,
                      .columns = columns,
                      .out = out,
                      .a = rcvi_no_view(),
                      .b = rcvi_no_view(),
                      .mask = rcvi_no_view(),
                      .dropout = {.probability = f->net->options.zoneout,
                                  .salt = zone_salt(f->net->first + layer, direction, input)}};
    rcvi_program_step(f->program, &step);
    return buffer;
}

/* ---- begin and end of the backward pass ---- */

/* Gradients of parameters that a call overwrites begin with zeros, to which steps add. */
static void clear_gradients(rcvi_frame *f, int64_t offset, int64_t count) {
    if (!count) return;
    rcvi_emit_fill(f->program, 1, count, rcvi_program_parameters(f->program, RCVI_DPARAMETERS, offset, count), 0);
    if (!f->program->failed) f->program->steps[f->program->step_count - 1].when = RCVI_WHEN_OVERWRITING;
}

int rcvi_frame_write_dy(rcvi_frame *f) {
    int64_t rows = f->steps * f->batch, columns = rcvi_frame_width(f, f->net->options.layers);
    if (!f->program->options.separate_parameters) clear_gradients(f, 0, f->net->parameter_elements);
    for (size_t i = 0; f->program->options.separate_parameters && i < f->net->parameter_count; i++)
        clear_gradients(f, f->net->parameters[i].offset, f->net->parameters[i].count);
    int dy = rcvi_frame_buffer(f, f->steps, columns, "dy.all");
    if (!f->program->failed && rcvi_frame_rounds_ends(f)) f->program->buffers[dy].rounding = RCVI_ROUNDED;
    rcvi_emit_copy(f->program, rows, columns, rcvi_whole_view(dy, columns),
                   rcvi_whole_view(rcvi_program_external(f->program, RCVI_DY, 0), columns));
    if (f->ragged) {
        rcvi_emit_select(f->program, rows, columns, rcvi_whole_view(f->length_mask, 1), rcvi_whole_view(dy, columns),
                         rcvi_whole_view(dy, columns), rcvi_no_view());
    }
    return dy;
}

void rcvi_frame_write_dx(rcvi_frame *f, int dx) {
    int64_t rows = f->steps * f->batch, columns = rcvi_frame_width(f, 0);
    rcvi_emit_copy(f->program, rows, columns, rcvi_whole_view(rcvi_program_external(f->program, RCVI_DX, 0), columns),
                   rcvi_whole_view(dx, columns));
}

void rcvi_frame_write_dstates(rcvi_frame *f, size_t state, int64_t layer, int64_t direction, rcvi_view first,
                              rcvi_view sum) {
    int64_t size = rcvi_state_size(&f->net->layers[layer].forward, state);
    rcvi_view restart = rcvi_state_block(f, RCVI_DRESTART, state, layer, direction, size);
    if (f->resets) {
        rcvi_emit_copy(f->program, f->batch, size, restart, sum);
        rcvi_emit_add(f->program, f->batch, size, first, first, sum);
        if (!f->program->failed) {
            f->program->steps[f->program->step_count - 1].when = RCVI_WHEN_RESTART_IS_INITIAL;
            f->program->steps[f->program->step_count - 1].state = state;
        }
    } else {
        rcvi_emit_fill(f->program, f->batch, size, restart, 0);
    }
    rcvi_emit_copy(f->program, f->batch, size, rcvi_state_block(f, RCVI_DINITIAL, state, layer, direction, size),
                   first);
}

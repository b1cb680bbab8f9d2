/* Writing programs, and what their steps access. */
#include "program/program.h"

#include <stdio.h>
#include <string.h>

const rcvi_role_info rcvi_roles[RCVI_ROLE_COUNT] = {
    [RCVI_ARENA] = {"arena", false, true},
    [RCVI_PARAMETERS] = {"parameters", false, false},
    [RCVI_X] = {"x", false, false},
    [RCVI_LENGTHS] = {"lengths", false, false},
    [RCVI_RESETS] = {"resets", false, false},
    [RCVI_Y] = {"y", false, true},
    [RCVI_INITIAL] = {"initial", true, false},
    [RCVI_RESTART] = {"restart", true, false},
    [RCVI_FINAL] = {"final", true, true},
    [RCVI_DY] = {"dy", true, false},
    [RCVI_DFINAL] = {"dfinal", true, false},
    [RCVI_DX] = {"dx", true, true},
    [RCVI_DINITIAL] = {"dinitial", true, true},
    [RCVI_DRESTART] = {"drestart", true, true},
    [RCVI_DPARAMETERS] = {"dparameters", true, true},
};

const char *const rcvi_step_names[] = {"loop",    "gemm", "map",      "reduce", "copy",   "fill",       "select",
                                       "dropout", "live", "boundary", "pack",   "vendor", "communicate"};

void rcvi_program_init(rcvi_program *program, const rcv_net *net, const rcv_plan_options *options,
                       const rcvi_rungs *rungs, const rcvi_machine *machine) {
    *program = (rcvi_program){
        .net = net, .options = *options, .rungs = *rungs, .machine = *machine, .layer = RCVI_NONE, .time = {.span = 1}};
    program->sizes = (rcvi_sizes){.steps = options->steps, .batch = options->batch};
    rcvi_pool_init(&program->pool, net->context);
}

void rcvi_program_free(rcvi_program *program) {
    if (!program->pool.context) return;
    rcvi_free(program->pool.context, program->buffers);
    rcvi_free(program->pool.context, program->externals);
    rcvi_free(program->pool.context, program->steps);
    rcvi_pool_free(&program->pool);
    *program = (rcvi_program){0};
}

size_t rcvi_element_bytes(const rcvi_program *program, rcvi_element element) {
    rcv_dtype dtype = program->options.dtype;
    switch (element) {
    case RCVI_REAL: return rcv_dtype_bytes(rcvi_dtype_is_narrow(dtype) ? RCV_FLOAT32 : dtype);
    case RCVI_PACKED:
    case RCVI_ACTIVATION: return rcv_dtype_bytes(dtype);
    case RCVI_AS_FLOAT32: return 4;
    case RCVI_AS_FLOAT16:
    case RCVI_AS_BFLOAT16: return 2;
    case RCVI_BYTE: return 1;
    default: return 8;
    }
}

int rcvi_program_buffer(rcvi_program *program, rcvi_role role, size_t index, rcvi_element element, int64_t count,
                        const char *format, ...) {
    char name[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (count < 0 || count > INT64_MAX / 64) program->oversized = program->failed = true;
    const char *kept = rcvi_pool_text(&program->pool, name, strlen(name));
    if (program->failed || !kept ||
        !rcvi_grow(program->pool.context, &program->buffers, &program->buffer_capacity, program->buffer_count + 1,
                   sizeof *program->buffers)) {
        program->failed = true;
        return RCVI_NONE;
    }
    program->buffers[program->buffer_count] =
        (rcvi_buffer){.name = kept, .role = role, .index = index, .element = element, .count = count};
    return (int)program->buffer_count++;
}

int64_t rcvi_program_product(rcvi_program *program, int64_t a, int64_t b, int64_t c) {
    int64_t result = 0;
    if (!rcvi_multiply(a, b, &result) || !rcvi_multiply(result, c, &result))
        program->oversized = program->failed = true;
    return result;
}

static int64_t round_up(int64_t a, int64_t multiple) { return (a + multiple - 1) / multiple * multiple; }

int64_t rcvi_program_packed(rcvi_program *program, int64_t columns, int64_t depth) {
    return rcvi_program_product(program, round_up(columns, program->machine.panel),
                                round_up(depth, program->machine.group), 1);
}

rcvi_element rcvi_program_declared(const rcvi_program *program, rcv_array_type declared) {
    static const rcvi_element elements[] = {[RCV_AS_PLAN] = RCVI_REAL,
                                            [RCV_AS_FLOAT32] = RCVI_AS_FLOAT32,
                                            [RCV_AS_FLOAT64] = RCVI_AS_FLOAT64,
                                            [RCV_AS_FLOAT16] = RCVI_AS_FLOAT16,
                                            [RCV_AS_BFLOAT16] = RCVI_AS_BFLOAT16};
    rcv_dtype dtype = program->options.dtype;
    if (declared == (dtype == RCV_FLOAT64 ? RCV_AS_FLOAT64 : RCV_AS_FLOAT32)) return RCVI_REAL;
    bool narrow = rcvi_dtype_is_narrow(dtype) && (int)declared == 1 + (int)dtype;
    return narrow ? RCVI_ACTIVATION : elements[declared];
}

int rcvi_program_external(rcvi_program *program, rcvi_role role, size_t index) {
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (buffer->role == role && buffer->index == index) return program->externals[i];
    }
    const rcv_net *net = program->net;
    int64_t steps = program->sizes.steps, batch = program->sizes.batch, count = 0;
    rcvi_element element = RCVI_REAL, data = rcvi_program_declared(program, program->options.data);
    bool by_step = false; /* it has rows for every step and sequence */
    const char *part = "";
    switch (role) {
    case RCVI_PARAMETERS:
    case RCVI_DPARAMETERS:
        element = rcvi_program_declared(program, role == RCVI_PARAMETERS ? program->options.parameters
                                                                         : program->options.gradients);
        count = program->options.separate_parameters ? net->parameters[index].count : net->parameter_elements;
        if (program->options.separate_parameters) part = net->parameters[index].name;
        break;
    case RCVI_X:
    case RCVI_DX:
        count = rcvi_program_product(program, steps, batch, net->options.input);
        element = data;
        by_step = true;
        break;
    case RCVI_Y:
    case RCVI_DY:
        count = rcvi_program_product(program, steps, batch, rcv_net_output(net));
        element = data;
        by_step = true;
        break;
    case RCVI_LENGTHS:
        count = batch;
        element = RCVI_INDEX;
        break;
    case RCVI_RESETS:
        count = rcvi_program_product(program, steps, batch, 1);
        element = RCVI_BYTE;
        by_step = true;
        break;
    default:
        count = rcvi_program_product(program, net->states[index].total, batch, 1);
        element = rcvi_program_declared(program, program->options.states);
        part = net->states[index].name;
    }
    int buffer = rcvi_program_buffer(program, role, index, element, count, "%s%s%s", rcvi_roles[role].name,
                                     *part ? "." : "", part);
    if (!rcvi_grow(program->pool.context, &program->externals, &program->external_capacity, program->external_count + 1,
                   sizeof *program->externals)) {
        program->failed = true;
    }
    if (program->failed) return RCVI_NONE;
    program->buffers[buffer].is_batch_major = by_step && program->options.batch_major;
    program->externals[program->external_count++] = buffer;
    return buffer;
}

bool rcvi_program_is_one_array(const rcvi_program *program, int64_t offset, int64_t other) {
    return !program->options.separate_parameters ||
           rcvi_net_tensor_at(program->net, offset) == rcvi_net_tensor_at(program->net, other);
}

rcvi_view rcvi_program_parameters(rcvi_program *program, rcvi_role role, int64_t offset, int64_t columns) {
    const rcv_net *net = program->net;
    bool separate = program->options.separate_parameters;
    size_t tensor = separate ? rcvi_net_tensor_at(net, offset) : 0;
    int buffer = rcvi_program_external(program, role, tensor);
    if (separate) offset -= net->parameters[tensor].offset;
    return (rcvi_view){.buffer = buffer, .offset = offset, .row = columns, .column = 1};
}

int64_t rcvi_program_row(const rcvi_program *program, int64_t columns) {
    int64_t each = 16 / (int64_t)rcvi_element_bytes(program, RCVI_ACTIVATION);
    return program->machine.gpu ? (columns + each - 1) / each * each : columns;
}

void rcvi_program_step(rcvi_program *program, const rcvi_step *step) {
    if (program->failed) return;
    if (!rcvi_grow(program->pool.context, &program->steps, &program->step_capacity, program->step_count + 1,
                   sizeof *program->steps)) {
        program->failed = true;
        return;
    }
    rcvi_step *written = &program->steps[program->step_count++];
    *written = *step;
    written->layer = program->layer;
    written->direction = program->direction;
    written->time = program->time;
}

void rcvi_program_loop(rcvi_program *program, int64_t count) {
    rcvi_view none = rcvi_no_view();
    rcvi_step step = {
        .kind = RCVI_STEP_LOOP, .out = none, .a = none, .b = none, .mask = none, .loop = {.count = count}};
    program->open_loops[program->open_loop_count++] = (int)program->step_count;
    rcvi_program_step(program, &step);
}

void rcvi_program_end_loop(rcvi_program *program) {
    int loop = program->open_loops[--program->open_loop_count];
    if (!program->failed) program->steps[loop].loop.body = (int)program->step_count - loop - 1;
}

bool rcvi_step_is_due(const rcvi_program *program, const rcvi_step *step, int64_t inner, int64_t outer, int64_t *time,
                      int64_t *span) {
    const rcvi_time *when = &step->time;
    *span = 1;
    *time = when->timed ? when->base + inner * when->inner + outer * when->outer : inner;
    if (!when->timed) return true;
    int64_t left = program->sizes.steps - *time;
    *span = when->span < left ? when->span : left;
    return *time >= 0 && left > 0;
}

static rcvi_access *access_view(rcvi_access *accesses, int *count, const rcvi_view *view, int64_t rows, int64_t columns,
                                bool written, bool read, rcvi_use use) {
    rcvi_access *access = &accesses[*count];
    *access = (rcvi_access){view, rows, columns, written, read, true, use};
    if (view->buffer != RCVI_NONE) ++*count;
    return access;
}

/* Programs that were not verified yet may name operands that are not there. */
static void mark(const rcvi_map *map, bool *operands, int index) {
    if (index >= 0 && index < map->operand_count) operands[index] = true;
}

/* Which operands of a map are written, and which are read. A value that was stored before is read from its register, never from the view. */
static void find_uses(const rcvi_map *map, bool *written, bool *read) {
    memset(written, 0, (size_t)map->operand_count * sizeof *written);
    memset(read, 0, (size_t)map->operand_count * sizeof *read);
    for (int p = 0; p < map->product_count; p++) mark(map, written, map->products[p].out);
    for (int k = 0; k < map->store_count; k++) mark(map, written, map->stores[k].out);
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        mark(map, written, instruction->out);
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_VIEW) mark(map, read, instruction->source[a]);
        }
    }
}

static int map_accesses(const rcvi_step *step, rcvi_access *accesses) {
    int count = 0;
    const rcvi_map *map = step->map;
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        access_view(accesses, &count, &product->start, step->rows, step->columns, false, true, RCVI_USE_OTHER);
        for (int i = 0; i < product->term_count; i++) {
            const rcvi_view *b = &product->terms[i].b;
            access_view(accesses, &count, &product->terms[i].a, step->rows, product->terms[i].depth, false, true,
                        RCVI_USE_OPERAND);
            int64_t depth = product->terms[i].depth;
            bool transposed = product->terms[i].transposed;
            if (product->terms[i].plain)
                access_view(accesses, &count, b, transposed ? depth : step->columns, transposed ? step->columns : depth,
                            false, true, RCVI_USE_OTHER)
                    ->spans = false;
            else
                access_view(accesses, &count, b, 1, b->row, false, true, RCVI_USE_OTHER)->spans = false;
        }
    }
    bool written[RCVI_MAX_OPERANDS], read[RCVI_MAX_OPERANDS];
    find_uses(map, written, read);
    for (int i = 0; i < map->operand_count; i++)
        access_view(accesses, &count, &map->operands[i], step->rows, step->columns, written[i], read[i],
                    RCVI_USE_VALUE);
    return count;
}

/* The view as one row. */
static void access_whole(rcvi_access *accesses, int *count, const rcvi_view *view, bool written) {
    access_view(accesses, count, view, 1, view->row, written, !written, RCVI_USE_OTHER)->spans = false;
}

int rcvi_step_accesses(const rcvi_step *step, rcvi_access *accesses) {
    int64_t rows = step->rows, columns = step->columns;
    int count = 0;
    switch (step->kind) {
    case RCVI_STEP_LOOP: break;
    case RCVI_STEP_MAP: return map_accesses(step, accesses);
    case RCVI_STEP_GEMM: {
        int64_t depth = step->gemm.depth;
        bool ta = step->gemm.transpose_a, tb = step->gemm.transpose_b;
        access_view(accesses, &count, &step->out, rows, columns, true, step->accumulate, RCVI_USE_OTHER)->spans = !ta;
        access_view(accesses, &count, &step->a, ta ? depth : rows, ta ? rows : depth, false, true, RCVI_USE_OPERAND);
        access_view(accesses, &count, &step->b, tb ? columns : depth, tb ? depth : columns, false, true,
                    RCVI_USE_OPERAND)
            ->spans = ta;
        if (step->gemm.start)
            access_view(accesses, &count, step->gemm.start, 1, columns, false, true, RCVI_USE_OTHER)->spans = false;
        break;
    }
    case RCVI_STEP_REDUCE: {
        bool over_rows = step->reduce.over_rows;
        access_view(accesses, &count, &step->out, over_rows ? 1 : rows, over_rows ? columns : 1, true, step->accumulate,
                    RCVI_USE_OTHER)
            ->spans = !over_rows;
        access_view(accesses, &count, &step->a, rows, columns, false, true,
                    over_rows ? RCVI_USE_OPERAND : RCVI_USE_VALUE);
        break;
    }
    case RCVI_STEP_LIVE:
        access_view(accesses, &count, &step->out, rows, columns, true, false, RCVI_USE_OTHER);
        access_view(accesses, &count, &step->a, 1, columns, false, true, RCVI_USE_OTHER); /* lengths */
        break;
    case RCVI_STEP_BOUNDARY:
        access_view(accesses, &count, &step->out, rows + 1, columns, true, false, RCVI_USE_OTHER);
        access_view(accesses, &count, &step->a, rows, columns, false, true, RCVI_USE_OTHER); /* resets */
        access_view(accesses, &count, &step->b, 1, columns, false, true,
                    RCVI_USE_OTHER); /* lengths, where there are any */
        break;
    case RCVI_STEP_PACK: /* which rounds, as products do */
        access_whole(accesses, &count, &step->out, true);
        access_view(accesses, &count, &step->a, rows, columns, false, true, RCVI_USE_OPERAND);
        break;
    case RCVI_STEP_COMMUNICATE: /* later steps on the same gradients may not move before it */
        access_view(accesses, &count, &step->out, rows, columns, true, true, RCVI_USE_OTHER);
        break;
    case RCVI_STEP_VENDOR:
        access_whole(accesses, &count, &step->out, true);
        access_whole(accesses, &count, &step->a, false);
        access_whole(accesses, &count, &step->b, false);
        break;
    default:
        access_view(accesses, &count, &step->out, rows, columns, true, step->accumulate, RCVI_USE_VALUE);
        access_view(accesses, &count, &step->a, rows, columns, false, true, RCVI_USE_VALUE);
        access_view(accesses, &count, &step->b, rows, columns, false, true, RCVI_USE_VALUE);
        access_view(accesses, &count, &step->mask, rows, 1, false, true, RCVI_USE_OTHER);
    }
    return count;
}

bool rcvi_step_is_deferrable(const rcvi_program *program, const rcvi_step *step) {
    bool sums = step->kind == RCVI_STEP_GEMM || step->kind == RCVI_STEP_REDUCE;
    if (step->when == RCVI_WHEN_PARAMETERS_CHANGED) return true;
    return sums && rcvi_buffer_is_gradient(&program->buffers[step->out.buffer]);
}

bool rcvi_program_is_persistent(const rcvi_program *program, size_t loop) {
    const rcvi_step *steps = program->steps;
    bool products = false;
    if (!program->rungs.persistent || steps[loop].kind != RCVI_STEP_LOOP) return false;
    for (size_t i = loop + 1; i <= loop + (size_t)steps[loop].loop.body; i++) {
        if (steps[i].kind == RCVI_STEP_LOOP) return false;
        products |= steps[i].kind == RCVI_STEP_MAP && steps[i].map->product_count > 0;
    }
    return products;
}

bool rcvi_program_is_scan(const rcvi_program *program, size_t loop) {
    const rcvi_step *steps = program->steps;
    if (!program->rungs.scan || !program->machine.gpu || steps[loop].kind != RCVI_STEP_LOOP) return false;
    for (size_t i = loop + 1; i <= loop + (size_t)steps[loop].loop.body; i++) {
        bool map = steps[i].kind == RCVI_STEP_MAP && !steps[i].map->product_count;
        bool move =
            steps[i].kind == RCVI_STEP_SELECT || steps[i].kind == RCVI_STEP_COPY || steps[i].kind == RCVI_STEP_FILL;
        if (!map && !move) return false;
    }
    return true;
}

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

const char *const rcvi_step_names[] = {"loop", "gemm",   "map",     "reduce", "copy",
                                       "fill", "select", "dropout", "live",   "boundary"};

void rcvi_program_init(rcvi_program *program, const rcv_net *net, const rcv_plan_options *options) {
    *program = (rcvi_program){.net = net, .options = *options, .open_loop = RCVI_NONE};
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
    return element == RCVI_REAL ? rcv_dtype_bytes(program->options.dtype) : element == RCVI_BYTE ? 1 : 8;
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

int rcvi_program_external(rcvi_program *program, rcvi_role role, size_t index) {
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (buffer->role == role && buffer->index == index) return program->externals[i];
    }
    const rcv_net *net = program->net;
    int64_t steps = program->options.steps, batch = program->options.batch, count = 0;
    rcvi_element element = RCVI_REAL;
    const char *state = "";
    switch (role) {
    case RCVI_PARAMETERS:
    case RCVI_DPARAMETERS: count = net->parameter_elements; break;
    case RCVI_X:
    case RCVI_DX: count = rcvi_program_product(program, steps, batch, net->options.input); break;
    case RCVI_Y:
    case RCVI_DY: count = rcvi_program_product(program, steps, batch, rcv_net_output(net)); break;
    case RCVI_LENGTHS:
        count = batch;
        element = RCVI_INDEX;
        break;
    case RCVI_RESETS:
        count = rcvi_program_product(program, steps, batch, 1);
        element = RCVI_BYTE;
        break;
    default: count = rcvi_program_product(program, net->states[index].total, batch, 1); state = net->states[index].name;
    }
    int buffer = rcvi_program_buffer(program, role, index, element, count, "%s%s%s", rcvi_roles[role].name,
                                     *state ? "." : "", state);
    if (!rcvi_grow(program->pool.context, &program->externals, &program->external_capacity, program->external_count + 1,
                   sizeof *program->externals)) {
        program->failed = true;
    }
    if (program->failed) return RCVI_NONE;
    program->externals[program->external_count++] = buffer;
    return buffer;
}

void rcvi_program_step(rcvi_program *program, const rcvi_step *step) {
    if (program->failed) return;
    if (!rcvi_grow(program->pool.context, &program->steps, &program->step_capacity, program->step_count + 1,
                   sizeof *program->steps)) {
        program->failed = true;
        return;
    }
    program->steps[program->step_count++] = *step;
}

void rcvi_program_loop(rcvi_program *program, int64_t count) {
    rcvi_view none = rcvi_no_view();
    rcvi_step step = {
        .kind = RCVI_STEP_LOOP, .out = none, .a = none, .b = none, .mask = none, .loop = {.count = count}};
    program->open_loop = (int)program->step_count;
    rcvi_program_step(program, &step);
}

void rcvi_program_end_loop(rcvi_program *program) {
    if (!program->failed)
        program->steps[program->open_loop].loop.body = (int)program->step_count - program->open_loop - 1;
    program->open_loop = RCVI_NONE;
}

static void access_view(rcvi_access *accesses, int *count, const rcvi_view *view, int64_t rows, int64_t columns,
                        bool written, bool read) {
    if (view->buffer != RCVI_NONE) accesses[(*count)++] = (rcvi_access){view, rows, columns, written, read};
}

static int map_accesses(const rcvi_step *step, rcvi_access *accesses) {
    int count = 0;
    for (int i = 0; i < step->map->operand_count; i++) {
        bool written = false, read = false;
        for (int k = 0; k < step->map->instruction_count; k++) {
            const rcvi_instruction *instruction = &step->map->instructions[k];
            written |= instruction->out == i;
            for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
                /* a value that was stored before is read back from its register, never from the view */
                read |= instruction->from[a] == RCVI_FROM_VIEW && instruction->source[a] == i;
            }
        }
        access_view(accesses, &count, &step->map->operands[i], step->rows, step->columns, written, read);
    }
    return count;
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
        access_view(accesses, &count, &step->out, rows, columns, true, step->accumulate);
        access_view(accesses, &count, &step->a, ta ? depth : rows, ta ? rows : depth, false, true);
        access_view(accesses, &count, &step->b, tb ? columns : depth, tb ? depth : columns, false, true);
        break;
    }
    case RCVI_STEP_REDUCE:
        access_view(accesses, &count, &step->out, step->reduce.over_rows ? 1 : rows,
                    step->reduce.over_rows ? columns : 1, true, step->accumulate);
        access_view(accesses, &count, &step->a, rows, columns, false, true);
        break;
    case RCVI_STEP_LIVE:
        access_view(accesses, &count, &step->out, rows, columns, true, false);
        access_view(accesses, &count, &step->a, 1, columns, false, true); /* lengths */
        break;
    case RCVI_STEP_BOUNDARY:
        access_view(accesses, &count, &step->out, rows + 1, columns, true, false);
        access_view(accesses, &count, &step->a, rows, columns, false, true); /* resets */
        access_view(accesses, &count, &step->b, 1, columns, false, true);    /* lengths, where there are any */
        break;
    default:
        access_view(accesses, &count, &step->out, rows, columns, true, false);
        access_view(accesses, &count, &step->a, rows, columns, false, true);
        access_view(accesses, &count, &step->b, rows, columns, false, true);
        access_view(accesses, &count, &step->mask, rows, 1, false, true);
    }
    return count;
}

#include "program/program.h"

#include <string.h>

typedef struct {
    const rcvi_program *program;
    bool *written; /* [buffers] */
} verifier;

static rcv_status wrong(int step, const char *step_name, const char *buffer, const char *what) {
    return rcvi_fail(RCV_INVALID, "step %d (%s) of the program %s %s", step, step_name, what, buffer);
}

static int64_t least(int64_t a) { return a < 0 ? a : 0; }
static int64_t most(int64_t a) { return a > 0 ? a : 0; }

/* Whether the view stays inside its buffer in all iterations: the extremes are at the corners. */
static bool fits(const rcvi_program *program, const rcvi_access *access, const rcvi_step *step, int64_t iterations) {
    const rcvi_view *v = access->view;
    int64_t batch = 0;
    if (step->kind == RCVI_STEP_GEMM) {
        int64_t move = v == &step->out ? step->gemm.step_out : v == &step->a ? step->gemm.step_a : step->gemm.step_b;
        batch = (step->gemm.batch - 1) * move;
    }
    int64_t moves[] = {(iterations - 1) * v->stride, (access->rows - 1) * v->row, (access->columns - 1) * v->column,
                       batch};
    int64_t low = v->offset, high = v->offset;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        low += least(moves[i]);
        high += most(moves[i]);
    }
    return low >= 0 && high < program->buffers[v->buffer].count;
}

static rcv_status check_access(verifier *v, int index, const rcvi_access *access, int64_t iterations) {
    const rcvi_program *program = v->program;
    const rcvi_step *step = &program->steps[index];
    const char *name = rcvi_step_names[step->kind];
    if (access->view->buffer < 0 || access->view->buffer >= (int)program->buffer_count) {
        return wrong(index, name, "does not exist", "names a buffer that");
    }
    const rcvi_buffer *buffer = &program->buffers[access->view->buffer];
    const rcvi_role_info *role = &rcvi_roles[buffer->role];
    if (access->rows < 1 || access->columns < 1) return wrong(index, name, buffer->name, "has an empty view of");
    bool unit =
        access->view->column == 1 || (access->view->column == 0 && step->kind != RCVI_STEP_GEMM && !access->written);
    if (!unit) return wrong(index, name, buffer->name, "needs contiguous columns of");
    if (!fits(program, access, step, iterations)) return wrong(index, name, buffer->name, "reaches outside");
    if (access->written && !role->written) return wrong(index, name, buffer->name, "writes the caller's");
    if (access->written && (access->view->row == 0 && access->rows > 1))
        return wrong(index, name, buffer->name, "writes rows twice in");
    if (access->read && role->optional && step->kind != RCVI_STEP_COPY && buffer->role != RCVI_DPARAMETERS &&
        !(access->written && access->read)) {
        return wrong(index, name, buffer->name, "may copy only, but computes with");
    }
    bool given = !role->written || (buffer->role == RCVI_DPARAMETERS);
    if (access->read && !given && !v->written[access->view->buffer])
        return wrong(index, name, buffer->name, "reads before it is written");
    return RCV_OK;
}

static rcv_status check_elements(const verifier *v, int index) {
    const rcvi_step *step = &v->program->steps[index];
    const rcvi_view *views[] = {&step->out, &step->a, &step->b, &step->mask};
    bool mask_step = step->kind == RCVI_STEP_LIVE || step->kind == RCVI_STEP_BOUNDARY;
    if (step->kind == RCVI_STEP_LOOP || step->kind == RCVI_STEP_MAP) return RCV_OK;
    for (int i = 0; i < 4; i++) {
        if (views[i]->buffer == RCVI_NONE) continue;
        const rcvi_buffer *buffer = &v->program->buffers[views[i]->buffer];
        bool expects_byte = i == 3 || (mask_step && i == 0) || (step->kind == RCVI_STEP_BOUNDARY && i == 1);
        bool expects_index = (step->kind == RCVI_STEP_LIVE && i == 1) || (step->kind == RCVI_STEP_BOUNDARY && i == 2);
        rcvi_element expected = expects_byte ? RCVI_BYTE : expects_index ? RCVI_INDEX : RCVI_REAL;
        if (buffer->element != expected)
            return wrong(index, rcvi_step_names[step->kind], buffer->name, "expects another element type in");
    }
    return RCV_OK;
}

static rcv_status check_map(int index, const rcvi_step *step) {
    const char *name = rcvi_step_names[step->kind];
    const rcvi_map *map = step->map;
    if (map->operand_count > RCVI_MAX_OPERANDS || map->instruction_count < 1 ||
        map->instruction_count > RCVI_MAX_INSTRUCTIONS) {
        return wrong(index, name, "operands or instructions", "has too many");
    }
    if (map->instructions[map->instruction_count - 1].out == RCVI_NONE) {
        return wrong(index, name, "its last value", "does not store");
    }
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        if (!rcvi_operations[instruction->operation].elementwise)
            return wrong(index, name, "element by element", "holds an operation that is not");
        if (instruction->out != RCVI_NONE && (instruction->out < 0 || instruction->out >= map->operand_count)) {
            return wrong(index, name, "it does not have", "stores to a view");
        }
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            bool bad = (instruction->from[a] == RCVI_FROM_REGISTER &&
                        (instruction->source[a] < 0 || instruction->source[a] >= k)) ||
                       (instruction->from[a] == RCVI_FROM_VIEW &&
                        (instruction->source[a] < 0 || instruction->source[a] >= map->operand_count));
            if (bad) return wrong(index, name, "it has not computed", "uses a value");
        }
    }
    return RCV_OK;
}

static rcv_status check_steps(verifier *v) {
    const rcvi_program *program = v->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int64_t iterations = 1;
    int body_end = -1;
    for (int i = 0; i < (int)program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (i > body_end) iterations = 1;
        if (step->kind == RCVI_STEP_LOOP) {
            if (i <= body_end) return wrong(i, "loop", "another", "lies inside");
            body_end = i + step->loop.body;
            iterations = step->loop.count;
            bool crosses = body_end >= (int)program->step_count ||
                           ((size_t)i < program->forward_count && (size_t)body_end >= program->forward_count);
            if (step->loop.body < 1 || iterations < 1 || crosses)
                return wrong(i, "loop", "of the program", "has a body outside");
            continue;
        }
        if (step->kind == RCVI_STEP_MAP) {
            rcv_status status = check_map(i, step);
            if (status) return status;
        }
        rcv_status status = check_elements(v, i);
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; !status && k < count; k++) status = check_access(v, i, &accesses[k], iterations);
        if (status) return status;
        for (int k = 0; k < count; k++) {
            if (accesses[k].written) v->written[accesses[k].view->buffer] = true;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_program_verify(const rcvi_program *program) {
    verifier v = {program, rcvi_new(program->pool.context, program->buffer_count, sizeof(bool))};
    if (!v.written) return RCV_NO_MEMORY;
    rcv_status status = check_steps(&v);
    if (!status) status = rcvi_program_check_arena(program);
    rcvi_free(program->pool.context, v.written);
    return status;
}

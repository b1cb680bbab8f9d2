/* Which steps write the gradients of parameters. */
#include "program/program.h"

/* The elements first .. end - 1 of the gradients that a step adds to; false where they are not contiguous, or the step is conditional
 * or covers a part of time. */
static bool find_gradient_range(const rcvi_step *step, int64_t *first, int64_t *end) {
    const rcvi_view *out = &step->out;
    bool product = step->kind == RCVI_STEP_GEMM, sum = step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows;
    if ((!product && !sum) || !step->accumulate || step->time.timed || step->when != RCVI_ALWAYS) return false;
    int64_t rows = product ? step->rows : 1, batch = product ? step->gemm.batch : 1, size = rows * step->columns;
    *first = out->offset;
    *end = out->offset + batch * size;
    return out->column == 1 && !out->stride && !out->outer && !out->wrap && (rows == 1 || out->row == step->columns) &&
           (batch == 1 || step->gemm.step_out == size);
}

bool rcvi_program_covers_gradients(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int64_t left = program->net->parameter_elements, first, end, other_first, other_end;
    size_t loop_end = 0;
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= loop_end) loop_end = i + 1 + (size_t)step->loop.body;
        int count = rcvi_step_accesses(step, accesses);
        bool touches = false;
        for (int k = 0; k < count; k++) touches |= rcvi_buffer_is_gradient(&program->buffers[accesses[k].view->buffer]);
        bool clears = step->when == RCVI_WHEN_OVERWRITING || step->when == RCVI_WHEN_ADDING;
        bool converts = step->kind == RCVI_STEP_COPY && step->accumulate;
        if (!touches || clears || converts || step->kind == RCVI_STEP_COMMUNICATE) continue;
        if (i < loop_end || !find_gradient_range(step, &first, &end)) return false;
        for (size_t j = program->forward_count; j < i; j++) {
            const rcvi_step *other = &program->steps[j];
            if (other->out.buffer != step->out.buffer || !find_gradient_range(other, &other_first, &other_end))
                continue;
            if (first < other_end && other_first < end) return false;
        }
        left -= end - first;
    }
    return left == 0;
}

/* Narrowing: in plans of a 16-bit type, buffers whose values may be rounded are stored in that type, as activations. */
#include "program/program.h"

bool rcvi_program_rounds_sum(const rcvi_program *program, const rcvi_step *step, const rcvi_access *access) {
    bool gradient = program->buffers[access->view->buffer].role == RCVI_DPARAMETERS && access->view == &step->out;
    if (!program->machine.gemm_writes_activations) return false;
    if (gradient) return step->kind == RCVI_STEP_GEMM || step->kind == RCVI_STEP_REDUCE;
    return program->rungs.scan && step->kind == RCVI_STEP_GEMM &&
           (access->view == &step->out || access->view == step->gemm.start);
}

void rcvi_program_narrow(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    if (!rcvi_dtype_is_narrow(program->options.dtype)) return;
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            rcvi_buffer *buffer = &program->buffers[accesses[k].view->buffer];
            bool shows = accesses[k].read && accesses[k].use != RCVI_USE_OPERAND;
            if (buffer->rounding == RCVI_ROUNDED && rcvi_program_rounds_sum(program, &program->steps[i], &accesses[k]))
                continue;
            if (accesses[k].use == RCVI_USE_OTHER || (buffer->rounding == RCVI_ROUNDED_AS_OPERAND && shows))
                buffer->rounding = RCVI_EXACT;
        }
    }
    for (size_t b = 0; b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        bool real = buffer->role == RCVI_ARENA && buffer->element == RCVI_REAL;
        if (real && buffer->rounding != RCVI_EXACT) buffer->element = RCVI_ACTIVATION;
    }
}

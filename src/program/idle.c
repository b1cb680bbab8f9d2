/* Steps whose results nobody wants. */
#include "program/program.h"

static void note_reads(const rcvi_step *step, bool *wanted) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    for (int k = 0; k < count; k++) {
        if (accesses[k].read) wanted[accesses[k].view->buffer] = true;
    }
}

static bool writes_wanted(const rcvi_step *step, const bool *wanted) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    bool found = false;
    for (int k = 0; k < count; k++) found |= accesses[k].written && wanted[accesses[k].view->buffer];
    return found;
}

/* May the step be idle, outside of loops? Not one of a library, which writes more than its views name. */
static bool may_rest(const rcvi_step *step) { return step->kind != RCVI_STEP_LOOP && step->kind != RCVI_STEP_VENDOR; }

void rcvi_program_find_idle(const rcvi_program *program, void *const *buffers, size_t first, size_t end, bool *wanted,
                            bool *idle) {
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        wanted[b] = buffer->role == RCVI_ARENA ? buffer->lasting : buffers[b] != NULL;
    }
    for (size_t i = 0, behind = 0; i < program->step_count; i++) { /* behind: the loop that was last */
        const rcvi_step *step = &program->steps[i];
        idle[i] = i >= first && i < end && i >= behind && may_rest(step);
        if (i >= behind && step->kind == RCVI_STEP_LOOP) behind = i + 1 + (size_t)step->loop.body;
    }
    for (size_t i = program->step_count; i-- > first;) {
        idle[i] = idle[i] && !writes_wanted(&program->steps[i], wanted);
        if (!idle[i]) note_reads(&program->steps[i], wanted);
    }
}

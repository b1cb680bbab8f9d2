/* Dead-step elimination: finds steps whose results are never read, since the caller left out the optional outputs that depend on
 * them. One walk backwards over the program marks the buffers that are needed. */
#include "program/program.h"

static void mark_reads(const rcvi_step *step, bool *needed) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    for (int k = 0; k < count; k++) {
        if (accesses[k].read) needed[accesses[k].view->buffer] = true;
    }
}

static bool writes_needed(const rcvi_step *step, const bool *needed) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    bool found = false;
    for (int k = 0; k < count; k++) found |= accesses[k].written && needed[accesses[k].view->buffer];
    return found;
}

/* A vendor step is never dead: it writes more than its views name. */
static bool can_be_dead(const rcvi_step *step) {
    return step->kind != RCVI_STEP_LOOP && step->kind != RCVI_STEP_VENDOR;
}

void rcvi_program_find_dead_steps(const rcvi_program *program, void *const *buffers, size_t first, size_t end,
                                  bool *needed, bool *dead) {
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        needed[b] = buffer->role == RCVI_ARENA ? buffer->lasting : buffers[b] != NULL;
    }
    for (size_t i = 0, loop_end = 0; i < program->step_count; i++) { /* loop_end: of the last outermost loop so far */
        const rcvi_step *step = &program->steps[i];
        dead[i] = i >= first && i < end && i >= loop_end && can_be_dead(step);
        if (i >= loop_end && step->kind == RCVI_STEP_LOOP) loop_end = i + 1 + (size_t)step->loop.body;
    }
    for (size_t i = program->step_count; i-- > first;) {
        dead[i] = dead[i] && !writes_needed(&program->steps[i], needed);
        if (!dead[i]) mark_reads(&program->steps[i], needed);
    }
}

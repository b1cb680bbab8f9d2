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
    bool writes = false;
    for (int k = 0; k < count; k++) {
        if (accesses[k].written && wanted[accesses[k].view->buffer]) return true;
        writes |= accesses[k].written;
    }
    return !writes;
}

void rcvi_program_find_idle(const rcvi_program *program, void *const *buffers, size_t first, size_t end, bool *wanted,
                            bool *idle) {
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        wanted[b] = buffer->role == RCVI_ARENA ? buffer->lasting : buffers[b] != NULL;
    }
    for (size_t i = 0; i < program->step_count; i++) idle[i] = program->steps[i].kind != RCVI_STEP_LOOP;
    for (size_t i = 0; i < program->step_count; i++) { /* those inside of loops are wanted */
        int body = program->steps[i].kind == RCVI_STEP_LOOP ? program->steps[i].loop.body : 0;
        for (int k = 1; k <= body; k++) idle[i + (size_t)k] = false;
    }
    for (size_t i = program->step_count; i-- > 0;) {
        const rcvi_step *step = &program->steps[i];
        idle[i] = idle[i] && i >= first && i < end && !writes_wanted(step, wanted);
        if (!idle[i] && i >= first) note_reads(step, wanted);
    }
}

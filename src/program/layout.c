/* Lifetimes and the arena. A buffer lives from the first step that touches it to the last. Inside a loop that is exact
 * only for what belongs to one iteration; what moves with the iterations, or is used outside the loop too, lives through
 * the whole loop. That covers what one iteration hands to the next: it was written before the loop, or the verifier
 * refuses it. A step that is left out at some times hands on what it left alone, so what timed steps touch lives through
 * the loops around them as well. What is made of the parameters outlives the call, so it lives always. */
#include "program/program.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static void widen(rcvi_buffer *buffer, int first, int last) {
    if (first < buffer->first) buffer->first = first;
    if (last > buffer->last) buffer->last = last;
}

static void find_touches(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int steps = (int)program->step_count;
    for (size_t b = 0; b < program->buffer_count; b++) {
        program->buffers[b].first = steps;
        program->buffers[b].last = -1;
    }
    for (int i = 0; i < steps; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) widen(&program->buffers[accesses[k].view->buffer], i, i);
    }
}

/* One loop around a step: does the buffer outlive an iteration of it? */
static void widen_to_loop(rcvi_buffer *buffer, int first, int last, bool moves) {
    bool outside = buffer->first < first || buffer->last > last;
    if (outside || moves) widen(buffer, first, last);
}

static void widen_to_loops(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int outer = RCVI_NONE, inner = RCVI_NONE, outer_last = -1, inner_last = -1;
    for (int i = 0; i < (int)program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (i > outer_last) outer = inner = RCVI_NONE;
        if (i > inner_last) inner = RCVI_NONE;
        if (step->kind == RCVI_STEP_LOOP) {
            int last = i + step->loop.body;
            if (outer == RCVI_NONE) {
                outer = i;
                outer_last = last;
            } else {
                inner = i;
                inner_last = last;
            }
            continue;
        }
        if (outer == RCVI_NONE) continue;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_view *view = accesses[k].view;
            rcvi_buffer *buffer = &program->buffers[view->buffer];
            bool timed = step->time.timed || view->wrap;
            if (inner != RCVI_NONE) widen_to_loop(buffer, inner, inner_last, timed || view->stride);
            bool moves = inner != RCVI_NONE ? view->outer != 0 : view->stride != 0;
            widen_to_loop(buffer, outer, outer_last, timed || moves);
        }
    }
}

/* With several streams what can wait may be taken beside the next loop that is one kernel: what it reads lives that long. */
static void widen_beside(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int forward = (int)program->forward_count, last = -1; /* of the next such loop's steps in the same pass */
    if (program->rungs.streams < 2) return;
    for (int i = (int)program->step_count - 1; i >= 0; i--) {
        const rcvi_step *step = &program->steps[i];
        if (i == forward - 1) last = -1;
        if (rcvi_program_is_persistent(program, (size_t)i)) last = i + step->loop.body;
        if (last < 0 || step->kind == RCVI_STEP_LOOP || !rcvi_step_is_deferrable(program, step)) continue;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) widen(&program->buffers[accesses[k].view->buffer], i, last);
    }
}

static int compare_first(const void *a, const void *b) {
    const rcvi_buffer *x = *(rcvi_buffer *const *)a, *y = *(rcvi_buffer *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* as they were made, so that the layout is the same everywhere */
}

/* The arena's buffers that are used, by the start of their lives; NULL without memory. */
static rcvi_buffer **by_birth(const rcvi_program *program, size_t *count) {
    rcvi_buffer **sorted = rcvi_new(program->pool.context, program->buffer_count, sizeof(rcvi_buffer *));
    *count = 0;
    for (size_t b = 0; sorted && b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        if (buffer->role == RCVI_ARENA && buffer->first <= buffer->last) sorted[(*count)++] = buffer;
    }
    if (sorted) qsort(sorted, *count, sizeof(rcvi_buffer *), compare_first);
    return sorted;
}

size_t rcvi_buffer_end(const rcvi_program *program, const rcvi_buffer *buffer) {
    return buffer->arena_offset + (size_t)buffer->count * rcvi_element_bytes(program, buffer->element);
}

/* Leaves those of the living that still live at `step`, in their order. */
static size_t bury(rcvi_buffer **living, size_t count, int step) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (living[i]->last >= step) living[left++] = living[i];
    }
    return left;
}

/* First fit: each buffer, when its life begins, at the lowest place free then. `living` is sorted by place. */
static rcv_status place_buffers(rcvi_program *program, rcvi_buffer *const *sorted, size_t count, rcvi_buffer **living) {
    size_t alive = 0;
    program->arena_bytes = 0;
    for (size_t b = 0; b < count; b++) {
        rcvi_buffer *buffer = sorted[b];
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element), place = 0, at = 0;
        alive = bury(living, alive, buffer->first);
        for (; at < alive && living[at]->arena_offset < place + bytes; at++) {
            size_t end = rcvi_buffer_end(program, living[at]);
            end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            if (end > place) place = end;
        }
        if (place > SIZE_MAX / 4 - bytes) {
            return rcvi_fail(RCV_INVALID, "the plan needs more memory than an address can name");
        }
        for (size_t i = alive++; i > at; i--) living[i] = living[i - 1];
        living[at] = buffer;
        buffer->arena_offset = place;
        if (place + bytes > program->arena_bytes) program->arena_bytes = place + bytes;
    }
    return RCV_OK;
}

rcv_status rcvi_program_lay_out(rcvi_program *program) {
    find_touches(program);
    widen_to_loops(program);
    widen_beside(program);
    for (size_t b = 0; b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        if (buffer->lasting && buffer->first <= buffer->last) widen(buffer, 0, (int)program->step_count);
    }
    size_t count;
    rcvi_buffer **sorted = by_birth(program, &count);
    rcvi_buffer **living = rcvi_new(program->pool.context, program->buffer_count, sizeof(rcvi_buffer *));
    rcv_status status = sorted && living ? place_buffers(program, sorted, count, living) : RCV_NO_MEMORY;
    rcvi_free(program->pool.context, sorted);
    rcvi_free(program->pool.context, living);
    return status;
}

rcv_status rcvi_program_check_arena(const rcvi_program *program) {
    size_t count, alive = 0;
    rcvi_buffer **sorted = by_birth(program, &count);
    rcvi_buffer **living = rcvi_new(program->pool.context, program->buffer_count, sizeof(rcvi_buffer *));
    rcv_status status = sorted && living ? RCV_OK : RCV_NO_MEMORY;
    for (size_t b = 0; !status && b < count; b++) {
        rcvi_buffer *buffer = sorted[b];
        size_t end = rcvi_buffer_end(program, buffer);
        if (end > program->arena_bytes)
            status = rcvi_fail(RCV_INVALID, "buffer %s lies outside the arena", buffer->name);
        alive = bury(living, alive, buffer->first);
        for (size_t i = 0; !status && i < alive; i++) {
            if (buffer->arena_offset >= rcvi_buffer_end(program, living[i]) || living[i]->arena_offset >= end) continue;
            status = rcvi_fail(RCV_INVALID, "buffers %s and %s live at once in the same place", buffer->name,
                               living[i]->name);
        }
        living[alive++] = buffer;
    }
    rcvi_free(program->pool.context, sorted);
    rcvi_free(program->pool.context, living);
    return status;
}

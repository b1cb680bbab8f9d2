/* Liveness and the arena.
 *
 * A buffer is live from the first step that accesses it to the last. Inside a loop that is exact only for buffers of one iteration: a
 * buffer that moves with the iterations, or is used outside of the loop too, is live during the whole loop. That covers what one iteration
 * passes to the next: it was written before the loop, or the verifier refuses it. A step that is not due leaves a buffer as it was, so
 * buffers of timed steps are live during the loops around them as well. Buffers computed from the parameters outlive the call: they are
 * always live.
 *
 * The reserve is the beginning of the arena: what the forward pass keeps for the backward pass. No other buffer shares its bytes, and the
 * backward pass only reads it (the verifier checks that): so several forward passes with a reserve each may precede their backward
 * passes, and a backward pass may be repeated. */
#include "program/program.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static void extend(rcvi_buffer *buffer, int first, int last) {
    if (first < buffer->first) buffer->first = first;
    if (last > buffer->last) buffer->last = last;
}

static void find_accesses(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int steps = (int)program->step_count;
    for (size_t b = 0; b < program->buffer_count; b++) {
        program->buffers[b].first = steps;
        program->buffers[b].last = -1;
    }
    for (int i = 0; i < steps; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) extend(&program->buffers[accesses[k].view->buffer], i, i);
    }
}

/* Extends a lifetime to a whole loop around the step, where the buffer outlives an iteration. */
static void extend_to_loop(rcvi_buffer *buffer, int first, int last, bool moves) {
    bool outside = buffer->first < first || buffer->last > last;
    if (outside || moves) extend(buffer, first, last);
}

static void extend_to_loops(rcvi_program *program) {
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
            if (inner != RCVI_NONE) extend_to_loop(buffer, inner, inner_last, timed || view->stride);
            bool moves = inner != RCVI_NONE ? view->outer != 0 : view->stride != 0;
            extend_to_loop(buffer, outer, outer_last, timed || moves);
        }
    }
}

/* With several streams a deferrable step may run during the next loop that is one kernel: its buffers are live until that loop ends. */
static void extend_deferrable(rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int forward = (int)program->forward_count, last = -1; /* of the next such loop's steps in the same pass */
    if (program->rungs.streams < 2) return;
    for (int i = (int)program->step_count - 1; i >= 0; i--) {
        const rcvi_step *step = &program->steps[i];
        if (i == forward - 1) last = -1;
        if (rcvi_program_is_persistent(program, (size_t)i)) last = i + step->loop.body;
        if (last < 0 || step->kind == RCVI_STEP_LOOP || !rcvi_step_is_deferrable(program, step)) continue;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) extend(&program->buffers[accesses[k].view->buffer], i, last);
    }
}

static int compare_first(const void *a, const void *b) {
    const rcvi_buffer *x = *(rcvi_buffer *const *)a, *y = *(rcvi_buffer *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* in the order of creation, so that the layout is deterministic */
}

/* The arena's buffers that are used, by the start of their lifetimes; NULL without memory. */
static rcvi_buffer **sort_by_first(const rcvi_program *program, size_t *count) {
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

/* Removes buffers whose lifetime ends before `step`; returns how many are left, in the same order. */
static size_t remove_dead(rcvi_buffer **live, size_t count, int step) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (live[i]->last >= step) live[left++] = live[i];
    }
    return left;
}

static size_t align(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Places what the backward pass reads of the forward pass, one buffer after the other. */
static rcv_status assign_reserve(rcvi_program *program, rcvi_buffer *const *sorted, size_t count) {
    size_t offset = 0;
    for (size_t b = 0; b < count; b++) {
        rcvi_buffer *buffer = sorted[b];
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element);
        if (!buffer->kept) continue;
        if (offset > SIZE_MAX / 4 - bytes)
            return rcvi_fail(RCV_INVALID, "the plan needs more memory than an address can name");
        buffer->arena_offset = offset;
        buffer->arena_bytes = bytes;
        offset = align(offset + bytes);
    }
    program->reserve_bytes = offset;
    return RCV_OK;
}

/* First fit: each buffer, at the start of its lifetime, gets the lowest free offset after the reserve. `live`, scratch, is sorted by
 * offset. */
static rcv_status assign_offsets(rcvi_program *program, rcvi_buffer *const *sorted, size_t count, rcvi_buffer **live) {
    size_t live_count = 0;
    RCVI_TRY(assign_reserve(program, sorted, count));
    program->arena_bytes = program->reserve_bytes;
    for (size_t b = 0; b < count; b++) {
        rcvi_buffer *buffer = sorted[b];
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element), at = 0;
        size_t offset = program->reserve_bytes;
        if (buffer->kept) continue;
        live_count = remove_dead(live, live_count, buffer->first);
        for (; at < live_count && live[at]->arena_offset < offset + bytes; at++) {
            size_t end = align(rcvi_buffer_end(program, live[at]));
            if (end > offset) offset = end;
        }
        if (offset > SIZE_MAX / 4 - bytes) {
            return rcvi_fail(RCV_INVALID, "the plan needs more memory than an address can name");
        }
        for (size_t i = live_count++; i > at; i--) live[i] = live[i - 1];
        live[at] = buffer;
        buffer->arena_offset = offset;
        buffer->arena_bytes = bytes;
        if (offset + bytes > program->arena_bytes) program->arena_bytes = offset + bytes;
    }
    return RCV_OK;
}

rcv_status rcvi_program_lay_out(rcvi_program *program) {
    find_accesses(program);
    extend_to_loops(program);
    extend_deferrable(program);
    for (size_t b = 0; b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        int forward = (int)program->forward_count, last = (int)program->step_count;
        if (buffer->lasting && buffer->first <= buffer->last) extend(buffer, 0, last);
        buffer->kept =
            buffer->role == RCVI_ARENA && !buffer->lasting && buffer->first < forward && buffer->last >= forward;
        if (buffer->kept) extend(buffer, 0, last);
    }
    size_t count;
    rcvi_buffer **sorted = sort_by_first(program, &count);
    rcvi_buffer **live = rcvi_new(program->pool.context, program->buffer_count, sizeof(rcvi_buffer *));
    rcv_status status = sorted && live ? assign_offsets(program, sorted, count, live) : RCV_NO_MEMORY;
    rcvi_free(program->pool.context, sorted);
    rcvi_free(program->pool.context, live);
    return status;
}

rcv_status rcvi_program_check_arena(const rcvi_program *program) {
    size_t count, live_count = 0;
    rcvi_buffer **sorted = sort_by_first(program, &count);
    rcvi_buffer **live = rcvi_new(program->pool.context, program->buffer_count, sizeof(rcvi_buffer *));
    rcv_status status = sorted && live ? RCV_OK : RCV_NO_MEMORY;
    for (size_t b = 0; !status && b < count; b++) {
        rcvi_buffer *buffer = sorted[b];
        size_t end = rcvi_buffer_end(program, buffer);
        if (end > program->arena_bytes)
            status = rcvi_fail(RCV_INVALID, "buffer %s is outside of the arena", buffer->name);
        live_count = remove_dead(live, live_count, buffer->first);
        for (size_t i = 0; !status && i < live_count; i++) {
            if (buffer->arena_offset >= rcvi_buffer_end(program, live[i]) || live[i]->arena_offset >= end) continue;
            status = rcvi_fail(RCV_INVALID, "buffers %s and %s overlap in the arena while both are live", buffer->name,
                               live[i]->name);
        }
        live[live_count++] = buffer;
    }
    rcvi_free(program->pool.context, sorted);
    rcvi_free(program->pool.context, live);
    return status;
}

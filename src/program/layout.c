/* Lifetimes and the arena. A buffer lives from the first step that touches it to the last. Inside a loop that is exact
 * only for what is written before it is read in every iteration; whatever carries a value from one iteration to the
 * next, or moves with the iterations, or is used outside the loop too, lives through the whole loop. */
#include "program/program.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

typedef struct {
    int first, last; /* loop's own step and last step of its body; none: last < first */
} extent;

static extent loop_around(const rcvi_program *program, int step) {
    for (int i = 0; i < (int)program->step_count; i++) {
        if (program->steps[i].kind != RCVI_STEP_LOOP) continue;
        extent e = {i, i + program->steps[i].loop.body};
        if (step > e.first && step <= e.last) return e;
        i = e.last;
    }
    return (extent){0, -1};
}

static void widen(rcvi_buffer *buffer, int first, int last) {
    if (first < buffer->first) buffer->first = first;
    if (last > buffer->last) buffer->last = last;
}

/* First pass: where each buffer is touched. Second pass: widen to loops where needed. */
static void find_lifetimes(rcvi_program *program) {
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
    for (int i = 0; i < steps; i++) {
        extent loop = loop_around(program, i);
        if (loop.last < loop.first) continue;
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            rcvi_buffer *buffer = &program->buffers[accesses[k].view->buffer];
            bool outside = buffer->first < loop.first || buffer->last > loop.last;
            bool carried = accesses[k].read && buffer->first == i; /* read before written */
            if (outside || carried || accesses[k].view->stride) widen(buffer, loop.first, loop.last);
        }
    }
}

typedef struct {
    size_t start, end;
} range;

static int compare_ranges(const void *a, const void *b) {
    size_t x = ((const range *)a)->start, y = ((const range *)b)->start;
    return (x > y) - (x < y);
}

/* First fit: each buffer at the lowest place where no earlier buffer of overlapping life lies. */
static rcv_status place_buffers(rcvi_program *program, range *taken) {
    program->arena_bytes = 0;
    for (size_t b = 0; b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        if (buffer->role != RCVI_ARENA || buffer->first > buffer->last) continue;
        size_t count = 0;
        for (size_t o = 0; o < b; o++) {
            const rcvi_buffer *other = &program->buffers[o];
            if (other->role != RCVI_ARENA || other->first > buffer->last || other->last < buffer->first) continue;
            size_t end = other->place + (size_t)other->count * rcvi_element_bytes(program, other->element);
            taken[count++] = (range){other->place, (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT};
        }
        qsort(taken, count, sizeof *taken, compare_ranges);
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element), place = 0;
        for (size_t k = 0; k < count && taken[k].start < place + bytes; k++) {
            if (taken[k].end > place) place = taken[k].end;
        }
        if (place > SIZE_MAX / 4 - bytes)
            return rcvi_fail(RCV_INVALID, "the plan needs more memory than an address can name");
        buffer->place = place;
        if (place + bytes > program->arena_bytes) program->arena_bytes = place + bytes;
    }
    return RCV_OK;
}

rcv_status rcvi_program_lay_out(rcvi_program *program) {
    range *taken = rcvi_new(program->pool.context, program->buffer_count, sizeof *taken);
    if (!taken) return RCV_NO_MEMORY;
    find_lifetimes(program);
    rcv_status status = place_buffers(program, taken);
    rcvi_free(program->pool.context, taken);
    return status;
}

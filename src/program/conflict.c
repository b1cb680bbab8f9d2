/* Conflicts: may two steps of one iteration access the same element, and one of them write it? */
#include "program/program.h"

/* The range of elements, low <= e < high, that a view covers in iteration 0, with all slots. */
static void reach(const rcvi_access *access, int64_t *low, int64_t *high) {
    const rcvi_view *v = access->view;
    int64_t rows = (access->rows - 1) * v->row, columns = (access->columns - 1) * v->column;
    int64_t slots = v->wrap ? (v->wrap - 1) * v->slot : 0;
    *low = v->offset + (rows < 0 ? rows : 0) + (columns < 0 ? columns : 0) + (slots < 0 ? slots : 0);
    *high = v->offset + (rows > 0 ? rows : 0) + (columns > 0 ? columns : 0) + (slots > 0 ? slots : 0) + 1;
}

static bool moves_alike(const rcvi_view *a, const rcvi_view *b) {
    return a->stride == b->stride && a->outer == b->outer && a->wrap == b->wrap && a->slot == b->slot;
}

/* Are they disjoint columns of one array? Rows have the same length, and all moves are by whole rows. */
static bool has_other_columns(const rcvi_access *a, const rcvi_access *b) {
    int64_t row = a->view->row;
    if (row <= 0 || b->view->row != row) return false;
    const rcvi_view *views[] = {a->view, b->view};
    for (int i = 0; i < 2; i++) {
        const rcvi_view *v = views[i];
        if (v->stride % row || v->outer % row || v->slot % row || v->offset < 0) return false;
    }
    int64_t a_first = a->view->offset % row, b_first = b->view->offset % row;
    if (a_first + a->columns > row || b_first + b->columns > row) return false;
    return a_first + a->columns <= b_first || b_first + b->columns <= a_first;
}

/* The end of what is reserved for a buffer, which does not depend on the sizes of a call. */
static size_t reserved_end(const rcvi_program *program, const rcvi_buffer *buffer) {
    return buffer->arena_bytes ? buffer->arena_offset + buffer->arena_bytes : rcvi_buffer_end(program, buffer);
}

/* Do two buffers of the arena share bytes? They may, with lifetimes that do not overlap. */
static bool share_memory(const rcvi_program *program, int a, int b) {
    const rcvi_buffer *x = &program->buffers[a], *y = &program->buffers[b];
    if (x->role != RCVI_ARENA || y->role != RCVI_ARENA) return false;
    return x->arena_offset < reserved_end(program, y) && y->arena_offset < reserved_end(program, x);
}

bool rcvi_accesses_conflict(const rcvi_program *program, const rcvi_access *a, const rcvi_access *b) {
    if (!a->written && !b->written) return false;
    if (a->view->buffer != b->view->buffer) return share_memory(program, a->view->buffer, b->view->buffer);
    if (has_other_columns(a, b)) return false;
    if (!moves_alike(a->view, b->view)) return true;
    int64_t a_low, a_high, b_low, b_high;
    reach(a, &a_low, &a_high);
    reach(b, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}

bool rcvi_steps_conflict(const rcvi_program *program, const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int a_count = rcvi_step_accesses(x, a), b_count = rcvi_step_accesses(y, b);
    for (int i = 0; i < a_count; i++) {
        for (int k = 0; k < b_count; k++) {
            if (rcvi_accesses_conflict(program, &a[i], &b[k])) return true;
        }
    }
    return false;
}

/* Parameters and gradients in another type than the plan's.
 *
 * A schedule writes its program over the caller's arrays of parameters and gradients, whatever their type. Then the views of steps that
 * cannot use such an array are moved to buffers of the plan's own type that replace it.
 *
 * Parameters. Copies that run when parameters have changed convert. In a plan of a 16-bit type whose parameters are declared in it, packing,
 * products and maps read the array itself. Every range of elements that other steps read has a buffer, which the first steps of the forward
 * pass fill when parameters have changed; it lasts from call to call, as packed matrices do.
 *
 * Gradients. All steps add to a buffer that begins with zeros in every call. The last steps of the program copy it to the caller's array, or
 * add it to what is there. So a gradient is rounded once. Where the type is the plan's 16-bit type, one step alone computes each of them, and the
 * device's steps round their sums, they write to the caller's array themselves. */
#include "program/program.h"

#include <string.h>

/* Elements first .. end - 1 of a buffer of parameters, and the buffer that replaces them. */
typedef struct {
    int64_t first, end;
    int buffer;
} range;

typedef struct {
    rcvi_program *program;
    int theirs;
    range *ranges; /* by their first elements; none touches the next */
    size_t count, capacity;
} conversion;

/* ---- which steps use the caller's array itself ---- */

static bool is_usable(const rcvi_program *program, const rcvi_step *step, const rcvi_access *access) {
    bool once = step->kind == RCVI_STEP_COPY && step->when == RCVI_WHEN_PARAMETERS_CHANGED;
    bool own = program->buffers[access->view->buffer].element == RCVI_ACTIVATION;
    return once || (own && access->use != RCVI_USE_OTHER);
}

/* ---- ranges of parameters ---- */

/* Views of parameters do not move. */
static range range_of(const rcvi_step *step, const rcvi_access *access) {
    const rcvi_view *view = access->view;
    int64_t last = view->offset + (access->rows - 1) * view->row + (access->columns - 1) * view->column;
    if (step->kind == RCVI_STEP_GEMM && view == &step->b) last += (step->gemm.batch - 1) * step->gemm.step_b;
    return (range){.first = view->offset, .end = last + 1, .buffer = RCVI_NONE};
}

/* Adds a range, joined with those that it overlaps or touches. */
static void add_range(conversion *c, range added) {
    rcvi_program *program = c->program;
    size_t at = 0, end;
    while (at < c->count && c->ranges[at].end < added.first) at++;
    for (end = at; end < c->count && c->ranges[end].first <= added.end; end++) {
        if (c->ranges[end].first < added.first) added.first = c->ranges[end].first;
        if (c->ranges[end].end > added.end) added.end = c->ranges[end].end;
    }
    if (!rcvi_grow(program->pool.context, &c->ranges, &c->capacity, c->count + 1, sizeof *c->ranges)) {
        program->failed = true;
        return;
    }
    memmove(&c->ranges[at + 1], &c->ranges[end], (c->count - end) * sizeof *c->ranges);
    c->ranges[at] = added;
    c->count = c->count - (end - at) + 1;
}

static void find_ranges(conversion *c) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < c->program->step_count && !c->program->failed; i++) {
        const rcvi_step *step = &c->program->steps[i];
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == c->theirs && !is_usable(c->program, step, &accesses[k]))
                add_range(c, range_of(step, &accesses[k]));
        }
    }
}

/* ---- views ---- */

/* Moves a view to the buffer that replaces what it shows. */
static void move_view(const conversion *c, rcvi_view *view) {
    for (size_t r = 0; r < c->count; r++) {
        const range *part = &c->ranges[r];
        if (view->offset < part->first || view->offset >= part->end) continue;
        view->buffer = part->buffer;
        view->offset -= part->first;
        return;
    }
}

static void move_start(const conversion *c, rcvi_step *step) {
    rcvi_view *start = rcvi_pool_new(&c->program->pool, 1, sizeof *start);
    if (!start) return;
    *start = *step->gemm.start;
    move_view(c, start);
    step->gemm.start = start;
}

static void move_view_of_map(const conversion *c, rcvi_map *map, const rcvi_view *view) {
    for (int i = 0; i < map->operand_count; i++) {
        if (view == &map->operands[i]) move_view(c, &map->operands[i]);
    }
    for (int p = 0; p < map->product_count; p++) {
        rcvi_product *product = &map->products[p];
        if (view == &product->start) move_view(c, &product->start);
        for (int t = 0; t < product->term_count; t++) {
            if (view == &product->terms[t].a) move_view(c, &product->terms[t].a);
            if (view == &product->terms[t].b) move_view(c, &product->terms[t].b);
        }
    }
}

/* Moves the view of an access; views that accesses name are const. */
static void move_access(const conversion *c, rcvi_step *step, const rcvi_view *view) {
    rcvi_view *own[] = {&step->out, &step->a, &step->b, &step->mask};
    for (int i = 0; i < 4; i++) {
        if (view == own[i]) move_view(c, own[i]);
    }
    if (step->kind == RCVI_STEP_MAP) move_view_of_map(c, step->map, view);
    if (step->kind == RCVI_STEP_GEMM && view == step->gemm.start) move_start(c, step);
}

static void move_views(const conversion *c, bool all) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < c->program->step_count; i++) {
        rcvi_step *step = &c->program->steps[i];
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == c->theirs && (all || !is_usable(c->program, step, &accesses[k])))
                move_access(c, step, accesses[k].view);
        }
    }
}

/* ---- buffers and copies ---- */

static int new_buffer(const conversion *c, const range *part) {
    rcvi_program *program = c->program;
    const rcvi_buffer theirs = program->buffers[c->theirs];
    int64_t count = part->end - part->first;
    int buffer = theirs.role == RCVI_PARAMETERS
                     ? rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s.converted.%lld", theirs.name,
                                           (long long)part->first)
                     : rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s.sum", theirs.name);
    if (program->failed) return RCVI_NONE;
    program->buffers[buffer].replaces = theirs.role;
    program->buffers[buffer].theirs = c->theirs;
    return buffer;
}

/* One row: all of a range. */
static rcvi_step copy_of(int to, int64_t to_offset, int from, int64_t from_offset, int64_t count) {
    return (rcvi_step){.kind = RCVI_STEP_COPY,
                       .layer = RCVI_NONE,
                       .time = {.span = 1},
                       .rows = 1,
                       .columns = count,
                       .out = {.buffer = to, .offset = to_offset, .row = count, .column = 1},
                       .a = {.buffer = from, .offset = from_offset, .row = count, .column = 1},
                       .b = rcvi_no_view(),
                       .mask = rcvi_no_view()};
}

static bool append(rcvi_program *program, const rcvi_step *step) {
    rcvi_program_step(program, step);
    if (!program->failed) program->steps[program->step_count - 1] = *step; /* of no layer */
    return !program->failed;
}

/* Makes a step the first one. */
static void prepend(rcvi_program *program, const rcvi_step *step) {
    if (!append(program, step)) return;
    memmove(&program->steps[1], &program->steps[0], (program->step_count - 1) * sizeof *program->steps);
    program->steps[0] = *step;
    program->forward_count++;
}

static void convert_parameters(conversion *c) {
    rcvi_program *program = c->program;
    find_ranges(c);
    for (size_t r = 0; r < c->count && !program->failed; r++) {
        range *part = &c->ranges[r];
        part->buffer = new_buffer(c, part);
        if (program->failed) return;
        program->buffers[part->buffer].lasting = true;
        program->buffers[part->buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    }
    if (program->failed) return;
    move_views(c, false);
    for (size_t r = c->count; r-- > 0 && !program->failed;) {
        const range *part = &c->ranges[r];
        rcvi_step step = copy_of(part->buffer, 0, c->theirs, part->first, part->end - part->first);
        step.when = RCVI_WHEN_PARAMETERS_CHANGED;
        prepend(program, &step);
    }
}

static void convert_gradients(conversion *c) {
    rcvi_program *program = c->program;
    int64_t count = program->buffers[c->theirs].count;
    if (!count) return;
    add_range(c, (range){.first = 0, .end = count, .buffer = RCVI_NONE});
    if (!program->failed) c->ranges[0].buffer = new_buffer(c, &c->ranges[0]);
    if (program->failed) return;
    move_views(c, true);
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        rcvi_step *step = &program->steps[i];
        bool clears = step->kind == RCVI_STEP_FILL && step->out.buffer == c->ranges[0].buffer;
        if (clears) step->when = RCVI_WHEN_ADDING;
    }
    rcvi_step step = copy_of(c->theirs, 0, c->ranges[0].buffer, 0, count);
    step.accumulate = true;
    append(program, &step);
}

void rcvi_program_convert(rcvi_program *program) {
    size_t externals = program->external_count;
    bool direct = program->machine.gemm_writes_activations && rcvi_program_covers_gradients(program);
    for (size_t i = 0; i < externals && !program->failed; i++) {
        conversion c = {.program = program, .theirs = program->externals[i]};
        const rcvi_buffer *buffer = &program->buffers[c.theirs];
        bool parameters = buffer->role == RCVI_PARAMETERS;
        if ((!parameters && buffer->role != RCVI_DPARAMETERS) || buffer->element == RCVI_REAL) continue;
        if (!parameters && direct && buffer->element == RCVI_ACTIVATION) continue;
        if (parameters)
            convert_parameters(&c);
        else
            convert_gradients(&c);
        if (program->pool.failed) program->failed = true;
        rcvi_free(program->pool.context, c.ranges);
    }
}

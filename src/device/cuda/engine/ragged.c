/* Sequences of different lengths. A run sorts them, the longest first: then those that go on at a time are the first rows,
 * and maps inside of the time loops take these alone. All that is the caller's is read and written through the order. How
 * many rows go on is known when steps are launched one by one; in a graph, whose launches are fixed, kernels read it.
 *
 * Rows that a step leaves out hold what was there before. That may be so where only steps that leave out the same rows read
 * them, and selections, which take something else there. What lies in memory step by step and is read as a whole, such as
 * factors of gradients, is cleared before the loop: products and sums then see zeros. Where a map may make no number of
 * zeros, as by dividing, what it reads must be computed for all rows. */
#include "device/cuda/engine/ragged.h"

#include <string.h>

enum { MOST_ROWS = 1 << 19 }; /* of a batch: one launch takes them */

bool rcvi_cuda_is_by_row(const rcvi_buffer *buffer) {
    return buffer->role != RCVI_ARENA && buffer->role != RCVI_PARAMETERS && buffer->role != RCVI_DPARAMETERS &&
           buffer->role != RCVI_LENGTHS;
}

/* What is the caller's must be touched by steps that know the order. */
static bool can_sort(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    if (!program->options.lengths || program->options.batch > MOST_ROWS || program->rungs.scan) return false;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        bool knows = step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT || step->kind == RCVI_STEP_FILL ||
                     step->kind == RCVI_STEP_LIVE || step->kind == RCVI_STEP_BOUNDARY;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (!knows && rcvi_cuda_is_by_row(&program->buffers[accesses[k].view->buffer])) return false;
        }
    }
    return true;
}

static bool may_be_short(const rcvi_program *program, const rcvi_step *step) {
    bool sum = step->kind == RCVI_STEP_REDUCE && !step->reduce.over_rows;
    return (step->kind == RCVI_STEP_MAP || sum) && step->time.timed && step->time.span == 1 &&
           step->rows == program->options.batch;
}

/* Does the step's view show a place of its own at every time, in a buffer whose life begins with a loop? Where chunks are
 * gone through, one that moves within a chunk alone shows the same places in the next. */
static bool is_stepwise(const rcvi_program *program, const rcvi_step *step, const rcvi_view *view) {
    const rcvi_buffer *buffer = &program->buffers[view->buffer];
    bool moves = step->time.outer ? view->outer != 0 : view->stride != 0;
    return !view->wrap && moves && buffer->role == RCVI_ARENA && program->steps[buffer->first].kind == RCVI_STEP_LOOP;
}

/* Does the step read rows of it that others leave out? A selection takes its second operand there. */
static bool reads_whole(const rcvi_engine *e, const rcvi_step *step, const rcvi_access *access) {
    if (e->is_short[step - e->program->steps] || !access->read) return false;
    return step->kind != RCVI_STEP_SELECT || access->view == &step->b;
}

static bool is_read_whole(const rcvi_engine *e, int buffer) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == buffer && reads_whole(e, step, &accesses[k])) return true;
        }
    }
    return false;
}

/* Does the map hold an operation that may make no number of a row of zeros? */
static bool may_fail_on_zeros(const rcvi_step *step) {
    for (int i = 0; step->kind == RCVI_STEP_MAP && i < step->map->instruction_count; i++) {
        rcvi_operation operation = step->map->instructions[i].operation;
        if (operation == RCVI_DIVIDE || operation == RCVI_EXP || operation == RCVI_LOG || operation == RCVI_SQRT)
            return true;
    }
    return false;
}

/* Marks what such maps read, and what others read that write to it; answers whether any was not yet marked. */
static bool mark_delicate(const rcvi_engine *e, const rcvi_step *step, bool *is_delicate) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    bool delicate = may_fail_on_zeros(step), marked = false;
    for (int k = 0; k < count; k++) delicate |= accesses[k].written && is_delicate[accesses[k].view->buffer];
    for (int k = 0; delicate && k < count; k++) {
        int buffer = accesses[k].view->buffer;
        if (is_delicate[buffer] || !reads_whole(e, step, &accesses[k])) continue;
        is_delicate[buffer] = marked = true;
    }
    return marked;
}

/* is_delicate: [buffers] zeros in it might become what is no number. */
static void find_delicate(const rcvi_engine *e, bool *is_delicate) {
    memset(is_delicate, 0, e->program->buffer_count * sizeof *is_delicate);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = e->program->step_count; i-- > 0;)
            changed |= mark_delicate(e, &e->program->steps[i], is_delicate);
    }
}

/* Whether a step that would be short may be; marks what must be cleared for it. */
static bool stays_short(rcvi_engine *e, const rcvi_step *step, const bool *is_delicate) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    for (int k = 0; k < count; k++) {
        int buffer = accesses[k].view->buffer;
        if (!accesses[k].written || !is_read_whole(e, buffer)) continue;
        if (is_delicate[buffer] || !is_stepwise(e->program, step, accesses[k].view)) return false;
        e->is_cleared[buffer] = true;
    }
    return true;
}

rcv_status rcvi_cuda_find_short(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    e->is_short = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->is_short);
    e->is_cleared = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->is_cleared);
    bool *is_delicate = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *is_delicate);
    if (e->pool.failed) return RCV_NO_MEMORY;
    e->sorts = can_sort(program);
    e->counts = e->sorts && program->rungs.graph;
    e->has_alive = e->sorts && (program->rungs.graph || program->rungs.persistent);
    for (size_t i = 0; e->sorts && i < program->step_count; i++)
        e->is_short[i] = may_be_short(program, &program->steps[i]);
    for (bool changed = e->sorts; changed;) {
        changed = false;
        memset(e->is_cleared, 0, program->buffer_count * sizeof *e->is_cleared);
        find_delicate(e, is_delicate);
        for (size_t i = 0; i < program->step_count; i++) {
            if (!e->is_short[i] || stays_short(e, &program->steps[i], is_delicate)) continue;
            e->is_short[i] = false;
            changed = true;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_cuda_rows_open(rcv_context *context, const rcvi_program *program, rcvi_cuda_rows *rows) {
    int64_t steps = program->options.steps, batch = program->options.batch;
    *rows = (rcvi_cuda_rows){.steps = steps,
                             .batch = batch,
                             .order = rcvi_new(context, (size_t)batch, sizeof *rows->order),
                             .lengths = rcvi_new(context, (size_t)batch, sizeof *rows->lengths),
                             .alive = rcvi_new(context, (size_t)steps + 1, sizeof *rows->alive)};
    return rows->order && rows->lengths && rows->alive ? RCV_OK : RCV_NO_MEMORY;
}

void rcvi_cuda_rows_close(rcv_context *context, rcvi_cuda_rows *rows) {
    rcvi_free(context, rows->order);
    rcvi_free(context, rows->lengths);
    rcvi_free(context, rows->alive);
    *rows = (rcvi_cuda_rows){0};
}

/* By counting; sequences of one length keep their order. */
void rcvi_cuda_rows_sort(rcvi_cuda_rows *rows, const int64_t *lengths) {
    int64_t steps = rows->steps, *alive = rows->alive;
    memset(alive, 0, ((size_t)steps + 1) * sizeof *alive);
    for (int64_t b = 0; b < rows->batch; b++) alive[lengths[b] - 1]++;
    for (int64_t t = steps - 1; t > 0; t--) alive[t - 1] += alive[t]; /* those longer than t */
    for (int64_t b = rows->batch; b-- > 0;) { /* the last one of a length goes to the last free place of it */
        int64_t place = --alive[lengths[b] - 1];
        rows->order[place] = b;
        rows->lengths[place] = lengths[b];
    }
    for (int64_t t = 0; t < steps; t++) alive[t] = 0;
    for (int64_t b = 0; b < rows->batch; b++) alive[lengths[b] - 1]++;
    for (int64_t t = steps - 1; t > 0; t--) alive[t - 1] += alive[t];
}

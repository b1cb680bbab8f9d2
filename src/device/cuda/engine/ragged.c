/* Sequences of different lengths. A run sorts them, the longest first. Then the sequences that have a time step are the first rows, and
 * maps inside of time loops compute only these (short steps). The caller's arrays are read and written through the order. Launched step
 * by step, the number of rows is an argument; in a graph, whose launches are fixed, kernels read it from memory, as they do where lengths lie
 * in the device's memory.
 *
 * Rows that a short step leaves out keep their old contents. That is correct where they are read only by steps that leave out the same
 * rows at the same time, and by selections, which take their other operand there. A buffer with a place for every time step that is read as a whole, such
 * as factors of gradients, is cleared before the loop: products and sums then read zeros. Where a map might turn these zeros into NaN or
 * infinity, as by a division, the buffers that it reads are computed for all rows. */
#include "device/cuda/engine/ragged.h"

#include <string.h>

enum { MOST_ROWS = 1 << 19 }; /* of a batch, in one launch */

bool rcvi_cuda_is_by_row(const rcvi_buffer *buffer) {
    return buffer->role != RCVI_ARENA && buffer->role != RCVI_PARAMETERS && buffer->role != RCVI_DPARAMETERS &&
           buffer->role != RCVI_LENGTHS;
}

/* Whether all steps that touch the caller's arrays can use the order. */
static bool can_sort(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    if (!program->options.lengths || program->options.batch > MOST_ROWS || program->rungs.scan) return false;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        bool can_order = step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT ||
                         step->kind == RCVI_STEP_FILL || step->kind == RCVI_STEP_LIVE ||
                         step->kind == RCVI_STEP_BOUNDARY;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (!can_order && rcvi_cuda_is_by_row(&program->buffers[accesses[k].view->buffer])) return false;
        }
    }
    return true;
}

static bool may_be_short(const rcvi_program *program, const rcvi_step *step) {
    bool sum = step->kind == RCVI_STEP_REDUCE && !step->reduce.over_rows;
    return (step->kind == RCVI_STEP_MAP || sum) && step->time.timed && step->time.span == 1 &&
           step->rows == program->options.batch;
}

/* Whether the step's view is another place at every time step, in a buffer that can be cleared before a loop. In a loop over chunks, a
 * view that moves only within a chunk has the same places in the next chunk. */
static bool is_stepwise(const rcvi_program *program, const rcvi_step *step, const rcvi_view *view) {
    const rcvi_buffer *buffer = &program->buffers[view->buffer];
    bool moves = step->time.outer ? view->outer != 0 : view->stride != 0;
    return !view->wrap && moves && buffer->role == RCVI_ARENA &&
           rcvi_cuda_first_loop(program, view->buffer) != RCVI_NONE;
}

static bool touches(const rcvi_step *step, int buffer) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    bool found = false;
    for (int k = 0; k < count; k++) found |= accesses[k].view->buffer == buffer;
    return found;
}

int rcvi_cuda_first_loop(const rcvi_program *program, int buffer) {
    const rcvi_buffer *b = &program->buffers[buffer];
    for (int i = b->first; i <= b->last; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP) {
            int end = i + 1 + step->loop.body;
            for (int k = i + 1; k < end; k++) {
                if (touches(&program->steps[k], buffer)) return i;
            }
            i = end - 1;
        } else if (touches(step, buffer) && (step->kind != RCVI_STEP_FILL || step->fill.number != 0)) {
            return RCVI_NONE;
        }
    }
    return RCVI_NONE;
}

/* Whether the step reads rows that short steps leave out. A selection reads its second operand there. */
static bool reads_whole(const rcvi_engine *e, const rcvi_step *step, const rcvi_access *access) {
    if (e->is_short[step - e->program->steps] || !access->read) return false;
    return step->kind != RCVI_STEP_SELECT || access->view == &step->b;
}

/* A short step that reads rows of a later time step, as a late product does (schedule/retime.h), reads a factor of a gradient, which the
 * gradient's step reads whole. */
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

/* Whether the map has an operation that may turn zeros into NaN or infinity. */
static bool may_fail_on_zeros(const rcvi_step *step) {
    for (int i = 0; step->kind == RCVI_STEP_MAP && i < step->map->instruction_count; i++) {
        rcvi_operation operation = step->map->instructions[i].operation;
        if (operation == RCVI_DIVIDE || operation == RCVI_EXP || operation == RCVI_LOG || operation == RCVI_SQRT)
            return true;
    }
    return false;
}

/* Marks the buffers that such maps read, and those read by steps that write marked buffers. Returns whether any is newly marked. */
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

/* is_delicate: [buffers] zeros in it might become NaN or infinity. */
static void find_delicate(const rcvi_engine *e, bool *is_delicate) {
    memset(is_delicate, 0, e->program->buffer_count * sizeof *is_delicate);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = e->program->step_count; i-- > 0;)
            changed |= mark_delicate(e, &e->program->steps[i], is_delicate);
    }
}

/* Whether a step may stay short; marks the buffers that must be cleared for it. */
static bool stays_short(rcvi_engine *e, const rcvi_step *step, const bool *is_delicate) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    for (int k = 0; k < count; k++) {
        int buffer = accesses[k].view->buffer;
        if (!accesses[k].written || !is_read_whole(e, buffer)) continue;
        if (is_delicate[buffer] || !is_stepwise(e->program, step, accesses[k].view)) return false;
        e->cleared_before[buffer] = rcvi_cuda_first_loop(e->program, buffer);
    }
    return true;
}

static void clear_nothing(rcvi_engine *e) {
    for (size_t b = 0; b < e->program->buffer_count; b++) e->cleared_before[b] = RCVI_NONE;
}

rcv_status rcvi_cuda_find_short(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    e->is_short = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->is_short);
    e->cleared_before = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->cleared_before);
    bool *is_delicate = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *is_delicate);
    if (e->pool.failed) return RCV_NO_MEMORY;
    clear_nothing(e);
    e->sorts = can_sort(program);
    e->counts = e->sorts && (program->rungs.graph || program->options.device_lengths);
    e->has_alive = e->sorts && (e->counts || program->rungs.persistent);
    for (size_t i = 0; e->sorts && i < program->step_count; i++)
        e->is_short[i] = may_be_short(program, &program->steps[i]);
    for (bool changed = e->sorts; changed;) {
        changed = false;
        clear_nothing(e);
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
    *rows = (rcvi_cuda_rows){.order = rcvi_new(context, (size_t)batch, sizeof *rows->order),
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

/* Counting sort; sequences of one length keep their order. */
void rcvi_cuda_rows_sort(rcvi_cuda_rows *rows, rcvi_sizes sizes, const int64_t *lengths) {
    int64_t steps = sizes.steps, *alive = rows->alive;
    memset(alive, 0, ((size_t)steps + 1) * sizeof *alive);
    for (int64_t b = 0; b < sizes.batch; b++) alive[lengths[b] - 1]++;
    for (int64_t t = steps - 1; t > 0; t--) alive[t - 1] += alive[t]; /* now: sequences longer than t - 1 */
    for (int64_t b = sizes.batch; b-- > 0;) { /* from the last: to the last free place of its length */
        int64_t place = --alive[lengths[b] - 1];
        rows->order[place] = b;
        rows->lengths[place] = lengths[b];
    }
    for (int64_t t = 0; t < steps; t++) alive[t] = 0;
    for (int64_t b = 0; b < sizes.batch; b++) alive[lengths[b] - 1]++;
    for (int64_t t = steps - 1; t > 0; t--) alive[t - 1] += alive[t];
}

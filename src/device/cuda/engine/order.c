/* The order of launches: segments, levels and groups (engine.h). */
#include "device/cuda/engine/engine.h"
#include "device/cuda/engine/tuning.h"
#include "device/cuda/kernels/kernels.h"

typedef struct {
    rcvi_engine *engine;
    int *level; /* [steps] */
    size_t capacity;
} orderer;

static bool is_plain(const rcvi_program *program, int step) { return program->steps[step].kind != RCVI_STEP_LOOP; }

static bool is_batch_major(const rcvi_engine *e, const rcvi_view *view) {
    return view->buffer != RCVI_NONE && e->program->buffers[view->buffer].is_batch_major;
}

/* Whether the step converts parameters: a row of any length, which tiles would cut into pieces of their own width. */
static bool is_conversion(const rcvi_engine *e, const rcvi_step *step) {
    return step->kind == RCVI_STEP_COPY && e->program->buffers[step->out.buffer].replaces;
}

/* Whether the step is a small copy, a small fill with zeros, or packs a matrix of the parameters: all of these may share a launch. Not
 * with batch-major arrays, whose rows have another order, nor where it adds. */
static bool is_move(const rcvi_engine *e, const rcvi_step *step) {
    bool prepares = step->when == RCVI_WHEN_PARAMETERS_CHANGED && !is_conversion(e, step);
    bool small = step->rows * step->columns <= RCVI_TUNED_SHARED_MOVE || prepares;
    if (is_batch_major(e, &step->a) || is_batch_major(e, &step->out) || step->accumulate) return false;
    bool zeros = step->kind == RCVI_STEP_FILL && step->fill.number == 0;
    return step->kind == RCVI_STEP_PACK || ((step->kind == RCVI_STEP_COPY || zeros) && small);
}

/* Whether the step sums over a fixed number of rows: such steps of one size may share a launch. */
static bool is_sum(const rcvi_step *step) {
    return step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows && !step->time.timed;
}

static bool are_sums_alike(const rcvi_engine *e, const rcvi_step *a, const rcvi_step *b) {
    const rcvi_buffer *buffers = e->program->buffers;
    const rcvi_buffer *out[] = {&buffers[a->out.buffer], &buffers[b->out.buffer]};
    if (!is_sum(a) || !is_sum(b) || out[0]->role != out[1]->role || out[0]->replaces != out[1]->replaces) return false;
    return a->rows == b->rows && a->columns == b->columns && a->accumulate == b->accumulate &&
           rcvi_cuda_type_of(e, &a->a) == rcvi_cuda_type_of(e, &b->a);
}

/* With several streams what is computed from the parameters of one layer may run beside the loop of another: not in one launch with
 * other layers. */
static bool may_move_together(const rcvi_engine *e, const rcvi_step *a, const rcvi_step *b) {
    bool made[2] = {a->when == RCVI_WHEN_PARAMETERS_CHANGED, b->when == RCVI_WHEN_PARAMETERS_CHANGED};
    return e->streams < 2 || (made[0] == made[1] && (!made[0] || a->layer == b->layer));
}

/* Whether one launch takes both: moves, sums of one size, and maps with the same kernel, strides, columns and depths. */
static bool are_alike(const rcvi_engine *e, int x, int y) {
    const rcvi_step *a = &e->program->steps[x], *b = &e->program->steps[y];
    const rcvi_cuda_ready *p = &e->ready[x], *q = &e->ready[y];
    if (is_move(e, a) && is_move(e, b)) return may_move_together(e, a, b);
    if (are_sums_alike(e, a, b)) return true;
    if (a->kind != RCVI_STEP_MAP || b->kind != RCVI_STEP_MAP || p->kernel != q->kernel || a->columns != b->columns ||
        p->view_count != q->view_count || p->pass_count != q->pass_count)
        return false;
    for (int v = 0; v < p->view_count; v++) {
        bool absent = p->views[v]->buffer == RCVI_NONE;
        if (absent != (q->views[v]->buffer == RCVI_NONE)) return false;
        if (!absent && p->views[v]->row != q->views[v]->row) return false;
    }
    for (int i = 0; i < p->pass_count; i++) {
        if (p->passes[i].depth != q->passes[i].depth) return false;
    }
    return true;
}

static rcv_status add_group(orderer *o, int first, int place) {
    rcvi_engine *e = o->engine;
    if (!rcvi_grow(e->context, &e->groups, &o->capacity, e->group_count + 1, sizeof *e->groups)) return RCV_NO_MEMORY;
    e->group_of[first] = (int)e->group_count;
    e->groups[e->group_count++] = (rcvi_cuda_group){.first = first, .count = 1, .place = place};
    return RCV_OK;
}

static void find_levels(orderer *o, int first, int end) {
    const rcvi_program *program = o->engine->program;
    for (int i = first; i < end; i++) {
        o->level[i] = 0;
        for (int k = first; k < i; k++) {
            if (o->level[k] >= o->level[i] && rcvi_steps_conflict(program, &program->steps[k], &program->steps[i]))
                o->level[i] = o->level[k] + 1;
        }
    }
}

/* Sorts steps first .. end - 1 by level, members of a group next to each other. */
static rcv_status order_segment(orderer *o, int first, int end) {
    rcvi_engine *e = o->engine;
    find_levels(o, first, end);
    int placed = first;
    bool merges = e->program->rungs.merge;
    for (int level = 0; placed < end; level++) {
        for (int i = first, place = 0; i < end; i++) {
            if (o->level[i] != level) continue;
            o->level[i] = RCVI_NONE;
            RCVI_TRY(add_group(o, placed, place++));
            rcvi_cuda_group *group = &e->groups[e->group_count - 1];
            e->order[placed++] = i;
            const rcvi_step *step = &e->program->steps[i];
            bool map = step->kind == RCVI_STEP_MAP;
            if (!merges || (!map && !is_move(e, step) && !is_sum(step))) continue;
            int most = map            ? e->kernels[e->ready[i].kernel].shape.members
                       : is_sum(step) ? RCVI_MAX_SUMS
                                      : RCVI_MAX_MOVES;
            for (int k = i + 1; k < end && group->count < most; k++) {
                if (o->level[k] != level || !are_alike(e, i, k)) continue;
                o->level[k] = RCVI_NONE;
                e->order[placed++] = k;
                group->count++;
            }
        }
    }
    return RCV_OK;
}

rcv_status rcvi_cuda_order(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    int count = (int)program->step_count, forward = (int)program->forward_count, ends[2] = {0, 0};
    orderer o = {.engine = e, .level = rcvi_pool_new(&e->pool, program->step_count, sizeof(int))};
    e->order = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->order);
    e->group_of = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->group_of);
    if (e->pool.failed) return RCV_NO_MEMORY;
    int64_t times[2] = {1, 1};
    for (int i = 0; i < count;) {
        if (i >= ends[1]) ends[1] = 0, times[1] = 1;
        if (i >= ends[0]) ends[0] = 0, times[0] = 1;
        e->group_of[i] = RCVI_NONE;
        e->order[i] = i;
        if (e->persistent[i] || e->recurrences[i]) { /* its steps are not launched */
            for (int end = i + 1 + program->steps[i].loop.body; i < end; i++) e->group_of[i] = RCVI_NONE;
            e->launches += 2;
            continue;
        }
        if (!is_plain(program, i)) {
            int depth = ends[0] ? 1 : 0;
            ends[depth] = i + 1 + program->steps[i].loop.body;
            times[depth] = program->steps[i].loop.count;
            i++;
            continue;
        }
        int limit = ends[1] ? ends[1] : ends[0] ? ends[0] : i < forward ? forward : count, end = i;
        while (end < limit && is_plain(program, end)) e->group_of[end++] = RCVI_NONE;
        size_t before = e->group_count;
        RCVI_TRY(order_segment(&o, i, end));
        e->launches += (int64_t)(e->group_count - before) * times[0] * times[1];
        i = end;
    }
    return RCV_OK;
}

/* A pass: the host goes through a program's loops and launches what is due, on a stream, after what it depends on. */
#include "device/cuda/engine/pass.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LOOP_TOUCHES = 256 };

static const rcvi_touch everything = {.low = 0, .high = UINTPTR_MAX, .written = true};

/* Whether the step copies between a buffer and the caller's array that is used in its place. */
static bool is_in_place(const rcvi_cuda_pass *p, const rcvi_step *step) {
    const int *stand_ins = p->engine->stand_ins;
    if (step->kind != RCVI_STEP_COPY || step->a.buffer == RCVI_NONE) return false;
    bool stands = stand_ins[step->out.buffer] == step->a.buffer || stand_ins[step->a.buffer] == step->out.buffer;
    return stands && p->worker->buffers[step->a.buffer] == p->worker->buffers[step->out.buffer];
}

static bool is_due(const rcvi_cuda_pass *p, int index, rcvi_cuda_due *d) {
    const rcvi_step *step = &p->program->steps[index];
    const rcvi_binding *binding = p->binding;
    d->index = (size_t)index;
    d->step = step;
    d->views = p->worker->views[index];
    d->ready = &p->engine->ready[index];
    if (step->when == RCVI_WHEN_OVERWRITING && (!binding->overwrite || p->engine->covers)) return false;
    if (step->when == RCVI_WHEN_ADDING && p->engine->covers) return false;
    if (step->when == RCVI_WHEN_RESTART_IS_INITIAL && !binding->restart_is_initial[step->state]) return false;
    if (step->when == RCVI_WHEN_PARAMETERS_CHANGED && binding->same_parameters) return false;
    if (step->when != RCVI_WHEN_PARAMETERS_CHANGED && binding->only_prepares) return false;
    bool backward = (size_t)index >= p->program->forward_count;
    if (is_in_place(p, step) || p->worker->dead[backward][index]) return false;
    if (!rcvi_step_is_due(p->program, step, p->inner, p->outer, &d->time, &d->span)) return false;
    bool over_depth = step->kind == RCVI_STEP_GEMM && step->gemm.transpose_a;
    d->rows = over_depth || !step->time.timed ? step->rows : step->rows / step->time.span * d->span;
    if (p->engine->is_short[index] && !p->engine->counts) d->rows = p->worker->rows.alive[rcvi_cuda_step_of(p, d)];
    return d->rows > 0;
}

/* ---- streams ---- */

/* Groups of a level go to different streams; those that run beside loops, to any but the first. In a loop, steps over a chunk of time
 * go to other streams than steps of single time steps. */
static int stream_of(const rcvi_cuda_pass *p, const rcvi_cuda_group *group) {
    int index = p->engine->order[group->first], streams = p->worker->streams.count;
    const rcvi_step *step = &p->engine->program->steps[index];
    if (streams < 2) return 0;
    if (rcvi_cuda_goes_beside(p->engine, (size_t)index)) return 1 + group->place % (streams - 1);
    return (group->place + (step->time.span > 1 && p->inside ? streams / 2 : 0)) % streams;
}

/* The bytes that a step touches; a rounded copy is written and read together with its buffer, and needs no touch. Returns how many there are. */
static size_t find_touches(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, rcvi_touch *touches, size_t room) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(d->step, accesses);
    size_t found = 0;
    for (int k = 0; k < count && found < room; k++) {
        const rcvi_view *v = accesses[k].view;
        char *base = p->worker->buffers[v->buffer];
        if (!base) continue;
        int64_t size = (int64_t)rcvi_cuda_bytes(rcvi_cuda_type_of(p->engine, v)), rows = accesses[k].rows;
        if (accesses[k].spans && d->step->time.timed) rows = rows / d->step->time.span * d->span;
        int64_t start = rcvi_view_start(v, p->inner, p->outer, d->time), length = (rows - 1) * v->row;
        if (d->step->kind == RCVI_STEP_GEMM) {
            int64_t move = v == &d->step->out ? d->step->gemm.step_out
                           : v == &d->step->a ? d->step->gemm.step_a
                                              : d->step->gemm.step_b;
            length += (d->step->gemm.batch - 1) * move;
        }
        length += (accesses[k].columns - 1) * v->column + 1;
        if (p->engine->padded[v->buffer]) length = rows * v->row;
        if (p->engine->transposed[v->buffer]) { /* its rows are not contiguous: all of it */
            start = 0;
            length =
                p->engine->program->buffers[v->buffer].count; /* of the largest call: so far apart its features are */
        }
        touches[found++] = (rcvi_touch){.low = (uintptr_t)(base + start * size),
                                        .high = (uintptr_t)(base + (start + length) * size),
                                        .written = accesses[k].written};
    }
    if (d->ready->operand && found < room) {
        uintptr_t at = (uintptr_t)rcvi_cuda_slot(p, d);
        touches[found++] =
            (rcvi_touch){.low = at, .high = at + p->engine->split_a_bytes, .written = !rcvi_cuda_is_in_slot(p, d)};
    }
    return found;
}

/* The same of all members of a launch. */
static size_t find_all_touches(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, rcvi_touch *touches) {
    size_t found = 0;
    for (int m = 0; m < count; m++) found += find_touches(p, &members[m], touches + found, RCVI_MAX_TOUCHES - found);
    return found;
}

/* The same of a loop that is one kernel, or a few: whole buffers of its steps. */
static size_t find_loop_touches(const rcvi_cuda_pass *p, size_t loop, rcvi_touch *touches) {
    const rcvi_program *program = p->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    size_t found = 0;
    for (size_t i = loop + 1; i <= loop + (size_t)program->steps[loop].loop.body; i++) {
        int count = program->steps[i].kind == RCVI_STEP_LOOP ? 0 : rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_buffer *buffer = &program->buffers[accesses[k].view->buffer];
            uintptr_t low = (uintptr_t)p->worker->buffers[accesses[k].view->buffer];
            size_t at = 0, bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element);
            if (!low) continue;
            while (at < found && touches[at].low != low) at++;
            if (at == found && found == MOST_LOOP_TOUCHES) {
                touches[0] = everything;
                return 1;
            }
            if (at == found) touches[found++] = (rcvi_touch){.low = low};
            if (low + bytes > touches[at].high) touches[at].high = low + bytes;
            touches[at].written |= accesses[k].written;
        }
    }
    return found;
}

static bool has_products(const rcvi_step *step) {
    return step->kind == RCVI_STEP_GEMM || (step->kind == RCVI_STEP_MAP && step->map->product_count > 0);
}

static int find_members(const rcvi_cuda_pass *p, const rcvi_cuda_group *group, rcvi_cuda_due *members) {
    int count = 0;
    if (p->products && !has_products(&p->engine->program->steps[p->engine->order[group->first]])) return 0;
    for (int i = 0; i < group->count; i++) count += is_due(p, p->engine->order[group->first + i], &members[count]);
    return count;
}

static rcv_status launch_on(const rcvi_cuda_pass *p, const rcvi_cuda_group *group, int stream) {
    rcvi_cuda_due members[RCVI_MOST_STEPS];
    rcvi_touch touches[RCVI_MAX_TOUCHES];
    int count = find_members(p, group, members);
    size_t found = find_all_touches(p, members, count, touches);
    RCVI_TRY(rcvi_streams_enter(&p->worker->streams, stream, touches, found));
    return rcvi_cuda_launch_members(p, members, count, stream, p->worker->streams.handles[stream]);
}

/* ---- launches beside persistent loops ---- */

static bool may_be_deferred(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count) {
    if (p->deferred_count == RCVI_MAX_DEFERRED) return false;
    for (int m = 0; m < count; m++) {
        if (!rcvi_cuda_goes_beside(p->engine, members[m].index)) return false;
    }
    return true;
}

/* Launches the deferred groups, up to the last one that conflicts with these touches. */
static rcv_status launch_deferred(rcvi_cuda_pass *p, const rcvi_touch *touches, size_t count) {
    int last = 0;
    for (int i = 0; i < p->deferred_count; i++) {
        rcvi_cuda_due members[RCVI_MOST_STEPS];
        rcvi_touch own[RCVI_MAX_TOUCHES];
        size_t found = find_all_touches(p, members, find_members(p, p->deferred[i], members), own);
        if (rcvi_touches_conflict(own, found, touches, count)) last = i + 1;
    }
    for (int i = 0; i < last; i++) RCVI_TRY(launch_on(p, p->deferred[i], stream_of(p, p->deferred[i])));
    p->deferred_count -= last;
    memmove(p->deferred, p->deferred + last, (size_t)p->deferred_count * sizeof *p->deferred);
    return RCV_OK;
}

/* Launches all deferred groups beside the last launch on stream 0; `begun` was recorded before that. */
static rcv_status launch_beside(rcvi_cuda_pass *p, cudaEvent_t begun) {
    int others = p->worker->streams.count - 1;
    for (int i = 0; i < p->deferred_count; i++) {
        int stream = 1 + i % others;
        if (i < others) RCVI_TRY(rcvi_streams_beside(&p->worker->streams, stream, begun));
        RCVI_TRY(launch_on(p, p->deferred[i], stream));
    }
    p->deferred_count = 0;
    return RCV_OK;
}

static rcv_status launch_group(rcvi_cuda_pass *p, const rcvi_cuda_group *group) {
    rcvi_cuda_due members[RCVI_MOST_STEPS];
    rcvi_touch touches[RCVI_MAX_TOUCHES];
    int count = find_members(p, group, members);
    if (count == 0) return RCV_OK;
    if (p->worker->streams.count < 2) {
        bool beside = rcvi_cuda_goes_beside(p->engine, members[0].index);
        return rcvi_cuda_launch_members(p, members, count, beside, p->worker->streams.handles[0]);
    }
    if (may_be_deferred(p, members, count)) {
        p->deferred[p->deferred_count++] = group;
        return RCV_OK;
    }
    if (p->deferred_count) RCVI_TRY(launch_deferred(p, touches, find_all_touches(p, members, count, touches)));
    return launch_on(p, group, stream_of(p, group));
}

/* Clears the buffers of which the steps of this loop leave rows out. */
static rcv_status clear_buffers(rcvi_cuda_pass *p, size_t loop) {
    const rcvi_engine *e = p->engine;
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        const rcvi_buffer *buffer = &p->program->buffers[b];
        if (e->cleared_before[b] != (int)loop) continue;
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(e->program, buffer->element);
        uintptr_t at = (uintptr_t)p->worker->buffers[b];
        cudaStream_t stream = p->worker->streams.handles[0];
        const rcvi_touch touch = {.low = at, .high = at + bytes, .written = true};
        RCVI_TRY(launch_deferred(p, &touch, 1));
        RCVI_TRY(rcvi_streams_enter(&p->worker->streams, 0, &touch, 1));
        RCVI_CUDA_TRY(cudaMemsetAsync(p->worker->buffers[b], 0, bytes, stream), "clearing a buffer");
        if (!rcvi_cuda_has_rounded(e, (int)b)) continue;
        RCVI_CUDA_TRY(cudaMemsetAsync(rcvi_cuda_rounded_copy(p->worker, p->scratch, (int)b), 0,
                                      (size_t)buffer->count * rcvi_cuda_bytes(e->narrow), stream),
                      "clearing a rounded copy");
    }
    return RCV_OK;
}

/* Launches a loop as one kernel, or a few. `around`: the iteration of the loop around it. */
static rcv_status launch_loop(rcvi_cuda_pass *p, size_t loop, int64_t around) {
    const rcvi_engine *e = p->engine;
    rcvi_worker *w = p->worker;
    rcvi_touch touches[MOST_LOOP_TOUCHES];
    if (p->products && e->recurrences[loop]) return RCV_OK;
    cudaStream_t stream = w->streams.handles[0];
    if (w->streams.count > 1) {
        size_t found = find_loop_touches(p, loop, touches);
        RCVI_TRY(e->persistent[loop] ? launch_deferred(p, touches, found) : launch_deferred(p, &everything, 1));
        RCVI_TRY(rcvi_streams_enter(&w->streams, 0, touches, found));
    }
    if (!e->persistent[loop])
        return rcvi_cuda_recurrences_launch(w, e->recurrences[loop], w->recurrences[loop], around, p->scratch, stream);
    cudaEvent_t begun = w->begun[w->begun_count++ > 0];
    RCVI_TRY(rcvi_persistent_launch(w, w->persistent[loop], p->scratch, begun, stream));
    return w->streams.count > 1 && !p->inside ? launch_beside(p, begun) : RCV_OK;
}

static rcv_status launch_steps(rcvi_cuda_pass *p, size_t first, size_t end) {
    const rcvi_engine *e = p->engine;
    int64_t around = p->inner;
    for (size_t i = first; i < end;) {
        const rcvi_step *step = &p->program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) {
            const rcvi_cuda_group *group = &e->groups[e->group_of[i]];
            RCVI_TRY(launch_group(p, group));
            i += (size_t)group->count;
            continue;
        }
        size_t body_end = i + 1 + (size_t)step->loop.body;
        if (p->binding->only_prepares) {
            i = body_end;
            continue;
        }
        if (e->sorts) RCVI_TRY(clear_buffers(p, i));
        if (e->persistent[i] || e->recurrences[i]) {
            RCVI_TRY(launch_loop(p, i, around));
            i = body_end;
            continue;
        }
        bool inside = p->inside;
        RCVI_TRY(launch_deferred(p, &everything, 1));
        p->inside = true;
        for (int64_t k = 0; k < step->loop.count; k++) {
            p->outer = around;
            p->inner = k;
            RCVI_TRY(launch_steps(p, i + 1, body_end));
        }
        p->inside = inside;
        p->inner = around;
        p->outer = 0;
        i = body_end;
    }
    return RCV_OK;
}

/* Finds the dead steps of a pass, unless the same arrays were left out as in the last such pass. */
static void find_dead_steps(rcvi_worker *w, size_t first, size_t end) {
    const rcvi_program *program = w->engine->program;
    rcvi_cuda_absent *known = &w->absent[first > 0];
    bool same = known->is_known;
    for (size_t i = 0; i < program->external_count; i++) {
        bool absent = !w->buffers[program->externals[i]];
        same &= known->externals[i] == absent;
        known->externals[i] = absent;
    }
    known->is_known = true;
    if (!same) rcvi_program_find_dead_steps(program, w->buffers, first, end, w->needed, w->dead[first > 0]);
}

rcv_status rcvi_cuda_launch(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                            cudaStream_t stream) {
    int slots[RCVI_MAX_STREAMS] = {0};
    const char *only = getenv("RECURVE_ONLY"); /* for measurements: the results are then meaningless */
    rcvi_cuda_pass p = {.worker = worker,
                        .engine = worker->engine,
                        .program = binding->program,
                        .binding = binding,
                        .scratch = scratch,
                        .slots = slots,
                        .products = only && !strcmp(only, "products")};
    find_dead_steps(worker, first, end);
    if (first == 0) RCVI_TRY(rcvi_cuda_round_inputs(&p, stream));
    worker->begun_count = 0;
    RCVI_TRY(rcvi_streams_begin(&worker->streams, stream));
    rcv_status status = launch_steps(&p, first, end);
    if (!status) status = launch_deferred(&p, &everything, 1);
    rcv_status ended = rcvi_streams_end(&worker->streams);
    return status ? status : ended;
}

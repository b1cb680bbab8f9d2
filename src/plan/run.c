/* A run: tables, and an arena in the device's memory (on the CPU all in one block), and a plan's program bound to the
 * caller's data. */
#include "plan/run.h"
#include "plan/plan.h"
#include "recurve_distributed.h"

#include <string.h>

enum { ALIGNMENT = 256 };

struct rcv_run {
    const rcv_plan *plan;
    bool forward_done;      /* and no backward call since, which overwrites what was kept */
    rcv_run *packer;        /* the run whose packed parameters it uses: itself, or another one of the plan */
    bool parameters_seen;   /* by a forward call: they are packed; valid in the packer, as is the next */
    bool backward_is_stale; /* parameters have changed since the last backward call */
    uint64_t seed;
    const uint64_t *seed_at; /* in the device's memory, or NULL */
    rcvi_shard shard;
    uint64_t *signals;      /* counters of the host; NULL: signals are not raised */
    const uint64_t *signal; /* in the device's memory */
    void *stream;
    rcvi_worker *worker;
    rcv_event *events;
    size_t event_capacity, event_count;
    rcvi_range *ranges;       /* [external_count] the caller's arrays, as the call that is being checked gives them */
    bool forward_is_checked;  /* `ranges` are those of a forward call, and do not overlap */
    bool *restart_is_initial; /* [state_count] */
    bool borrows;             /* its arena is another run's */
    char *arena;
    void *buffers[]; /* [buffer_count] */
};

static size_t header_bytes(const rcv_plan *plan) {
    size_t bytes = sizeof(rcv_run) + plan->program.buffer_count * sizeof(void *) +
                   plan->program.external_count * sizeof(rcvi_range) + plan->net->state_count * sizeof(bool);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t round_up(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t arena_bytes(const rcv_plan *plan) {
    return round_up(plan->program.arena_bytes) + plan->device->scratch_bytes(plan->engine);
}

static void *scratch_of(const rcv_run *run) { return run->arena + round_up(run->plan->program.arena_bytes); }

/* The run's own block. */
static size_t block_bytes(const rcv_plan *plan, bool borrows) {
    return header_bytes(plan) + (plan->device->memory || borrows ? 0 : ALIGNMENT + arena_bytes(plan));
}

size_t rcvi_run_bytes(const rcv_plan *plan) {
    return block_bytes(plan, false) + (plan->device->memory ? arena_bytes(plan) : 0) +
           plan->device->extra_bytes(plan->engine);
}

/* `lender` NULL: the arena is allocated. */
static rcv_status place_arena(rcv_run *run, const rcv_run *lender) {
    const rcv_plan *plan = run->plan;
    if (lender) {
        run->arena = lender->arena;
    } else if (plan->device->memory) {
        void *arena = NULL;
        RCVI_TRY(plan->device->memory->allocate(plan->ordinal, arena_bytes(plan), &arena));
        run->arena = arena;
    } else {
        uintptr_t arena = (uintptr_t)run + header_bytes(plan);
        run->arena = (char *)((arena + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    for (size_t b = 0; b < plan->program.buffer_count; b++) {
        if (plan->program.buffers[b].role == RCVI_ARENA)
            run->buffers[b] = run->arena + plan->program.buffers[b].arena_offset;
    }
    return RCV_OK;
}

/* Sizes and names of the caller's arrays: the same in every call. */
static void describe_ranges(rcv_run *run) {
    const rcvi_program *program = &run->plan->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        run->ranges[i] = (rcvi_range){.bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element),
                                      .name = buffer->name,
                                      .written = rcvi_roles[buffer->role].written};
    }
}

static rcv_status make(const rcv_plan *plan, const rcv_run *lender, rcv_run **out) {
    rcv_run *run = rcvi_new(plan->context, 1, block_bytes(plan, lender != NULL));
    if (!run) return RCV_NO_MEMORY;
    run->plan = plan;
    run->packer = run;
    run->borrows = lender != NULL;
    run->ranges = (rcvi_range *)(void *)(run->buffers + plan->program.buffer_count);
    run->restart_is_initial = (bool *)(run->ranges + plan->program.external_count);
    describe_ranges(run);
    rcv_status status = place_arena(run, lender);
    if (!status) status = plan->device->open(plan->engine, &run->worker);
    if (status) {
        rcv_run_free(run);
        return status;
    }
    *out = run;
    return RCV_OK;
}

rcv_status rcv_run_new(const rcv_plan *plan, rcv_run **out) {
    RCVI_NEED(out, "run");
    *out = NULL;
    RCVI_NEED(plan, "plan");
    return make(plan, NULL, out);
}

static bool can_borrow(const rcv_plan *plan, const rcv_run *lender) {
    return lender && !lender->borrows && lender->plan->device == plan->device &&
           lender->plan->ordinal == plan->ordinal && arena_bytes(plan) <= arena_bytes(lender->plan);
}

rcv_status rcvi_run_new_sharing_arena(const rcv_plan *plan, const rcv_run *lender, rcv_run **out) {
    *out = NULL;
    return make(plan, can_borrow(plan, lender) ? lender : NULL, out);
}

bool rcvi_run_share_packed(rcv_run *run, rcv_run *packer) {
    const rcvi_program *program = &run->plan->program;
    if (run->plan != packer->plan || run->plan->device->memory) return false;
    for (size_t b = 0; b < program->buffer_count; b++) {
        if (program->buffers[b].role == RCVI_ARENA && program->buffers[b].lasting) run->buffers[b] = packer->buffers[b];
    }
    run->packer = packer;
    return true;
}

rcv_status rcvi_run_reset(rcv_run *run) {
    const rcv_plan *plan = run->plan;
    run->forward_done = run->packer->parameters_seen = false;
    run->packer->backward_is_stale = true;
    return plan->device->reset_scratch ? plan->device->reset_scratch(run->worker, scratch_of(run), run->stream)
                                       : RCV_OK;
}

void rcv_run_free(rcv_run *run) {
    if (!run) return;
    const rcv_plan *plan = run->plan;
    if (run->worker) plan->device->close(run->worker);
    if (plan->device->memory && run->arena && !run->borrows) plan->device->memory->release(plan->ordinal, run->arena);
    rcvi_free(plan->context, run);
}

size_t rcv_run_bytes(const rcv_run *run) {
    const rcv_plan *plan = run->plan;
    return run->borrows ? block_bytes(plan, true) + plan->device->extra_bytes(plan->engine) : plan->run_bytes;
}

/* Programs never write through the pointers of inputs: the verifier checks that. */
static void *writable(const void *input) {
    void *pointer;
    memcpy(&pointer, &input, sizeof pointer);
    return pointer;
}

static void *state_entry(void *const *array, size_t state) { return array ? array[state] : NULL; }
static void *const_state_entry(const void *const *array, size_t state) { return array ? writable(array[state]) : NULL; }

static rcv_status check_forward(const rcv_plan *plan, const rcv_forward *d) {
    const rcv_plan_options *o = &plan->program.options;
    if (!d->x) return rcvi_fail_null("rcv_run_forward", "data->x");
    if (!d->y) return rcvi_fail_null("rcv_run_forward", "data->y");
    if (!d->parameters && plan->net->parameter_elements) return rcvi_fail_null("rcv_run_forward", "data->parameters");
    if (o->lengths != (d->lengths != NULL)) {
        return rcvi_fail(RCV_INVALID, o->lengths ? "the plan was made for lengths, but none are given"
                                                 : "lengths are given, but the plan was made without them");
    }
    if (o->resets != (d->resets != NULL)) {
        return rcvi_fail(RCV_INVALID, o->resets ? "the plan was made for resets, but none are given"
                                                : "resets are given, but the plan was made without them");
    }
    return RCV_OK;
}

static rcv_status check_lengths(const rcv_plan *plan, const int64_t *lengths) {
    const rcv_plan_options *o = &plan->program.options;
    for (int64_t b = 0; lengths && b < o->batch; b++) {
        if (lengths[b] < 1 || lengths[b] > o->steps) {
            return rcvi_fail(RCV_INVALID, "length %lld of sequence %lld is not in 1 to %lld", (long long)lengths[b],
                             (long long)b, (long long)o->steps);
        }
    }
    return RCV_OK;
}

/* Is the device's memory the host's? */
static bool is_on_host(const rcv_run *run) { return !run->plan->device->memory; }

/* The caller's array of a buffer; NULL: absent, or none of a forward call's. */
static void *forward_array(const rcv_forward *d, const rcvi_buffer *buffer) {
    size_t s = buffer->index;
    switch (buffer->role) {
    case RCVI_PARAMETERS: return writable(d->parameters);
    case RCVI_X: return writable(d->x);
    case RCVI_LENGTHS: return writable(d->lengths);
    case RCVI_RESETS: return writable(d->resets);
    case RCVI_Y: return d->y;
    case RCVI_INITIAL: return const_state_entry(d->initial, s);
    case RCVI_RESTART: {
        void *restart = const_state_entry(d->restart, s);
        return restart ? restart : const_state_entry(d->initial, s);
    }
    case RCVI_FINAL: return state_entry(d->final, s);
    default: return NULL;
    }
}

static bool is_gradient(rcvi_role role) { return role >= RCVI_DY; }

/* Arrays that are the same as in the call before are not checked again: the check takes as long as a small call. */
static rcv_status check_forward_arrays(rcv_run *run, const rcv_forward *d) {
    const rcvi_program *program = &run->plan->program;
    bool same = run->forward_is_checked;
    for (size_t i = 0; i < program->external_count; i++) {
        const void *begin = forward_array(d, &program->buffers[program->externals[i]]);
        same &= begin == run->ranges[i].begin;
        run->ranges[i].begin = begin;
    }
    if (same) return RCV_OK;
    rcv_status status = rcvi_check_overlap("rcv_run_forward", run->ranges, program->external_count);
    run->forward_is_checked = !status;
    return status;
}

/* Binds the arrays that were checked. */
static void bind_forward(rcv_run *run, const rcv_forward *d) {
    const rcvi_program *program = &run->plan->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (!is_gradient(buffer->role)) run->buffers[program->externals[i]] = writable(run->ranges[i].begin);
    }
    for (size_t s = 0; s < run->plan->net->state_count; s++)
        run->restart_is_initial[s] = !const_state_entry(d->restart, s);
}

static rcv_status start(rcv_run *run, size_t first, size_t end, bool same_parameters, bool overwrite) {
    const rcv_plan *plan = run->plan;
    rcvi_binding binding = {.buffers = run->buffers,
                            .restart_is_initial = run->restart_is_initial,
                            .overwrite = overwrite,
                            .same_parameters = same_parameters,
                            .seed = run->seed,
                            .seed_at = is_on_host(run) ? NULL : run->seed_at,
                            .shard = run->shard,
                            .signals = run->signals,
                            .signal = run->signal,
                            .stream = run->stream,
                            .events = run->events,
                            .event_capacity = run->event_capacity,
                            .event_count = &run->event_count};
    return plan->device->run(run->worker, first, end, &binding, scratch_of(run));
}

rcv_status rcv_run_forward(rcv_run *run, const rcv_forward *data) {
    RCVI_NEED(run, "run");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_forward, data, "data");
    rcv_status status = check_forward(run->plan, data);
    if (!status) status = check_lengths(run->plan, data->lengths);
    if (!status) status = check_forward_arrays(run, data);
    if (status) return status;
    bind_forward(run, data);
    run->seed = run->seed_at && is_on_host(run) ? *run->seed_at : data->seed;
    rcv_run *packer = run->packer;
    bool same = data->same_parameters && packer->parameters_seen;
    run->forward_done = packer->parameters_seen = false; /* until it has succeeded */
    RCVI_TRY(start(run, 0, run->plan->program.forward_count, same, false));
    packer->parameters_seen = true;
    packer->backward_is_stale |= !same;
    run->forward_done = true;
    return RCV_OK;
}

/* As forward_array. */
static void *backward_array(const rcv_backward *d, const rcvi_buffer *buffer) {
    size_t s = buffer->index;
    switch (buffer->role) {
    case RCVI_DY: return writable(d->dy);
    case RCVI_DFINAL: return const_state_entry(d->dfinal, s);
    case RCVI_DX: return d->dx;
    case RCVI_DINITIAL: return state_entry(d->dinitial, s);
    case RCVI_DRESTART: return state_entry(d->drestart, s);
    case RCVI_DPARAMETERS: return d->dparameters;
    default: return NULL;
    }
}

/* Inputs of the forward call are read again; its outputs are not. */
static rcv_status check_backward_arrays(rcv_run *run, const rcv_backward *d) {
    const rcvi_program *program = &run->plan->program;
    run->forward_is_checked = false;
    for (size_t i = 0; i < program->external_count; i++) {
        int b = program->externals[i];
        const rcvi_buffer *buffer = &program->buffers[b];
        bool kept = !is_gradient(buffer->role) && !rcvi_roles[buffer->role].written;
        run->ranges[i].begin = kept ? run->buffers[b] : backward_array(d, buffer);
    }
    return rcvi_check_overlap("rcv_run_backward", run->ranges, program->external_count);
}

static void bind_backward(rcv_run *run, const rcv_backward *d) {
    const rcvi_program *program = &run->plan->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (is_gradient(buffer->role)) run->buffers[program->externals[i]] = backward_array(d, buffer);
    }
}

rcv_status rcv_run_backward(rcv_run *run, const rcv_backward *data) {
    RCVI_NEED(run, "run");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_backward, data, "data");
    if (!run->plan->program.options.training)
        return rcvi_fail(RCV_INVALID, "the plan was made for inference; make it with training set");
    if (!run->forward_done)
        return rcvi_fail(RCV_INVALID, "a backward call needs a forward call before it, each its own");
    for (size_t s = 0; s < run->plan->net->state_count; s++) {
        if (state_entry(data->drestart, s) && run->restart_is_initial[s]) {
            return rcvi_fail(RCV_INVALID, "drestart of state %s is asked for, but no restart state was given",
                             run->plan->net->states[s].name);
        }
    }
    RCVI_TRY(check_backward_arrays(run, data));
    bind_backward(run, data);
    run->forward_done = false;
    const rcvi_program *program = &run->plan->program;
    RCVI_TRY(
        start(run, program->forward_count, program->step_count, !run->packer->backward_is_stale, !data->accumulate));
    run->packer->backward_is_stale = false;
    return RCV_OK;
}

rcv_status rcv_run_set_stream(rcv_run *run, void *stream) {
    RCVI_NEED(run, "run");
    if (stream && !run->plan->device->wait)
        return rcvi_fail(RCV_UNSUPPORTED, "device %s has no streams", run->plan->device->name);
    run->stream = stream;
    return RCV_OK;
}

void rcvi_run_set_seed_at(rcv_run *run, const uint64_t *seed) { run->seed_at = seed; }
rcv_status rcv_run_set_signals(rcv_run *run, uint64_t *signals, const uint64_t *value) {
    RCVI_NEED(run, "run");
    RCVI_NEED(value || !signals, "value");
    if (signals && !run->plan->program.options.signals)
        return rcvi_fail(RCV_INVALID, "the plan was made without signals; make it with signals set");
    run->signals = signals;
    run->signal = value;
    return RCV_OK;
}

void rcvi_run_set_shard(rcv_run *run, const rcvi_shard *shard) { run->shard = *shard; }

void *rcvi_run_loop_event(const rcv_run *run, bool last) {
    const rcvi_device *device = run->plan->device;
    return device->loop_event ? device->loop_event(run->worker, last) : NULL;
}

rcv_status rcvi_run_set_lengths(rcv_run *run, const int64_t *lengths) {
    const rcv_plan *plan = run->plan;
    if (!plan->device->send_lengths || !lengths) return RCV_OK;
    RCVI_TRY(check_lengths(plan, lengths));
    for (size_t b = 0; b < plan->program.buffer_count; b++) {
        if (plan->program.buffers[b].role == RCVI_LENGTHS) run->buffers[b] = writable(lengths);
    }
    const rcvi_binding binding = {.buffers = run->buffers, .stream = run->stream};
    return plan->device->send_lengths(run->worker, &binding, scratch_of(run));
}

rcv_status rcv_run_wait(rcv_run *run) {
    RCVI_NEED(run, "run");
    return run->plan->device->wait ? run->plan->device->wait(run->worker) : RCV_OK;
}

rcv_status rcv_run_trace(rcv_run *run, rcv_event *events, size_t capacity) {
    RCVI_NEED(run, "run");
    run->events = capacity ? events : NULL;
    run->event_capacity = run->events ? capacity : 0;
    run->event_count = 0;
    return RCV_OK;
}

size_t rcv_run_trace_count(const rcv_run *run) { return run->event_count; }

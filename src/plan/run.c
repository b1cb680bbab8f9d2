/* A run: made, freed, set up; the versions of its plan. The calls are in call.c. */
#include "plan/run_layout.h"

#include <string.h>

/* Versions of a plan by RCV_BACKGROUND. */
enum { FIRST = 1, FOUND = 2 };

/* `lender` NULL: the arena is allocated. */
static rcv_status place_arena(rcv_run *run, const rcv_run *lender) {
    const rcv_plan *plan = run->plan;
    if (lender) {
        run->arena = lender->arena;
    } else if (plan->device->memory) {
        void *arena = NULL;
        RCVI_TRY(plan->device->memory->allocate(plan->ordinal, rcvi_run_arena_bytes(plan, run->owner), &arena));
        run->arena = arena;
    } else {
        run->host_block = rcvi_allocate(plan->context, RCVI_RUN_ALIGNMENT + rcvi_run_arena_bytes(plan, run->owner));
        if (!run->host_block) return RCV_NO_MEMORY;
        uintptr_t arena = (uintptr_t)run->host_block;
        run->arena = (char *)((arena + RCVI_RUN_ALIGNMENT - 1) / RCVI_RUN_ALIGNMENT * RCVI_RUN_ALIGNMENT);
    }
    for (size_t b = 0; b < plan->program.buffer_count; b++) {
        const rcvi_buffer *buffer = &plan->program.buffers[b];
        if (buffer->role == RCVI_ARENA && !buffer->kept && buffer->arena_bytes)
            run->buffers[b] = rcvi_run_arena_place(run, buffer);
    }
    if (run->owner == RCVI_OF_RUN) rcvi_run_use_reserve(run, run->arena);
    return RCV_OK;
}

static rcv_status make(const rcv_plan *plan, const rcv_run *lender, rcvi_reserve_owner owner, rcv_run **out) {
    rcv_run *run = rcvi_new(plan->context, 1, rcvi_run_header_bytes(plan));
    if (!run) return RCV_NO_MEMORY;
    run->plan = plan;
    run->version = FIRST;
    run->last = run->recent = run;
    run->owner = owner;
    run->packer = run;
    run->borrows = lender != NULL;
    run->parameters = (const void **)(run->buffers + plan->program.buffer_count);
    run->ranges = (rcvi_range *)(void *)(run->parameters + rcvi_run_array_count(plan));
    char *after = (char *)(run->ranges + plan->program.external_count + 1);
    if (rcvi_run_copies_lengths(plan)) run->lengths = (int64_t *)(void *)after;
    run->restart_is_initial = (bool *)(after + rcvi_run_lengths_bytes(plan));
    size_t instance_bytes = rcvi_run_round_up(rcvi_instance_bytes(&plan->program));
    run->instance = rcvi_instance_make(&plan->program, (char *)run + rcvi_run_header_bytes(plan) - instance_bytes);
    rcvi_run_describe_ranges(run);
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
    rcvi_reserve_owner owner = rcvi_run_owner(plan);
    const rcv_plan *newest = owner == RCVI_OF_CALLS ? plan : rcvi_plan_newest(plan); /* see rcv_run_update */
    rcv_run *run = NULL, *small = NULL;
    if (plan->small) RCVI_TRY(rcv_run_new(plan->small, &small));
    rcv_status status = make(newest, NULL, owner, &run);
    if (status || !run) {
        rcv_run_free(small);
        return status;
    }
    run->small = small;
    *out = run;
    if (!plan->background) return RCV_OK;
    run->first_plan = plan;
    run->version = newest == plan ? FIRST : FOUND;
    rcvi_background_watch(plan->background, &run->watched);
    return RCV_OK;
}

rcv_status rcvi_run_new_with_reserve(const rcv_plan *plan, rcv_run **out) {
    *out = NULL;
    return make(plan, NULL, RCVI_OF_RUN, out);
}

static bool can_borrow(const rcv_plan *plan, const rcv_run *lender) {
    return lender && !lender->borrows && lender->plan->device == plan->device &&
           lender->plan->ordinal == plan->ordinal &&
           rcvi_run_arena_bytes(plan, rcvi_run_owner(plan)) <= rcvi_run_arena_bytes(lender->plan, lender->owner);
}

rcv_status rcvi_run_new_sharing_arena(const rcv_plan *plan, const rcv_run *lender, rcv_run **out) {
    *out = NULL;
    return make(plan, can_borrow(plan, lender) ? lender : NULL, rcvi_run_owner(plan), out);
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
    return plan->device->reset_scratch ? plan->device->reset_scratch(run->worker, rcvi_run_scratch(run), run->stream)
                                       : RCV_OK;
}

/* Frees all but the run itself, which makes no more calls. */
static void free_memory(rcv_run *run) {
    const rcv_plan *plan = run->plan;
    if (run->worker) plan->device->close(run->worker);
    if (plan->device->memory && run->arena && !run->borrows) plan->device->memory->release(plan->ordinal, run->arena);
    rcvi_free(plan->context, run->host_block);
    run->worker = NULL;
    run->arena = NULL;
    run->host_block = NULL;
}

void rcv_run_free(rcv_run *run) {
    if (!run) return;
    rcv_run_free(run->small);
    if (run->first_plan) rcvi_background_unwatch(run->first_plan->background, &run->watched);
    rcv_run_free(run->newer);
    free_memory(run);
    rcvi_free(run->plan->context, run);
}

static size_t reserve_of(const rcv_plan *plan) {
    return plan->program.options.training ? rcvi_run_needs_reserve(plan) : 0;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t rcv_plan_reserve_bytes(const rcv_plan *plan) {
    size_t own = larger(reserve_of(plan), reserve_of(rcvi_plan_newest(plan)));
    return plan->small ? larger(own, rcv_plan_reserve_bytes(plan->small)) : own;
}

size_t rcv_run_bytes(const rcv_run *run) {
    const rcv_plan *plan = run->plan;
    size_t small = run->small ? rcv_run_bytes(run->small) : 0;
    if (!run->worker) return rcvi_run_header_bytes(plan) + rcv_run_bytes(run->newer) + small;
    size_t own = run->borrows ? rcvi_run_host_bytes(plan, run->owner, true) + plan->device->extra_bytes(plan->engine)
                              : plan->run_bytes;
    return own + (run->newer ? rcv_run_bytes(run->newer) : 0) + small;
}

/* ---- versions of a plan ---- */

static rcv_run *present(rcv_run *run) { return run->newer ? run->newer : run; }

/* Both versions are there at once while one replaces the other. */
static rcv_status check_both_fit(const rcv_run *run, const rcv_plan *newest) {
    size_t limit = run->plan->program.options.memory, both = run->plan->run_bytes + newest->run_bytes;
    if (!limit || both <= limit) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "both versions of the plan need %zu bytes, and the limit is %zu", both, limit);
}

/* The run of the newest version is made with the settings of this one. */
static rcv_status make_newer(rcv_run *run) {
    const rcv_plan *newest = rcvi_plan_newest(run->first_plan);
    if (run->newer || newest == run->plan) return RCV_OK;
    RCVI_TRY(check_both_fit(run, newest));
    rcv_run *newer = NULL;
    RCVI_TRY(make(newest, NULL, run->owner, &newer));
    newer->version = FOUND;
    newer->seed_at = run->seed_at;
    newer->shard = run->shard;
    newer->signals = run->signals;
    newer->signal = run->signal;
    newer->captures_at_once = run->captures_at_once;
    newer->stream = run->stream;
    newer->events = run->events;
    newer->event_capacity = run->event_capacity;
    newer->event_count = run->event_count;
    run->newer = newer;
    return RCV_OK;
}

rcv_status rcv_run_update(rcv_run *run) {
    RCVI_NEED(run, "run");
    if (run->small) RCVI_TRY(rcv_run_update(run->small));
    return run->first_plan ? make_newer(run) : RCV_OK;
}

int64_t rcv_run_version(const rcv_run *run) {
    if (run->recent != run) return rcv_run_version(run->recent);
    return run->newer ? run->newer->version : run->version;
}

size_t rcv_run_reserve_bytes(const rcv_run *run) {
    size_t own = reserve_of(run->newer ? run->newer->plan : run->plan);
    return run->small ? larger(own, rcv_run_reserve_bytes(run->small)) : own;
}

void rcvi_run_forget_parameters(rcv_run *run) {
    run->packer->parameters_seen = false;
    if (run->newer) run->newer->packer->parameters_seen = false;
}

/* A run whose calls are captured stays: the caller's graph refers to its memory. */
void rcvi_run_note_capture(rcv_run *run) {
    const rcvi_device *device = run->plan->device;
    if (run->stream && device->is_captured && device->is_captured(run->stream)) run->stays = true;
}

bool rcvi_run_will_follow(rcv_run *run) {
    rcvi_run_note_capture(run);
    bool may_follow = !run->stays && run->owner != RCVI_OF_CALLS;
    return may_follow && (run->newer ? run->worker != NULL : rcvi_plan_newest(run->first_plan) != run->plan);
}

void rcvi_run_follow_plan(rcv_run *run) {
    if (make_newer(run)) {
        rcvi_log(run->plan->context, "a run keeps its first plan: %s", rcv_message());
        run->stays = true;
    }
    if (!run->newer) return;
    run->last = run->newer;
    free_memory(run);
}

/* The run that makes a call of this version; 0: the present one. */
rcv_status rcvi_run_find_version(rcv_run *run, int64_t version, rcv_run **found) {
    *found = version == 0 ? present(run) : version == run->version ? run : run->newer;
    if (*found && (*found)->worker && (version == 0 || (*found)->version == version)) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "version %lld of the plan is none that this run has: rcv_run_version() is %lld",
                     (long long)version, (long long)rcv_run_version(run));
}

rcv_status rcv_run_set_stream(rcv_run *run, void *stream) {
    RCVI_NEED(run, "run");
    if (stream && !run->plan->device->wait)
        return rcvi_fail(RCV_UNSUPPORTED, "device %s has no streams", run->plan->device->name);
    run->stream = present(run)->stream = stream;
    if (run->small) RCVI_TRY(rcv_run_set_stream(run->small, stream));
    if (run->first_plan) rcvi_background_set_stream(run->first_plan->background, &run->watched, stream);
    return RCV_OK;
}

void rcvi_run_set_seed_at(rcv_run *run, const uint64_t *seed) { run->seed_at = present(run)->seed_at = seed; }
rcv_status rcv_run_set_signals(rcv_run *run, uint64_t *signals, const uint64_t *value) {
    RCVI_NEED(run, "run");
    RCVI_NEED(value || !signals, "value");
    if (signals && !run->plan->program.options.signals)
        return rcvi_fail(RCV_INVALID, "the plan was made without signals; make it with signals set");
    run->signals = present(run)->signals = signals;
    run->signal = present(run)->signal = value;
    return RCV_OK;
}

void rcvi_run_capture_at_once(rcv_run *run) { run->captures_at_once = true; }
void rcvi_run_set_shard(rcv_run *run, const rcvi_shard *shard) { run->shard = *shard; }

void *rcvi_run_loop_event(const rcv_run *run, bool last) {
    const rcvi_device *device = run->plan->device;
    return device->loop_event ? device->loop_event(run->worker, last) : NULL;
}

rcv_status rcv_run_wait(rcv_run *run) {
    RCVI_NEED(run, "run");
    const rcvi_device *device = run->plan->device;
    if (!device->wait) return RCV_OK;
    rcv_status newer = run->newer ? device->wait(run->newer->worker) : RCV_OK;
    rcv_status own = run->worker ? device->wait(run->worker) : RCV_OK;
    rcv_status small = run->small ? rcv_run_wait(run->small) : RCV_OK;
    return newer ? newer : own ? own : small;
}

rcv_status rcv_run_trace(rcv_run *run, rcv_event *events, size_t capacity) {
    RCVI_NEED(run, "run");
    if (run->small) RCVI_TRY(rcv_run_trace(run->small, events, capacity));
    run = present(run);
    run->events = capacity ? events : NULL;
    run->event_capacity = run->events ? capacity : 0;
    run->event_count = 0;
    return RCV_OK;
}

size_t rcv_run_trace_count(const rcv_run *run) {
    if (run->recent != run) return rcv_run_trace_count(run->recent);
    return run->newer ? run->newer->event_count : run->event_count;
}

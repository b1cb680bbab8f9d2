/* The memory of a run: tables, and an arena in the device's memory. */
#include "plan/run_layout.h"

size_t rcvi_run_round_up(size_t bytes) {
    return (bytes + RCVI_RUN_ALIGNMENT - 1) / RCVI_RUN_ALIGNMENT * RCVI_RUN_ALIGNMENT;
}

/* Arrays in which calls give parameters. */
size_t rcvi_run_array_count(const rcv_plan *plan) {
    return plan->program.options.separate_parameters ? plan->net->parameter_count : 1;
}

/* Lengths that are not checked are copied, where the device does not copy them. */
bool rcvi_run_copies_lengths(const rcv_plan *plan) {
    return plan->program.options.device_lengths && !plan->device->memory;
}

size_t rcvi_run_lengths_bytes(const rcv_plan *plan) {
    return rcvi_run_copies_lengths(plan) ? (size_t)plan->program.options.batch * sizeof(int64_t) : 0;
}

size_t rcvi_run_header_bytes(const rcv_plan *plan) {
    size_t bytes = rcvi_run_lengths_bytes(plan) + sizeof(rcv_run) +
                   (plan->program.buffer_count + rcvi_run_array_count(plan)) * sizeof(void *) +
                   (plan->program.external_count + 1) * sizeof(rcvi_range) + plan->net->state_count * sizeof(bool);
    return rcvi_run_round_up(bytes) + rcvi_run_round_up(rcvi_instance_bytes(&plan->program));
}

/* A reserve: the program's kept buffers, then what the device keeps. Calls on the host keep their seed, where there is one, behind the
 * buffers. */
size_t rcvi_run_kept_offset(const rcv_plan *plan) { return rcvi_run_round_up(plan->program.reserve_bytes); }
static size_t own_kept_bytes(const rcv_plan *plan) {
    return rcvi_run_kept_offset(plan) +
           (plan->device->kept_bytes ? rcvi_run_round_up(plan->device->kept_bytes(plan->engine)) : 0);
}
bool rcvi_run_keeps_seed(const rcv_plan *plan) { return !plan->device->memory && rcvi_net_is_random(plan->net); }
size_t rcvi_run_seed_offset(const rcv_plan *plan) { return plan->program.reserve_bytes; }
size_t rcvi_run_needs_reserve(const rcv_plan *plan) {
    return rcvi_run_keeps_seed(plan) ? rcvi_run_round_up(rcvi_run_seed_offset(plan) + sizeof(uint64_t))
                                     : own_kept_bytes(plan);
}

rcvi_reserve_owner rcvi_run_owner(const rcv_plan *plan) {
    return plan->program.options.reserve ? RCVI_OF_CALLS : RCVI_OF_RUN;
}
static size_t own_reserve_bytes(const rcv_plan *plan, rcvi_reserve_owner owner) {
    return owner == RCVI_OF_RUN ? own_kept_bytes(plan) : 0;
}

/* The run's memory: its reserve, all other buffers, the device's scratch. */
static size_t work_bytes(const rcv_plan *plan) {
    return rcvi_run_round_up(plan->program.arena_bytes - plan->program.reserve_bytes);
}
size_t rcvi_run_arena_bytes(const rcv_plan *plan, rcvi_reserve_owner owner) {
    return own_reserve_bytes(plan, owner) + work_bytes(plan) + plan->device->scratch_bytes(plan->engine);
}

void *rcvi_run_scratch(const rcv_run *run) {
    return run->arena + own_reserve_bytes(run->plan, run->owner) + work_bytes(run->plan);
}

/* In the host's memory: the run itself, and an arena that is there. */
size_t rcvi_run_host_bytes(const rcv_plan *plan, rcvi_reserve_owner owner, bool borrows) {
    return rcvi_run_header_bytes(plan) +
           (plan->device->memory || borrows ? 0 : RCVI_RUN_ALIGNMENT + rcvi_run_arena_bytes(plan, owner));
}

size_t rcvi_run_bytes(const rcv_plan *plan) {
    rcvi_reserve_owner owner = rcvi_run_owner(plan);
    return rcvi_run_host_bytes(plan, owner, false) + (plan->device->memory ? rcvi_run_arena_bytes(plan, owner) : 0) +
           plan->device->extra_bytes(plan->engine);
}

/* Kept buffers of the calls that follow are in this reserve. */
void rcvi_run_use_reserve(rcv_run *run, char *reserve) {
    const rcvi_program *program = &run->plan->program;
    if (run->reserve == reserve) return;
    run->reserve = reserve;
    for (size_t b = 0; b < program->buffer_count; b++) {
        if (program->buffers[b].kept) run->buffers[b] = reserve + program->buffers[b].arena_offset;
    }
}

/* Where a buffer of the arena that is not kept lies. */
void *rcvi_run_arena_place(const rcv_run *run, const rcvi_buffer *buffer) {
    const rcv_plan *plan = run->plan;
    return run->arena + own_reserve_bytes(plan, run->owner) + (buffer->arena_offset - plan->program.reserve_bytes);
}

/* Sizes and names of the caller's arrays. */
void rcvi_run_describe_ranges(rcv_run *run) {
    const rcvi_program *program = &run->instance->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        run->ranges[i] = (rcvi_range){.bytes = (size_t)buffer->count * rcvi_element_bytes(program, buffer->element),
                                      .name = buffer->name,
                                      .written = rcvi_roles[buffer->role].written};
    }
    run->ranges[program->external_count] = (rcvi_range){.bytes = rcvi_run_needs_reserve(run->plan), .name = "reserve"};
}

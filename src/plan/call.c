/* Calls of a run: the caller's arrays are checked and bound to the plan's program, which the device then runs. */
#include "plan/run_layout.h"

#include <string.h>

/* Programs never write through the pointers of inputs: the verifier checks that. */
static void *writable(const void *input) {
    void *pointer;
    memcpy(&pointer, &input, sizeof pointer);
    return pointer;
}

static void *state_entry(void *const *array, size_t state) { return array ? array[state] : NULL; }
static void *const_state_entry(const void *const *array, size_t state) { return array ? writable(array[state]) : NULL; }

static rcv_status check_tensors(const rcv_net *net, const void *const *tensors) {
    for (size_t i = 0; i < net->parameter_count; i++) {
        if (!tensors[i])
            return rcvi_fail(RCV_INVALID, "rcv_run_forward: data->tensors[%zu], which is %s, must not be NULL", i,
                             net->parameters[i].name);
    }
    return RCV_OK;
}

static rcv_status check_parameters(const rcv_plan *plan, const rcv_forward *d) {
    bool separate = plan->program.options.separate_parameters;
    if (separate ? d->parameters != NULL : d->tensors != NULL) {
        return rcvi_fail(RCV_INVALID, separate
                                          ? "parameters are given, but the plan was made for tensors: with "
                                            "separate_parameters"
                                          : "tensors are given, but the plan was made without separate_parameters");
    }
    if (!plan->net->parameter_elements) return RCV_OK;
    if (separate)
        return d->tensors ? check_tensors(plan->net, d->tensors) : rcvi_fail_null("rcv_run_forward", "data->tensors");
    return d->parameters ? RCV_OK : rcvi_fail_null("rcv_run_forward", "data->parameters");
}

static rcv_status check_forward(const rcv_run *run, const rcv_forward *d) {
    const rcv_plan *plan = run->plan;
    const rcv_plan_options *o = &plan->program.options;
    if (!d->x) return rcvi_fail_null("rcv_run_forward", "data->x");
    if (!d->y) return rcvi_fail_null("rcv_run_forward", "data->y");
    RCVI_TRY(check_parameters(plan, d));
    if (o->lengths != (d->lengths != NULL)) {
        return rcvi_fail(RCV_INVALID, o->lengths ? "the plan was made for lengths, but none are given"
                                                 : "lengths are given, but the plan was made without them");
    }
    if ((run->owner == RCVI_OF_CALLS) != (d->reserve != NULL)) {
        return rcvi_fail(RCV_INVALID, run->owner == RCVI_OF_CALLS
                                          ? "the plan was made for reserves, but none is given"
                                          : "a reserve is given, but the plan was made without them");
    }
    if ((uintptr_t)d->reserve % RCVI_RESERVE_ALIGNMENT)
        return rcvi_fail(RCV_INVALID, "the reserve does not lie at a multiple of %d bytes", RCVI_RESERVE_ALIGNMENT);
    if (o->resets != (d->resets != NULL)) {
        return rcvi_fail(RCV_INVALID, o->resets ? "the plan was made for resets, but none are given"
                                                : "resets are given, but the plan was made without them");
    }
    return RCV_OK;
}

static rcv_status check_lengths(const rcv_plan *plan, rcvi_sizes sizes, const int64_t *lengths) {
    bool checked = lengths && !plan->program.options.device_lengths;
    for (int64_t b = 0; checked && b < sizes.batch; b++) {
        if (lengths[b] < 1 || lengths[b] > sizes.steps) {
            return rcvi_fail(RCV_INVALID, "length %lld of sequence %lld is not in 1 to %lld", (long long)lengths[b],
                             (long long)b, (long long)sizes.steps);
        }
    }
    return RCV_OK;
}

/* Reads a call's size, which is 1 to `most`; 0 stands for the most. */
static rcv_status read_size(int64_t given, int64_t most, const char *name, const char *what, int64_t *size) {
    *size = given ? given : most;
    if (*size >= 1 && *size <= most) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "%s of this call is %lld, but the plan was made for 1 to %lld %s", name,
                     (long long)given, (long long)most, what);
}

static rcv_status read_sizes(const rcv_plan *plan, const rcv_forward *d, rcvi_sizes *sizes) {
    const rcv_plan_options *o = &plan->program.options;
    RCVI_TRY(read_size(d->steps, o->steps, "steps", "time steps", &sizes->steps));
    sizes->batch = 0;
    if (!plan->serves_sizes && (sizes->steps != o->steps || (d->batch && d->batch != o->batch)))
        return rcvi_fail(RCV_UNSUPPORTED, "this plan serves calls of its own sizes only");
    return d->batch == RCV_EMPTY ? RCV_OK : read_size(d->batch, o->batch, "batch", "sequences", &sizes->batch);
}

/* Sets the program, and what is known of the caller's arrays, to the sizes of a call. */
static void resize(rcv_run *run, rcvi_sizes sizes) {
    const rcvi_sizes *now = &run->instance->program.sizes;
    if (now->steps == sizes.steps && now->batch == sizes.batch) return;
    rcvi_instance_resize(run->instance, &run->plan->sizing, sizes);
    rcvi_run_describe_ranges(run);
    run->forward_is_checked = false;
}

/* Is the device's memory the host's? */
static bool is_on_host(const rcv_run *run) { return !run->plan->device->memory; }

/* The caller's array of a buffer; NULL: absent, or none of a forward call's. */
static void *forward_array(const rcv_forward *d, const rcvi_buffer *buffer) {
    size_t s = buffer->index;
    switch (buffer->role) {
    case RCVI_PARAMETERS: return d->tensors ? writable(d->tensors[s]) : writable(d->parameters);
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
    rcvi_range *reserve = &run->ranges[program->external_count];
    same &= reserve->begin == d->reserve && reserve->written;
    reserve->begin = d->reserve;
    reserve->written = true;
    if (same) return RCV_OK;
    rcv_status status = rcvi_check_overlap("rcv_run_forward", run->ranges, program->external_count + 1);
    run->forward_is_checked = !status;
    return status;
}

/* Lengths outside of 1 .. steps count as the nearest of these; the caller's array stays as it is. */
static void clamp_lengths(rcv_run *run, const int64_t *given) {
    const rcvi_sizes sizes = run->instance->program.sizes;
    run->given_lengths = given;
    for (int64_t b = 0; b < sizes.batch; b++)
        run->lengths[b] = given[b] < 1 ? 1 : given[b] > sizes.steps ? sizes.steps : given[b];
}

/* Binds the arrays that were checked. */
static void bind_forward(rcv_run *run, const rcv_forward *d) {
    const rcvi_program *program = &run->plan->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (!is_gradient(buffer->role)) run->buffers[program->externals[i]] = forward_array(d, buffer);
        if (buffer->role != RCVI_LENGTHS || !run->lengths) continue;
        clamp_lengths(run, d->lengths);
        run->buffers[program->externals[i]] = run->lengths;
    }
    for (size_t s = 0; s < run->plan->net->state_count; s++)
        run->restart_is_initial[s] = !const_state_entry(d->restart, s);
}

/* How a pass runs. */
typedef struct {
    bool same_parameters, overwrite, only_prepares;
} how;

static rcv_status start(rcv_run *run, size_t first, size_t end, how h) {
    const rcv_plan *plan = run->plan;
    rcvi_binding binding = {.program = &run->instance->program,
                            .buffers = run->buffers,
                            .kept = run->reserve + rcvi_run_kept_offset(plan),
                            .restart_is_initial = run->restart_is_initial,
                            .overwrite = h.overwrite,
                            .same_parameters = h.same_parameters,
                            .only_prepares = h.only_prepares,
                            .seed = run->seed,
                            .seed_at = is_on_host(run) ? NULL : run->call_seed_at,
                            .shard = run->shard,
                            .signals = run->signals,
                            .signal = run->signal,
                            .captures_at_once = run->captures_at_once,
                            .stream = run->stream,
                            .events = run->events,
                            .event_capacity = run->event_capacity,
                            .event_count = &run->event_count};
    return plan->device->run(run->worker, first, end, &binding, rcvi_run_scratch(run));
}

static void remember_parameters(rcv_run *packer, const rcv_forward *d) {
    for (size_t i = 0; i < rcvi_run_array_count(packer->plan); i++)
        packer->parameters[i] = d->tensors ? d->tensors[i] : d->parameters;
}

/* Does the call give the arrays of the last forward call? */
static bool has_same_parameters(const rcv_run *packer, const rcv_forward *d) {
    bool same = true;
    for (size_t i = 0; i < rcvi_run_array_count(packer->plan); i++)
        same &= packer->parameters[i] == (d->tensors ? d->tensors[i] : d->parameters);
    return same;
}

/* Are packed parameters valid at these sizes? Some plans repeat a row of parameters for every row of a call. */
static bool is_packed_for(const rcv_run *packer, rcvi_sizes sizes) {
    return !packer->plan->packs_by_size || (packer->packed.steps >= sizes.steps && packer->packed.batch == sizes.batch);
}

/* Binds all that both passes of a call read, except for the seed. */
static void bind_call(rcv_run *run, const rcv_forward *data) {
    bind_forward(run, data);
    if (data->reserve) rcvi_run_use_reserve(run, data->reserve);
    run->call_seed_at = data->seed_at ? data->seed_at : run->seed_at;
}

/* Where the reserve of a call on the host keeps its seed; NULL: the run does. */
static char *kept_seed(const rcv_run *run) {
    return run->owner == RCVI_OF_CALLS && rcvi_run_keeps_seed(run->plan)
               ? run->reserve + rcvi_run_seed_offset(run->plan)
               : NULL;
}

/* A GPU reads a seed in its memory when the call runs, and keeps it with the reserve. */
static void read_seed(rcv_run *run, const rcv_forward *data) {
    char *kept = kept_seed(run);
    run->seed = run->call_seed_at && is_on_host(run) ? *run->call_seed_at : data->seed;
    if (kept) memcpy(kept, &run->seed, sizeof run->seed);
}

/* The seed that an earlier forward call has read, which may have changed since where it was. */
static void return_to_seed(rcv_run *run, const rcv_forward *data) {
    const char *kept = kept_seed(run);
    if (!run->call_seed_at)
        run->seed = data->seed;
    else if (kept)
        memcpy(&run->seed, kept, sizeof run->seed);
}

/* An output of the call must not overlap the seed, which other work on the device may read later. */
static rcv_status check_seed(const rcv_run *run, const rcv_forward *data) {
    const rcvi_range seed = {.begin = data->seed_at, .bytes = sizeof *data->seed_at, .name = "seed_at"};
    if ((uintptr_t)data->seed_at % sizeof *data->seed_at)
        return rcvi_fail(RCV_INVALID, "seed_at does not lie at a multiple of %zu bytes", sizeof *data->seed_at);
    for (size_t i = 0; data->seed_at && i <= run->plan->program.external_count; i++) {
        const rcvi_range both[] = {run->ranges[i], seed};
        RCVI_TRY(rcvi_check_overlap("rcv_run_forward", both, 2));
    }
    return RCV_OK;
}

/* Checks all that a forward call may be refused for. A call that is refused leaves the run as it was: a backward call then belongs to the
 * forward call before it. */
static rcv_status check_call(rcv_run *run, const rcv_forward *data, rcvi_sizes *sizes) {
    RCVI_TRY(read_sizes(run->plan, data, sizes));
    if (sizes->batch == 0 && run->plan->program.options.signals)
        return rcvi_fail(RCV_UNSUPPORTED, "a call of a plan with signals needs at least one sequence");
    if (sizes->batch == 0) return RCV_OK;
    RCVI_TRY(check_forward(run, data));
    RCVI_TRY(check_lengths(run->plan, *sizes, data->lengths));
    const rcvi_sizes before = run->instance->program.sizes;
    resize(run, *sizes);
    rcv_status status = check_forward_arrays(run, data);
    if (!status) status = check_seed(run, data);
    if (status) resize(run, before);
    return status;
}

/* A call without sequences: there is nothing to compute. Its parameters are not packed. */
static rcv_status forward_nothing(rcv_run *run, const rcv_forward *data) {
    run->packer->parameters_seen &= data->same_parameters;
    run->is_empty = run->last_is_empty = run->forward_done = true;
    return RCV_OK;
}

static rcv_status forward(rcv_run *run, const rcv_forward *data) {
    rcvi_sizes sizes;
    RCVI_TRY(check_call(run, data, &sizes));
    if (sizes.batch == 0) return forward_nothing(run, data);
    run->is_empty = run->last_is_empty = false;
    bind_call(run, data);
    run->last_reserve = run->reserve;
    read_seed(run, data);
    rcv_run *packer = run->packer;
    bool same = data->same_parameters && packer->parameters_seen && is_packed_for(packer, sizes);
    run->forward_done = packer->parameters_seen = false; /* until it has succeeded */
    RCVI_TRY(start(run, 0, run->plan->program.forward_count, (how){.same_parameters = same}));
    packer->parameters_seen = true;
    if (!same) packer->packed = sizes;
    packer->backward_is_stale |= !same;
    remember_parameters(packer, data);
    run->forward_done = true;
    return RCV_OK;
}

/* A forward call by the version of the plan that it names, or by the newest one. */
static rcv_status forward_by_version(rcv_run *run, const rcv_forward *data) {
    if (!run->first_plan && !data->version) return forward(run, data);
    rcv_run *own = run;
    if (own->first_plan && rcvi_run_will_follow(own)) {
        rcvi_sizes sizes;
        RCVI_TRY(check_call(own, data, &sizes)); /* a call that is refused does not end version 1 */
        rcvi_run_follow_plan(own);
    }
    RCVI_TRY(rcvi_run_find_version(own, data->version, &run));
    if (own->first_plan) rcvi_background_note_begin(own->first_plan->background);
    if (run != own->last) run->packer->parameters_seen = false; /* the last call's are packed in another version */
    RCVI_TRY(forward(run, data));
    own->last = run;
    if (own->first_plan && !run->plan->program.options.training) rcvi_background_note_end(own->first_plan->background);
    return RCV_OK;
}

/* The run that makes calls of so many sequences. */
static rcv_run *find_by_batch(rcv_run *run, const rcv_forward *data) {
    const rcv_run *small = run->small;
    return small && data->batch > 0 && data->batch <= small->plan->program.options.batch ? run->small : run;
}

rcv_status rcv_run_forward(rcv_run *run, const rcv_forward *data) {
    RCVI_NEED(run, "run");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_forward, data, "data");
    rcv_run *own = find_by_batch(run, data);
    if (own != run->recent) rcvi_run_forget_parameters(own); /* the last call's are packed in the other one */
    RCVI_TRY(forward_by_version(own, data));
    run->recent = own;
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
    case RCVI_DPARAMETERS: return d->dtensors ? d->dtensors[s] : d->dparameters;
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
        if (buffer->role == RCVI_LENGTHS && run->lengths) run->ranges[i].begin = run->given_lengths;
    }
    run->ranges[program->external_count].begin = run->owner == RCVI_OF_CALLS ? run->reserve : NULL;
    run->ranges[program->external_count].written = false; /* it is only read */
    return rcvi_check_overlap("rcv_run_backward", run->ranges, program->external_count + 1);
}

/* On the host, steps that write where nothing is are left out: so are the sums of gradients that are not wanted. A GPU finds them by what is
 * read of them. */
static void bind_sums(rcv_run *run) {
    const rcvi_program *program = &run->plan->program;
    if (!rcvi_program_declared(program, program->options.gradients) || !is_on_host(run)) return;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        if (buffer->replaces == RCVI_DPARAMETERS && buffer->arena_bytes)
            run->buffers[b] = run->buffers[buffer->theirs] ? rcvi_run_arena_place(run, buffer) : NULL;
    }
}

static void bind_backward(rcv_run *run, const rcv_backward *d) {
    const rcvi_program *program = &run->plan->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (is_gradient(buffer->role)) run->buffers[program->externals[i]] = backward_array(d, buffer);
    }
    bind_sums(run);
}

/* NULL: not wanted. */
static rcv_status clear_gradients(const rcv_run *run, void *gradients, int64_t count) {
    const rcv_plan *plan = run->plan;
    rcvi_element element = rcvi_program_declared(&plan->program, plan->program.options.gradients);
    size_t bytes = (size_t)count * rcvi_element_bytes(&plan->program, element);
    if (!gradients) return RCV_OK;
    return plan->device->clear(run->worker, gradients, bytes, rcvi_run_scratch(run), run->stream);
}

/* After a forward call without sequences: gradients of the parameters are zero. */
static rcv_status backward_nothing(const rcv_run *run, const rcv_backward *data) {
    const rcv_net *net = run->plan->net;
    if (data->accumulate) return RCV_OK;
    if (!data->dtensors) return clear_gradients(run, data->dparameters, net->parameter_elements);
    for (size_t i = 0; i < net->parameter_count; i++)
        RCVI_TRY(clear_gradients(run, data->dtensors[i], net->parameters[i].count));
    return RCV_OK;
}

/* A backward call that names no forward call belongs to the last one. With reserves of the caller's, an earlier backward call may have bound
 * the data of another forward call. */
static rcv_status return_to_last(rcv_run *run) {
    bool is_bound = run->is_empty == run->last_is_empty && (run->is_empty || run->reserve == run->last_reserve);
    if (run->owner == RCVI_OF_CALLS && !is_bound) {
        return rcvi_fail(RCV_INVALID, "the last forward call is not the one that the last backward call named: "
                                      "data->forward must name it");
    }
    run->is_empty = run->last_is_empty;
    return RCV_OK;
}

/* Binds the data of an earlier forward call of the run again. Without reserves of the caller's it must be the last one. */
static rcv_status return_to_forward(rcv_run *run, const rcv_forward *data) {
    rcvi_sizes sizes;
    RCVI_READ(rcv_forward, data, "data->forward");
    RCVI_TRY(read_sizes(run->plan, data, &sizes));
    if (sizes.batch == 0) {
        run->is_empty = true;
        return RCV_OK;
    }
    RCVI_TRY(check_forward(run, data));
    RCVI_TRY(check_lengths(run->plan, sizes, data->lengths));
    run->is_empty = false;
    resize(run, sizes);
    bind_call(run, data);
    return_to_seed(run, data);
    rcv_run *packer = run->packer;
    if (packer->parameters_seen && has_same_parameters(packer, data) && is_packed_for(packer, sizes)) return RCV_OK;
    packer->parameters_seen = false;
    packer->backward_is_stale = true;
    RCVI_TRY(start(run, 0, run->plan->program.forward_count, (how){.only_prepares = true}));
    remember_parameters(packer, data);
    packer->packed = sizes;
    packer->parameters_seen = true;
    return RCV_OK;
}

/* Does a backward pass overwrite what its forward pass stored? cuDNN's does. */
static bool consumes_reserve(const rcv_plan *plan) { return plan->program.rungs.vendor && plan->program.machine.gpu; }

static rcv_status check_gradients(const rcv_plan *plan, const rcv_backward *data) {
    bool separate = plan->program.options.separate_parameters;
    if (!(separate ? data->dparameters != NULL : data->dtensors != NULL)) return RCV_OK;
    return rcvi_fail(RCV_INVALID, separate ? "dparameters are given, but the plan was made for dtensors: with "
                                             "separate_parameters"
                                           : "dtensors are given, but the plan was made without separate_parameters");
}

static rcv_status backward(rcv_run *run, const rcv_backward *data) {
    if (!run->plan->program.options.training)
        return rcvi_fail(RCV_INVALID, "the plan was made for inference; make it with training set");
    bool is_named = run->owner == RCVI_OF_CALLS && data->forward; /* its reserve has all that is needed */
    if (!run->forward_done && !is_named)
        return rcvi_fail(RCV_INVALID, "a backward call needs a forward call before it%s",
                         consumes_reserve(run->plan) ? ": cuDNN's consumes what that stored" : "");
    RCVI_TRY(check_gradients(run->plan, data));
    RCVI_TRY(data->forward ? return_to_forward(run, data->forward) : return_to_last(run));
    if (run->is_empty) return backward_nothing(run, data);
    for (size_t s = 0; s < run->plan->net->state_count; s++) {
        if (state_entry(data->drestart, s) && run->restart_is_initial[s]) {
            return rcvi_fail(RCV_INVALID, "drestart of state %s is asked for, but no restart state was given",
                             run->plan->net->states[s].name);
        }
    }
    RCVI_TRY(check_backward_arrays(run, data));
    bind_backward(run, data);
    const rcvi_program *program = &run->plan->program;
    RCVI_TRY(start(run, program->forward_count, program->step_count,
                   (how){.same_parameters = !run->packer->backward_is_stale, .overwrite = !data->accumulate}));
    run->packer->backward_is_stale = false;
    run->forward_done = !consumes_reserve(run->plan);
    return RCV_OK;
}

/* Of a run and the one for few sequences, that which made the forward call of this backward call. */
static rcv_status find_recent(rcv_run *run, const rcv_forward *data, rcv_run **found) {
    *found = run->recent;
    if (!data || !run->small) return RCV_OK;
    RCVI_READ(rcv_forward, data, "data->forward");
    *found = find_by_batch(run, data);
    return RCV_OK;
}

/* The version that made it. */
static rcv_status find_forward_run(rcv_run *run, const rcv_forward *data, rcv_run **found) {
    *found = run->last;
    if (!data) return RCV_OK;
    RCVI_READ(rcv_forward, data, "data->forward");
    return run->owner == RCVI_OF_CALLS || data->version ? rcvi_run_find_version(run, data->version, found) : RCV_OK;
}

rcv_status rcv_run_backward(rcv_run *run, const rcv_backward *data) {
    RCVI_NEED(run, "run");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_backward, data, "data");
    RCVI_TRY(find_recent(run, data->forward, &run));
    const rcv_plan *first_plan = run->first_plan;
    if (first_plan) rcvi_run_note_capture(run);
    RCVI_TRY(find_forward_run(run, data->forward, &run));
    RCVI_TRY(backward(run, data));
    if (first_plan) rcvi_background_note_end(first_plan->background);
    return RCV_OK;
}

rcv_status rcvi_run_set_lengths(rcv_run *run, const int64_t *lengths) {
    const rcv_plan *plan = run->plan;
    if (!plan->device->send_lengths || !lengths || plan->program.options.device_lengths) return RCV_OK;
    RCVI_TRY(check_lengths(plan, run->instance->program.sizes, lengths));
    for (size_t b = 0; b < plan->program.buffer_count; b++) {
        if (plan->program.buffers[b].role == RCVI_LENGTHS) run->buffers[b] = writable(lengths);
    }
    const rcvi_binding binding = {.program = &run->instance->program,
                                  .buffers = run->buffers,
                                  .kept = run->reserve + rcvi_run_kept_offset(plan),
                                  .stream = run->stream};
    return plan->device->send_lengths(run->worker, &binding);
}

/* Networks: forward and backward calls. */
#include "jax/handlers.h"
#include "call/shared.h"
#include "jax/frame.h"

#include <stdlib.h>
#include <string.h>

enum { RESERVE_ALIGNMENT = 64, MOST_PLAN = 1024, HALVES = 2 };

/* What is known of a call. */
typedef struct {
    rcvb_call of;
    rcvb_kind kind;
    char schedule[MOST_PLAN];
    xla_type data, parameters;
    int64_t steps, batch;
    size_t parameter_count, state_count;
    const char *given; /* of what follows */
    const char *given_end;
} network_call;

/* The arrays of a call, as the library takes them. Each list has as many as there are parameters or states. */
typedef struct {
    rcv_forward data;
    rcv_backward gradients;
    void *reserve;
    int64_t reserve_bytes;
    void **tensors, **initial, **restart, **final, **dtensors, **dfinal, **dinitial, **drestart;
    void *pointers[];
} arrays;

/* ---- attributes ---- */

static const struct {
    rcv_dtype dtype;
    xla_type type;
} types[] = {
    {RCV_FLOAT32, XLA_FLOAT32}, {RCV_FLOAT64, XLA_FLOAT64}, {RCV_FLOAT16, XLA_FLOAT16}, {RCV_BFLOAT16, XLA_BFLOAT16}};

static rcv_status find_type(int64_t flags, int shift, xla_type *type, rcv_array_type *array_type) {
    rcv_dtype dtype = (rcv_dtype)(flags >> shift & RCVB_JAX_TYPE);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype != dtype) continue;
        *type = types[i].type;
        *array_type = (rcv_array_type)(1 + dtype);
        return RCV_OK;
    }
    return rcvb_fail(RCV_INVALID, "the call's flags name no type of arrays");
}

/* All but the device and the plan string. */
static rcv_status read_kind(const char *net, size_t length, int64_t flags, network_call *c) {
    c->kind = (rcvb_kind){.dtype = (rcv_dtype)(flags & RCVB_JAX_TYPE),
                          .training = (flags & RCVB_JAX_TRAINING) != 0,
                          .lengths = (flags & RCVB_JAX_LENGTHS) != 0,
                          .device_lengths = (flags & RCVB_JAX_LENGTHS) && (flags & RCVB_JAX_CUDA),
                          .resets = (flags & RCVB_JAX_RESETS) != 0,
                          .batch_major = (flags & RCVB_JAX_BATCH_FIRST) != 0};
    rcv_status status = rcvb_net(net, length, &c->kind.net);
    if (!status) status = find_type(flags, RCVB_JAX_DATA_SHIFT, &c->data, &c->kind.data);
    if (!status) status = find_type(flags, RCVB_JAX_PARAMETERS_SHIFT, &c->parameters, &c->kind.parameters);
    if (status) return status;
    c->kind.states = c->kind.data;
    c->parameter_count = rcv_net_parameter_count(c->kind.net);
    c->state_count = rcv_net_state_count(c->kind.net);
    return RCV_OK;
}

rcv_status rcvb_jax_plan(const char *net, size_t net_length, int64_t flags, const char *schedule, int effort,
                         int64_t steps, int64_t batch, rcv_plan **plan) {
    network_call c = {0};
    *plan = NULL;
    rcv_status status = read_kind(net, net_length, flags, &c);
    if (status) return status;
    c.kind.device = flags & RCVB_JAX_CUDA ? 0 : RCVB_CPU;
    c.kind.schedule = schedule;
    c.kind.effort = (rcv_effort)effort;
    return rcvb_plan(&c.kind, steps, batch, plan);
}

static rcv_status read_schedule(network_call *c) {
    xla_string s;
    rcv_status status = rcvb_read_text(&c->of, "plan", &s);
    if (status) return status;
    if (s.length >= sizeof c->schedule) return rcvb_fail(RCV_INVALID, "the plan string is too long");
    memcpy(c->schedule, s.at, s.length);
    c->kind.schedule = c->schedule;
    return RCV_OK;
}

static rcv_status check_platform(int64_t flags, int device) {
    bool for_cuda = (flags & RCVB_JAX_CUDA) != 0;
    if (for_cuda == (device != RCVB_CPU)) return RCV_OK;
    return rcvb_fail(RCV_INVALID,
                     for_cuda ? "the network was traced for a GPU and runs on the CPU: make it with device=\"cpu\""
                              : "the network was traced for the CPU and runs on a GPU: make it with device=\"cuda\"");
}

static rcv_status read_attributes(network_call *c, const char *given_name) {
    xla_string net, given;
    int64_t flags = 0;
    rcv_status status = rcvb_read_text(&c->of, "net", &net);
    if (!status) status = rcvb_read_text(&c->of, given_name, &given);
    if (!status) status = rcvb_read_integer(&c->of, "flags", &flags);
    if (!status) status = check_platform(flags, c->of.device);
    if (!status) status = read_kind(net.at, net.length, flags, c);
    if (!status) status = read_schedule(c);
    if (status) return status;
    c->kind.device = c->of.device;
    c->given = given.at;
    c->given_end = given.at + given.length;
    return RCV_OK;
}

/* Is the next of the optional arrays there? */
static bool next_is_given(network_call *c) { return c->given < c->given_end && *c->given++ == '1'; }

/* ---- arrays ---- */

static arrays *new_arrays(const network_call *c) {
    size_t p = c->parameter_count, s = c->state_count;
    arrays *a = calloc(1, sizeof *a + (2 * p + 6 * s) * sizeof *a->pointers);
    if (!a) return NULL;
    void **next = a->pointers;
    void ***const lists[] = {&a->tensors, &a->dtensors, &a->initial,  &a->restart,
                             &a->final,   &a->dfinal,   &a->dinitial, &a->drestart};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *lists[i] = next;
        next += i < 2 ? p : s;
    }
    return a;
}

static rcv_status take_x(network_call *c, void **x) {
    const xla_buffer *b = NULL;
    int64_t input = rcv_net_get_options(c->kind.net)->input;
    rcv_status status = rcvb_see_argument(&c->of, "x", &b);
    if (status) return status;
    if (b->dims != 3) return rcvb_fail(RCV_INVALID, "x does not have three dimensions");
    c->steps = b->sizes[c->kind.batch_major ? 1 : 0];
    c->batch = b->sizes[c->kind.batch_major ? 0 : 1];
    if (c->steps < 1 || c->batch < 1) return rcvb_fail(RCV_INVALID, "x is empty");
    return rcvb_take_argument(&c->of, c->data, c->steps * c->batch * input, "x", x);
}

static rcv_status take_parameters(network_call *c, void **tensors) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < c->parameter_count && !status; i++) {
        const rcv_parameter *p = rcv_net_parameter(c->kind.net, i);
        status = rcvb_take_argument(&c->of, c->parameters, p->count, p->name, &tensors[i]);
    }
    return status;
}

static int64_t state_elements(const network_call *c, size_t state) {
    return rcv_net_state(c->kind.net, state)->total * c->batch;
}

/* Of a list of states, those that are given. */
static rcv_status take_states(network_call *c, void **states) {
    rcv_status status = RCV_OK;
    for (size_t s = 0; s < c->state_count && !status; s++) {
        if (next_is_given(c))
            status = rcvb_take_argument(&c->of, c->data, state_elements(c, s), rcv_net_state(c->kind.net, s)->name,
                                        &states[s]);
    }
    return status;
}

/* What both calls read. */
static rcv_status take_inputs(network_call *c, arrays *a) {
    void *x = NULL, *lengths = NULL, *resets = NULL, *seed = NULL;
    rcv_status status = take_x(c, &x);
    if (!status) status = take_parameters(c, a->tensors);
    if (!status) status = take_states(c, a->initial);
    if (!status) status = take_states(c, a->restart);
    if (!status && c->kind.lengths)
        status = rcvb_take_argument(&c->of, XLA_INT32, HALVES * c->batch, "lengths", &lengths);
    if (!status && c->kind.resets)
        status = rcvb_take_argument(&c->of, XLA_BOOL, c->steps * c->batch, "resets", &resets);
    if (!status && next_is_given(c)) status = rcvb_take_argument(&c->of, XLA_UINT32, HALVES, "the seed", &seed);
    a->data = RCV_INIT(rcv_forward, .x = x, .tensors = (const void *const *)a->tensors,
                       .initial = (const void *const *)a->initial, .restart = (const void *const *)a->restart,
                       .lengths = lengths, .resets = resets, .seed_at = seed, .steps = c->steps, .batch = c->batch);
    return status;
}

static int64_t y_elements(const network_call *c) { return c->steps * c->batch * rcv_net_output(c->kind.net); }

static rcv_status check_reserve(const arrays *a, const rcvb_lease *lease) {
    if (a->reserve_bytes >= 0 && (size_t)a->reserve_bytes == lease->reserve) return RCV_OK;
    return rcvb_fail(RCV_INVALID,
                     "the call was compiled for a reserve of %lld bytes, and its plan has one of %zu: compile it "
                     "again with this version of recurve on this machine",
                     (long long)a->reserve_bytes, lease->reserve);
}

/* ---- the memory of a reserve ---- */

/* XLA aligns arrays for itself, on the CPU less than a reserve may need. Then the reserve is copied; its content does not depend on its place. */
static rcv_status align_reserve(const rcvb_call *of, const arrays *a, void **copy) {
    *copy = NULL;
    if ((uintptr_t)a->reserve % RESERVE_ALIGNMENT == 0) return RCV_OK;
    if (of->device != RCVB_CPU)
        return rcvb_fail(RCV_UNSUPPORTED, "XLA has placed a reserve that is not at a multiple of %d bytes",
                         RESERVE_ALIGNMENT);
    size_t bytes = ((size_t)a->reserve_bytes + RESERVE_ALIGNMENT - 1) / RESERVE_ALIGNMENT * RESERVE_ALIGNMENT;
    *copy = aligned_alloc(RESERVE_ALIGNMENT, bytes);
    return *copy ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "there is no memory for a reserve of %zu bytes", bytes);
}

/* ---- forward ---- */

static rcv_status take_outputs(network_call *c, arrays *a) {
    rcv_status status = rcvb_take_result(&c->of, c->data, y_elements(c), "y", &a->data.y);
    for (size_t s = 0; s < c->state_count && !status; s++)
        status = rcvb_take_result(&c->of, c->data, state_elements(c, s), "a final state", &a->final[s]);
    a->data.final = a->final;
    if (status || !c->kind.training) return status;
    const xla_buffers *results = &c->of.frame->results;
    if (c->of.result >= results->count || results->items[c->of.result]->dims != 1)
        return rcvb_fail(RCV_INVALID, "the call has no array for the reserve");
    a->reserve_bytes = results->items[c->of.result]->sizes[0];
    return rcvb_take_result(&c->of, XLA_UINT8, a->reserve_bytes, "the reserve", &a->reserve);
}

static rcv_status run_forward(const network_call *c, arrays *a) {
    rcvb_lease lease = {0};
    void *copy = NULL;
    rcv_status status = rcvb_acquire(&c->kind, c->steps, c->batch, c->of.stream, 0, &lease);
    if (!status && c->kind.training) status = check_reserve(a, &lease);
    if (!status && c->kind.training) status = align_reserve(&c->of, a, &copy);
    if (!status) {
        a->data.reserve = copy ? copy : a->reserve;
        status = rcvb_pass(rcv_run_forward(lease.run, &a->data));
    }
    if (!status && copy) memcpy(a->reserve, copy, (size_t)a->reserve_bytes);
    rcvb_release(&lease, !status);
    free(copy);
    return status;
}

static rcv_status forward(const xla_frame *frame, rcvb_platform platform) {
    network_call c = {0};
    rcv_status status = rcvb_begin_call(frame, platform, &c.of);
    if (!status) status = read_attributes(&c, "given");
    if (status) return status;
    arrays *a = new_arrays(&c);
    if (!a) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    status = take_inputs(&c, a);
    if (!status) status = take_outputs(&c, a);
    if (!status) status = rcvb_check_all_taken(&c.of);
    if (!status) status = run_forward(&c, a);
    free(a);
    return status;
}

/* ---- backward ---- */

/* The gradients of results, and the reserve. */
static rcv_status take_gradients(network_call *c, arrays *a) {
    const xla_buffer *reserve = NULL;
    void *dy = NULL;
    rcv_status status = RCV_OK;
    if (next_is_given(c)) status = rcvb_take_argument(&c->of, c->data, y_elements(c), "the gradient of y", &dy);
    if (!status) status = take_states(c, a->dfinal);
    if (!status) status = rcvb_see_argument(&c->of, "the reserve", &reserve);
    if (status) return status;
    a->reserve_bytes = reserve->dims == 1 ? reserve->sizes[0] : -1;
    a->gradients = RCV_INIT(rcv_backward, .dy = dy, .dfinal = (const void *const *)a->dfinal, .forward = &a->data);
    return rcvb_take_argument(&c->of, XLA_UINT8, a->reserve_bytes, "the reserve", &a->reserve);
}

static rcv_status take_wanted_states(network_call *c, void **states) {
    rcv_status status = RCV_OK;
    for (size_t s = 0; s < c->state_count && !status; s++) {
        if (next_is_given(c))
            status = rcvb_take_result(&c->of, c->data, state_elements(c, s), "the gradient of a state", &states[s]);
    }
    return status;
}

static rcv_status take_wanted(network_call *c, arrays *a) {
    xla_string wanted;
    rcv_status status = rcvb_read_text(&c->of, "wanted", &wanted);
    if (status) return status;
    c->given = wanted.at;
    c->given_end = wanted.at + wanted.length;
    int64_t elements = c->steps * c->batch * rcv_net_get_options(c->kind.net)->input;
    if (next_is_given(c)) status = rcvb_take_result(&c->of, c->data, elements, "the gradient of x", &a->gradients.dx);
    for (size_t i = 0; i < c->parameter_count && !status; i++) {
        if (next_is_given(c))
            status = rcvb_take_result(&c->of, c->parameters, rcv_net_parameter(c->kind.net, i)->count,
                                      "the gradient of a parameter", &a->dtensors[i]);
    }
    if (!status) status = take_wanted_states(c, a->dinitial);
    if (!status) status = take_wanted_states(c, a->drestart);
    a->gradients.dtensors = a->dtensors;
    a->gradients.dinitial = a->dinitial;
    a->gradients.drestart = a->drestart;
    return status;
}

static rcv_status run_backward(const network_call *c, arrays *a) {
    rcvb_lease lease = {0};
    void *copy = NULL;
    rcv_status status = rcvb_acquire(&c->kind, c->steps, c->batch, c->of.stream, 0, &lease);
    if (!status) status = check_reserve(a, &lease);
    if (!status) status = align_reserve(&c->of, a, &copy);
    if (!status) {
        if (copy) memcpy(copy, a->reserve, (size_t)a->reserve_bytes);
        a->data.reserve = copy ? copy : a->reserve;
        a->data.y = a->data.reserve; /* it is not written */
        a->data.version = lease.version;
        status = rcvb_pass(rcv_run_backward(lease.run, &a->gradients));
    }
    rcvb_release(&lease, false);
    free(copy);
    return status;
}

static rcv_status backward(const xla_frame *frame, rcvb_platform platform) {
    network_call c = {0};
    rcv_status status = rcvb_begin_call(frame, platform, &c.of);
    if (!status) status = read_attributes(&c, "given");
    if (status) return status;
    if (!c.kind.training) return rcvb_fail(RCV_INVALID, "a backward call needs the flag of training");
    arrays *a = new_arrays(&c);
    if (!a) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    status = take_inputs(&c, a);
    if (!status) status = take_gradients(&c, a);
    if (!status) status = take_wanted(&c, a);
    if (!status) status = rcvb_check_all_taken(&c.of);
    if (!status) status = run_backward(&c, a);
    free(a);
    return status;
}

/* ---- what XLA calls ---- */

xla_error *rcvb_jax_forward_cpu(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_HOST, forward); }
xla_error *rcvb_jax_forward_cuda(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_CUDA, forward); }
xla_error *rcvb_jax_backward_cpu(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_HOST, backward); }
xla_error *rcvb_jax_backward_cuda(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_CUDA, backward); }

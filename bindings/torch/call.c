/* Calls of a network with PyTorch's tensors.
 *
 * The reserve is a tensor of one byte whose storage is larger: so its shape does not depend on a plan, and PyTorch keeps the storage as long as the
 * tensor. Where the storage is not what the forward call made (a copy of the tensor has one byte), backward repeats the forward call. */
#include "torch/call.h"
#include "call/shared.h"
#include "torch/operators.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 64, RESERVE_ALIGNMENT = 256 };

/* ---- arguments ---- */

static rcv_status check_one(const abouts *t, const char *name) {
    return t->count <= 1 ? RCV_OK : rcvb_fail(RCV_INVALID, "%s is more than one tensor", name);
}

static rcv_status check_place(const call *c, const about *a, const char *name) {
    if (a->device == c->x.device && a->ordinal == c->x.ordinal) return RCV_OK;
    return rcvb_fail(RCV_INVALID, "Input and %s are not at the same device", name);
}

static bool has_shape(const about *a, const rcv_parameter *p) {
    if (a->dims != p->dims) return false;
    for (int d = 0; d < p->dims; d++) {
        if (a->sizes[d] != p->shape[d]) return false;
    }
    return true;
}

static rcv_status check_parameters(call *c) {
    size_t count = rcv_net_parameter_count(c->net);
    if (c->parameters.count != count)
        return rcvb_fail(RCV_INVALID, "the network has %zu parameters, but %zu are given", count, c->parameters.count);
    for (size_t i = 0; i < count; i++) {
        const rcv_parameter *p = rcv_net_parameter(c->net, i);
        rcv_array_type type;
        const about *a = &c->parameters.at[i];
        rcv_status status = check_place(c, a, "parameter tensors");
        if (status) return status;
        if (!has_shape(a, p))
            return rcvb_fail(RCV_INVALID, "parameter %s does not have the shape that the network's sizes give it",
                             p->name);
        if (!rcvb_array_type(a->dtype, &type))
            return rcvb_fail(RCV_INVALID, "parameter %s is no tensor of floats", p->name);
        if (i > 0 && type != c->kind.parameters)
            return rcvb_fail(RCV_INVALID, "parameter %s has another dtype than those before it", p->name);
        c->kind.parameters = type;
    }
    return RCV_OK;
}

static rcv_status check_states(const call *c, const abouts *states, const char *name) {
    size_t count = rcv_net_state_count(c->net);
    if (!states->count) return RCV_OK;
    if (states->count != count)
        return rcvb_fail(RCV_INVALID, "the network has %zu states, but %zu %s states are given", count, states->count,
                         name);
    for (size_t i = 0; i < count; i++) {
        const rcv_state *s = rcv_net_state(c->net, i);
        rcv_array_type type;
        const about *a = &states->at[i];
        rcv_status status = check_place(c, a, "hidden tensors");
        if (status) return status;
        if (a->elements != s->total * c->batch)
            return rcvb_fail(RCV_INVALID, "%s state %s has %lld elements, not %lld", name, s->name,
                             (long long)a->elements, (long long)(s->total * c->batch));
        if (!rcvb_array_type(a->dtype, &type) || type != c->kind.data)
            return rcvb_fail(RCV_INVALID, "Input and hidden tensors are not the same dtype");
    }
    return RCV_OK;
}

static rcv_status check_lengths(call *c) {
    rcv_status status = check_one(&c->lengths, "lengths");
    if (status || !c->lengths.count) return status;
    const about *a = c->lengths.at;
    c->kind.lengths = true;
    c->kind.device_lengths = a->device == torch.cuda;
    if (c->kind.device_lengths) status = check_place(c, a, "lengths");
    if (status) return status;
    bool fits = a->dtype == torch.int64 && a->elements == c->batch;
    return fits ? RCV_OK : rcvb_fail(RCV_INVALID, "lengths are not %lld integers of 64 bits", (long long)c->batch);
}

static rcv_status check_resets(call *c) {
    rcv_status status = check_one(&c->resets, "resets");
    if (status || !c->resets.count) return status;
    const about *a = c->resets.at;
    status = check_place(c, a, "resets");
    if (status) return status;
    c->kind.resets = true;
    bool fits = (a->dtype == torch.boolean || a->dtype == torch.uint8) && a->elements == c->steps * c->batch;
    return fits ? RCV_OK
                : rcvb_fail(RCV_INVALID, "resets are not a bool for each of %lld steps of %lld sequences",
                            (long long)c->steps, (long long)c->batch);
}

static rcv_status check_seed(const call *c) {
    rcv_status status = check_one(&c->seed, "seed");
    if (status || !c->seed.count) return status;
    const about *a = c->seed.at;
    bool fits = a->dtype == torch.int64 && a->elements == 1;
    return fits ? check_place(c, a, "seed") : rcvb_fail(RCV_INVALID, "the seed is not one integer of 64 bits");
}

static rcv_status check_input(call *c) {
    const rcv_net_options *net = rcv_net_get_options(c->net);
    if (c->x.device != torch.cpu && c->x.device != torch.cuda)
        return rcvb_fail(RCV_UNSUPPORTED,
                         "recurve runs on the CPU and on CUDA devices, and the input is on another one");
    if (c->x.dims != 3 || c->x.sizes[2] != net->input)
        return rcvb_fail(RCV_INVALID, "the input does not have three dimensions, the last of size %lld",
                         (long long)net->input);
    if (!rcvb_array_type(c->x.dtype, &c->kind.data)) return rcvb_fail(RCV_INVALID, "the input is no tensor of floats");
    c->kind.states = c->kind.data;
    c->steps = c->x.sizes[c->kind.batch_major ? 1 : 0];
    c->batch = c->x.sizes[c->kind.batch_major ? 0 : 1];
    return c->steps > 0 ? RCV_OK : rcvb_fail(RCV_INVALID, "Expected sequence length to be larger than 0 in RNN");
}

static rcv_status find_place(call *c) {
    uint32_t threads = 1;
    c->kind.device = c->x.device == torch.cpu ? RCVB_CPU : c->x.ordinal;
    if (c->kind.device == RCVB_CPU) {
        torch.torch_get_num_threads(&threads);
        c->kind.threads = (int)threads;
        return RCV_OK;
    }
    if (torch.aoti_torch_get_current_cuda_stream && !torch.aoti_torch_get_current_cuda_stream(c->x.ordinal, &c->stream))
        return RCV_OK;
    return rcvb_fail(RCV_UNSUPPORTED, "this PyTorch has no CUDA");
}

rcv_status rcvb_check_call(call *c) {
    c->kind = (rcvb_kind){.net = c->net,
                          .dtype = (rcv_dtype)(c->flags & RCVB_DTYPE),
                          .training = (c->flags & RCVB_TRAINING) != 0,
                          .batch_major = (c->flags & RCVB_BATCH_FIRST) != 0,
                          .effort = (rcv_effort)(c->flags >> RCVB_EFFORT_SHIFT & RCVB_EFFORT)};
    rcv_status status = check_input(c);
    if (!status) status = check_parameters(c);
    if (!status) status = check_states(c, &c->initial, "initial");
    if (!status) status = check_states(c, &c->restart, "restart");
    if (!status) status = check_lengths(c);
    if (!status) status = check_resets(c);
    if (!status) status = check_seed(c);
    if (!status) status = find_place(c);
    return status;
}

/* ---- the library's calls ---- */

/* The arrays of a call, as the library takes them. */
typedef struct {
    const void **tensors, **initial, **restart;
    const void *pointers[]; /* those of the three lists */
} arrays;

static const void **list_pointers(const abouts *t, const void ***next, bool omits_empty) {
    const void **begin = *next;
    for (size_t i = 0; i < t->count; i++) {
        const about *a = &t->at[i];
        *(*next)++ = omits_empty && !a->elements ? NULL : a->data;
    }
    return t->count ? begin : NULL;
}

static arrays *new_arrays(const call *c) {
    size_t count = c->parameters.count + c->initial.count + c->restart.count;
    arrays *a = malloc(sizeof *a + (count + 1) * sizeof *a->pointers);
    if (!a) return NULL;
    const void **next = a->pointers;
    a->tensors = list_pointers(&c->parameters, &next, false);
    a->initial = list_pointers(&c->initial, &next, true);
    a->restart = list_pointers(&c->restart, &next, true);
    return a;
}

static void *first_data(const abouts *t) { return t->count ? t->at[0].data : NULL; }

static rcv_forward forward_data(const call *c, const arrays *a) {
    return RCV_INIT(rcv_forward, .tensors = a->tensors, .x = c->x.data, .initial = a->initial, .restart = a->restart,
                    .lengths = first_data(&c->lengths), .resets = first_data(&c->resets),
                    .seed_at = first_data(&c->seed), .steps = c->steps, .batch = c->batch);
}

/* The part of a reserve's memory that the library has. */
static void *reserve_in(char *memory) {
    uintptr_t at = (uintptr_t)memory + 1; /* the first byte is the tensor's own */
    return (void *)((at + RESERVE_ALIGNMENT - 1) / RESERVE_ALIGNMENT * RESERVE_ALIGNMENT);
}

/* The reserve's offset in memory depends on the memory's address. A GPU's memory begins at a multiple of 256 bytes. On the CPU the byte after the
 * tensor's own has the offset, so that a copy of the memory, as torch.load makes one, is recognised. */
static size_t offset_in(const char *memory) { return (uintptr_t)reserve_in((char *)memory) - (uintptr_t)memory; }

static void write_offset(char *memory) {
    memory[0] = 0;
    memory[1] = (char)(offset_in(memory) - 1);
}

static bool has_offset(const call *c, const char *memory) {
    size_t written = c->kind.device == RCVB_CPU ? (unsigned char)memory[1] + 1U : RESERVE_ALIGNMENT;
    return offset_in(memory) == written;
}

/* A tensor of one byte, which is zero, in memory for the lease's reserve. */
static rcv_status new_reserve(const call *c, const rcvb_lease *lease, tensor *reserve) {
    const int64_t one = 1, bytes = (int64_t)rcvb_reserve_bytes(lease);
    tensor memory = NULL;
    rcv_status status = rcvb_new_tensor(&c->x, torch.uint8, 1, &bytes, &memory);
    if (status) return status;
    failure failed = torch.aoti_torch__reinterpret_tensor(memory, 1, &one, &one, 0, reserve);
    rcvb_delete_tensor(memory);
    if (failed) return rcvb_fail(RCV_NO_MEMORY, "PyTorch cannot make a tensor of a reserve's memory");
    if (c->kind.device == RCVB_CPU)
        write_offset(rcvb_data(*reserve));
    else
        torch.aoti_torch_zero_(*reserve);
    return RCV_OK;
}

static rcv_status new_y(const call *c, tensor *y) {
    int64_t sizes[] = {c->x.sizes[0], c->x.sizes[1], rcv_net_output(c->net)};
    return rcvb_new_tensor(&c->x, c->x.dtype, 3, sizes, y);
}

static rcv_status new_final(const call *c, size_t state, tensor *out) {
    const rcv_state *s = rcv_net_state(c->net, state);
    int64_t together[] = {s->size ? s->total / s->size : 0, c->batch, s->size}, flat = s->total * c->batch;
    return s->size ? rcvb_new_tensor(&c->x, c->x.dtype, 3, together, out)
                   : rcvb_new_tensor(&c->x, c->x.dtype, 1, &flat, out);
}

/* ---- forward ---- */

/* out: y, the final states, and the reserve in training. */
static rcv_status forward(const call *c, uint64_t frozen, tensors *out) {
    size_t states = rcv_net_state_count(c->net);
    rcvb_lease lease = {0};
    void *final[MOST_STATES];
    arrays *a = new_arrays(c);
    rcv_status status = a ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    if (!status) status = new_y(c, &out->at[0]);
    for (size_t s = 0; s < states && !status; s++) {
        status = new_final(c, s, &out->at[1 + s]);
        if (!status) final[s] = rcvb_data(out->at[1 + s]);
    }
    if (!status && c->batch) status = rcvb_acquire(&c->kind, c->steps, c->batch, c->stream, frozen, &lease);
    if (!status && c->kind.training) status = new_reserve(c, &lease, &out->at[1 + states]);
    if (!status && c->batch) {
        rcv_forward data = forward_data(c, a);
        data.y = rcvb_data(out->at[0]);
        data.final = final;
        data.version = lease.version;
        data.same_parameters = lease.same;
        if (c->kind.training) data.reserve = reserve_in(rcvb_data(out->at[1 + states]));
        status = rcvb_pass(rcv_run_forward(lease.run, &data));
    }
    rcvb_release(&lease, !status);
    free(a);
    return status;
}

rcv_status rcvb_run_forward(const call *c, uint64_t frozen, tensors *out) {
    size_t states = rcv_net_state_count(c->net);
    if (states > MOST_STATES) return rcvb_fail(RCV_UNSUPPORTED, "a cell of more than %d states", MOST_STATES);
    rcv_status status = rcvb_room(1 + states + c->kind.training, out);
    return status ? status : forward(c, frozen, out);
}

/* ---- backward ---- */

static bool is_wanted(const gradients *g, size_t which) { return g->wanted[which] == '1'; }

static rcv_status check_like(const call *c, const about *a, int64_t elements, const char *name) {
    rcv_array_type type;
    bool fits = (a->elements == elements || !a->elements) && rcvb_array_type(a->dtype, &type) && type == c->kind.data;
    return fits ? check_place(c, a, name)
                : rcvb_fail(RCV_INVALID, "%s does not have the shape and dtype of its tensor", name);
}

static rcv_status check_gradients(const call *c, const gradients *g) {
    size_t states = rcv_net_state_count(c->net);
    if (strlen(g->wanted) != RCVB_WANT_PARAMETERS + c->parameters.count)
        return rcvb_fail(RCV_INVALID, "the gradients that are wanted do not match the parameters");
    rcv_status status = check_one(&g->dy, "the gradient of y");
    if (!status && g->dy.count)
        status = check_like(c, g->dy.at, c->steps * c->batch * rcv_net_output(c->net), "the gradient of y");
    if (!status && g->dfinal.count && g->dfinal.count != states)
        return rcvb_fail(RCV_INVALID, "there are %zu states, but %zu gradients of final states", states,
                         g->dfinal.count);
    for (size_t s = 0; s < g->dfinal.count && !status; s++)
        status = check_like(c, &g->dfinal.at[s], rcv_net_state(c->net, s)->total * c->batch,
                            "the gradient of a final state");
    return status;
}

/* Tensors for the gradients that are wanted; `data` gets their addresses. */
typedef struct {
    void *dx;
    void **dtensors, **dinitial, **drestart;
    void *pointers[];
} results;

static rcv_status new_like(const call *c, const about *like, tensors *out, size_t *next, void **data) {
    rcv_status status = rcvb_new_tensor(&c->x, like->dtype, like->dims, like->sizes, &out->at[*next]);
    if (!status) *data = rcvb_data(out->at[(*next)++]);
    return status;
}

static rcv_status new_results(const call *c, const gradients *g, tensors *out, results **made) {
    size_t parameters = c->parameters.count, states = rcv_net_state_count(c->net), next = 0;
    results *r = calloc(1, sizeof *r + (parameters + 2 * states) * sizeof *r->pointers);
    *made = r;
    rcv_status status = rcvb_room(1 + parameters + 2 * states, out);
    if (!r) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    r->dtensors = r->pointers;
    r->dinitial = r->pointers + parameters;
    r->drestart = r->dinitial + states;
    if (!status && is_wanted(g, RCVB_WANT_X)) status = new_like(c, &c->x, out, &next, &r->dx);
    for (size_t i = 0; i < parameters && !status; i++) {
        if (is_wanted(g, RCVB_WANT_PARAMETERS + i))
            status = new_like(c, &c->parameters.at[i], out, &next, &r->dtensors[i]);
    }
    for (size_t s = 0; s < c->initial.count && is_wanted(g, RCVB_WANT_INITIAL) && !status; s++)
        status = new_like(c, &c->initial.at[s], out, &next, &r->dinitial[s]);
    for (size_t s = 0; s < c->restart.count && is_wanted(g, RCVB_WANT_RESTART) && !status; s++)
        status = new_like(c, &c->restart.at[s], out, &next, &r->drestart[s]);
    out->count = next;
    return status;
}

/* Repeats the forward call, whose reserve is not there any more. */
static rcv_status repeat_forward(const call *c, const arrays *a, rcvb_lease *lease, tensor *reserve) {
    tensor y = NULL;
    rcv_status status = rcvb_acquire(&c->kind, c->steps, c->batch, c->stream, 0, lease);
    if (!status) status = new_reserve(c, lease, reserve);
    if (!status) status = new_y(c, &y);
    if (!status) {
        rcv_forward data = forward_data(c, a);
        data.y = rcvb_data(y);
        data.version = lease->version;
        data.reserve = reserve_in(rcvb_data(*reserve));
        status = rcvb_pass(rcv_run_forward(lease->run, &data));
    }
    rcvb_delete_tensor(y);
    return status;
}

static rcv_status call_backward(const call *c, const gradients *g, const arrays *a, void *reserve,
                                const rcvb_lease *lease, const results *r) {
    const void *dfinal[MOST_STATES], **next = dfinal;
    rcv_forward named = forward_data(c, a);
    named.version = lease->version;
    named.reserve = reserve_in(reserve);
    named.y = named.reserve; /* it is not written: y need not exist any more */
    rcv_backward data =
        RCV_INIT(rcv_backward, .dy = first_data(&g->dy), .forward = &named, .dx = r->dx, .dtensors = r->dtensors);
    data.dfinal = list_pointers(&g->dfinal, &next, true);
    if (c->initial.count) data.dinitial = r->dinitial;
    if (c->restart.count) data.drestart = r->drestart;
    return rcvb_pass(rcv_run_backward(lease->run, &data));
}

static rcv_status backward(const call *c, const gradients *g, const results *r) {
    tensor repeated = NULL;
    rcvb_lease lease = {0};
    arrays *a = new_arrays(c);
    if (!a) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    rcv_status status = rcvb_acquire_again(&c->kind, (size_t)g->reserve_bytes, c->stream, &lease);
    if (lease.run && !has_offset(c, g->reserve.data)) rcvb_release(&lease, false);
    if (!status && !lease.run) status = repeat_forward(c, a, &lease, &repeated);
    if (!status) status = call_backward(c, g, a, repeated ? rcvb_data(repeated) : g->reserve.data, &lease, r);
    rcvb_release(&lease, false);
    rcvb_delete_tensor(repeated);
    free(a);
    return status;
}

/* Of a batch without sequences. */
static rcv_status clear_results(const tensors *out) {
    for (size_t i = 0; i < out->count; i++) {
        if (torch.aoti_torch_zero_(out->at[i])) return rcvb_fail(RCV_INVALID, "PyTorch cannot clear a tensor");
    }
    return RCV_OK;
}

rcv_status rcvb_run_backward(const call *c, const gradients *g, tensors *out) {
    results *r = NULL;
    rcv_status status = check_gradients(c, g);
    if (!status) status = check_place(c, &g->reserve, "the reserve");
    if (!status) status = new_results(c, g, out, &r);
    if (!status) status = c->batch ? backward(c, g, r) : clear_results(out);
    free(r);
    return status;
}

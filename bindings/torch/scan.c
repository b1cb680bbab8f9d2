/* PyTorch operators for linear recurrences h[t] = a[t] h[t-1] + b[t]:
 *
 *   recurve::scan(Tensor a, Tensor b, Tensor[] initial, Tensor[] lengths, Tensor[] resets, bool reverse) -> Tensor
 *   recurve::scan_backward(Tensor dh, Tensor a, Tensor h, Tensor[] initial, Tensor[] lengths, Tensor[] resets, bool reverse) -> Tensor[]
 *
 * a, b, h: [steps, batch, channels]. A list has one tensor or none: initial [batch, channels], lengths [batch] on the host, resets
 * [steps, batch]. Gradients are those of a, b and, where it is given, initial. */
#include "torch/scan.h"
#include "call/scans.h"
#include "call/shared.h"
#include "torch/tensors.h"

#include <string.h>

enum { INPUTS = 3 };

/* The tensors of a call: three [steps, batch, channels], and the optional ones. */
typedef struct {
    tensor in[INPUTS]; /* forward: a, b, NULL; backward: dh, a, h */
    tensors initial, lengths, resets;
    bool reverse;
    about about; /* of in[0] */
    rcvb_scan_shape shape;
    void *stream;
} call;

static void take(call *c, const value *stack, int inputs, rcv_status *status) {
    tensors *const lists[] = {&c->initial, &c->lengths, &c->resets};
    for (int i = 0; i < inputs; i++) memcpy(&c->in[i], &stack[i], sizeof c->in[i]);
    for (int i = 0; i < 3; i++) {
        rcv_status taken = rcvb_take_list(stack[inputs + i], lists[i]);
        if (taken) *status = taken;
    }
    c->reverse = stack[inputs + 3] != 0;
}

static void delete_call(call *c) {
    for (int i = 0; i < INPUTS; i++) rcvb_delete_tensor(c->in[i]);
    rcvb_delete_tensors(&c->initial);
    rcvb_delete_tensors(&c->lengths);
    rcvb_delete_tensors(&c->resets);
}

static bool is_at(const about *a, const call *c) {
    return a->device == c->about.device && a->ordinal == c->about.ordinal;
}

static rcv_status check_optional(const call *c, tensors *t, const char *name, int64_t elements, bool on_host) {
    if (t->count > 1) return rcvb_fail(RCV_INVALID, "%s is more than one tensor", name);
    if (!t->count) return RCV_OK;
    about a;
    rcv_status status = rcvb_read(&t->at[0], &a);
    if (status) return status;
    bool there = on_host ? a.device == torch.cpu : is_at(&a, c);
    if (a.elements == elements && there) return RCV_OK;
    return rcvb_fail(RCV_INVALID, "%s should have %lld elements and lie %s", name, (long long)elements,
                     on_host ? "on the host" : "where a lies");
}

static rcv_status find_place(call *c) {
    uint32_t threads = 1;
    c->shape.device = c->about.device == torch.cpu ? RCVB_CPU : c->about.ordinal;
    if (c->shape.device == RCVB_CPU) {
        torch.torch_get_num_threads(&threads);
        c->shape.threads = (int)threads;
        return RCV_OK;
    }
    bool found = torch.aoti_torch_get_current_cuda_stream &&
                 !torch.aoti_torch_get_current_cuda_stream(c->about.ordinal, &c->stream);
    return found ? RCV_OK : rcvb_fail(RCV_UNSUPPORTED, "this PyTorch has no CUDA");
}

static rcv_status check_inputs(call *c, int inputs) {
    rcv_array_type type;
    for (int i = 0; i < inputs; i++) {
        about a;
        rcv_status status = rcvb_read(&c->in[i], &a);
        if (status) return status;
        if (i == 0) c->about = a;
        bool alike = a.dims == 3 && a.dtype == c->about.dtype && is_at(&a, c) &&
                     !memcmp(a.sizes, c->about.sizes, 3 * sizeof *a.sizes);
        if (!alike)
            return rcvb_fail(RCV_INVALID,
                             "a, b and h should have three dimensions, one shape, one dtype and one device");
    }
    if (!rcvb_array_type(c->about.dtype, &type)) return rcvb_fail(RCV_INVALID, "a scan is of tensors of floats");
    c->shape = (rcvb_scan_shape){.steps = c->about.sizes[0],
                                 .batch = c->about.sizes[1],
                                 .channels = c->about.sizes[2],
                                 .dtype = (rcv_dtype)(type - 1),
                                 .reverse = c->reverse,
                                 .lengths = c->lengths.count > 0,
                                 .resets = c->resets.count > 0};
    return RCV_OK;
}

static rcv_status check_call(call *c, int inputs) {
    rcv_status status = check_inputs(c, inputs);
    if (status) return status;
    const rcvb_scan_shape *s = &c->shape;
    status = check_optional(c, &c->initial, "initial", s->batch * s->channels, false);
    if (!status) status = check_optional(c, &c->lengths, "lengths", s->batch, true);
    if (!status) status = check_optional(c, &c->resets, "resets", s->steps * s->batch, false);
    return status ? status : find_place(c);
}

static bool is_empty(const call *c) { return !c->about.elements; }
static void *data_of(const tensors *t) { return t->count ? rcvb_about(t->at[0]).data : NULL; }

static rcv_status run_forward(call *c, tensor *h) {
    rcvb_scan_lease lease = {0};
    rcv_status status = check_call(c, 2);
    if (!status) status = rcvb_new_tensor(&c->about, c->about.dtype, 3, c->about.sizes, h);
    if (status || is_empty(c)) return status;
    status = rcvb_acquire_scan(&c->shape, c->stream, &lease);
    if (!status) {
        rcv_scan_data data = RCV_INIT(rcv_scan_data, .a = rcvb_about(c->in[0]).data, .b = rcvb_about(c->in[1]).data,
                                      .initial = data_of(&c->initial), .lengths = data_of(&c->lengths),
                                      .resets = data_of(&c->resets), .h = rcvb_about(*h).data);
        status = rcvb_pass(rcv_scan_forward(lease.scan, &data));
    }
    rcvb_release_scan(&lease);
    return status;
}

void rcvb_scan_kernel(value *stack, uint64_t inputs, uint64_t outputs) {
    call c = {0};
    tensor h = NULL;
    rcv_status status = RCV_OK;
    (void)inputs;
    (void)outputs;
    take(&c, stack, 2, &status);
    if (!status) status = run_forward(&c, &h);
    delete_call(&c);
    if (status) rcvb_delete_tensor(h);
    rcvb_raise(status);
    memcpy(&stack[0], &h, sizeof h);
}

static rcv_status new_gradients(const call *c, tensors *out) {
    rcv_status status = rcvb_room(2 + c->initial.count, out);
    for (size_t i = 0; i < 2 && !status; i++)
        status = rcvb_new_tensor(&c->about, c->about.dtype, 3, c->about.sizes, &out->at[i]);
    if (status || !c->initial.count) return status;
    about initial = rcvb_about(c->initial.at[0]);
    return rcvb_new_tensor(&initial, initial.dtype, initial.dims, initial.sizes, &out->at[2]);
}

static rcv_status run_backward(call *c, tensors *out) {
    rcvb_scan_lease lease = {0};
    rcv_status status = check_call(c, 3);
    if (!status) status = new_gradients(c, out);
    if (status) return status;
    if (is_empty(c)) {
        if (c->initial.count) torch.aoti_torch_zero_(out->at[2]);
        return RCV_OK;
    }
    status = rcvb_acquire_scan(&c->shape, c->stream, &lease);
    if (!status) {
        rcv_scan_data data =
            RCV_INIT(rcv_scan_data, .a = rcvb_about(c->in[1]).data, .h = rcvb_about(c->in[2]).data,
                     .initial = data_of(&c->initial), .lengths = data_of(&c->lengths), .resets = data_of(&c->resets));
        rcv_scan_gradients gradients = RCV_INIT(rcv_scan_gradients, .dh = rcvb_about(c->in[0]).data,
                                                .da = rcvb_about(out->at[0]).data, .db = rcvb_about(out->at[1]).data,
                                                .dinitial = c->initial.count ? rcvb_about(out->at[2]).data : NULL);
        status = rcvb_pass(rcv_scan_backward(lease.scan, &data, &gradients));
    }
    rcvb_release_scan(&lease);
    return status;
}

void rcvb_scan_backward_kernel(value *stack, uint64_t inputs, uint64_t outputs) {
    call c = {0};
    tensors out = {0};
    rcv_status status = RCV_OK;
    (void)inputs;
    (void)outputs;
    take(&c, stack, 3, &status);
    if (!status) status = run_backward(&c, &out);
    delete_call(&c);
    if (status) rcvb_delete_tensors(&out);
    rcvb_raise(status);
    stack[0] = rcvb_give_list(&out);
}

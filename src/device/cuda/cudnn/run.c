/* The passes of a network by cuDNN. */
#include "device/cuda/cudnn/cudnn.h"
#include "device/cuda/kernels/kernels.h"

typedef struct {
    rcvi_cudnn *vendor;
    const rcvi_binding *binding;
    cudaStream_t stream;
} call;

/* ---- tensors ---- */

static void *of_caller(const call *c, rcvi_cudnn_port_index p) {
    int buffer = c->vendor->ports[p].buffer;
    return buffer == RCVI_NONE ? NULL : c->binding->buffers[buffer];
}

/* The address for cuDNN of a tensor; NULL where the caller left it out. */
static void *inside(const call *c, rcvi_cudnn_port_index p) {
    const rcvi_cudnn_port *port = &c->vendor->ports[p];
    void *outside = of_caller(c, p);
    return outside && port->own ? c->vendor->base + port->offset : outside;
}

/* The same, but never NULL. */
static void *inside_always(const call *c, rcvi_cudnn_port_index p) {
    void *there = inside(c, p);
    return there ? there : c->vendor->base + c->vendor->ports[p].offset;
}

/* The caller's array of a port. */
static rcvi_matrix outside_of(const call *c, rcvi_cudnn_port_index p) {
    const rcvi_cudnn_port *port = &c->vendor->ports[p];
    const rcvi_sizes *sizes = &c->binding->program->sizes;
    rcvi_matrix m = {.at = of_caller(c, p), .row = port->columns, .column = 1, .type = port->type};
    if (port->is_batch_major) m.order = (rcvi_order){.batch = sizes->batch, .steps = sizes->steps};
    return m;
}

static rcvi_matrix inside_of(const call *c, rcvi_cudnn_port_index p) {
    return (rcvi_matrix){.at = inside(c, p), .row = c->vendor->ports[p].columns, .column = 1, .type = c->vendor->type};
}

static rcv_status copy(const call *c, rcvi_cudnn_port_index p, rcvi_matrix to, rcvi_matrix from) {
    const rcvi_cudnn_port *port = &c->vendor->ports[p];
    return rcvi_cuda_check(rcvi_cuda_copy(c->stream, port->rows, port->columns, to, from), "a copy for cuDNN");
}

/* Converts an input for cuDNN, before it runs. */
static rcv_status convert_input(const call *c, rcvi_cudnn_port_index p) {
    return inside(c, p) == of_caller(c, p) ? RCV_OK : copy(c, p, inside_of(c, p), outside_of(c, p));
}

/* Converts an output of cuDNN, after it ran. */
static rcv_status convert_output(const call *c, rcvi_cudnn_port_index p) {
    return inside(c, p) == of_caller(c, p) ? RCV_OK : copy(c, p, outside_of(c, p), inside_of(c, p));
}

static rcv_status clear(const call *c, void *at, size_t bytes) {
    return rcvi_cuda_check(cudaMemsetAsync(at, 0, bytes, c->stream), "clearing memory for cuDNN");
}

/* dy is zeros where the caller has none. */
static rcv_status convert_dy(const call *c) {
    if (of_caller(c, RCVI_CUDNN_DY)) return convert_input(c, RCVI_CUDNN_DY);
    const rcvi_cudnn_port *port = &c->vendor->ports[RCVI_CUDNN_DY];
    size_t bytes = (size_t)(port->rows * port->columns) * rcvi_cuda_bytes(c->vendor->type);
    return clear(c, inside_always(c, RCVI_CUDNN_DY), bytes);
}

/* ---- parameters and their gradients ---- */

static rcv_status copy_weights(const call *c, void *weights) {
    const rcvi_cudnn *v = c->vendor;
    for (size_t i = 0; i < v->tensor_count; i++) {
        const float *parameters = c->binding->buffers[v->tensors[i].parameters];
        RCVI_CUDA_TRY(rcvi_cuda_weights_in(c->stream, v->tensors[i].map, parameters, weights),
                      "copying weights for cuDNN");
    }
    return RCV_OK;
}

/* NULL: not wanted. */
static float *gradients_of(const call *c, size_t tensor) {
    return c->binding->buffers[c->vendor->tensors[tensor].gradients];
}

static rcv_status copy_gradients(const call *c, const void *dweights) {
    const rcvi_cudnn *v = c->vendor;
    for (size_t i = 0; i < v->tensor_count; i++) {
        if (!gradients_of(c, i)) continue;
        RCVI_CUDA_TRY(
            rcvi_cuda_weights_out(c->stream, v->tensors[i].map, gradients_of(c, i), dweights, !c->binding->overwrite),
            "copying gradients from cuDNN");
    }
    return RCV_OK;
}

static bool wants_gradients(const call *c) {
    bool found = false;
    for (size_t i = 0; i < c->vendor->tensor_count; i++) found |= gradients_of(c, i) != NULL;
    return found;
}

/* ---- passes ---- */

static rcv_status forward(const call *c) {
    const rcvi_cudnn *v = c->vendor;
    void *weights = rcvi_cudnn_at(v, v->weights);
    if (!c->binding->same_parameters) RCVI_TRY(copy_weights(c, weights));
    for (int p = RCVI_CUDNN_X; p <= RCVI_CUDNN_C0; p++)
        if (p != RCVI_CUDNN_Y) RCVI_TRY(convert_input(c, p));
    int status = v->api->RNNForward(
        v->handle, v->rnn, v->training ? RCVI_CUDNN_TRAINING : RCVI_CUDNN_INFERENCE, NULL, v->x,
        inside(c, RCVI_CUDNN_X), v->y, inside(c, RCVI_CUDNN_Y), v->state, inside(c, RCVI_CUDNN_H0),
        inside(c, RCVI_CUDNN_H1), v->state, inside(c, RCVI_CUDNN_C0), inside(c, RCVI_CUDNN_C1), v->weights.bytes,
        weights, v->work.bytes, rcvi_cudnn_at(v, v->work), v->reserve.bytes, rcvi_cudnn_at(v, v->reserve));
    RCVI_TRY(rcvi_cudnn_check(v, status, "the forward pass"));
    RCVI_TRY(convert_output(c, RCVI_CUDNN_Y));
    RCVI_TRY(convert_output(c, RCVI_CUDNN_H1));
    return convert_output(c, RCVI_CUDNN_C1);
}

static rcv_status backward_weights(const call *c) {
    const rcvi_cudnn *v = c->vendor;
    void *dweights = rcvi_cudnn_at(v, v->dweights);
    RCVI_TRY(clear(c, dweights, v->dweights.bytes));
    int status = v->api->RNNBackwardWeights_v8(
        v->handle, v->rnn, RCVI_CUDNN_ADD_GRADIENTS, NULL, v->x, inside(c, RCVI_CUDNN_X), v->state,
        inside(c, RCVI_CUDNN_H0), v->y, inside(c, RCVI_CUDNN_Y), v->dweights.bytes, dweights, v->work.bytes,
        rcvi_cudnn_at(v, v->work), v->reserve.bytes, rcvi_cudnn_at(v, v->reserve));
    RCVI_TRY(rcvi_cudnn_check(v, status, "the gradients of weights"));
    return copy_gradients(c, dweights);
}

/* Weights and converted inputs are those of the forward pass. */
static rcv_status backward(const call *c) {
    const rcvi_cudnn *v = c->vendor;
    RCVI_TRY(convert_dy(c));
    RCVI_TRY(convert_input(c, RCVI_CUDNN_DH1));
    RCVI_TRY(convert_input(c, RCVI_CUDNN_DC1));
    int status = v->api->RNNBackwardData_v8(
        v->handle, v->rnn, NULL, v->y, inside(c, RCVI_CUDNN_Y), inside_always(c, RCVI_CUDNN_DY), v->x,
        inside_always(c, RCVI_CUDNN_DX), v->state, inside(c, RCVI_CUDNN_H0), inside(c, RCVI_CUDNN_DH1),
        inside(c, RCVI_CUDNN_DH0), v->state, inside(c, RCVI_CUDNN_C0), inside(c, RCVI_CUDNN_DC1),
        inside(c, RCVI_CUDNN_DC0), v->weights.bytes, rcvi_cudnn_at(v, v->weights), v->work.bytes,
        rcvi_cudnn_at(v, v->work), v->reserve.bytes, rcvi_cudnn_at(v, v->reserve));
    RCVI_TRY(rcvi_cudnn_check(v, status, "the backward pass"));
    RCVI_TRY(convert_output(c, RCVI_CUDNN_DX));
    RCVI_TRY(convert_output(c, RCVI_CUDNN_DH0));
    RCVI_TRY(convert_output(c, RCVI_CUDNN_DC0));
    return wants_gradients(c) ? backward_weights(c) : RCV_OK;
}

rcv_status rcvi_cudnn_run(rcvi_cudnn *vendor, bool backward_pass, const rcvi_binding *binding, cudaStream_t stream) {
    call c = {vendor, binding, stream};
    RCVI_TRY(rcvi_cudnn_resize(vendor, binding->program->sizes));
    RCVI_TRY(rcvi_cudnn_check(vendor, vendor->api->SetStream(vendor->handle, stream), "another stream"));
    return backward_pass ? backward(&c) : forward(&c);
}

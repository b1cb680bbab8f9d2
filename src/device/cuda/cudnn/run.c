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

static rcv_status copy(const call *c, rcvi_cudnn_port_index p, void *to, rcvi_cuda_type to_type, void *from,
                       rcvi_cuda_type from_type) {
    const rcvi_cudnn_port *port = &c->vendor->ports[p];
    rcvi_matrix out = {.at = to, .row = port->columns, .column = 1, .type = to_type};
    rcvi_matrix in = {.at = from, .row = port->columns, .column = 1, .type = from_type};
    return rcvi_cuda_check(rcvi_cuda_copy(c->stream, port->rows, port->columns, out, in), "a copy for cuDNN");
}

/* Converts an input for cuDNN, before it runs. */
static rcv_status convert_input(const call *c, rcvi_cudnn_port_index p) {
    void *outside = of_caller(c, p), *ours = inside(c, p);
    return ours == outside ? RCV_OK : copy(c, p, ours, c->vendor->type, outside, RCVI_F32);
}

/* Converts an output of cuDNN, after it ran. */
static rcv_status convert_output(const call *c, rcvi_cudnn_port_index p) {
    void *outside = of_caller(c, p), *ours = inside(c, p);
    return ours == outside ? RCV_OK : copy(c, p, outside, RCVI_F32, ours, c->vendor->type);
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

static void *external(const call *c, rcvi_role role) {
    const rcvi_program *program = c->vendor->program;
    for (size_t i = 0; i < program->external_count; i++) {
        int buffer = program->externals[i];
        if (program->buffers[buffer].role == role) return c->binding->buffers[buffer];
    }
    return NULL;
}

/* ---- passes ---- */

static rcv_status forward(const call *c) {
    const rcvi_cudnn *v = c->vendor;
    void *weights = rcvi_cudnn_at(v, v->weights);
    if (!c->binding->same_parameters) {
        RCVI_CUDA_TRY(rcvi_cuda_weights_in(c->stream, v->map, external(c, RCVI_PARAMETERS), weights),
                      "copying weights for cuDNN");
    }
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

static rcv_status backward_weights(const call *c, float *gradients) {
    const rcvi_cudnn *v = c->vendor;
    void *dweights = rcvi_cudnn_at(v, v->dweights);
    RCVI_TRY(clear(c, dweights, v->dweights.bytes));
    int status = v->api->RNNBackwardWeights_v8(
        v->handle, v->rnn, RCVI_CUDNN_ADD_GRADIENTS, NULL, v->x, inside(c, RCVI_CUDNN_X), v->state,
        inside(c, RCVI_CUDNN_H0), v->y, inside(c, RCVI_CUDNN_Y), v->dweights.bytes, dweights, v->work.bytes,
        rcvi_cudnn_at(v, v->work), v->reserve.bytes, rcvi_cudnn_at(v, v->reserve));
    RCVI_TRY(rcvi_cudnn_check(v, status, "the gradients of weights"));
    return rcvi_cuda_check(rcvi_cuda_weights_out(c->stream, v->map, gradients, dweights, !c->binding->overwrite),
                           "copying gradients from cuDNN");
}

/* Weights and converted inputs are those of the forward pass. */
static rcv_status backward(const call *c) {
    const rcvi_cudnn *v = c->vendor;
    float *gradients = external(c, RCVI_DPARAMETERS);
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
    return gradients ? backward_weights(c, gradients) : RCV_OK;
}

rcv_status rcvi_cudnn_run(rcvi_cudnn *vendor, bool backward_pass, const rcvi_binding *binding, cudaStream_t stream) {
    call c = {vendor, binding, stream};
    RCVI_TRY(rcvi_cudnn_check(vendor, vendor->api->SetStream(vendor->handle, stream), "another stream"));
    return backward_pass ? backward(&c) : forward(&c);
}

/* Runs the passes of a network by oneDNN: attaches the caller's arrays, converts weights and gradients, executes primitives. */
#include "device/cpu/onednn/onednn.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH }; /* parameters of a layer and direction, in order */
enum { DX = RCVI_PORT_GRADIENT + RCVI_PORT_X, DY = RCVI_PORT_GRADIENT + RCVI_PORT_Y };

typedef struct {
    rcvi_vendor *vendor;
    const rcvi_binding *binding;
} call;

/* ---- ports ---- */

static void *pointer_of(const call *c, rcvi_role role, size_t index) {
    int buffer = c->vendor->buffers[role][index];
    return buffer == RCVI_NONE ? NULL : c->binding->buffers[buffer];
}

/* The block's part of a state's tensor, or NULL. */
static float *state_of(const call *c, const rcvi_onednn_block *b, rcvi_role role, size_t state) {
    const rcvi_vendor *vendor = c->vendor;
    float *whole = pointer_of(c, role, state);
    return whole ? whole + b->first * vendor->directions * vendor->batch * vendor->hidden : NULL;
}

static float *own_memory(const rcvi_vendor *vendor, size_t offset) { return (float *)(void *)(vendor->base + offset); }

static void record_failure(rcvi_vendor *vendor, dnnl_status_t status) {
    if (!vendor->failure) vendor->failure = status;
}

static void attach(rcvi_vendor *vendor, const rcvi_onednn_port *port, const float *outside) {
    record_failure(vendor, dnnl_memory_set_data_handle(port->outside, (void *)outside));
}

static void reorder(rcvi_vendor *vendor, const rcvi_onednn_port *port, dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    record_failure(vendor, dnnl_primitive_execute(port->reorder, vendor->stream, 2, arguments));
}

/* Provides an input before the primitive runs; an absent one is zeros. */
static void load_input(rcvi_vendor *vendor, const rcvi_onednn_port *port, const float *outside) {
    attach(vendor, port, outside ? outside : own_memory(vendor, vendor->zeros));
    if (port->reorder) reorder(vendor, port, port->outside, port->inside);
}

/* Copies an output after the primitive ran; where it is the caller's array itself, that was attached before. */
static void store_output(rcvi_vendor *vendor, const rcvi_onednn_port *port, float *outside) {
    if (!port->reorder || !outside) return;
    attach(vendor, port, outside);
    reorder(vendor, port, port->inside, port->outside);
}

static void execute(rcvi_vendor *vendor, const rcvi_onednn_pass *pass) {
    record_failure(vendor,
                   dnnl_primitive_execute(pass->primitive, vendor->stream, pass->argument_count, pass->arguments));
}

/* ---- parameters ---- */

/* Index in our order of a gate in oneDNN's order: r and z of a GRU are exchanged; its fourth bias is the candidate's bias of the
 * recurrent product. */
static int64_t gate_of(const rcvi_vendor *vendor, int64_t gate) {
    static const int64_t gru[] = {1, 0, 2, 2};
    return vendor->kind.cell == RCVI_ONEDNN_GRU ? gru[gate] : gate;
}

/* The caller's tensor of parameters or gradients (role); NULL: absent. */
static float *tensor_of(const call *c, rcvi_role role, int64_t layer, int64_t direction, int which) {
    const rcvi_vendor *vendor = c->vendor;
    const rcv_net *net = vendor->program->net;
    int64_t each = net->options.no_bias ? 2 : 4, index = (layer * vendor->directions + direction) * each + which;
    const int *tensors = vendor->tensors[role == RCVI_DPARAMETERS];
    if (tensors) return c->binding->buffers[tensors[index]];
    float *flat = pointer_of(c, role, 0);
    return flat ? flat + net->parameters[index].offset : NULL;
}

/* Copies the block's matrices gate by gate from the parameters to the staging buffer. */
static void gather_weights(const call *c, const rcvi_onednn_block *b, int which) {
    const rcvi_vendor *vendor = c->vendor;
    int64_t columns = which == WEIGHT_IH ? b->input : vendor->hidden, size = vendor->hidden * columns;
    float *to = own_memory(vendor, vendor->staging);
    for (int64_t l = 0; l < b->layers; l++) {
        for (int64_t d = 0; d < vendor->directions; d++) {
            const float *from = tensor_of(c, RCVI_PARAMETERS, b->first + l, d, which);
            for (int64_t g = 0; g < vendor->gates; g++, to += size)
                memcpy(to, from + gate_of(vendor, g) * size, (size_t)size * sizeof *to);
        }
    }
}

static void copy_or_add(float *to, const float *from, int64_t count, bool overwrite) {
    for (int64_t i = 0; i < count; i++) to[i] = overwrite ? from[i] : to[i] + from[i];
}

/* Copies or adds the block's gradients from the staging buffer to the caller's. */
static void scatter_gradients(const call *c, const rcvi_onednn_block *b, int which) {
    const rcvi_vendor *vendor = c->vendor;
    int64_t columns = which == WEIGHT_IH ? b->input : vendor->hidden, size = vendor->hidden * columns;
    const float *from = own_memory(vendor, vendor->staging);
    for (int64_t l = 0; l < b->layers; l++) {
        for (int64_t d = 0; d < vendor->directions; d++) {
            float *to = tensor_of(c, RCVI_DPARAMETERS, b->first + l, d, which);
            for (int64_t g = 0; g < vendor->gates; g++, from += size)
                if (to) copy_or_add(to + gate_of(vendor, g) * size, from, size, c->binding->overwrite);
        }
    }
}

/* Loads W and U for a pass; ports: [2]. */
static void load_weights(const call *c, const rcvi_onednn_block *b, const rcvi_onednn_port *ports, bool changed) {
    rcvi_vendor *vendor = c->vendor;
    for (int which = WEIGHT_IH; which <= WEIGHT_HH; which++) {
        bool in_place = rcvi_onednn_weights_in_place(vendor, b);
        if (!changed && ports[which].reorder) continue;
        if (!in_place) gather_weights(c, b, which);
        load_input(vendor, &ports[which],
                   in_place ? tensor_of(c, RCVI_PARAMETERS, b->first, 0, which) : own_memory(vendor, vendor->staging));
    }
}

static void store_weight_gradients(const call *c, const rcvi_onednn_block *b) {
    rcvi_vendor *vendor = c->vendor;
    const rcvi_onednn_port *ports = &b->ports[RCVI_PORT_GRADIENT + RCVI_PORT_W];
    for (int which = WEIGHT_IH; which <= WEIGHT_HH; which++) {
        bool direct = c->binding->overwrite && rcvi_onednn_weights_in_place(vendor, b);
        float *to = direct ? tensor_of(c, RCVI_DPARAMETERS, b->first, 0, which) : own_memory(vendor, vendor->staging);
        store_output(vendor, &ports[which], to);
        if (!direct) scatter_gradients(c, b, which);
    }
}

static float *inside_of(rcvi_vendor *vendor, const rcvi_onednn_port *port) {
    void *bytes = NULL;
    record_failure(vendor, dnnl_memory_get_data_handle(port->inside, &bytes));
    return bytes;
}

/* True if our bias `which` is part of oneDNN's bias of a gate. oneDNN has one bias a gate, the sum of our two; only a GRU's
 * candidate has two. */
static bool contributes_to(const rcvi_vendor *vendor, int64_t gate, int which) {
    if (vendor->kind.cell != RCVI_ONEDNN_GRU || gate < 2) return true;
    return (gate == 2) == (which == BIAS_IH);
}

static void load_bias(const call *c, const rcvi_onednn_block *b) {
    rcvi_vendor *vendor = c->vendor;
    if (vendor->program->net->options.no_bias) return; /* they are zeros from the allocation */
    int64_t hidden = vendor->hidden;
    float *to = inside_of(vendor, &b->ports[RCVI_PORT_BIAS]);
    for (int64_t l = 0; l < b->layers; l++) {
        for (int64_t d = 0; d < vendor->directions; d++) {
            for (int64_t g = 0; g < vendor->bias_gates; g++, to += hidden) {
                memset(to, 0, (size_t)hidden * sizeof *to);
                for (int which = BIAS_IH; which <= BIAS_HH; which++) {
                    const float *from = tensor_of(c, RCVI_PARAMETERS, b->first + l, d, which);
                    if (contributes_to(vendor, g, which))
                        copy_or_add(to, from + gate_of(vendor, g) * hidden, hidden, false);
                }
            }
        }
    }
}

static void store_bias_gradients(const call *c, const rcvi_onednn_block *b) {
    rcvi_vendor *vendor = c->vendor;
    if (vendor->program->net->options.no_bias) return;
    int64_t hidden = vendor->hidden;
    const float *from = inside_of(vendor, &b->ports[RCVI_PORT_GRADIENT + RCVI_PORT_BIAS]);
    for (int64_t l = 0; l < b->layers; l++) {
        for (int64_t d = 0; d < vendor->directions; d++) {
            for (int64_t g = 0; g < vendor->bias_gates; g++, from += hidden) {
                for (int which = BIAS_IH; which <= BIAS_HH; which++) {
                    float *to = tensor_of(c, RCVI_DPARAMETERS, b->first + l, d, which);
                    if (to && contributes_to(vendor, g, which))
                        copy_or_add(to + gate_of(vendor, g) * hidden, from, hidden, c->binding->overwrite);
                }
            }
        }
    }
}

/* Clears the gradients of weights and biases, to which oneDNN adds. */
static void clear_gradients(rcvi_vendor *vendor, const rcvi_onednn_block *b) {
    for (int tensor = RCVI_PORT_W; tensor <= RCVI_PORT_BIAS; tensor++) {
        const rcvi_onednn_port *port = &b->ports[RCVI_PORT_GRADIENT + tensor];
        memset(inside_of(vendor, port), 0, port->bytes);
    }
}

/* ---- passes ---- */

static int state_count(const rcvi_vendor *vendor) { return vendor->kind.cell == RCVI_ONEDNN_LSTM ? 2 : 1; }

static void forward(const call *c) {
    rcvi_vendor *vendor = c->vendor;
    float *y = pointer_of(c, RCVI_Y, 0);
    bool changed = !c->binding->same_parameters;
    for (size_t i = 0; i < vendor->block_count; i++) {
        const rcvi_onednn_block *b = &vendor->blocks[i];
        const rcvi_onednn_port *ports = b->ports, *out = &ports[RCVI_PORT_Y];
        load_weights(c, b, &ports[RCVI_PORT_W], changed);
        if (changed) load_bias(c, b);
        if (i == 0) load_input(vendor, &ports[RCVI_PORT_X], pointer_of(c, RCVI_X, 0));
        for (int s = 0; s < state_count(vendor); s++)
            load_input(vendor, &ports[RCVI_PORT_H0 + s], state_of(c, b, RCVI_INITIAL, (size_t)s));
        bool last = i + 1 == vendor->block_count;
        if (last && !out->reorder) attach(vendor, out, y);
        execute(vendor, &b->passes[0]);
        if (last) store_output(vendor, out, y);
        for (int s = 0; s < state_count(vendor); s++)
            store_output(vendor, &ports[RCVI_PORT_H1 + s], state_of(c, b, RCVI_FINAL, (size_t)s));
    }
    vendor->backward_stale |= changed;
}

/* Whether the caller wants a gradient of the block's parameters. */
static bool wants_gradients(const call *c, const rcvi_onednn_block *b) {
    bool found = false;
    for (int64_t l = 0; l < b->layers; l++) {
        for (int64_t d = 0; d < c->vendor->directions; d++) {
            for (int which = WEIGHT_IH; which <= (c->vendor->program->net->options.no_bias ? WEIGHT_HH : BIAS_HH);
                 which++)
                found |= tensor_of(c, RCVI_DPARAMETERS, b->first + l, d, which) != NULL;
        }
    }
    return found;
}

static void backward(const call *c) {
    rcvi_vendor *vendor = c->vendor;
    float *dx = pointer_of(c, RCVI_DX, 0);
    for (size_t i = vendor->block_count; i-- > 0;) {
        const rcvi_onednn_block *b = &vendor->blocks[i];
        const rcvi_onednn_port *gradient = &b->ports[RCVI_PORT_GRADIENT];
        load_weights(c, b, &b->ports[RCVI_PORT_BACKWARD_WEIGHTS], vendor->backward_stale);
        if (i + 1 == vendor->block_count) load_input(vendor, &b->ports[DY], pointer_of(c, RCVI_DY, 0));
        for (int s = 0; s < state_count(vendor); s++)
            load_input(vendor, &gradient[RCVI_PORT_H1 + s], state_of(c, b, RCVI_DFINAL, (size_t)s));
        if (i == 0 && !b->ports[DX].reorder) attach(vendor, &b->ports[DX], dx ? dx : own_memory(vendor, vendor->sink));
        clear_gradients(vendor, b);
        execute(vendor, &b->passes[1]);
        if (i == 0) store_output(vendor, &b->ports[DX], dx);
        for (int s = 0; s < state_count(vendor); s++)
            store_output(vendor, &gradient[RCVI_PORT_H0 + s], state_of(c, b, RCVI_DINITIAL, (size_t)s));
        if (!wants_gradients(c, b)) continue;
        store_weight_gradients(c, b);
        store_bias_gradients(c, b);
    }
    vendor->backward_stale = false;
}

/* Makes a failure visible in every output of the pass. */
static void fill_outputs_with_nan(const call *c, bool backward_pass) {
    const rcvi_program *program = c->binding->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        bool gradient = buffer->role != RCVI_Y && buffer->role != RCVI_FINAL;
        float *values = c->binding->buffers[program->externals[i]];
        if (!rcvi_roles[buffer->role].written || gradient != backward_pass || !values) continue;
        for (int64_t k = 0; k < buffer->count; k++) values[k] = NAN;
    }
}

static void run_forward(void *user) {
    const call *c = user;
    forward(c);
    record_failure(c->vendor, dnnl_stream_wait(c->vendor->stream));
}

static void run_backward(void *user) {
    const call *c = user;
    backward(c);
    record_failure(c->vendor, dnnl_stream_wait(c->vendor->stream));
}

rcv_status rcvi_vendor_run(rcvi_vendor *vendor, bool backward_pass, const rcvi_binding *binding) {
    call c = {vendor, binding};
    vendor->failure = dnnl_success;
    rcv_status status = rcvi_onednn_call(vendor, backward_pass ? run_backward : run_forward, &c);
    if (!status && vendor->failure == dnnl_out_of_memory)
        status = rcvi_fail(RCV_NO_MEMORY, "oneDNN has no memory left for a pass");
    else if (!status && vendor->failure)
        status = rcvi_fail(RCV_UNSUPPORTED, "oneDNN failed in a pass with status %d", (int)vendor->failure);
    if (status) fill_outputs_with_nan(&c, backward_pass);
    return status;
}

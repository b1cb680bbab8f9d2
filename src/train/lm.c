/* The language model as an object: its layout, its life, its initial values. */
#include "train/lm.h"

#include "base/random.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>

enum { OWN_TENSORS = 3 }; /* embedding.weight, decoder.weight, decoder.bias */

size_t rcvi_lm_tensor_count(const rcv_lm *lm) { return rcv_net_parameter_count(lm->net) + OWN_TENSORS; }

void rcvi_lm_tensor_at(const rcv_lm *lm, size_t index, rcvi_lm_tensor *tensor) {
    const size_t inner = rcv_net_parameter_count(lm->net);
    if (index == 0) {
        *tensor = (rcvi_lm_tensor){.name = "embedding.weight", .dims = 2, .shape = {RCVI_BYTES, lm->embedding}};
    } else if (index == inner + 1) {
        *tensor = (rcvi_lm_tensor){
            .name = "decoder.weight", .dims = 2, .shape = {RCVI_BYTES, lm->output}, .offset = lm->at_weight};
    } else if (index == inner + 2) {
        *tensor = (rcvi_lm_tensor){.name = "decoder.bias", .dims = 1, .shape = {RCVI_BYTES}, .offset = lm->at_bias};
    } else {
        const rcv_parameter *parameter = rcv_net_parameter(lm->net, index - 1);
        *tensor = (rcvi_lm_tensor){.dims = parameter->dims, .offset = lm->at_net + parameter->offset};
        snprintf(tensor->name, sizeof tensor->name, "rnn.%s", parameter->name);
        for (int d = 0; d < parameter->dims; d++) {
            tensor->shape[d] = parameter->shape[d];
        }
    }
    tensor->count = 1;
    for (int d = 0; d < tensor->dims; d++) {
        tensor->count *= tensor->shape[d];
    }
}

static rcv_status lay_out(rcv_lm *lm) {
    int64_t table, matrix;
    if (!rcvi_multiply(RCVI_BYTES, lm->embedding, &table) || !rcvi_multiply(RCVI_BYTES, lm->output, &matrix) ||
        !rcvi_add(table, rcv_net_parameter_elements(lm->net), &lm->at_weight) ||
        !rcvi_add(lm->at_weight, matrix, &lm->at_bias) || !rcvi_add(lm->at_bias, RCVI_BYTES, &lm->elements)) {
        return rcvi_fail(RCV_INVALID, "a model with %lld features of embedding and %lld of output is too large",
                         (long long)lm->embedding, (long long)lm->output);
    }
    lm->at_net = table;
    return RCV_OK;
}

rcv_status rcvi_lm_shell(rcv_net *net, rcv_lm **lm) {
    rcv_context *context = rcvi_net_context(net);
    *lm = NULL;
    if (rcv_net_get_options(net)->bidirectional) {
        return rcvi_fail(RCV_INVALID,
                         "a language model reads from left to right, so its network cannot be bidirectional");
    }
    rcv_lm *made = rcvi_new(context, 1, sizeof *made);
    if (made == NULL) {
        return RCV_NO_MEMORY;
    }
    made->context = context;
    made->net = net;
    made->embedding = rcv_net_get_options(net)->input;
    made->output = rcv_net_output(net);
    const rcv_status status = lay_out(made);
    if (status != RCV_OK) {
        rcvi_free(context, made);
        return status;
    }
    *lm = made;
    return RCV_OK;
}

static void fill_uniform(rcvi_twister *twister, double bound, float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = rcvi_uniform_float(twister, -bound, bound);
    }
}

static rcv_status initialize(rcv_lm *lm, uint64_t seed) {
    rcvi_twister twister;
    rcvi_twister_seed(&twister, seed ^ 0x6C6D2D6279746573u); /* numbers other than the network's */
    fill_uniform(&twister, 1, lm->parameters, lm->at_net);
    fill_uniform(&twister, 1 / sqrt((double)lm->output), lm->parameters + lm->at_weight, lm->elements - lm->at_weight);
    return rcv_net_initialize(lm->net, seed, RCV_FLOAT32, lm->parameters + lm->at_net);
}

rcv_status rcv_lm_new(const rcv_cell *cell, const rcv_lm_options *options, uint64_t seed, rcv_lm **lm) {
    if (lm == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_new needs a place for the model");
    }
    *lm = NULL;
    if (cell == NULL || options == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_new needs a cell and options");
    }
    if (options->embedding < 1) {
        return rcvi_fail(RCV_INVALID, "embedding is %lld but a byte's embedding has at least 1 feature",
                         (long long)options->embedding);
    }
    rcv_net_options inner = options->net;
    inner.input = options->embedding;
    rcv_net *net;
    rcv_status status = rcv_net_new(cell, &inner, &net);
    if (status != RCV_OK) {
        return status;
    }
    rcv_lm *made = NULL;
    status = rcvi_lm_shell(net, &made);
    if (made == NULL) {
        rcv_net_free(net);
        return status;
    }
    status = rcvi_lm_parameters(made);
    if (status == RCV_OK) {
        status = initialize(made, seed);
    }
    if (status != RCV_OK) {
        rcv_lm_free(made);
        return status;
    }
    *lm = made;
    return RCV_OK;
}

void rcv_lm_free(rcv_lm *lm) {
    if (lm == NULL) {
        return;
    }
    rcvi_states_free(lm->context, lm->net, lm->place.states);
    rcvi_free(lm->context, lm->parameters);
    rcvi_free(lm->context, lm->first);
    rcvi_free(lm->context, lm->second);
    rcv_net_free(lm->net);
    rcv_cell_free(lm->cell);
    rcvi_free(lm->context, lm);
}

rcv_status rcvi_lm_parameters(rcv_lm *lm) {
    lm->parameters = rcvi_new(lm->context, (size_t)lm->elements, sizeof *lm->parameters);
    return lm->parameters != NULL ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcvi_lm_moments(rcv_lm *lm) {
    if (lm->first == NULL) {
        lm->first = rcvi_new(lm->context, (size_t)lm->elements, sizeof *lm->first);
    }
    if (lm->second == NULL) {
        lm->second = rcvi_new(lm->context, (size_t)lm->elements, sizeof *lm->second);
    }
    return lm->first != NULL && lm->second != NULL ? RCV_OK : RCV_NO_MEMORY;
}

const rcv_net *rcv_lm_net(const rcv_lm *lm) { return lm->net; }

int64_t rcv_lm_steps(const rcv_lm *lm) { return lm->step; }

int64_t rcv_lm_parameter_elements(const rcv_lm *lm) { return lm->elements; }

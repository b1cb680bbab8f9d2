/* Public functions of models: make, load, save, free. */
#include "model/model.h"
#include "model/tensors.h"

#include "cell/cell.h"

#include <string.h>

rcv_context *rcvi_net_context(const rcv_net *net) { return rcv_net_cell(net)->context; }

rcv_status rcvi_model_new_zeros(const rcv_net *net, rcv_dtype dtype, rcv_net *owned_net, rcv_cell *owned_cell,
                                rcv_model **model) {
    *model = NULL;
    if (dtype != RCV_FLOAT32 && dtype != RCV_FLOAT64)
        return rcvi_fail(RCV_INVALID, "a model's parameters are float32 or float64, not %s", rcv_dtype_name(dtype));
    rcv_context *context = rcvi_net_context(net);
    rcv_model *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->parameters = rcvi_new(context, (size_t)rcv_net_parameter_elements(net), rcv_dtype_bytes(dtype));
    if (!made->parameters) {
        rcvi_free(context, made);
        return RCV_NO_MEMORY;
    }
    made->context = context;
    made->net = net;
    made->dtype = dtype;
    made->owned_net = owned_net;
    made->owned_cell = owned_cell;
    *model = made;
    return RCV_OK;
}

void rcv_model_free(rcv_model *model) {
    if (!model) return;
    rcv_context *context = model->context;
    rcvi_free(context, model->parameters);
    rcv_net_free(model->owned_net);
    rcv_cell_free(model->owned_cell);
    rcvi_free(context, model);
}

rcv_status rcv_model_new(const rcv_net *net, rcv_dtype dtype, uint64_t seed, rcv_model **model) {
    RCVI_NEED(model, "model");
    *model = NULL;
    RCVI_NEED(net, "net");
    rcv_model *made;
    rcv_status status = rcvi_model_new_zeros(net, dtype, NULL, NULL, &made);
    if (!made) return status;
    status = rcv_net_initialize(net, seed, dtype, made->parameters);
    if (status != RCV_OK) {
        rcv_model_free(made);
        return status;
    }
    *model = made;
    return RCV_OK;
}

/* Arguments of a load. */
typedef struct {
    rcv_context *context;
    const rcv_tensors *tensors;
    const char *file;
    rcv_model_options options;
} load_request;

/* Makes the cell and the network, and finds the prefix of the parameters. The caller frees all three. */
static rcv_status make_network(const load_request *from, rcv_cell **cell, rcv_net **net, char **prefix) {
    const char *given = from->options.prefix;
    rcv_status status = RCV_OK;
    if (given) {
        *prefix = rcvi_copy_text(from->context, given, strlen(given));
        status = *prefix ? RCV_OK : RCV_NO_MEMORY;
    }
    if (from->options.cell) {
        if (status == RCV_OK) status = rcv_cell_open(from->context, from->options.cell, cell);
        if (status == RCV_OK && !given)
            status = rcvi_find_prefix(from->context, from->tensors, from->file, "weight_ih_l0", prefix);
        if (status == RCV_OK) status = rcvi_net_from_state_dict(*cell, from->tensors, from->file, *prefix, net);
        return status;
    }
    if (status == RCV_OK) status = rcvi_network_from_tensors(from->context, from->tensors, from->file, cell, net);
    if (status == RCV_OK && !given) {
        const rcv_parameter *first = rcv_net_parameter(*net, 0);
        /* The network may have no parameters, and then no tensors. */
        if (first)
            status = rcvi_find_prefix(from->context, from->tensors, from->file, first->name, prefix);
        else
            status = (*prefix = rcvi_copy_text(from->context, "", 0)) ? RCV_OK : RCV_NO_MEMORY;
    }
    return status;
}

static rcv_status load_model(const load_request *from, rcv_model **model) {
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    char *prefix = NULL;
    rcv_status status = make_network(from, &cell, &net, &prefix);
    if (status == RCV_OK) status = rcvi_parameters_check(net, from->tensors, from->file, prefix);
    rcv_model *made = NULL;
    if (status == RCV_OK) status = rcvi_model_new_zeros(net, from->options.dtype, net, cell, &made);
    if (!made) {
        rcv_net_free(net);
        rcv_cell_free(cell);
    } else {
        status =
            rcvi_parameters_from_tensors(net, from->tensors, from->file, prefix, from->options.dtype, made->parameters);
    }
    if (status == RCV_OK)
        *model = made;
    else
        rcv_model_free(made);
    rcvi_free(from->context, prefix);
    return status;
}

rcv_status rcv_model_load(rcv_context *context, const char *path, const rcv_model_options *options, rcv_model **model) {
    RCVI_NEED(model, "model");
    *model = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_READ(rcv_model_options, options, "options");
    load_request from = {.context = context, .file = path, .options = *options};
    rcv_tensors *tensors;
    rcv_status status = rcv_tensors_load(context, path, &tensors);
    if (status != RCV_OK) return status;
    from.tensors = tensors;
    status = load_model(&from, model);
    rcv_tensors_free(tensors);
    return status;
}

rcv_status rcv_model_save(const rcv_model *model, const char *path) {
    RCVI_NEED(model, "model");
    RCVI_NEED(path, "path");
    rcv_tensors *tensors;
    rcv_status status = rcv_tensors_new(model->context, &tensors);
    if (status == RCV_OK) status = rcvi_network_to_tensors(model->net, tensors);
    if (status == RCV_OK) status = rcvi_parameters_to_tensors(model->net, "", model->dtype, model->parameters, tensors);
    if (status == RCV_OK) status = rcv_tensors_save(tensors, path);
    rcv_tensors_free(tensors);
    return status;
}

const rcv_net *rcv_model_net(const rcv_model *model) { return model->net; }

rcv_dtype rcv_model_dtype(const rcv_model *model) { return model->dtype; }

void *rcv_model_parameters(rcv_model *model) { return model->parameters; }

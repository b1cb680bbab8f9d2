/* Parameters as tensors: one tensor per parameter, named prefix + parameter name. */
#include "model/model.h"
#include "model/tensors.h"

#include <string.h>

/* Finds the tensor named prefix + name. */
static const rcv_tensor *find_prefixed(const rcv_tensors *tensors, const char *prefix, const char *name) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < tensors->count; i++) {
        const char *candidate = tensors->items[i]->name;
        if (strncmp(candidate, prefix, length) == 0 && strcmp(candidate + length, name) == 0) return tensors->items[i];
    }
    return NULL;
}

rcv_status rcvi_parameters_to_tensors(const rcv_net *net, const char *prefix, rcv_dtype dtype, const void *parameters,
                                      rcv_tensors *tensors) {
    rcv_context *context = tensors->context;
    size_t size = rcv_dtype_bytes(dtype), count = rcv_net_parameter_count(net);
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count && status == RCV_OK; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        rcv_tensor tensor = {.dtype = dtype, .dims = parameter->dims, .bytes = (size_t)parameter->count * size};
        tensor.data = (const char *)parameters + (size_t)parameter->offset * size;
        for (int d = 0; d < parameter->dims; d++) tensor.shape[d] = parameter->shape[d];
        rcvi_text name;
        char *taken;
        rcvi_text_init(&name, context);
        rcvi_text_add(&name, "%s%s", prefix, parameter->name);
        status = rcvi_text_take(&name, &taken);
        if (status != RCV_OK) break;
        tensor.name = taken;
        status = rcv_tensors_add(tensors, &tensor);
        rcvi_free(context, taken);
    }
    return status;
}

static bool same_shape(const rcv_parameter *parameter, const rcv_tensor *tensor) {
    if (parameter->dims != tensor->dims) return false;
    for (int d = 0; d < tensor->dims; d++)
        if (parameter->shape[d] != tensor->shape[d]) return false;
    return true;
}

static bool is_float(rcv_dtype dtype) {
    return dtype == RCV_FLOAT32 || dtype == RCV_FLOAT64 || dtype == RCV_FLOAT16 || dtype == RCV_BFLOAT16;
}

static rcv_status check_parameter(const rcv_parameter *parameter, const rcv_tensor *tensor, const char *file,
                                  const char *prefix) {
    char wanted[RCVI_SHAPE_TEXT], shape[RCVI_SHAPE_TEXT], shown[RCVI_ESCAPED_NAME];
    rcvi_shape_text(parameter->dims, parameter->shape, wanted);
    if (!tensor)
        return rcvi_fail(RCV_FORMAT, "%s: there is no tensor %s%s; the network needs it with shape %s", file,
                         rcvi_escape_name(prefix, shown), parameter->name, wanted);
    rcvi_escape_name(tensor->name, shown);
    if (!same_shape(parameter, tensor))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has shape %s; the network needs %s", file, shown,
                         rcvi_shape_text(tensor->dims, tensor->shape, shape), wanted);
    if (!is_float(tensor->dtype))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s is %s; a parameter must have a float type", file, shown,
                         rcv_dtype_name(tensor->dtype));
    return RCV_OK;
}

static bool is_parameter(const rcv_net *net, const char *name) {
    size_t count = rcv_net_parameter_count(net);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rcv_net_parameter(net, i)->name, name) == 0) return true;
    return false;
}

rcv_status rcvi_parameters_check(const rcv_net *net, const rcv_tensors *tensors, const char *file, const char *prefix) {
    size_t count = rcv_net_parameter_count(net), length = strlen(prefix), present = 0;
    for (size_t i = 0; i < count; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        rcv_status status = check_parameter(parameter, find_prefixed(tensors, prefix, parameter->name), file, prefix);
        if (status != RCV_OK) return status;
    }
    for (size_t i = 0; i < tensors->count; i++) present += strncmp(tensors->items[i]->name, prefix, length) == 0;
    /* Names are unique on both sides, so equal counts mean that there are no other tensors. */
    for (size_t i = 0; i < tensors->count && present != count; i++) {
        const char *name = tensors->items[i]->name;
        char shown[RCVI_ESCAPED_NAME];
        if (strncmp(name, prefix, length) == 0 && !is_parameter(net, name + length))
            return rcvi_fail(RCV_FORMAT, "%s: tensor %s is not a parameter of the network", file,
                             rcvi_escape_name(name, shown));
    }
    return RCV_OK;
}

rcv_status rcvi_parameters_from_tensors(const rcv_net *net, const rcv_tensors *tensors, const char *file,
                                        const char *prefix, rcv_dtype dtype, void *parameters) {
    rcv_status status = rcvi_parameters_check(net, tensors, file, prefix);
    size_t count = rcv_net_parameter_count(net);
    for (size_t i = 0; i < count && status == RCV_OK; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        char *place = (char *)parameters + (size_t)parameter->offset * rcv_dtype_bytes(dtype);
        status =
            rcv_tensor_convert(find_prefixed(tensors, prefix, parameter->name), dtype, (size_t)parameter->count, place);
    }
    return status;
}

rcv_status rcvi_find_prefix(rcv_context *context, const rcv_tensors *tensors, const char *file, const char *name,
                            char **prefix) {
    static const char *const usual[] = {"", "rnn."};
    char first[RCVI_ESCAPED_NAME], second[RCVI_ESCAPED_NAME];
    *prefix = NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (find_prefixed(tensors, usual[i], name)) {
            *prefix = rcvi_copy_text(context, usual[i], strlen(usual[i]));
            return *prefix ? RCV_OK : RCV_NO_MEMORY;
        }
    }
    const char *found = NULL;
    size_t length = strlen(name), found_length = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        const char *candidate = tensors->items[i]->name;
        size_t candidate_length = strlen(candidate);
        if (candidate_length < length || strcmp(candidate + candidate_length - length, name) != 0) continue;
        if (found)
            return rcvi_fail(RCV_INVALID, "%s has both %s and %s; give the prefix", file,
                             rcvi_escape_name(found, first), rcvi_escape_name(candidate, second));
        found = candidate;
        found_length = candidate_length - length;
    }
    if (!found) return rcvi_fail(RCV_FORMAT, "%s: there is no tensor %s, with or without a prefix", file, name);
    *prefix = rcvi_copy_text(context, found, found_length);
    return *prefix ? RCV_OK : RCV_NO_MEMORY;
}

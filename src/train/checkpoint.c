/* A language model as a file: the network as any model of ours has it (recurve.format, recurve.cell, recurve.network,
 * rnn.PARAMETER), and
 *     embedding.weight, decoder.weight, decoder.bias
 *     adam.m.TENSOR, adam.v.TENSOR    for each of them and each rnn.PARAMETER, once there was training
 *     train.STATE [total * batch]     the carried states of that training
 *     recurve.lm                      {"step": 7, "batch": 16, "position": 448, "bytes": 99999, "hash": "0123..."}
 * so that training goes on as if it had not been interrupted. */
#include "model/model.h"
#include "model/tensors.h"
#include "train/lm.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LM_KEY[] = "recurve.lm";

enum { NAME_BYTES = 192 };

/* ---- writing ---- */

static rcv_status add_array(const rcv_lm *lm, const char *prefix, const float *array, rcv_tensors *tensors) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < rcvi_lm_tensor_count(lm) && status == RCV_OK; i++) {
        rcvi_lm_tensor part;
        rcvi_lm_tensor_at(lm, i, &part);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", prefix, part.name);
        rcv_tensor tensor = {.name = name,
                             .dtype = RCV_FLOAT32,
                             .dims = part.dims,
                             .data = array + part.offset,
                             .bytes = (size_t)part.count * sizeof(float)};
        memcpy(tensor.shape, part.shape, sizeof part.shape);
        status = rcv_tensors_add(tensors, &tensor);
    }
    return status;
}

static rcv_status add_place(const rcv_lm *lm, rcv_tensors *tensors) {
    rcv_status status = RCV_OK;
    for (size_t s = 0; lm->place.batch > 0 && s < rcv_net_state_count(lm->net) && status == RCV_OK; s++) {
        const rcv_state *state = rcv_net_state(lm->net, s);
        const int64_t count = state->total * lm->place.batch;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "train.%s", state->name);
        const rcv_tensor tensor = {.name = name,
                                   .dtype = RCV_FLOAT32,
                                   .dims = 1,
                                   .shape = {count},
                                   .data = lm->place.states[s],
                                   .bytes = (size_t)count * sizeof(float)};
        status = rcv_tensors_add(tensors, &tensor);
    }
    return status;
}

static rcv_status add_description(const rcv_lm *lm, rcv_tensors *tensors) {
    const rcvi_place *place = &lm->place;
    char text[256];
    snprintf(text, sizeof text,
             "{\"step\": %" PRId64 ", \"batch\": %" PRId64 ", \"position\": %" PRId64 ", \"bytes\": %" PRIu64
             ", \"hash\": \"%016" PRIx64 "\"}",
             lm->step, place->batch, place->position, place->bytes, place->hash);
    return rcv_tensors_set_metadata(tensors, LM_KEY, text);
}

static rcv_status fill_tensors(const rcv_lm *lm, rcv_tensors *tensors) {
    rcv_status status = rcvi_network_to_tensors(lm->net, tensors);
    if (status == RCV_OK) {
        status = add_description(lm, tensors);
    }
    if (status == RCV_OK) {
        status = add_array(lm, "", lm->parameters, tensors);
    }
    if (status == RCV_OK && lm->step > 0) {
        status = add_array(lm, "adam.m.", lm->first, tensors);
        if (status == RCV_OK) {
            status = add_array(lm, "adam.v.", lm->second, tensors);
        }
    }
    return status == RCV_OK ? add_place(lm, tensors) : status;
}

rcv_status rcv_lm_save(const rcv_lm *lm, const char *path) {
    if (lm == NULL || path == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_save needs a model and a path");
    }
    rcv_tensors *tensors;
    rcv_status status = rcv_tensors_new(lm->context, &tensors);
    if (status != RCV_OK) {
        return status;
    }
    status = fill_tensors(lm, tensors);
    if (status == RCV_OK) {
        status = rcv_tensors_save(tensors, path);
    }
    rcv_tensors_free(tensors);
    return status;
}

/* ---- reading ---- */

static rcv_status find_tensor(const rcv_tensors *tensors, const char *file, const char *name, int dims,
                              const int64_t *shape, const rcv_tensor **tensor) {
    char wanted[RCVI_SHAPE_TEXT], shown[RCVI_SHAPE_TEXT];
    const rcv_tensor *found = rcv_tensors_find(tensors, name);
    if (found == NULL) {
        return rcvi_fail(RCV_FORMAT, "%s: there is no tensor %s, the language model wants it with shape %s", file, name,
                         rcvi_shape_text(dims, shape, wanted));
    }
    if (found->dims != dims || memcmp(found->shape, shape, (size_t)dims * sizeof *shape) != 0) {
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has shape %s, the language model wants %s", file, name,
                         rcvi_shape_text(found->dims, found->shape, shown), rcvi_shape_text(dims, shape, wanted));
    }
    if (found->dtype != RCV_FLOAT32) {
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s is %s, a language model is float32", file, name,
                         rcv_dtype_name(found->dtype));
    }
    *tensor = found;
    return RCV_OK;
}

/* With array NULL only checks that all is there, so that no memory is taken for what a file merely claims. */
static rcv_status read_array(const rcv_lm *lm, const rcv_tensors *tensors, const char *file, const char *prefix,
                             float *array) {
    for (size_t i = 0; i < rcvi_lm_tensor_count(lm); i++) {
        rcvi_lm_tensor part;
        rcvi_lm_tensor_at(lm, i, &part);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", prefix, part.name);
        const rcv_tensor *tensor;
        const rcv_status status = find_tensor(tensors, file, name, part.dims, part.shape, &tensor);
        if (status != RCV_OK) {
            return status;
        }
        if (array != NULL) {
            memcpy(array + part.offset, tensor->data, (size_t)part.count * sizeof *array);
        }
    }
    return RCV_OK;
}

static rcv_status find_state(const rcv_lm *lm, const rcv_tensors *tensors, const char *file, size_t index,
                             const rcv_tensor **tensor) {
    const rcv_state *state = rcv_net_state(lm->net, index);
    int64_t elements;
    if (!rcvi_multiply(state->total, lm->place.batch, &elements)) {
        return rcvi_fail(RCV_FORMAT, "%s: the batch in %s is too large", file, LM_KEY);
    }
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "train.%s", state->name);
    return find_tensor(tensors, file, name, 1, &elements, tensor);
}

static rcv_status read_states(rcv_lm *lm, const rcv_tensors *tensors, const char *file) {
    const size_t count = rcv_net_state_count(lm->net);
    const rcv_tensor *tensor;
    rcv_status status = RCV_OK;
    for (size_t s = 0; s < count && status == RCV_OK; s++) {
        status = find_state(lm, tensors, file, s, &tensor);
    }
    if (status == RCV_OK) {
        status = rcvi_states_new(lm->context, lm->net, lm->place.batch, &lm->place.states);
    }
    for (size_t s = 0; s < count && status == RCV_OK; s++) {
        status = find_state(lm, tensors, file, s, &tensor);
        if (status == RCV_OK) {
            memcpy(lm->place.states[s], tensor->data, tensor->bytes);
        }
    }
    return status;
}

static bool parse_hash(const char *text, uint64_t *hash) {
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
        return false;
    }
    *hash = strtoull(text, NULL, 16);
    return true;
}

static rcv_status read_description(rcv_lm *lm, const rcv_tensors *tensors, const char *file) {
    json_t *object = json_loads(rcv_tensors_metadata(tensors, LM_KEY), JSON_REJECT_DUPLICATES, NULL);
    json_int_t step = -1, batch = -1, position = -1, bytes = -1;
    const char *hash = NULL;
    rcvi_place *place = &lm->place;
    const bool good = object != NULL &&
                      json_unpack(object, "{s:I, s:I, s:I, s:I, s:s !}", "step", &step, "batch", &batch, "position",
                                  &position, "bytes", &bytes, "hash", &hash) == 0 &&
                      parse_hash(hash, &place->hash) && step >= 0 && step < INT64_MAX / 2 && batch >= 0 &&
                      position >= 0 && bytes >= 0 && position <= bytes;
    json_decref(object);
    if (!good) {
        return rcvi_fail(RCV_FORMAT, "%s: %s must be an object with step, batch, position, bytes and hash", file,
                         LM_KEY);
    }
    lm->step = step;
    place->batch = batch;
    place->position = position;
    place->bytes = (uint64_t)bytes;
    return RCV_OK;
}

/* Everything is looked at before memory is taken for it. */
static rcv_status fill_lm(rcv_lm *lm, const rcv_tensors *tensors, const char *file) {
    rcv_status status = read_description(lm, tensors, file);
    if (status == RCV_OK) {
        status = read_array(lm, tensors, file, "", NULL);
    }
    if (status == RCV_OK) {
        status = rcvi_lm_parameters(lm);
    }
    if (status == RCV_OK) {
        status = read_array(lm, tensors, file, "", lm->parameters);
    }
    if (status == RCV_OK && lm->step > 0) {
        status = rcvi_lm_moments(lm);
        if (status == RCV_OK) {
            status = read_array(lm, tensors, file, "adam.m.", lm->first);
        }
        if (status == RCV_OK) {
            status = read_array(lm, tensors, file, "adam.v.", lm->second);
        }
    }
    return status == RCV_OK && lm->place.batch > 0 ? read_states(lm, tensors, file) : status;
}

static rcv_status read_lm(rcv_context *context, const rcv_tensors *tensors, const char *file, rcv_lm **lm) {
    if (rcv_tensors_metadata(tensors, LM_KEY) == NULL) {
        return rcvi_fail(RCV_FORMAT, "%s: the metadata have no %s, so this is no language model", file, LM_KEY);
    }
    rcv_cell *cell;
    rcv_net *net;
    rcv_status status = rcvi_network_from_tensors(context, tensors, file, &cell, &net);
    if (status != RCV_OK) {
        return status;
    }
    rcv_lm *made;
    status = rcvi_lm_shell(net, &made);
    if (status != RCV_OK) {
        rcv_net_free(net);
        rcv_cell_free(cell);
        return status;
    }
    made->cell = cell;
    status = fill_lm(made, tensors, file);
    if (status != RCV_OK) {
        rcv_lm_free(made);
        return status;
    }
    *lm = made;
    return RCV_OK;
}

rcv_status rcv_lm_load(rcv_context *context, const char *path, rcv_lm **lm) {
    if (lm == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_load needs a place for the model");
    }
    *lm = NULL;
    if (context == NULL || path == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_load needs a context and a path");
    }
    rcv_tensors *tensors;
    rcv_status status = rcv_tensors_load(context, path, &tensors);
    if (status == RCV_OK) {
        status = read_lm(context, tensors, path, lm);
        rcv_tensors_free(tensors);
    }
    return status;
}

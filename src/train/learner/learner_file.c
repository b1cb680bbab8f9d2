/* A learner as a file: the network as every model file has it (recurve.format, recurve.cell, recurve.network), the learner's shape as JSON
 * in recurve.learner, what it knows of its data in recurve.data (learner_data.h), the vocabulary and the names of classes (learner_names.c), and tensors
 * embedding.weight, rnn.*, decoder.*. */
#include "base/json.h"
#include "model/model.h"
#include "model/tensors.h"
#include "train/learner/learner.h"
#include "train/learner/learner_data.h"

#include <stdio.h>
#include <string.h>

#define SHAPE_KEY "recurve.learner"
enum { NAME_BYTES = 192 };

static const char *const kinds[] = {"stream",       "lines",       "classes", "values", /* as rcv_data_kind */
                                    "step-classes", "step-values", NULL};

const char *rcvi_kind_name(rcv_data_kind kind) { return kinds[kind]; }

/* ---- writing ---- */

rcv_status rcvi_array_to_tensors(const rcv_learner *l, const char *prefix, const void *host, rcv_tensors *tensors) {
    size_t real = rcvi_real_bytes(l);
    for (size_t i = 0; i < rcvi_learner_tensor_count(l); i++) {
        rcvi_tensor_place place;
        rcvi_learner_tensor_at(l, i, &place);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", prefix, place.name);
        rcv_tensor tensor = {.name = name,
                             .dtype = l->real,
                             .dims = place.dims,
                             .data = rcvi_element_at(l, host, place.offset),
                             .bytes = (size_t)place.count * real};
        memcpy(tensor.shape, place.shape, sizeof place.shape);
        RCVI_TRY(rcv_tensors_add(tensors, &tensor));
    }
    return RCV_OK;
}

static rcv_status add_shape(const rcv_learner *l, rcv_tensors *tensors) {
    const rcvi_shape *s = &l->shape;
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"kind\": \"%s\", \"tokens\": %lld, \"features\": %lld, \"embedding\": %lld, \"outputs\": %lld, \"tied\": "
        "%s, \"fixed\": %s}",
        kinds[s->kind], (long long)s->tokens, (long long)s->features, (long long)s->embedding, (long long)s->outputs,
        s->tied ? "true" : "false", s->fixed ? "true" : "false");
    return rcv_tensors_set_metadata(tensors, SHAPE_KEY, text);
}

rcv_status rcvi_learner_describe(const rcv_learner *l, rcv_tensors *tensors) {
    RCVI_TRY(rcvi_network_to_tensors(l->net, tensors));
    RCVI_TRY(add_shape(l, tensors));
    RCVI_TRY(rcvi_learner_data_to_tensors(l, tensors));
    return rcvi_names_to_tensors(l, tensors);
}

rcv_status rcvi_learner_save_as(const rcv_learner *l, const void *parameters, const char *path) {
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_new(l->context, &tensors));
    rcv_status status = rcvi_learner_describe(l, tensors);
    if (!status) status = rcvi_array_to_tensors(l, "", parameters, tensors);
    if (!status) status = rcv_tensors_save(tensors, path);
    rcv_tensors_free(tensors);
    return status;
}

rcv_status rcv_learner_save(const rcv_learner *l, const char *path) {
    RCVI_NEED(l, "learner");
    RCVI_NEED(path, "path");
    RCVI_TRY(rcvi_learner_is_whole(l));
    size_t bytes = (size_t)l->elements * rcvi_real_bytes(l);
    void *host = rcvi_new(l->context, bytes, 1);
    if (!host) return RCV_NO_MEMORY;
    rcv_status status = rcvi_device_read(l, host, l->parameters, bytes);
    if (!status) status = rcvi_learner_save_as(l, host, path);
    rcvi_free(l->context, host);
    return status;
}

/* ---- reading ---- */

static rcv_status find_tensor(const rcv_learner *l, const rcv_tensors *tensors, const char *file, const char *prefix,
                              const rcvi_tensor_place *place, const rcv_tensor **tensor) {
    char name[NAME_BYTES], wanted[RCVI_SHAPE_TEXT], shown[RCVI_SHAPE_TEXT];
    snprintf(name, sizeof name, "%s%s", prefix, place->name);
    const rcv_tensor *found = rcv_tensors_find(tensors, name);
    if (!found)
        return rcvi_fail(RCV_FORMAT, "%s: there is no tensor %s, the model needs it with shape %s", file, name,
                         rcvi_shape_text(place->dims, place->shape, wanted));
    if (found->dims != place->dims || memcmp(found->shape, place->shape, (size_t)place->dims * sizeof *place->shape))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has shape %s, the model needs %s", file, name,
                         rcvi_shape_text(found->dims, found->shape, shown),
                         rcvi_shape_text(place->dims, place->shape, wanted));
    if (found->dtype != RCV_FLOAT32 && found->dtype != RCV_FLOAT64)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s is %s, a model's are float32 or float64", file, name,
                         rcv_dtype_name(found->dtype));
    (void)l;
    *tensor = found;
    return RCV_OK;
}

/* All shapes are checked before memory is allocated by sizes that a file claims. */
static rcv_status check_array(const rcv_learner *l, const char *prefix, const rcv_tensors *tensors, const char *file) {
    for (size_t i = 0; i < rcvi_learner_tensor_count(l); i++) {
        rcvi_tensor_place place;
        const rcv_tensor *tensor;
        rcvi_learner_tensor_at(l, i, &place);
        RCVI_TRY(find_tensor(l, tensors, file, prefix, &place, &tensor));
    }
    return RCV_OK;
}

rcv_status rcvi_array_from_tensors(const rcv_learner *l, const char *prefix, const rcv_tensors *tensors,
                                   const char *file, void **out) {
    size_t real = rcvi_real_bytes(l);
    *out = NULL;
    RCVI_TRY(check_array(l, prefix, tensors, file));
    char *host = rcvi_new(l->context, (size_t)l->elements, real);
    if (!host) return RCV_NO_MEMORY;
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < rcvi_learner_tensor_count(l) && !status; i++) {
        rcvi_tensor_place place;
        const rcv_tensor *tensor = NULL;
        rcvi_learner_tensor_at(l, i, &place);
        status = find_tensor(l, tensors, file, prefix, &place, &tensor);
        if (!status)
            status = rcv_tensor_convert(tensor, l->real, (size_t)place.count, host + place.offset * (int64_t)real);
    }
    if (status) {
        rcvi_free(l->context, host);
        return status;
    }
    *out = host;
    return RCV_OK;
}

/* ---- comparing models ---- */

/* Options of the network that a resumed run may change. */
static const char *const regularisers[] = {"dropout", "variational", "zoneout"};

static bool same_network(const char *a, const char *b) {
    json_t *x = a ? rcvi_json_read(a, strlen(a), 0, NULL) : NULL, *y = b ? rcvi_json_read(b, strlen(b), 0, NULL) : NULL;
    for (size_t i = 0; i < sizeof regularisers / sizeof *regularisers; i++) {
        json_object_del(x, regularisers[i]);
        json_object_del(y, regularisers[i]);
    }
    bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static bool same_text(const char *a, const char *b) { return a && b && !strcmp(a, b); }

static const char *difference(const rcv_tensors *a, const rcv_tensors *b) {
    static const char cell[] = "recurve.cell", network[] = "recurve.network";
    if (!same_text(rcv_tensors_metadata(a, cell), rcv_tensors_metadata(b, cell))) return "cell";
    if (!same_network(rcv_tensors_metadata(a, network), rcv_tensors_metadata(b, network))) return "network";
    return same_text(rcv_tensors_metadata(a, SHAPE_KEY), rcv_tensors_metadata(b, SHAPE_KEY)) ? NULL : "shape";
}

rcv_status rcvi_learner_check_same(const rcv_learner *l, const rcv_tensors *tensors, const char *file) {
    rcv_tensors *own;
    RCVI_TRY(rcv_tensors_new(l->context, &own));
    rcv_status status = rcvi_learner_describe(l, own);
    const char *what = status ? NULL : difference(own, tensors);
    if (!status && !what) status = rcvi_names_differ(l->context, own, tensors, file, &what);
    rcv_tensors_free(own);
    if (!what) return status;
    return rcvi_fail(RCV_FORMAT, "%s is a checkpoint of another model: its %s is not that of this %s", file, what,
                     rcv_cell_name(l->cell));
}

/* ---- a model from a file ---- */

static rcv_status read_shape(const rcv_tensors *tensors, const char *file, rcvi_shape *shape) {
    const char *text = rcv_tensors_metadata(tensors, SHAPE_KEY);
    if (!text)
        return rcvi_fail(RCV_FORMAT, "%s: the metadata have no %s, so this is no model that was trained", file,
                         SHAPE_KEY);
    json_t *object = rcvi_json_read(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
    const char *kind = NULL;
    json_int_t tokens = -1, features = -1, embedding = -1, outputs = -1;
    int tied = 0, fixed = 0, index = 0;
    bool good = object && !json_unpack(object, "{s:s, s:I, s:I, s:I, s:I, s:b, s:b !}", "kind", &kind, "tokens",
                                       &tokens, "features", &features, "embedding", &embedding, "outputs", &outputs,
                                       "tied", &tied, "fixed", &fixed);
    while (good && kinds[index] && strcmp(kinds[index], kind)) index++;
    good = good && kinds[index] && tokens >= 0 && features >= 0 && (tokens > 0) != (features > 0) && embedding > 0 &&
           outputs > 0;
    json_decref(object);
    if (!good)
        return rcvi_fail(RCV_FORMAT,
                         "%s: %s must be an object with kind, tokens or features, embedding, outputs, tied and fixed",
                         file, SHAPE_KEY);
    *shape = (rcvi_shape){.kind = (rcv_data_kind)index,
                          .tokens = tokens,
                          .features = features,
                          .embedding = embedding,
                          .outputs = outputs,
                          .tied = tied,
                          .fixed = fixed};
    return RCV_OK;
}

rcv_status rcvi_vocabulary_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                        rcv_vocabulary **vocabulary) {
    rcvi_shape shape = {0};
    *vocabulary = NULL;
    RCVI_TRY(read_shape(tensors, file, &shape));
    if (!shape.tokens) return RCV_OK;
    rcvi_names words;
    RCVI_TRY(rcvi_names_from_tensors(context, RCVI_NAMES_VOCABULARY, tensors, file, &words));
    rcv_status status = words.text ? rcv_vocabulary_parse(context, words.text, words.length, file, vocabulary)
                                   : rcv_vocabulary_bytes(context, vocabulary);
    rcvi_free(context, words.text);
    if (status || rcv_vocabulary_size(*vocabulary) == shape.tokens) return status;
    status = rcvi_fail(RCV_FORMAT, "%s: the vocabulary has %lld tokens, the model %lld", file,
                       (long long)rcv_vocabulary_size(*vocabulary), (long long)shape.tokens);
    rcv_vocabulary_free(*vocabulary);
    *vocabulary = NULL;
    return status;
}

static rcv_status read_names(rcv_learner *l, const rcv_tensors *tensors, const char *file) {
    RCVI_TRY(rcvi_vocabulary_from_tensors(l->context, tensors, file, &l->vocabulary));
    rcvi_names classes;
    RCVI_TRY(rcvi_names_from_tensors(l->context, RCVI_NAMES_CLASSES, tensors, file, &classes));
    return classes.text ? rcvi_learner_name_classes(l, classes.text) : RCV_OK;
}

rcv_status rcvi_learner_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     const char *device, rcv_dtype dtype, rcv_learner **learner) {
    rcvi_learner_options options = {.dtype = dtype, .device = device};
    *learner = NULL;
    RCVI_TRY(read_shape(tensors, file, &options.shape));
    rcv_cell *cell;
    rcv_net *net;
    RCVI_TRY(rcvi_network_from_tensors(context, tensors, file, &cell, &net));
    options.net = *rcv_net_get_options(net);
    rcv_learner *l = NULL;
    rcv_status status = rcvi_learner_new_empty(context, cell, &options, &l);
    rcv_net_free(net);
    if (status) {
        rcv_cell_free(cell);
        return status;
    }
    const char *prefix = rcv_tensors_find(tensors, RCVI_AVERAGE_PREFIX "decoder.bias") ? RCVI_AVERAGE_PREFIX : "";
    void *host = NULL;
    status = check_array(l, "", tensors, file);
    if (!status) status = read_names(l, tensors, file);
    if (!status) status = rcvi_learner_data_from_tensors(l, tensors, file);
    if (!status) status = rcvi_array_from_tensors(l, prefix, tensors, file, &host);
    if (!status) status = rcvi_learner_allocate(l);
    if (!status) status = rcvi_device_write(l, l->parameters, host, (size_t)l->elements * rcvi_real_bytes(l));
    rcvi_free(context, host);
    if (status) {
        rcv_learner_free(l);
        return status;
    }
    *learner = l;
    return RCV_OK;
}

rcv_status rcv_learner_load(rcv_context *context, const char *path, const char *device, rcv_dtype dtype,
                            rcv_learner **learner) {
    if (learner) *learner = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(learner, "learner");
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_load(context, path, &tensors));
    rcv_status status = rcvi_learner_from_tensors(context, tensors, path, device, dtype, learner);
    rcv_tensors_free(tensors);
    return status;
}

rcv_status rcv_checkpoint_vocabulary(rcv_context *context, const char *path, rcv_vocabulary **vocabulary) {
    if (vocabulary) *vocabulary = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(vocabulary, "vocabulary");
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_load(context, path, &tensors));
    rcv_status status = rcvi_vocabulary_from_tensors(context, tensors, path, vocabulary);
    rcv_tensors_free(tensors);
    return status;
}

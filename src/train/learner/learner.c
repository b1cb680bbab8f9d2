/* A learner: layout of its parameters, making and freeing it, first values. */
#include "train/learner/learner.h"

#include "base/pool.h"
#include "base/random.h"
#include "net/net.h"
#include "train/config/settings.h"
#include "train/learner/learner_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors ---- */

static bool reads_tokens(const rcv_learner *l) { return l->shape.tokens > 0; }

size_t rcvi_learner_tensor_count(const rcv_learner *l) {
    return rcv_net_parameter_count(l->net) + reads_tokens(l) + !l->shape.tied + 1;
}

static void place_net(const rcv_learner *l, size_t index, rcvi_tensor_place *place) {
    const rcv_parameter *parameter = rcv_net_parameter(l->net, index);
    *place = (rcvi_tensor_place){.dims = parameter->dims, .offset = l->net_offset + parameter->offset};
    snprintf(place->name, sizeof place->name, "rnn.%s", parameter->name);
    for (int d = 0; d < parameter->dims; d++) place->shape[d] = parameter->shape[d];
}

void rcvi_learner_tensor_at(const rcv_learner *l, size_t index, rcvi_tensor_place *place) {
    size_t inner = rcv_net_parameter_count(l->net), first = reads_tokens(l);
    if (index < first)
        *place =
            (rcvi_tensor_place){.name = "embedding.weight", .dims = 2, .shape = {l->shape.tokens, l->shape.embedding}};
    else if (index < first + inner)
        place_net(l, index - first, place);
    else if (index == first + inner && !l->shape.tied)
        *place = (rcvi_tensor_place){
            .name = "decoder.weight", .dims = 2, .shape = {l->shape.outputs, l->width}, .offset = l->weight_offset};
    else
        *place = (rcvi_tensor_place){
            .name = "decoder.bias", .dims = 1, .shape = {l->shape.outputs}, .offset = l->bias_offset};
    place->count = 1;
    for (int d = 0; d < place->dims; d++) place->count *= place->shape[d];
}

/* The aligned end of a part that begins at `at`; false where it cannot be counted. */
static bool add_part(int64_t at, int64_t elements, int64_t *end) {
    int64_t sum;
    if (!rcvi_add(at, elements, &sum) || !rcvi_add(sum, RCVI_ALIGNED_ELEMENTS - 1, &sum)) return false;
    *end = sum / RCVI_ALIGNED_ELEMENTS * RCVI_ALIGNED_ELEMENTS;
    return true;
}

static void take_whole(rcv_learner *l) {
    l->slice = l->net;
    l->has_embedding = l->has_head = true;
    l->slice_offset = l->net_offset;
    l->first_element = 0;
    l->end_element = l->elements;
}

static rcv_status lay_out(rcv_learner *l) {
    int64_t table, matrix;
    bool fits = rcvi_multiply(l->shape.tokens, l->shape.embedding, &table) &&
                rcvi_multiply(l->shape.outputs, l->width, &matrix) && add_part(0, table, &l->net_offset) &&
                add_part(l->net_offset, rcv_net_parameter_elements(l->net), &l->weight_offset) &&
                add_part(l->weight_offset, l->shape.tied ? 0 : matrix, &l->bias_offset) &&
                add_part(l->bias_offset, l->shape.outputs, &l->elements);
    if (!fits) return rcvi_fail(RCV_INVALID, "a model of these sizes has more parameters than can be counted");
    if (l->shape.tied) l->weight_offset = 0;
    take_whole(l);
    return RCV_OK;
}

rcv_status rcvi_learner_take_slice(rcv_learner *l, int64_t first, int64_t count) {
    int64_t layers = l->net->options.layers;
    if (count == layers) return RCV_OK;
    if (l->shape.tied)
        return rcvi_fail(RCV_UNSUPPORTED, "an output layer that is tied to the embedding must be on the same device: "
                                          "layers cannot be shared out");
    RCVI_TRY(rcvi_net_slice(l->net, first, count, &l->slice));
    l->has_embedding = first == 0;
    l->has_head = first + count == layers;
    l->slice_offset = l->net_offset + rcvi_layer_start(l->net, first);
    l->first_element = l->has_embedding ? 0 : l->slice_offset;
    l->end_element = l->has_head ? l->elements : l->net_offset + rcvi_layer_start(l->net, first + count);
    return RCV_OK;
}

rcv_status rcvi_learner_describe_slice(const rcv_learner *l, int64_t first, int64_t count, rcv_learner *part) {
    *part = *l;
    part->parameters = part->predictor = NULL;
    take_whole(part);
    return rcvi_learner_take_slice(part, first, count);
}

void rcvi_learner_drop_slice(rcv_learner *part) {
    if (part->slice != part->net) rcv_net_free(part->slice);
}

/* ---- the device's memory ---- */

rcv_status rcvi_device_new(const rcv_learner *l, int64_t count, size_t size, void **memory) {
    *memory = NULL;
    int64_t bytes;
    if (!rcvi_multiply(count, (int64_t)size, &bytes))
        return rcvi_fail(RCV_INVALID, "%lld elements are more than memory can address", (long long)count);
    if (!l->device->memory) {
        *memory = rcvi_new(l->context, (size_t)count, size);
        return *memory ? RCV_OK : RCV_NO_MEMORY;
    }
    RCVI_TRY(l->device->memory->allocate(l->ordinal, (size_t)bytes, memory));
    enum { BLOCK = 1 << 20 };
    char *zeros = rcvi_new(l->context, BLOCK, 1);
    rcv_status status = zeros ? RCV_OK : RCV_NO_MEMORY;
    for (int64_t at = 0; at < bytes && !status; at += BLOCK)
        status = l->device->memory->write(l->ordinal, (char *)*memory + at, zeros,
                                          (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK));
    rcvi_free(l->context, zeros);
    if (status) {
        l->device->memory->release(l->ordinal, *memory);
        *memory = NULL;
    }
    return status;
}

void rcvi_device_free(const rcv_learner *l, void *memory) {
    if (!memory) return;
    if (l->device->memory)
        l->device->memory->release(l->ordinal, memory);
    else
        rcvi_free(l->context, memory);
}

rcv_status rcvi_device_write(const rcv_learner *l, void *to, const void *from, size_t bytes) {
    if (!to || !from) return rcvi_fail(RCV_INVALID, "a copy needs memory to copy from and to");
    if (l->device->memory) return l->device->memory->write(l->ordinal, to, from, bytes);
    memcpy(to, from, bytes);
    return RCV_OK;
}

rcv_status rcvi_device_read(const rcv_learner *l, void *to, const void *from, size_t bytes) {
    if (!to || !from) return rcvi_fail(RCV_INVALID, "a copy needs memory to copy from and to");
    if (l->device->memory) return l->device->memory->read(l->ordinal, to, from, bytes);
    memcpy(to, from, bytes);
    return RCV_OK;
}

/* ---- making and freeing ---- */

static rcv_status check_shape(const rcvi_learner_options *o) {
    const rcvi_shape *s = &o->shape;
    bool predicts_next = rcvi_kind_is_text(s->kind); /* a language model */
    if (s->outputs < 1)
        return rcvi_fail(RCV_INVALID, "a model predicts at least one class or value, not %lld", (long long)s->outputs);
    if (predicts_next && o->net.bidirectional)
        return rcvi_fail(RCV_INVALID,
                         "a language model reads from left to right, so its network cannot be bidirectional");
    if (o->net.reverse)
        return rcvi_fail(RCV_INVALID, "a learner's network goes forwards or in both directions, not in reverse alone");
    if (s->tied && !(predicts_next && s->tokens > 0))
        return rcvi_fail(RCV_INVALID, "an output layer can be tied to the embedding of a language model only");
    if (s->tied && s->fixed)
        return rcvi_fail(RCV_INVALID, "an embedding that is fixed cannot be tied to the output layer, which learns");
    return RCV_OK;
}

static rcv_status fill_shell(rcv_learner *l, const rcvi_learner_options *o) {
    rcv_net_options net = o->net;
    net.size = sizeof net;
    net.input = l->shape.embedding;
    RCVI_TRY(rcvi_device_find(o->device, &l->device, &l->ordinal));
    if (!l->device->learn)
        return rcvi_fail(RCV_UNSUPPORTED, "device %s runs networks but does not train them", l->device->name);
    const char *name = o->device ? o->device : "cpu";
    l->device_name = rcvi_copy_text(l->context, name, strlen(name));
    if (!l->device_name) return RCV_NO_MEMORY;
    RCVI_TRY(rcv_net_new(l->cell, &net, &l->net));
    l->width = rcv_net_output(l->net);
    if (l->shape.tied && l->width != l->shape.embedding)
        return rcvi_fail(RCV_INVALID,
                         "an output layer tied to the embedding needs as many features out of the network (%lld) as "
                         "the embedding has (%lld)",
                         (long long)l->width, (long long)l->shape.embedding);
    return lay_out(l);
}

rcv_status rcvi_learner_new_empty(rcv_context *context, rcv_cell *cell, const rcvi_learner_options *o,
                                  rcv_learner **out) {
    *out = NULL;
    RCVI_TRY(check_shape(o));
    rcv_learner *l = rcvi_new(context, 1, sizeof *l);
    if (!l) return RCV_NO_MEMORY;
    l->context = context;
    l->dtype = o->dtype;
    l->real = o->dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32;
    l->shape = o->shape;
    if (!l->shape.tokens) l->shape.embedding = l->shape.features;
    l->cell = cell;
    rcv_status status = fill_shell(l, o);
    if (status) {
        l->cell = NULL; /* still the caller's */
        rcv_learner_free(l);
        return status;
    }
    *out = l;
    return RCV_OK;
}

void rcv_learner_free(rcv_learner *l) {
    if (!l) return;
    if (l->predictor) l->free_predictor(l->predictor);
    if (l->device) rcvi_device_free(l, l->parameters);
    rcvi_learner_data_free(l);
    if (l->slice != l->net) rcv_net_free(l->slice);
    rcv_net_free(l->net);
    rcv_cell_free(l->cell);
    rcv_vocabulary_free(l->vocabulary);
    for (int64_t i = 0; l->class_names && i < l->shape.outputs; i++) rcvi_free(l->context, l->class_names[i]);
    rcvi_free(l->context, l->class_names);
    rcvi_free(l->context, l->classes);
    rcvi_free(l->context, l->device_name);
    rcvi_free(l->context, l);
}

rcv_status rcvi_learner_is_whole(const rcv_learner *l) {
    if (l->slice == l->net) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "this rank has some layers of the model alone: load the file that the trainer writes");
}

rcv_status rcvi_learner_allocate(rcv_learner *l) {
    return rcvi_device_new(l, l->end_element - l->first_element, rcvi_real_bytes(l), &l->parameters);
}

/* ---- first values ---- */

static void draw_uniform(rcvi_twister *twister, const rcv_learner *l, double bound, void *values, int64_t at,
                         int64_t count) {
    for (int64_t i = at; i < at + count; i++) {
        if (l->real == RCV_FLOAT64)
            ((double *)values)[i] = rcvi_uniform_double(twister, -bound, bound);
        else
            ((float *)values)[i] = rcvi_uniform_float(twister, -bound, bound);
    }
}

static rcv_status make_values(const rcv_learner *l, double init, uint64_t seed, void *values) {
    rcvi_twister twister;
    rcvi_twister_seed(&twister, seed ^ UINT64_C(0x6C6D2D6279746573)); /* a stream of its own beside the network's */
    RCVI_TRY(rcv_net_initialize(l->net, seed, l->real, rcvi_element_at(l, values, l->net_offset)));
    for (size_t i = 0; i < rcvi_learner_tensor_count(l); i++) {
        rcvi_tensor_place place;
        rcvi_learner_tensor_at(l, i, &place);
        bool inner = place.offset >= l->net_offset && place.offset < l->net_offset + rcv_net_parameter_elements(l->net);
        bool table = reads_tokens(l) && i == 0;
        double bound = init > 0 ? init : table && !l->shape.tied ? 1 : 1 / sqrt((double)l->width);
        if (init > 0 || !inner) draw_uniform(&twister, l, bound, values, place.offset, place.count);
    }
    return RCV_OK;
}

rcv_status rcvi_learner_initialize(rcv_learner *l, double init, uint64_t seed) {
    void *values = rcvi_new(l->context, (size_t)l->elements, rcvi_real_bytes(l));
    rcv_status status = values ? make_values(l, init, seed, values) : RCV_NO_MEMORY;
    if (!status)
        status = rcvi_device_write(l, l->parameters, rcvi_element_at(l, values, l->first_element),
                                   (size_t)(l->end_element - l->first_element) * rcvi_real_bytes(l));
    rcvi_free(l->context, values);
    return status;
}

/* ---- from settings ---- */

/* NAME=N,NAME=N */
static rcv_status read_sizes(const char *text, rcvi_pool *pool, rcv_net_options *net) {
    size_t most = 1, count = 0;
    for (const char *at = text; at && *at; at++) most += *at == ',';
    rcv_size *sizes = rcvi_pool_new(pool, most, sizeof *sizes);
    if (!sizes) return RCV_NO_MEMORY;
    for (const char *at = text; at && *at;) {
        size_t length = strcspn(at, ","), name = strcspn(at, "=");
        long long value = 0;
        int used = 0;
        if (name == 0 || name >= length || sscanf(at + name + 1, "%lld%n", &value, &used) != 1 ||
            name + 1 + (size_t)used != length || value < 1)
            return rcvi_fail(RCV_INVALID, "sizes are written as NAME=N,NAME=N, not as '%s'", text);
        sizes[count++] = (rcv_size){rcvi_pool_text(pool, at, name), value};
        at += at[length] ? length + 1 : length;
    }
    net->sizes = sizes;
    net->size_count = count;
    return pool->failed ? RCV_NO_MEMORY : RCV_OK;
}

rcv_status rcvi_learner_name_classes(rcv_learner *l, char *text) {
    int64_t lines = 0;
    l->classes = text;
    for (const char *at = text; *at; at++) lines += *at == '\n';
    if (lines != l->shape.outputs)
        return rcvi_fail(RCV_FORMAT, "there are %lld names of classes for %lld classes", (long long)lines,
                         (long long)l->shape.outputs);
    l->class_names = rcvi_new(l->context, (size_t)lines, sizeof *l->class_names);
    if (!l->class_names) return RCV_NO_MEMORY;
    for (int64_t i = 0; i < lines; i++) {
        size_t length = strcspn(text, "\n");
        l->class_names[i] = rcvi_copy_text(l->context, text, length);
        if (!l->class_names[i]) return RCV_NO_MEMORY;
        text += length + 1;
    }
    return RCV_OK;
}

static rcv_status copy_classes(const rcv_data *data, rcv_learner *l) {
    if (!rcvi_kind_has_classes(l->shape.kind)) return RCV_OK;
    rcvi_text text;
    rcvi_text_init(&text, l->context);
    for (int64_t i = 0; i < l->shape.outputs; i++) {
        size_t length = 0;
        const char *name = rcv_data_class_name(data, i, &length);
        rcvi_text_add_bytes(&text, name, length);
        rcvi_text_add(&text, "\n");
    }
    char *names = NULL;
    RCVI_TRY(rcvi_text_take(&text, &names));
    return rcvi_learner_name_classes(l, names);
}

static rcv_status make(rcv_context *context, const rcv_settings *s, const rcv_data *data, rcvi_pool *pool,
                       rcv_learner **learner) {
    const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
    rcvi_learner_options o = {.shape = {.kind = rcv_data_get_kind(data),
                                        .tokens = vocabulary ? rcv_vocabulary_size(vocabulary) : 0,
                                        .features = vocabulary ? 0 : rcv_data_features(data),
                                        .embedding = rcvi_settings_integer(s, "embedding"),
                                        .outputs = rcv_data_outputs(data),
                                        .tied = rcvi_settings_flag(s, "tied"),
                                        .fixed = rcvi_settings_choice(s, "embedding-kind") == 1},
                              .net = {.hidden = rcvi_settings_integer(s, "hidden"),
                                      .layers = rcvi_settings_integer(s, "layers"),
                                      .bidirectional = rcvi_settings_flag(s, "bidirectional"),
                                      .no_bias = rcvi_settings_flag(s, "no-bias"),
                                      .dropout = rcvi_settings_real(s, "dropout"),
                                      .variational = rcvi_settings_flag(s, "variational"),
                                      .zoneout = rcvi_settings_real(s, "zoneout"),
                                      .rank = rcvi_settings_integer(s, "rank")},
                              .dtype = rcvi_settings_dtype(s),
                              .device = rcvi_settings_text(s, "device")};
    if (!o.shape.embedding) o.shape.embedding = o.net.hidden;
    RCVI_TRY(read_sizes(rcvi_settings_text(s, "sizes"), pool, &o.net));
    rcv_cell *cell = NULL;
    RCVI_TRY(rcv_cell_open(context, rcvi_settings_text(s, "cell"), &cell));
    rcv_status status = rcvi_learner_new_empty(context, cell, &o, learner);
    if (status) {
        rcv_cell_free(cell);
        return status;
    }
    rcv_learner *l = *learner;
    if (vocabulary) status = rcvi_vocabulary_copy(vocabulary, &l->vocabulary);
    return status ? status : copy_classes(data, l);
}

rcv_status rcvi_learner_make(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                             rcv_learner **learner) {
    rcvi_pool pool;
    *learner = NULL;
    rcvi_pool_init(&pool, context);
    rcv_status status = make(context, settings, data, &pool, learner);
    rcvi_pool_free(&pool);
    if (status) {
        rcv_learner_free(*learner);
        *learner = NULL;
    }
    return status;
}

rcv_status rcvi_learner_set_first_values(rcv_learner *l, const rcv_settings *s) {
    RCVI_TRY(rcvi_learner_allocate(l));
    return rcvi_learner_initialize(l, rcvi_settings_real(s, "init"), (uint64_t)rcvi_settings_integer(s, "seed"));
}

rcv_status rcv_learner_new(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                           rcv_learner **learner) {
    if (learner) *learner = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(settings, "settings");
    RCVI_NEED(data, "data");
    RCVI_NEED(learner, "learner");
    RCVI_TRY(rcvi_learner_make(context, settings, data, learner));
    rcv_status status = rcvi_learner_measure(*learner, settings, data);
    if (!status) status = rcvi_learner_set_first_values(*learner, settings);
    if (status) {
        rcv_learner_free(*learner);
        *learner = NULL;
    }
    return status;
}

rcv_status rcvi_learner_fits(const rcv_learner *l, const rcv_data *data) {
    const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
    int64_t tokens = vocabulary ? rcv_vocabulary_size(vocabulary) : 0;
    if (rcv_data_get_kind(data) != l->shape.kind)
        return rcvi_fail(RCV_INVALID, "the model was made for data of another kind: read it as the model's kind, %s",
                         rcvi_kind_name(l->shape.kind));
    if (tokens != l->shape.tokens)
        return rcvi_fail(RCV_INVALID,
                         "the data has %lld different tokens, the model knows %lld: read it with the "
                         "model's vocabulary",
                         (long long)tokens, (long long)l->shape.tokens);
    if (!tokens && rcv_data_features(data) != l->shape.features)
        return rcvi_fail(RCV_INVALID, "the data has %lld features a time step, the model reads %lld",
                         (long long)rcv_data_features(data), (long long)l->shape.features);
    if (rcv_data_outputs(data) != l->shape.outputs)
        return rcvi_fail(RCV_INVALID, "the data has %lld classes or values, the model predicts %lld",
                         (long long)rcv_data_outputs(data), (long long)l->shape.outputs);
    if (!tokens && rcvi_data_missing(data) != RCV_MISSING_ERROR &&
        (!l->scaling || l->scaling->missing == RCV_MISSING_ERROR))
        return rcvi_fail(RCV_INVALID, "features of the data may be missing, and the model was made for data in which "
                                      "none is: read it with missing=error");
    return RCV_OK;
}

const rcv_net *rcv_learner_net(const rcv_learner *learner) { return learner->net; }
const rcv_vocabulary *rcv_learner_vocabulary(const rcv_learner *learner) { return learner->vocabulary; }
rcv_data_kind rcv_learner_kind(const rcv_learner *learner) { return learner->shape.kind; }
rcv_dtype rcv_learner_dtype(const rcv_learner *learner) { return learner->real; }
int64_t rcv_learner_features(const rcv_learner *learner) { return learner->shape.features; }
int64_t rcv_learner_outputs(const rcv_learner *learner) { return learner->shape.outputs; }
bool rcv_learner_predicts_steps(const rcv_learner *learner) { return rcvi_predicts_steps(learner); }
const char *rcv_learner_device(const rcv_learner *learner) { return learner->device_name; }

const char *const *rcv_learner_classes(const rcv_learner *learner, size_t *count) {
    if (count) *count = learner->class_names ? (size_t)learner->shape.outputs : 0;
    return (const char *const *)learner->class_names;
}

int64_t rcv_learner_parameter_elements(const rcv_learner *learner) {
    int64_t sum = 0;
    for (size_t i = 0; i < rcvi_learner_tensor_count(learner); i++) {
        rcvi_tensor_place place;
        rcvi_learner_tensor_at(learner, i, &place);
        sum += place.count;
    }
    return sum;
}

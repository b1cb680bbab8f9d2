/* What a learner knows of its data: see learner_data.h. */
#include "train/learner/learner_data.h"

#include "base/json.h"
#include "train/config/settings.h"
#include "train/learner/class_weights.h"

#include <math.h>
#include <string.h>

#define DATA_KEY "recurve.data"

/* ---- measuring ---- */

static int64_t value_count(const rcv_learner *l) { return rcvi_kind_has_values(l->shape.kind) ? l->shape.outputs : 0; }

static void drop_scaling(rcv_learner *l) {
    rcvi_scaling_delete(l->scaling);
    l->scaling = NULL;
}

/* ---- columns ---- */

static void drop_schema(rcv_learner *l) {
    if (l->schema) rcvi_schema_free(l->schema);
    rcvi_free(l->context, l->schema);
    rcvi_free(l->context, l->feature_names);
    rcvi_free(l->context, l->target_names);
    l->schema = NULL;
    l->feature_names = l->target_names = NULL;
}

/* Moves the schema into the learner; it is freed where that fails. */
static rcv_status set_schema(rcv_learner *l, rcvi_schema *schema) {
    drop_schema(l);
    l->schema = rcvi_new(l->context, 1, sizeof *l->schema);
    if (!l->schema) {
        rcvi_schema_free(schema);
        return RCV_NO_MEMORY;
    }
    *l->schema = *schema;
    if (!l->schema->is_wide) RCVI_TRY(rcvi_schema_names(l->schema, false, &l->feature_names));
    return rcvi_schema_names(l->schema, true, &l->target_names);
}

static rcv_status copy_schema(rcv_learner *l, const rcv_data *data) {
    rcvi_schema copy;
    if (rcvi_kind_is_text(l->shape.kind)) return RCV_OK;
    RCVI_TRY(rcvi_schema_copy(rcvi_data_schema(data), &copy));
    return set_schema(l, &copy);
}

const char *rcv_learner_feature_names(const rcv_learner *learner) {
    return learner->feature_names ? learner->feature_names : "";
}

const char *rcv_learner_target_names(const rcv_learner *learner) {
    return learner->target_names ? learner->target_names : "";
}

const char *rcv_learner_sequence_name(const rcv_learner *learner) {
    return learner->schema ? learner->schema->sequence : NULL;
}

bool rcv_learner_groups_rows(const rcv_learner *learner) {
    return learner->schema && learner->schema->sequence && !learner->schema->is_wide;
}

int64_t rcv_learner_horizon(const rcv_learner *learner) { return learner->schema ? learner->schema->horizon : 0; }

/* Data without targets need not have as many outputs. */
static rcv_status check_opened(const rcv_learner *l, const rcv_data *data, const char *path, bool unlabelled) {
    if (!unlabelled) return rcvi_learner_fits(l, data);
    if (rcv_data_features(data) == l->shape.features) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s has %lld features a time step, the model reads %lld", path,
                     (long long)rcv_data_features(data), (long long)l->shape.features);
}

rcv_status rcv_learner_open_data(const rcv_learner *l, const char *path, const rcv_data_options *options,
                                 rcv_data **data) {
    if (data) *data = NULL;
    RCVI_NEED(l, "learner");
    RCVI_NEED(path, "path");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_data_options, options, "options");
    const rcv_data_options own =
        RCV_INIT(rcv_data_options, .level = l->vocabulary ? rcv_vocabulary_level(l->vocabulary) : RCV_LEVEL_WORD,
                 .kind = l->shape.kind, .vocabulary = l->vocabulary, .classes = (const char *const *)l->class_names,
                 .class_count = l->class_names ? (size_t)l->shape.outputs : 0, .cache = options->cache,
                 .format = options->format, .unlabelled = options->unlabelled,
                 .missing = l->schema ? l->schema->missing : RCV_MISSING_ERROR);
    RCVI_TRY(rcvi_data_open_with(l->context, path, &own, l->schema, data));
    rcv_status status = check_opened(l, *data, path, options->unlabelled);
    if (!status) return RCV_OK;
    rcv_data_free(*data);
    *data = NULL;
    return status;
}

/* ---- scaling ---- */

static rcv_status measure_scaling(rcv_learner *l, const rcv_settings *s, const rcv_data *data) {
    const bool normalises = rcvi_settings_flag(s, "normalise"), numbers = l->shape.features > 0;
    rcv_missing missing = rcvi_data_missing(data);
    if (normalises && !numbers && !value_count(l))
        return rcvi_fail(RCV_INVALID, "normalise is for data of numbers, and this data has neither features nor values "
                                      "that are numbers: leave it out");
    if (missing == RCV_MISSING_ERROR) missing = (rcv_missing)rcvi_settings_choice(s, "missing");
    if (!normalises && (missing == RCV_MISSING_ERROR || !numbers)) return RCV_OK;
    rcvi_scaling *made = rcvi_new(l->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    rcv_status status = rcvi_scaling_measure(data, normalises, missing, made);
    if (status)
        rcvi_free(l->context, made);
    else
        l->scaling = made;
    return status;
}

rcv_status rcvi_learner_measure(rcv_learner *l, const rcv_settings *settings, const rcv_data *data) {
    rcvi_learner_data_free(l);
    RCVI_TRY(copy_schema(l, data));
    RCVI_TRY(measure_scaling(l, settings, data));
    return rcvi_class_weights_measure(l, rcvi_settings_text(settings, "class-weights"), data);
}

void rcvi_learner_data_free(rcv_learner *l) {
    drop_schema(l);
    drop_scaling(l);
    rcvi_class_weights_drop(l);
}

/* ---- writing ---- */

/* Floats with as many digits as read back exactly. */
static void add_floats(rcvi_text *text, const char *name, const float *floats, int64_t count) {
    rcvi_text_add(text, ", \"%s\": [", name);
    for (int64_t i = 0; i < count; i++) {
        if (i) rcvi_text_add(text, ", ");
        rcvi_text_add_number(text, (double)floats[i]);
    }
    rcvi_text_add(text, "]");
}

static void add_scaling(rcvi_text *text, const rcvi_scaling *s) {
    rcvi_text_add(text, "\"scaling\": {\"missing\": \"%s\", \"normalise\": %s", rcvi_missing_names[s->missing],
                  s->normalises ? "true" : "false");
    add_floats(text, "mean", s->mean, s->features);
    add_floats(text, "scale", s->scale, s->features);
    add_floats(text, "target_mean", s->target_mean, s->outputs);
    add_floats(text, "target_scale", s->target_scale, s->outputs);
    rcvi_text_add(text, "}");
}

rcv_status rcvi_learner_data_to_tensors(const rcv_learner *l, rcv_tensors *tensors) {
    if (!l->schema && !l->scaling && !l->class_weights) return RCV_OK;
    rcvi_text text;
    char *json = NULL, *schema = NULL;
    if (l->schema) RCVI_TRY(rcvi_schema_print(l->schema, &schema));
    rcvi_text_init(&text, l->context);
    rcvi_text_add(&text, "{\"schema\": %s", schema ? schema : "null");
    rcvi_free(l->context, schema);
    if (l->scaling) rcvi_text_add(&text, ", ");
    if (l->scaling) add_scaling(&text, l->scaling);
    if (l->class_weights) add_floats(&text, "class_weights", l->class_weights, l->shape.outputs);
    rcvi_text_add(&text, "}");
    RCVI_TRY(rcvi_text_take(&text, &json));
    rcv_status status = rcv_tensors_set_metadata(tensors, DATA_KEY, json);
    rcvi_free(l->context, json);
    return status;
}

/* ---- reading ---- */

/* `count` finite floats; with `positive` each above 0. */
static bool read_floats(const json_t *object, const char *name, int64_t count, bool positive, float *floats) {
    const json_t *array = json_object_get(object, name);
    if (!json_is_array(array) || (int64_t)json_array_size(array) != count) return false;
    for (int64_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(array, (size_t)i);
        floats[i] = (float)json_number_value(number);
        if (!json_is_number(number) || !isfinite(floats[i]) || (positive && !(floats[i] > 0))) return false;
    }
    return true;
}

static bool read_missing(const json_t *object, rcv_missing *missing) {
    const char *name = json_string_value(json_object_get(object, "missing"));
    for (int i = 0; name && rcvi_missing_names[i]; i++) {
        if (strcmp(name, rcvi_missing_names[i]) != 0) continue;
        *missing = (rcv_missing)i;
        return true;
    }
    return false;
}

static rcv_status not_data(const char *file, const char *what) {
    return rcvi_fail(RCV_FORMAT, "%s: the %s in %s is not that of a model of these sizes", file, what, DATA_KEY);
}

static rcv_status read_scaling(const rcv_learner *l, const json_t *object, const char *file, rcvi_scaling *s) {
    const json_t *normalise = json_object_get(object, "normalise");
    RCVI_TRY(rcvi_scaling_new(l->context, l->shape.features, value_count(l), s));
    s->normalises = json_is_true(normalise);
    bool good = json_is_object(object) && json_is_boolean(normalise) && read_missing(object, &s->missing) &&
                read_floats(object, "mean", s->features, false, s->mean) &&
                read_floats(object, "scale", s->features, true, s->scale) &&
                read_floats(object, "target_mean", s->outputs, false, s->target_mean) &&
                read_floats(object, "target_scale", s->outputs, true, s->target_scale);
    if (good) return RCV_OK;
    rcvi_scaling_free(s);
    return not_data(file, "scaling");
}

/* *scaling is NULL where the file has none. */
static rcv_status make_scaling(const rcv_learner *l, const json_t *root, const char *file, rcvi_scaling **scaling) {
    const json_t *object = json_object_get(root, "scaling");
    *scaling = NULL;
    if (!object) return RCV_OK;
    rcvi_scaling *made = rcvi_new(l->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    rcv_status status = read_scaling(l, object, file, made);
    if (status)
        rcvi_free(l->context, made);
    else
        *scaling = made;
    return status;
}

static rcv_status read_schema(rcv_learner *l, const json_t *root, const char *file) {
    const json_t *object = json_object_get(root, "schema");
    rcvi_schema schema;
    char *text = NULL;
    if (!object || json_is_null(object)) return RCV_OK;
    RCVI_TRY(rcvi_json_print(l->context, object, JSON_COMPACT | JSON_ENCODE_ANY, &text));
    rcv_status status = rcvi_schema_parse(l->context, text, file, &schema);
    rcvi_free(l->context, text);
    RCVI_TRY(status);
    if (rcvi_kind_is_text(l->shape.kind) || schema.inputs != l->shape.features || schema.outputs != value_count(l)) {
        rcvi_schema_free(&schema);
        return not_data(file, "schema");
    }
    return set_schema(l, &schema);
}

static rcv_status read_weights(rcv_learner *l, const json_t *root, const char *file) {
    if (!json_object_get(root, "class_weights")) return RCV_OK;
    if (!rcvi_kind_has_classes(l->shape.kind)) return not_data(file, "list of class weights");
    float *weights = rcvi_new(l->context, (size_t)l->shape.outputs, sizeof *weights);
    if (!weights) return RCV_NO_MEMORY;
    bool good = read_floats(root, "class_weights", l->shape.outputs, true, weights);
    rcv_status status = good ? rcvi_class_weights_set(l, weights) : not_data(file, "list of class weights");
    rcvi_free(l->context, weights);
    return status;
}

/* NULL where the file has none: a model of tokens, or an old one. */
static rcv_status read_root(const rcv_tensors *tensors, const char *file, json_t **root) {
    const char *text = rcv_tensors_metadata(tensors, DATA_KEY);
    *root = NULL;
    if (!text) return RCV_OK;
    *root = rcvi_json_read(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(*root)) return RCV_OK;
    json_decref(*root);
    *root = NULL;
    return rcvi_fail(RCV_FORMAT, "%s: %s is not a JSON object", file, DATA_KEY);
}

rcv_status rcvi_learner_read_scaling(const rcv_learner *l, const rcv_tensors *tensors, const char *file,
                                     rcvi_scaling **scaling) {
    json_t *root;
    *scaling = NULL;
    RCVI_TRY(read_root(tensors, file, &root));
    rcv_status status = make_scaling(l, root, file, scaling);
    json_decref(root);
    return status;
}

rcv_status rcvi_learner_data_from_tensors(rcv_learner *l, const rcv_tensors *tensors, const char *file) {
    json_t *root;
    RCVI_TRY(read_root(tensors, file, &root));
    rcv_status status = read_schema(l, root, file);
    if (!status) status = make_scaling(l, root, file, &l->scaling);
    if (!status) status = read_weights(l, root, file);
    json_decref(root);
    return status;
}

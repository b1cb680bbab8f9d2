/* What the columns of a table are for: see schema.h. */
#include "data/schema.h"

#include "base/json.h"

#include <string.h>

const char *const rcvi_missing_names[] = {"error", "previous", "mean", "zero", NULL};

void rcvi_schema_init(rcvi_schema *s, rcv_context *context) { *s = (rcvi_schema){.context = context}; }

static void free_names(rcv_context *context, char **names, size_t count) {
    for (size_t i = 0; i < count; i++) rcvi_free(context, names[i]);
    rcvi_free(context, names);
}

void rcvi_schema_free(rcvi_schema *s) {
    if (!s->context) return;
    free_names(s->context, s->features, s->feature_count);
    free_names(s->context, s->targets, s->target_count);
    rcvi_free(s->context, s->sequence);
    rcvi_free(s->context, s->time);
    rcvi_schema_init(s, s->context);
}

/* ---- names ---- */

rcv_status rcvi_schema_add(rcvi_schema *s, const char *name, size_t length, bool is_target) {
    char ***names = is_target ? &s->targets : &s->features;
    size_t *count = is_target ? &s->target_count : &s->feature_count;
    size_t *capacity = is_target ? &s->target_capacity : &s->feature_capacity;
    if (!rcvi_grow(s->context, names, capacity, *count + 1, sizeof **names)) return RCV_NO_MEMORY;
    char *copy = rcvi_copy_text(s->context, name, length);
    if (!copy) return RCV_NO_MEMORY;
    (*names)[(*count)++] = copy;
    return RCV_OK;
}

rcv_status rcvi_schema_add_names(rcvi_schema *s, const char *list, const char *option, bool is_target) {
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        if (length == 0 || (at[length] && !at[length + 1]))
            return rcvi_fail(RCV_INVALID, "%s '%s' has an empty name; names are separated by single commas", option,
                             list);
        char *const *names = is_target ? s->targets : s->features;
        size_t count = is_target ? s->target_count : s->feature_count;
        for (size_t i = 0; i < count; i++)
            if (strlen(names[i]) == length && !memcmp(names[i], at, length))
                return rcvi_fail(RCV_INVALID, "%s '%s' has the name '%s' twice", option, list, names[i]);
        RCVI_TRY(rcvi_schema_add(s, at, length, is_target));
        at += length + (at[length] == ',');
    }
    return RCV_OK;
}

rcv_status rcvi_schema_names(const rcvi_schema *s, bool targets, char **list) {
    char *const *names = targets ? s->targets : s->features;
    size_t count = targets ? s->target_count : s->feature_count;
    rcvi_text text;
    rcvi_text_init(&text, s->context);
    rcvi_text_add(&text, "%s", "");
    for (size_t i = 0; i < count; i++) rcvi_text_add(&text, "%s%s", i ? "," : "", names[i]);
    return rcvi_text_take(&text, list);
}

static rcv_status copy_text(rcv_context *context, const char *from, char **to) {
    *to = from ? rcvi_copy_text(context, from, strlen(from)) : NULL;
    return from && !*to ? RCV_NO_MEMORY : RCV_OK;
}

static rcv_status copy_names(const rcvi_schema *from, rcvi_schema *to) {
    for (size_t i = 0; i < from->feature_count; i++)
        RCVI_TRY(rcvi_schema_add(to, from->features[i], strlen(from->features[i]), false));
    for (size_t i = 0; i < from->target_count; i++)
        RCVI_TRY(rcvi_schema_add(to, from->targets[i], strlen(from->targets[i]), true));
    RCVI_TRY(copy_text(to->context, from->sequence, &to->sequence));
    return copy_text(to->context, from->time, &to->time);
}

rcv_status rcvi_schema_copy(const rcvi_schema *from, rcvi_schema *to) {
    rcv_context *context = from->context;
    *to = *from;
    to->features = to->targets = NULL;
    to->feature_count = to->target_count = to->feature_capacity = to->target_capacity = 0;
    to->sequence = to->time = NULL;
    if (!context) return RCV_OK;
    rcv_status status = copy_names(from, to);
    if (status) rcvi_schema_free(to);
    return status;
}

/* ---- JSON ---- */

static json_t *names_to_json(char *const *names, size_t count) {
    json_t *list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; i < count && good; i++) good = !json_array_append_new(list, json_string(names[i]));
    return rcvi_json_if(good, list);
}

rcv_status rcvi_schema_print(const rcvi_schema *s, char **json) {
    json_t *object =
        json_pack("{s:o, s:o, s:s*, s:s*, s:b, s:b, s:I, s:I, s:I, s:I, s:s}", "features",
                  names_to_json(s->features, s->feature_count), "targets", names_to_json(s->targets, s->target_count),
                  "sequence", s->sequence, "time", s->time, "text", (int)s->is_text, "wide", (int)s->is_wide, "inputs",
                  (json_int_t)s->inputs, "outputs", (json_int_t)s->outputs, "horizon", (json_int_t)s->horizon, "piece",
                  (json_int_t)s->piece, "missing", rcvi_missing_names[s->missing]);
    rcv_status status = rcvi_json_print(s->context, object, JSON_COMPACT, json);
    json_decref(object);
    return status;
}

static rcv_status names_from_json(const json_t *list, bool is_target, rcvi_schema *s, bool *good) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        *good &= json_is_string(name) && json_string_length(name) > 0;
        if (!*good) return RCV_OK;
        RCVI_TRY(rcvi_schema_add(s, json_string_value(name), json_string_length(name), is_target));
    }
    return RCV_OK;
}

static rcv_status from_json(const json_t *object, rcvi_schema *s, bool *good) {
    const json_t *features = NULL, *targets = NULL;
    const char *sequence = NULL, *time = NULL, *missing = NULL;
    int is_text = 0, is_wide = 0, how = 0;
    json_int_t inputs = 0, outputs = 0, horizon = 0, piece = 0;
    *good = object &&
            !json_unpack((json_t *)(uintptr_t)object, "{s:o, s:o, s?:s, s?:s, s:b, s:b, s:I, s:I, s:I, s:I, s:s !}",
                         "features", &features, "targets", &targets, "sequence", &sequence, "time", &time, "text",
                         &is_text, "wide", &is_wide, "inputs", &inputs, "outputs", &outputs, "horizon", &horizon,
                         "piece", &piece, "missing", &missing);
    while (*good && rcvi_missing_names[how] && strcmp(rcvi_missing_names[how], missing)) how++;
    *good = *good && rcvi_missing_names[how] && json_is_array(features) && json_is_array(targets) && inputs >= 0 &&
            outputs >= 0 && horizon >= 0 && piece >= 0;
    if (!*good) return RCV_OK;
    s->is_text = is_text;
    s->is_wide = is_wide;
    s->inputs = inputs;
    s->outputs = outputs;
    s->horizon = horizon;
    s->piece = piece;
    s->missing = (rcv_missing)how;
    RCVI_TRY(copy_text(s->context, sequence, &s->sequence));
    RCVI_TRY(copy_text(s->context, time, &s->time));
    RCVI_TRY(names_from_json(features, false, s, good));
    return names_from_json(targets, true, s, good);
}

rcv_status rcvi_schema_parse(rcv_context *context, const char *json, const char *file, rcvi_schema *schema) {
    bool good = false;
    rcvi_schema_init(schema, context);
    json_t *object = rcvi_json_read(json, strlen(json), JSON_REJECT_DUPLICATES, NULL);
    rcv_status status = from_json(object, schema, &good);
    json_decref(object);
    if (!status && !good) status = rcvi_fail(RCV_FORMAT, "%s: its metadata do not describe columns of data", file);
    if (status) rcvi_schema_free(schema);
    return status;
}

/* ---- hash ---- */

static uint64_t hash_text(uint64_t hash, const char *text) {
    return text ? rcvi_hash_chunk(hash, text, strlen(text) + 1) : rcvi_hash_chunk(hash, "\1", 1);
}

uint64_t rcvi_schema_hash(const rcvi_schema *s) {
    const int64_t numbers[] = {s->is_text, s->is_wide, s->inputs,  s->outputs,
                               s->horizon, s->piece,   s->missing, (int64_t)s->feature_count};
    uint64_t hash = rcvi_hash_chunk(0, numbers, sizeof numbers);
    for (size_t i = 0; i < s->feature_count; i++) hash = hash_text(hash, s->features[i]);
    for (size_t i = 0; i < s->target_count; i++) hash = hash_text(hash, s->targets[i]);
    return hash_text(hash_text(hash, s->sequence), s->time);
}

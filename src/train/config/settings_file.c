/* Settings as JSON: {"NAME": VALUE, ...}, a flag as true or false, a number as a number, the rest as strings. */
#include "base/json.h"
#include "model/tensors.h"
#include "train/config/settings.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char PRESET[] = "preset";

/* ---- printing ---- */

static void add_string(rcvi_text *text, const char *string) {
    json_t *value = json_string(string);
    char *quoted;
    if (rcvi_json_print(text->context, value, JSON_ENCODE_ANY, &quoted) == RCV_OK) {
        rcvi_text_add(text, "%s", quoted);
    } else {
        text->failed = true;
    }
    rcvi_free(text->context, quoted);
    json_decref(value);
}

/* Flags and numbers are written without quotes. */
static bool setting_is_bare(rcv_setting_kind kind) {
    return kind == RCV_SETTING_FLAG || kind == RCV_SETTING_INTEGER || kind == RCV_SETTING_REAL;
}

rcv_status rcv_settings_print(const rcv_settings *settings, char **json) {
    RCVI_NEED(json, "json");
    *json = NULL;
    RCVI_NEED(settings, "settings");
    rcvi_text text;
    rcvi_text_init(&text, rcvi_settings_context(settings));
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        const bool first = i == 0, new_group = !first && strcmp(setting->group, rcv_setting_at(i - 1)->group) != 0;
        const char *value = rcv_settings_get(settings, setting->name);
        rcvi_text_add(&text, "%s\"%s\": ", first ? "{\n    " : new_group ? ",\n\n    " : ",\n    ", setting->name);
        if (!setting_is_bare(setting->kind)) {
            add_string(&text, value);
        } else {
            rcvi_text_add(&text, "%s", value);
        }
    }
    rcvi_text_add(&text, "\n}\n");
    return rcvi_text_take(&text, json);
}

/* ---- reading ---- */

static bool has_kind(const json_t *value, rcv_setting_kind kind) {
    switch (kind) {
    case RCV_SETTING_FLAG: return json_is_boolean(value);
    case RCV_SETTING_INTEGER: return json_is_integer(value);
    case RCV_SETTING_REAL: return json_is_number(value);
    case RCV_SETTING_TEXT:
    case RCV_SETTING_OUTPUT:
    case RCV_SETTING_CHOICE: return json_is_string(value);
    }
    return false;
}

/* A value of the wrong JSON type. */
static rcv_status wrong_kind(const rcv_setting *setting, const json_t *value) {
    char shown[RCVI_ESCAPED_NAME];
    char text[4096];
    const size_t length =
        json_dumpb(value, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const bool fits = length > 0 && length < sizeof text;
    text[fits ? length : 0] = '\0';
    return rcvi_setting_wrong(setting, fits ? rcvi_escape_name(text, shown) : "this");
}

static rcv_status set_from(rcv_settings *settings, const char *name, const json_t *value) {
    const rcv_setting *setting = rcv_setting_at(rcvi_setting_find(name));
    if (setting && !has_kind(value, setting->kind)) return wrong_kind(setting, value);
    if (!setting) return rcv_settings_set(settings, name, "");
    if (json_is_boolean(value)) return rcv_settings_set(settings, name, json_is_true(value) ? "true" : "false");
    if (json_is_string(value)) return rcv_settings_set(settings, name, json_string_value(value));
    rcvi_text number;
    char *text;
    rcvi_text_init(&number, rcvi_settings_context(settings));
    if (json_is_integer(value)) {
        rcvi_text_add(&number, "%lld", (long long)json_integer_value(value));
    } else {
        rcvi_text_add_number(&number, json_real_value(value));
    }
    RCVI_TRY(rcvi_text_take(&number, &text));
    const rcv_status status = rcv_settings_set(settings, name, text);
    rcvi_free(rcvi_settings_context(settings), text);
    return status;
}

static rcv_status apply(rcv_settings *settings, json_t *object) {
    const char *name;
    json_t *value;
    const json_t *preset = json_object_get(object, PRESET);
    if (preset && !json_is_string(preset)) return rcvi_fail(RCV_INVALID, "%s must be the name of a preset", PRESET);
    if (preset) RCVI_TRY(rcv_settings_preset(settings, json_string_value(preset)));
    json_object_foreach(object, name, value) {
        if (strcmp(name, PRESET) != 0) RCVI_TRY(set_from(settings, name, value));
    }
    return RCV_OK;
}

/* Adds the file's name to the message. */
static rcv_status in_file(rcv_status status, const char *file) {
    return status == RCV_INVALID ? rcvi_fail(RCV_FORMAT, "%s: %s", file, rcv_message()) : status;
}

rcv_status rcv_settings_parse(rcv_settings *settings, const char *json, size_t length, const char *file) {
    RCVI_NEED(settings, "settings");
    RCVI_NEED(json, "json");
    RCVI_NEED(file, "file");
    json_error_t error;
    char shown[RCVI_ESCAPED_NAME];
    json_t *object = rcvi_json_read(json, length, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        return rcvi_fail(RCV_FORMAT, "%s:%d: not valid JSON: %s", file, error.line,
                         rcvi_escape_name(error.text, shown));
    rcv_status status = RCV_OK;
    rcv_settings *draft = NULL;
    if (!json_is_object(object))
        status = rcvi_fail(RCV_FORMAT, "%s: settings are one JSON object, such as {\"hidden\": 650}", file);
    if (status == RCV_OK) status = rcv_settings_copy(settings, &draft);
    if (status == RCV_OK) status = in_file(apply(draft, object), file);
    if (status == RCV_OK) rcvi_settings_swap(settings, draft);
    rcv_settings_free(draft);
    json_decref(object);
    return status;
}

rcv_status rcv_settings_load(rcv_settings *settings, const char *path) {
    RCVI_NEED(settings, "settings");
    RCVI_NEED(path, "path");
    rcv_context *context = rcvi_settings_context(settings);
    char *bytes;
    size_t length;
    RCVI_TRY(rcvi_read_file(context, path, RCVI_LIMIT_SETTINGS, &bytes, &length));
    const rcv_status status = rcv_settings_parse(settings, bytes, length, path);
    rcvi_free(context, bytes);
    return status;
}

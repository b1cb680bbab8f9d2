/* Parser of one example:
 *
 *   example = object | number { separator number }        separator = white space, or a comma with white space around it
 *   object  = { "x": [ number, ... ] | [ [ number, ... ], ... ], "y": target }  |  { "text": "...", "y": label }
 *   target  = label | [ label | null, ... ]                of a kind with steps: an element for every time step
 *   label   = whole number | "name"                        of classes
 *           | number | [ number, ... ]                     of values
 *
 * Where features may be missing, a number of "x" may be null. */
#include "data/example.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WRONG(example, format, ...)                                                                                    \
    rcvi_fail(RCV_FORMAT, "%s: line %lld " format, (example)->path, (long long)(example)->line, __VA_ARGS__)

/* Keys of an object. */
static const char *target_key(const rcvi_example *e) { return e->target_key ? e->target_key : "y"; }

static rcv_status check_number(const rcvi_example *e, double number) {
    return isfinite((float)number) ? RCV_OK : WRONG(e, "has the number %g, which a float cannot hold", number);
}

static rcv_status append_number(rcvi_example *e, float **array, size_t *capacity, int64_t count, double number) {
    RCVI_TRY(check_number(e, number));
    if (!rcvi_grow(e->context, array, capacity, (size_t)count + 1, sizeof **array)) return RCV_NO_MEMORY;
    (*array)[count] = (float)number;
    return RCV_OK;
}

static rcv_status set_class(rcvi_example *e, const char *name, size_t length) {
    if (length == 0 || length >= sizeof e->label)
        return WRONG(e, "has a class name of %zu bytes; it must have 1 to %zu", length, sizeof e->label - 1);
    memcpy(e->label, name, length);
    e->label[length] = '\0';
    e->label_length = length;
    return RCV_OK;
}

/* Adds a number to the label, or sets the class to a number. */
static rcv_status add_label_number(rcvi_example *e, double number) {
    if (rcvi_kind_has_values(e->kind)) {
        RCVI_TRY(append_number(e, &e->values, &e->value_capacity, e->outputs, number));
        e->outputs++;
        return RCV_OK;
    }
    if (floor(number) != number || fabs(number) > 0x1p53)
        return WRONG(e, "has the class %g; it must be a whole number or a text", number);
    char name[32];
    int length = snprintf(name, sizeof name, "%lld", (long long)number);
    return set_class(e, name, (size_t)length);
}

/* ---- plain numbers ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static rcv_status parse_number(const rcvi_example *e, const char *from, size_t length, double *number) {
    char digits[64];
    bool fits = length < sizeof digits;
    if (fits) {
        memcpy(digits, from, length);
        digits[length] = '\0';
    }
    if (!fits || !rcvi_read_number(digits, number))
        return WRONG(e, "has '%.*s', which is not a number", (int)(length < 40 ? length : 40), from);
    return RCV_OK;
}

/* number { separator number } */
static rcv_status parse_plain(rcvi_example *e, const char *line, size_t length) {
    size_t at = 0;
    bool labelled = e->unlabelled, comma = true; /* no comma may come before the first number */
    if (rcvi_kind_has_steps(e->kind))
        return WRONG(e, "is not a JSON object; %s", "with a target at every time step each line is one");
    while (at < length) {
        if (is_space(line[at])) {
            at++;
        } else if (line[at] == ',') {
            if (comma) return WRONG(e, "has no number before the comma at its byte %zu", at + 1);
            comma = true;
            at++;
        } else {
            size_t from = at;
            double number;
            while (at < length && !is_space(line[at]) && line[at] != ',') at++;
            RCVI_TRY(parse_number(e, line + from, at - from, &number));
            RCVI_TRY(check_number(e, number));
            RCVI_TRY(labelled ? append_number(e, &e->x, &e->x_capacity, e->steps, number)
                              : add_label_number(e, number));
            e->steps += labelled;
            labelled = true;
            comma = false;
        }
    }
    e->features = 1;
    return e->steps > 0 ? RCV_OK : WRONG(e, "has %s; numbers must follow it", "only a label");
}

/* ---- JSON ---- */

static rcv_status parse_label(rcvi_example *e, const json_t *label) {
    if (json_is_number(label)) return add_label_number(e, json_number_value(label));
    if (rcvi_kind_has_classes(e->kind))
        return json_is_string(label) ? set_class(e, json_string_value(label), json_string_length(label))
                                     : WRONG(e, "has no \"y\" that is %s", "a whole number or a text");
    size_t count = json_array_size(label);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(label, i);
        if (!json_is_number(value)) return WRONG(e, "has a \"y\" whose element %zu is not a number", i);
        RCVI_TRY(add_label_number(e, json_number_value(value)));
    }
    return count > 0 ? RCV_OK : WRONG(e, "has no \"y\" that is %s", "a number or a list of numbers");
}

/* ---- JSON: a target at every time step ---- */

/* Values of a step; `missing`: NaN for as many outputs as other steps have. */
static rcv_status add_step_values(rcvi_example *e, int64_t step, const json_t *value, int64_t outputs) {
    int64_t count = json_is_array(value) ? (int64_t)json_array_size(value) : 1;
    bool missing = json_is_null(value);
    if (!missing && count == 0) return WRONG(e, "has an empty list at time step %lld of \"y\"", (long long)step);
    if (!missing && count != outputs)
        return WRONG(e, "has %lld values at time step %lld of \"y\" where another step has %lld", (long long)count,
                     (long long)step, (long long)outputs);
    for (int64_t i = 0; i < outputs && !missing; i++) {
        const json_t *number = json_is_array(value) ? json_array_get(value, (size_t)i) : value;
        missing = json_is_null(number);
        if (!missing && !json_is_number(number))
            return WRONG(e, "has no number at time step %lld of \"y\"", (long long)step);
        if (!missing)
            RCVI_TRY(append_number(e, &e->values, &e->value_capacity, step * outputs + i, json_number_value(number)));
    }
    if (!missing) return RCV_OK;
    if (!rcvi_grow(e->context, &e->values, &e->value_capacity, (size_t)((step + 1) * outputs), sizeof *e->values))
        return RCV_NO_MEMORY;
    for (int64_t i = 0; i < outputs; i++) e->values[step * outputs + i] = NAN;
    return RCV_OK;
}

static rcv_status add_step_class(rcvi_example *e, int64_t step, const json_t *value) {
    e->label_length = 0;
    e->label[0] = '\0';
    if (json_is_number(value))
        RCVI_TRY(add_label_number(e, json_number_value(value)));
    else if (json_is_string(value))
        RCVI_TRY(set_class(e, json_string_value(value), json_string_length(value)));
    else if (!json_is_null(value))
        return WRONG(e, "has no whole number, text or null at time step %lld of \"y\"", (long long)step);
    size_t bytes = e->label_length + 1;
    if (!rcvi_grow(e->context, &e->names, &e->names_capacity, e->names_bytes + bytes, 1)) return RCV_NO_MEMORY;
    memcpy(e->names + e->names_bytes, e->label, bytes);
    e->names_bytes += bytes;
    return RCV_OK;
}

/* Outputs of the first step that is not missing; 0: there is none. */
static int64_t count_outputs(const json_t *targets) {
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const json_t *value = json_array_get(targets, i);
        if (json_is_array(value)) return (int64_t)json_array_size(value);
        if (!json_is_null(value)) return 1;
    }
    return 0;
}

static rcv_status parse_targets(rcvi_example *e, const json_t *targets) {
    if (!json_is_array(targets)) return WRONG(e, "has no \"y\" that is %s", "a list with a target for every time step");
    if ((int64_t)json_array_size(targets) != e->steps)
        return WRONG(e, "has %zu targets in \"y\" for %lld time steps; one that is missing is null",
                     json_array_size(targets), (long long)e->steps);
    bool values = rcvi_kind_has_values(e->kind);
    int64_t outputs = values ? count_outputs(targets) : 0;
    for (int64_t t = 0; t < e->steps; t++) {
        const json_t *value = json_array_get(targets, (size_t)t);
        RCVI_TRY(values ? add_step_values(e, t, value, outputs) : add_step_class(e, t, value));
    }
    e->outputs = outputs;
    return RCV_OK;
}

/* ---- JSON: an object ---- */

/* A feature: number | null, where it may be missing */
static rcv_status add_feature(rcvi_example *e, int64_t index, const json_t *number) {
    bool missing = json_is_null(number) && e->missing != RCV_MISSING_ERROR;
    if (json_is_null(number) && !missing)
        return WRONG(e, "has a missing feature at time step %lld of \"x\"; missing says what becomes of it",
                     (long long)e->steps);
    if (!missing && !json_is_number(number))
        return WRONG(e, "has no number at time step %lld of \"x\"", (long long)e->steps);
    RCVI_TRY(append_number(e, &e->x, &e->x_capacity, index, missing ? 0 : json_number_value(number)));
    if (missing) e->x[index] = NAN;
    return RCV_OK;
}

/* A time step: number | [ number, ... ] */
static rcv_status parse_step(rcvi_example *e, const json_t *step) {
    int64_t features = json_is_array(step) ? (int64_t)json_array_size(step) : 1;
    if (e->steps == 0) e->features = features;
    if (features == 0 || features != e->features)
        return WRONG(e, "has %lld features at time step %lld where its first has %lld", (long long)features,
                     (long long)e->steps, (long long)e->features);
    for (int64_t i = 0; i < features; i++) {
        const json_t *number = json_is_array(step) ? json_array_get(step, (size_t)i) : step;
        RCVI_TRY(add_feature(e, e->steps * features + i, number));
    }
    e->steps++;
    return RCV_OK;
}

static rcv_status parse_target(rcvi_example *e, const json_t *root) {
    const json_t *target = json_object_get(root, target_key(e));
    if (e->unlabelled) return RCV_OK;
    if (rcvi_kind_has_steps(e->kind)) return parse_targets(e, target);
    return json_is_null(target) ? RCV_OK : parse_label(e, target); /* null: it is missing */
}

static rcv_status parse_text(rcvi_example *e, const json_t *text) {
    if (rcvi_kind_has_steps(e->kind))
        return WRONG(e, "is a text; with a target at every time step an example needs numbers in %s", "\"x\"");
    if (!json_is_string(text)) return WRONG(e, "has a \"text\" that is %s", "not a text");
    e->text = json_string_value(text);
    e->text_length = json_string_length(text);
    return RCV_OK;
}

static rcv_status parse_steps(rcvi_example *e, const json_t *x) {
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *step = json_array_get(x, i);
        if (json_is_array(step) != json_is_array(json_array_get(x, 0)))
            return WRONG(e, "has both numbers and lists in %s", "\"x\"");
        RCVI_TRY(parse_step(e, step));
    }
    return e->steps > 0 ? RCV_OK : WRONG(e, "has no time steps in %s; it must be a list of them", "\"x\"");
}

static rcv_status parse_object(rcvi_example *e, const json_t *root) {
    const json_t *x = json_object_get(root, "x"), *text = json_object_get(root, "text");
    if (e->feature_key) {
        const json_t *given = json_object_get(root, e->feature_key);
        if (!given) return WRONG(e, "has no \"%.60s\"", e->feature_key);
        x = json_is_string(given) ? NULL : given;
        text = json_is_string(given) ? given : NULL;
    }
    if ((x != NULL) == (text != NULL)) return WRONG(e, "needs one of %s", "\"x\" and \"text\"");
    RCVI_TRY(text ? parse_text(e, text) : parse_steps(e, x));
    return parse_target(e, root);
}

static rcv_status parse_json(rcvi_example *e, const char *line, size_t length) {
    json_error_t error;
    e->json = rcvi_json_read(line, length, JSON_REJECT_DUPLICATES, &error);
    if (!e->json) return WRONG(e, "is not a JSON object: %s", error.text);
    return parse_object(e, e->json);
}

rcv_status rcvi_example_parse(rcvi_example *e, const char *line, size_t length) {
    json_decref(e->json);
    e->json = NULL;
    e->text = NULL;
    e->steps = e->features = e->outputs = 0;
    e->names_bytes = e->label_length = 0;
    while (length > 0 && is_space(line[0])) {
        line++;
        length--;
    }
    return length > 0 && line[0] == '{' ? parse_json(e, line, length) : parse_plain(e, line, length);
}

void rcvi_example_free(rcvi_example *e) {
    json_decref(e->json);
    rcvi_free(e->context, e->x);
    rcvi_free(e->context, e->values);
    rcvi_free(e->context, e->names);
}

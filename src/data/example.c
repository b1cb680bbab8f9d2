/* Parser of one example:
 *
 *   example = object | number { separator number }        separator = white space, or a comma with white space around it
 *   object  = { "x": [ number, ... ] | [ [ number, ... ], ... ], "y": label }  |  { "text": "...", "y": label }
 *   label   = whole number | "name"                        of classes
 *           | number | [ number, ... ]                     of values                                                    */
#include "data/example.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WRONG(example, format, ...)                                                                                    \
    rcvi_fail(RCV_FORMAT, "%s: line %lld " format, (example)->path, (long long)(example)->line, __VA_ARGS__)

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
    if (e->kind == RCV_DATA_VALUES) {
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
    bool labelled = false, comma = true; /* no comma may come before the first number */
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
    if (e->kind == RCV_DATA_CLASSES)
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

/* A time step: number | [ number, ... ] */
static rcv_status parse_step(rcvi_example *e, const json_t *step) {
    int64_t features = json_is_array(step) ? (int64_t)json_array_size(step) : 1;
    if (e->steps == 0) e->features = features;
    if (features == 0 || features != e->features)
        return WRONG(e, "has %lld features at time step %lld where its first has %lld", (long long)features,
                     (long long)e->steps, (long long)e->features);
    for (int64_t i = 0; i < features; i++) {
        const json_t *number = json_is_array(step) ? json_array_get(step, (size_t)i) : step;
        if (!json_is_number(number)) return WRONG(e, "has no number at time step %lld of \"x\"", (long long)e->steps);
        RCVI_TRY(append_number(e, &e->x, &e->x_capacity, e->steps * features + i, json_number_value(number)));
    }
    e->steps++;
    return RCV_OK;
}

static rcv_status parse_object(rcvi_example *e, const json_t *root) {
    const json_t *x = json_object_get(root, "x"), *text = json_object_get(root, "text");
    if ((x != NULL) == (text != NULL)) return WRONG(e, "needs one of %s", "\"x\" and \"text\"");
    RCVI_TRY(parse_label(e, json_object_get(root, "y")));
    if (text) {
        if (!json_is_string(text)) return WRONG(e, "has a \"text\" that is %s", "not a text");
        e->text = json_string_value(text);
        e->text_length = json_string_length(text);
        return RCV_OK;
    }
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *step = json_array_get(x, i);
        if (json_is_array(step) != json_is_array(json_array_get(x, 0)))
            return WRONG(e, "has both numbers and lists in %s", "\"x\"");
        RCVI_TRY(parse_step(e, step));
    }
    return e->steps > 0 ? RCV_OK : WRONG(e, "has no time steps in %s; it must be a list of them", "\"x\"");
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
}

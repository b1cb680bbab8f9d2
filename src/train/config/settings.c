/* Settings: each value is a text in its canonical form. */
#include "train/config/settings.h"
#include "model/tensors.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *text; /* NULL: the default */
    bool given;
} value;

struct rcv_settings {
    rcv_context *context;
    value *values; /* [settings], in the order of the table */
};

/* ---- making and freeing ---- */

rcv_status rcv_settings_new(rcv_context *context, rcv_settings **settings) {
    RCVI_NEED(settings, "settings");
    *settings = NULL;
    RCVI_NEED(context, "context");
    rcv_settings *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->values = rcvi_new(context, rcv_setting_count(), sizeof *made->values);
    if (!made->values) {
        rcvi_free(context, made);
        return RCV_NO_MEMORY;
    }
    *settings = made;
    return RCV_OK;
}

void rcv_settings_free(rcv_settings *settings) {
    if (!settings) return;
    for (size_t i = 0; i < rcv_setting_count(); i++) rcvi_free(settings->context, settings->values[i].text);
    rcvi_free(settings->context, settings->values);
    rcvi_free(settings->context, settings);
}

rcv_status rcv_settings_copy(const rcv_settings *settings, rcv_settings **copy) {
    RCVI_NEED(copy, "copy");
    *copy = NULL;
    RCVI_NEED(settings, "settings");
    rcv_settings *made = NULL;
    RCVI_TRY(rcv_settings_new(settings->context, &made));
    if (!made) return RCV_NO_MEMORY;
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const value *from = &settings->values[i];
        made->values[i].given = from->given;
        if (!from->text) continue;
        made->values[i].text = rcvi_copy_text(made->context, from->text, strlen(from->text));
        if (!made->values[i].text) {
            rcv_settings_free(made);
            return RCV_NO_MEMORY;
        }
    }
    *copy = made;
    return RCV_OK;
}

rcv_context *rcvi_settings_context(const rcv_settings *settings) { return settings->context; }

void rcvi_settings_swap(rcv_settings *a, rcv_settings *b) {
    value *values = a->values;
    a->values = b->values;
    b->values = values;
}

/* ---- messages ---- */

enum { WANTED = 256 };

/* "word or byte", "sgd, momentum or adam" */
static void describe_choices(const char *const *choices, char *out) {
    size_t used = 0;
    for (size_t i = 0; choices[i] && used < WANTED; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(out + used, WANTED - used, "%s%s", between, choices[i]);
    }
}

static void describe_range(const rcv_setting *setting, char *out) {
    const char *number = setting->kind == RCV_SETTING_INTEGER ? "a whole number" : "a number";
    if (isinf(setting->maximum)) {
        snprintf(out, WANTED, "%s of at least %.15g", number, setting->minimum);
    } else {
        snprintf(out, WANTED, "%s from %.15g to %.15g", number, setting->minimum, setting->maximum);
    }
}

rcv_status rcvi_setting_wrong(const rcv_setting *setting, const char *shown) {
    char wanted[WANTED] = "";
    switch (setting->kind) {
    case RCV_SETTING_FLAG: snprintf(wanted, sizeof wanted, "true or false"); break;
    case RCV_SETTING_INTEGER:
    case RCV_SETTING_REAL: describe_range(setting, wanted); break;
    case RCV_SETTING_TEXT:
    case RCV_SETTING_OUTPUT: snprintf(wanted, sizeof wanted, "a text in UTF-8 without control characters"); break;
    case RCV_SETTING_CHOICE: describe_choices(setting->choices, wanted); break;
    }
    return rcvi_fail(RCV_INVALID, "%s must be %s, not %s", setting->name, wanted, shown);
}

/* ---- setting values ---- */

static bool read_integer(const char *text, int64_t *integer) {
    char *end;
    errno = 0;
    *integer = strtoll(text, &end, 10);
    return errno == 0 && end != text && !*end && strspn(text, "+-0123456789") == strlen(text);
}

static bool read_real(const char *text, double *real) {
    return strspn(text, "+-.0123456789eE") == strlen(text) && rcvi_read_number(text, real) && isfinite(*real);
}

static bool within(const rcv_setting *setting, double number) {
    return number >= setting->minimum && number <= setting->maximum;
}

static bool is_choice(const rcv_setting *setting, const char *text) {
    size_t i = 0;
    while (setting->choices[i] && strcmp(setting->choices[i], text) != 0) i++;
    return setting->choices[i] != NULL;
}

/* UTF-8 without control or invisible characters. */
static bool is_plain_text(const char *text) {
    const size_t length = strlen(text);
    return rcv_escape(text, length, NULL, NULL, 0) == length;
}

/* Writes 600, not 6e+02, and 0, not -0. */
static void add_real(rcvi_text *out, double real) {
    if (real == floor(real) && fabs(real) < 1e15) {
        rcvi_text_add(out, "%lld", (long long)real);
    } else {
        rcvi_text_add_number(out, real);
    }
}

/* Adds the value in its canonical form; false: the setting does not accept it. */
static bool write_value(const rcv_setting *setting, const char *text, rcvi_text *out) {
    int64_t integer;
    double real;
    switch (setting->kind) {
    case RCV_SETTING_INTEGER:
        if (!read_integer(text, &integer) || !within(setting, (double)integer)) return false;
        rcvi_text_add(out, "%lld", (long long)integer);
        return true;
    case RCV_SETTING_REAL:
        if (!read_real(text, &real) || !within(setting, real)) return false;
        add_real(out, real);
        return true;
    case RCV_SETTING_FLAG:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return false;
        break;
    case RCV_SETTING_CHOICE:
        if (!is_choice(setting, text)) return false;
        break;
    case RCV_SETTING_TEXT:
    case RCV_SETTING_OUTPUT:
        if (!is_plain_text(text)) return false;
        break;
    }
    rcvi_text_add(out, "%s", text);
    return true;
}

static rcv_status unknown_name(const char *name) {
    char shown[RCVI_ESCAPED_NAME];
    const char *near = rcvi_setting_nearest(name);
    rcvi_escape_name(name, shown);
    if (near) return rcvi_fail(RCV_INVALID, "there is no setting '%s'; did you mean %s?", shown, near);
    return rcvi_fail(RCV_INVALID, "there is no setting '%s'", shown);
}

rcv_status rcv_settings_set(rcv_settings *settings, const char *name, const char *text) {
    RCVI_NEED(settings, "settings");
    RCVI_NEED(name, "name");
    RCVI_NEED(text, "value");
    const size_t index = rcvi_setting_find(name);
    const rcv_setting *setting = rcv_setting_at(index);
    if (!setting) return unknown_name(name);
    rcvi_text written;
    rcvi_text_init(&written, settings->context);
    if (!write_value(setting, text, &written)) {
        char shown[RCVI_ESCAPED_NAME], quoted[RCVI_ESCAPED_NAME + 2];
        rcvi_text_drop(&written);
        snprintf(quoted, sizeof quoted, "'%s'", rcvi_escape_name(text, shown));
        return rcvi_setting_wrong(setting, quoted);
    }
    char *taken;
    RCVI_TRY(rcvi_text_take(&written, &taken));
    value *at = &settings->values[index];
    rcvi_free(settings->context, at->text);
    *at = (value){.text = taken, .given = true};
    return RCV_OK;
}

void rcvi_settings_drop_outputs(rcv_settings *settings) {
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        if (rcv_setting_at(i)->kind != RCV_SETTING_OUTPUT) continue;
        rcvi_free(settings->context, settings->values[i].text);
        settings->values[i] = (value){0};
    }
}

/* ---- reading values ---- */

const char *rcv_settings_get(const rcv_settings *settings, const char *name) {
    if (!settings || !name) return NULL;
    const size_t index = rcvi_setting_find(name);
    const rcv_setting *setting = rcv_setting_at(index);
    if (!setting) return NULL;
    const char *text = settings->values[index].text;
    return text ? text : setting->default_value;
}

bool rcv_settings_given(const rcv_settings *settings, const char *name) {
    if (!settings || !name) return false;
    const size_t index = rcvi_setting_find(name);
    return index < rcv_setting_count() && settings->values[index].given;
}

/* The value of a setting of this kind. Another name or kind fails an assertion, or gives NULL where assertions are off. */
static const char *text_of(const rcv_settings *settings, const char *name, rcv_setting_kind kind) {
    const rcv_setting *setting = rcv_setting_at(rcvi_setting_find(name));
    const bool right = setting && setting->kind == kind;
    assert(right);
    return right ? rcv_settings_get(settings, name) : NULL;
}

bool rcvi_settings_flag(const rcv_settings *settings, const char *name) {
    const char *text = text_of(settings, name, RCV_SETTING_FLAG);
    return text && strcmp(text, "true") == 0;
}

int64_t rcvi_settings_integer(const rcv_settings *settings, const char *name) {
    const char *text = text_of(settings, name, RCV_SETTING_INTEGER);
    int64_t integer;
    return text && read_integer(text, &integer) ? integer : 0;
}

double rcvi_settings_real(const rcv_settings *settings, const char *name) {
    const char *text = text_of(settings, name, RCV_SETTING_REAL);
    double real;
    return text && read_real(text, &real) ? real : 0;
}

const char *rcvi_settings_text(const rcv_settings *settings, const char *name) {
    const char *text = text_of(settings, name, RCV_SETTING_TEXT); /* outputs are read by the tool alone */
    return text && *text ? text : NULL;
}

static int choice_index(const char *name, const char *choice) {
    const rcv_setting *setting = rcv_setting_at(rcvi_setting_find(name));
    int i = 0;
    while (setting->choices[i] && strcmp(setting->choices[i], choice) != 0) i++;
    assert(setting->choices[i]);
    return i;
}

int rcvi_settings_choice(const rcv_settings *settings, const char *name) {
    const char *text = text_of(settings, name, RCV_SETTING_CHOICE);
    return text ? choice_index(name, text) : 0;
}

bool rcvi_settings_is(const rcv_settings *settings, const char *name, const char *choice) {
    const char *text = text_of(settings, name, RCV_SETTING_CHOICE);
    return text && choice_index(name, text) == choice_index(name, choice);
}

rcv_dtype rcvi_settings_dtype(const rcv_settings *settings) {
    rcv_dtype dtype = RCV_FLOAT32;
    rcv_dtype_find(rcv_settings_get(settings, "dtype"), &dtype);
    return dtype;
}

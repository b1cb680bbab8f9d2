/* The values of options: from a text to the destination, and what is said of a wrong one. */
#include "options/parts.h"

#include "tool.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_integer(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    const long long parsed = strtoll(text, &end, 10);
    *value = parsed;
    return errno == 0 && end != text && *end == '\0' && strspn(text, "+-0123456789") == strlen(text);
}

static bool parse_seed(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && strspn(text, "0123456789") == strlen(text);
}

static bool parse_real(const char *text, double *value) {
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && isfinite(*value) &&
           strspn(text, "+-.0123456789eE") == strlen(text);
}

static bool wrong_value(const option *option, const char *text) {
    const bool integer = option->type == OPTION_INTEGER;
    if (option->maximum < (integer ? 9e15 : INFINITY)) {
        say("--%s must be %s from %.15g to %.15g, not '%s'", option->name, integer ? "a whole number" : "a number",
            option->minimum, option->maximum, text);
    } else {
        say("--%s must be %s of at least %.15g, not '%s'", option->name, integer ? "a whole number" : "a number",
            option->minimum, text);
    }
    return false;
}

static bool set_integer(const option *option, const char *text) {
    int64_t value;
    if (!parse_integer(text, &value) || (double)value < option->minimum || (double)value > option->maximum) {
        return wrong_value(option, text);
    }
    *(int64_t *)option->destination = value;
    return true;
}

static bool set_real(const option *option, const char *text) {
    double value;
    if (!parse_real(text, &value) || value < option->minimum || value > option->maximum) {
        return wrong_value(option, text);
    }
    *(double *)option->destination = value;
    return true;
}

static bool set_seed(const option *option, const char *text) {
    uint64_t value;
    if (!parse_seed(text, &value)) {
        say("--%s must be a whole number from 0 to 18446744073709551615, not '%s'", option->name, text);
        return false;
    }
    *(uint64_t *)option->destination = value;
    return true;
}

/* Has a value of this option the type? A plan has more of them than a tensor. */
static bool is_type_of(const option *option, rcv_dtype dtype) {
    return dtype <= RCV_FLOAT64 || (option->type == OPTION_PRODUCT && (dtype <= RCV_BFLOAT16 || dtype == RCV_TFLOAT32));
}

static bool set_dtype(const option *option, const char *text) {
    rcv_dtype dtype;
    if (rcv_dtype_find(text, &dtype) && is_type_of(option, dtype)) {
        *(rcv_dtype *)option->destination = dtype;
        return true;
    }
    say("--%s must be float32%s, not '%s'", option->name,
        option->type == OPTION_PRODUCT ? ", float64 or bfloat16, on a GPU also tfloat32 or float16" : " or float64",
        text);
    return false;
}

static bool set_choice(const option *option, const char *text) {
    char known[200] = "";
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(text, option->choices[i]) == 0) {
            *(int *)option->destination = i;
            return true;
        }
        const size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s",
                 i == 0                           ? ""
                 : option->choices[i + 1] == NULL ? " or "
                                                  : ", ",
                 option->choices[i]);
    }
    say("--%s must be %s, not '%s'", option->name, known, text);
    return false;
}

/* NAME=VALUE; the name points into the arguments. */
static bool add_size(const option *option, char *text) {
    size_list *list = option->destination;
    char *equals = strchr(text, '=');
    int64_t value;
    if (equals == NULL || equals == text || !parse_integer(equals + 1, &value) || value < 1) {
        say("--%s must be %s with a positive whole number, such as proj=32, not '%s'", option->name, option->value,
            text);
        return false;
    }
    if (list->count == MAXIMUM_SIZES) {
        say("--%s was given more than %d times", option->name, MAXIMUM_SIZES);
        return false;
    }
    *equals = '\0';
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->sizes[i].name, text) == 0) {
            say("--%s gives %s twice", option->name, text);
            return false;
        }
    }
    list->sizes[list->count++] = (rcv_size){.name = text, .value = value};
    return true;
}

/* The library's message begins with the setting's name. */
static bool set_setting(const option *option, const char *text) {
    const char *name = option->negated != NULL ? option->negated : option->name;
    const char *value = text != NULL ? text : option->negated != NULL ? "false" : "true";
    if (rcv_settings_set(option->destination, name, value) != RCV_OK) {
        say("--%s", rcv_message());
        return false;
    }
    return true;
}

bool set_option_value(option *option, char *text) {
    if (option->given && option->type != OPTION_SIZES) {
        say("--%s is given twice", option->name);
        return false;
    }
    option->given = true;
    if (option->type == OPTION_FLAG) {
        *(bool *)option->destination = true;
        return true;
    }
    if (option->type == OPTION_SETTING) {
        return set_setting(option, text);
    }
    if (text == NULL) {
        return false;
    }
    switch (option->type) {
    case OPTION_INTEGER: return set_integer(option, text);
    case OPTION_REAL: return set_real(option, text);
    case OPTION_SEED: return set_seed(option, text);
    case OPTION_TEXT: *(const char **)option->destination = text; return true;
    case OPTION_DTYPE:
    case OPTION_PRODUCT: return set_dtype(option, text);
    case OPTION_CHOICE: return set_choice(option, text);
    case OPTION_SIZES: return add_size(option, text);
    default: return false;
    }
}

/* ---- the words that a value may be ---- */

static char *join(const char *const *words) {
    char *joined = text_of("%s", "");
    for (size_t i = 0; words[i] != NULL; i++) {
        char *longer = text_of("%s%s%s", joined, i > 0 ? " " : "", words[i]);
        free(joined);
        joined = longer;
    }
    return joined;
}

static char *type_words(const option *option) {
    const char *names[RCV_TFLOAT32 + 2] = {NULL};
    size_t count = 0;
    for (int dtype = 0; dtype <= RCV_TFLOAT32; dtype++) {
        if (is_type_of(option, (rcv_dtype)dtype)) {
            names[count++] = rcv_dtype_name((rcv_dtype)dtype);
        }
    }
    return join(names);
}

char *option_words(const option *option) {
    if (option->type == OPTION_DTYPE || option->type == OPTION_PRODUCT) {
        return type_words(option);
    }
    if (option->type == OPTION_CHOICE) {
        return join(option->choices);
    }
    for (size_t i = 0; option->type == OPTION_SETTING && i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        if (strcmp(setting->name, option->name) == 0 && setting->choices != NULL) {
            return join(setting->choices);
        }
    }
    return NULL;
}

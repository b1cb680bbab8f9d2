/* Parsing and help from the table of options. */
#include "options.h"

#include "tool.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nearest name ---- */

enum { LONGEST_NAME = 63 };

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Edit distance: insertions, deletions, replacements, and swaps of neighbours. */
static size_t distance(const char *from, const char *to) {
    const size_t length = strlen(to);
    size_t rows[3][LONGEST_NAME + 1]; /* row i % 3: distances of the first i letters to every prefix of `to` */
    for (size_t j = 0; j <= length; j++) {
        rows[0][j] = j;
    }
    size_t i = 0;
    for (; from[i] != '\0'; i++) {
        const size_t *above = rows[i % 3], *two_above = rows[(i + 2) % 3];
        size_t *row = rows[(i + 1) % 3];
        row[0] = i + 1;
        for (size_t j = 1; j <= length; j++) {
            row[j] = smaller(above[j - 1] + (from[i] != to[j - 1]), smaller(row[j - 1], above[j]) + 1);
            if (i > 0 && j > 1 && from[i] == to[j - 2] && from[i - 1] == to[j - 1]) {
                row[j] = smaller(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[i % 3][length];
}

const char *nearest_name(const char *name, size_t count, const char *(*name_at)(const void *list, size_t index),
                         const void *list) {
    const char *best = NULL;
    size_t least = strlen(name) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        const char *candidate = name_at(list, i);
        if (strlen(name) > LONGEST_NAME || strlen(candidate) > LONGEST_NAME) {
            continue;
        }
        const size_t far =
            strncmp(candidate, name, strlen(name)) == 0 && name[0] != '\0' ? 0 : distance(name, candidate);
        if (far < least && far < strlen(candidate)) {
            least = far;
            best = candidate;
        }
    }
    return best;
}

/* ---- the table ---- */

static size_t option_count(const command *command) {
    size_t count = 0;
    for (size_t g = 0; g < command->group_count; g++) {
        count += command->groups[g].count;
    }
    return count;
}

static option *option_at(const command *command, size_t index) {
    const option_group *group = command->groups;
    while (index >= group->count) {
        index -= group->count;
        group++;
    }
    return &group->options[index];
}

/* Names allowed after two dashes: the options, and help. */
static const char *option_name(const void *list, size_t index) {
    return index < option_count(list) ? option_at(list, index)->name : "help";
}

static option *find_option(const command *command, const char *name, size_t length) {
    for (size_t i = 0; i < option_count(command); i++) {
        option *option = option_at(command, i);
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0) {
            return option;
        }
    }
    return NULL;
}

const option *group_given(const option_group *group) {
    for (size_t i = 0; i < group->count; i++) {
        if (group->options[i].given) {
            return &group->options[i];
        }
    }
    return NULL;
}

/* ---- values ---- */

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

static bool set_dtype(const option *option, const char *text) {
    const bool product = option->type == OPTION_PRODUCT;
    rcv_dtype dtype;
    if (rcv_dtype_find(text, &dtype) &&
        (dtype <= RCV_FLOAT64 || (product && (dtype <= RCV_BFLOAT16 || dtype == RCV_TFLOAT32)))) {
        *(rcv_dtype *)option->destination = dtype;
        return true;
    }
    say("--%s must be float32%s, not '%s'", option->name,
        product ? ", float64 or bfloat16, on a GPU also tfloat32 or float16" : " or float64", text);
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

/* text is NULL for flags and for boolean settings. */
static bool set_value(option *option, char *text) {
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

/* ---- help ---- */

enum { WIDTH = 80, HELP_COLUMN = 26 }; /* of a terminal; where the description of an option begins */

/* Prints words from `column` on. Lines end before WIDTH, and continue at `indent`. A newline in the text is a space. */
static void print_wrapped(const char *text, int column, int indent) {
    bool is_first = true;
    while (*text != '\0') {
        const int length = (int)strcspn(text, " \n");
        if (!is_first && column + 1 + length > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!is_first) {
            printf(" ");
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " \n");
        is_first = false;
    }
    printf("\n");
}

/* Paragraphs, which an empty line separates. */
static void print_paragraphs(const char *text) {
    for (const char *end; text != NULL; text = end != NULL ? end + 2 : NULL) {
        end = strstr(text, "\n\n");
        char *paragraph = end != NULL ? text_of("%.*s", (int)(end - text), text) : text_of("%s", text);
        print_wrapped(paragraph, 0, 0);
        free(paragraph);
        printf("%s", end != NULL ? "\n" : "");
    }
}

/* The value without the option, for free(). An empty text: none, or one that the help describes itself, as for a NaN. */
static char *default_text(const option *option) {
    const void *at = option->destination;
    const char *text = "";
    switch (option->type) {
    case OPTION_INTEGER: return text_of("%lld", (long long)*(const int64_t *)at);
    case OPTION_REAL: return isnan(*(const double *)at) ? text_of("%s", "") : text_of("%g", *(const double *)at);
    case OPTION_SEED: return text_of("%llu", (unsigned long long)*(const uint64_t *)at);
    case OPTION_DTYPE:
    case OPTION_PRODUCT: text = rcv_dtype_name(*(const rcv_dtype *)at); break;
    case OPTION_CHOICE: text = option->choices[*(const int *)at]; break;
    case OPTION_TEXT: text = *(const char *const *)at; break;
    case OPTION_SETTING: text = option->value != NULL ? rcv_settings_get(at, option->name) : ""; break;
    default: break;
    }
    return text_of("%s", text != NULL ? text : "");
}

static void print_row(const char *dashes, const char *name, const char *value, const char *help) {
    int column = printf("  %s%s%s%s", dashes, name, value != NULL ? " " : "", value != NULL ? value : "");
    column += printf("%*s", column < HELP_COLUMN ? HELP_COLUMN - column : 1, "");
    print_wrapped(help, column, HELP_COLUMN);
}

static void print_option(const option *option) {
    char *value = option->required ? text_of("%s", "") : default_text(option);
    char *help = value[0] != '\0' ? text_of("%s (default %s)", option->help, value) : text_of("%s", option->help);
    print_row("--", option->name, option->value, help);
    free(help);
    free(value);
}

static void print_usage(const command *command) {
    char *line = text_of("Usage: recurve %s", command->verb);
    for (size_t i = 0; i < command->operand_count; i++) {
        const char *name = command->operands[i].name;
        const bool is_required = i + command->optional_count < command->operand_count;
        const bool is_repeated = command->last_count != NULL && i + 1 == command->operand_count;
        char *longer = text_of(is_required ? "%s %s" : "%s [%s]", line, name);
        free(line);
        line = is_repeated ? text_of("%s [%s ...]", longer, name) : text_of("%s", longer);
        free(longer);
    }
    for (size_t i = 0; i < option_count(command); i++) {
        const option *option = option_at(command, i);
        if (option->required) {
            char *longer = text_of("%s --%s %s", line, option->name, option->value);
            free(line);
            line = longer;
        }
    }
    char *whole = text_of("%s%s", line, option_count(command) > 0 ? " [OPTIONS]" : "");
    print_wrapped(whole, 0, 4);
    free(whole);
    free(line);
}

static void print_help(const command *command) {
    print_usage(command);
    char *summary = text_of("%s.", command->summary);
    printf("\n");
    print_wrapped(summary, 0, 0);
    free(summary);
    if (command->details != NULL) {
        printf("\n");
        print_paragraphs(command->details);
    }
    if (command->operand_count > 0) {
        printf("\n");
    }
    for (size_t i = 0; i < command->operand_count; i++) {
        print_row("", command->operands[i].name, NULL, command->operands[i].help);
    }
    for (size_t g = 0; g < command->group_count; g++) {
        printf("\n%s:\n", command->groups[g].title);
        for (size_t i = 0; i < command->groups[g].count; i++) {
            print_option(&command->groups[g].options[i]);
        }
    }
}

/* ---- parsing ---- */

static parsed wrong_option(const command *command, const char *name, size_t length) {
    char typed[LONGEST_NAME + 1];
    snprintf(typed, sizeof typed, "%.*s", (int)smaller(length, LONGEST_NAME), name);
    const char *near = nearest_name(typed, option_count(command) + 1, option_name, command);
    if (near != NULL) {
        say("%s has no option --%s; did you mean --%s?", command->verb, typed, near);
    } else {
        say("%s has no option --%s; see recurve %s --help", command->verb, typed, command->verb);
    }
    return PARSED_WRONG;
}

/* "--name", "--name value" or "--name=value" at argv[*at]; *at moves to the last argument used. */
static parsed parse_option(const command *command, int argc, char **argv, int *at) {
    const char *name = argv[*at] + 2;
    const size_t length = strcspn(name, "=");
    char *value = name[length] == '=' ? argv[*at] + 2 + length + 1 : NULL;
    option *option = find_option(command, name, length);
    if (option == NULL) {
        return wrong_option(command, name, length);
    }
    const bool may_be_false = option->type == OPTION_SETTING && option->negated == NULL; /* --tied=false */
    if (option->value == NULL && value != NULL && !may_be_false) {
        say("--%s takes no value", option->name);
        return PARSED_WRONG;
    }
    if (option->value != NULL && value == NULL) {
        if (*at + 1 >= argc) {
            say("--%s needs a value: --%s %s", option->name, option->name, option->value);
            return PARSED_WRONG;
        }
        value = argv[++*at];
    }
    return set_value(option, value) ? PARSED_GO : PARSED_WRONG;
}

/* Stores the next operand, or one more of the last one where it may be repeated. False: there is no operand left. */
static bool take_operand(const command *command, size_t *taken, const char *argument) {
    if (*taken == command->operand_count) {
        if (command->last_count == NULL) {
            return false;
        }
        command->operands[*taken - 1].destination[(*command->last_count)++] = argument;
        return true;
    }
    *command->operands[(*taken)++].destination = argument;
    if (command->last_count != NULL && *taken == command->operand_count) {
        *command->last_count = 1;
    }
    return true;
}

static parsed check_complete(const command *command, size_t operands) {
    if (operands + command->optional_count < command->operand_count) {
        say("%s needs %s; see recurve %s --help", command->verb, command->operands[operands].name, command->verb);
        return PARSED_WRONG;
    }
    for (size_t i = 0; i < option_count(command); i++) {
        const option *option = option_at(command, i);
        if (option->required && !option->given) {
            say("%s needs --%s %s; see recurve %s --help", command->verb, option->name, option->value, command->verb);
            return PARSED_WRONG;
        }
    }
    return PARSED_GO;
}

parsed command_parse(const command *command, int argc, char **argv) {
    size_t operands = 0;
    bool only_operands = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (!only_operands && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            print_help(command);
            return PARSED_HELP;
        }
        if (!only_operands && strcmp(argument, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && strncmp(argument, "--", 2) == 0) {
            const parsed result = parse_option(command, argc, argv, &i);
            if (result != PARSED_GO) {
                return result;
            }
        } else if (!only_operands && argument[0] == '-' && argument[1] != '\0') {
            say("%s has no option %s; options begin with two dashes, see recurve %s --help", command->verb, argument,
                command->verb);
            return PARSED_WRONG;
        } else if (!take_operand(command, &operands, argument)) {
            say("%s has no operand for '%s'; see recurve %s --help", command->verb, argument, command->verb);
            return PARSED_WRONG;
        }
    }
    return check_complete(command, operands);
}

/* The help of a verb from its table. */
#include "options/parts.h"

#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80, HELP_COLUMN = 26 }; /* of a terminal; where the description of an option begins */

void print_wrapped(const char *text, int column, int indent) {
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

static void print_row(const char *name, const char *value, const char *help) {
    int column = printf("  %s%s%s", name, value != NULL ? " " : "", value != NULL ? value : "");
    column += printf("%*s", column < HELP_COLUMN ? HELP_COLUMN - column : 1, "");
    print_wrapped(help, column, HELP_COLUMN);
}

/* "-o, --output" or "--learning-rate, --lr"; for free(). */
static char *all_names(const option *option) {
    const char *alias = option_alias(option), letter[] = {'-', option_letter(option), ',', ' ', '\0'};
    return text_of("%s--%s%s%s", letter[1] != 0 ? letter : "", option->name, alias != NULL ? ", --" : "",
                   alias != NULL ? alias : "");
}

static void print_option(const option *option) {
    const bool has_default = !option->required && option->help != NULL;
    char *value = has_default ? default_text(option) : text_of("%s", "");
    char *help = value[0] != '\0' ? text_of("%s (default %s)", option->help, value) : text_of("%s", option->help);
    char *names = all_names(option);
    print_row(names, option->value, help);
    free(names);
    free(help);
    free(value);
}

static void print_title(const char *title) {
    const bool is_bold = use_color(stdout);
    printf("%s%s:%s\n", is_bold ? "\033[1m" : "", title, is_bold ? "\033[0m" : "");
}

static void print_usage(const command *command) {
    char *line = text_of("Usage: recurve %s", command->verb);
    for (size_t i = 0; i < command->operand_count; i++) {
        const char *name = command->operands[i].name;
        const bool is_required = i + command->optional_count < command->operand_count;
        const bool says_so = strstr(name, "...") != NULL; /* CELL ... DATA */
        const bool is_repeated = command->last_count != NULL && i + 1 == command->operand_count && !says_so;
        char *longer = text_of(is_required ? "%s %s" : "%s [%s]", line, name);
        free(line);
        line = is_repeated ? text_of("%s [%s ...]", longer, name) : text_of("%s", longer);
        free(longer);
    }
    for (size_t g = 0; g < command->group_count; g++) {
        for (size_t i = 0; i < command->groups[g].count; i++) {
            const option *option = &command->groups[g].options[i];
            if (option->required) {
                char *longer = text_of("%s --%s %s", line, option->name, option->value);
                free(line);
                line = longer;
            }
        }
    }
    char *whole = text_of("%s [OPTIONS]", line);
    print_wrapped(whole, 0, 4);
    free(whole);
    free(line);
}

void print_option_groups(const command *command) {
    for (size_t g = 0; g < group_count(command); g++) {
        const option_group group = group_at(command, g);
        if (g < command->group_count && g + command->unlisted >= command->group_count) {
            continue;
        }
        if (group.count > 0) {
            printf("\n");
            print_title(group.title);
        }
        for (size_t i = 0; i < group.count; i++) {
            print_option(&group.options[i]);
        }
    }
}

void print_help(const command *command) {
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
        print_row(command->operands[i].name, NULL, command->operands[i].help);
    }
    print_option_groups(command);
    if (command->more != NULL) {
        printf("\n");
        print_wrapped(command->more, 0, 0);
    }
}

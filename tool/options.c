/* Parsing from the table of options. */
#include "options/parts.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

size_t group_count(const command *command) { return command->group_count + 1; }

option_group group_at(const command *command, size_t index) {
    return index < command->group_count ? command->groups[index] : common_group(command);
}

static size_t option_count(const command *command) {
    size_t count = 0;
    for (size_t g = 0; g < group_count(command); g++) {
        count += group_at(command, g).count;
    }
    return count;
}

static option *option_at(const command *command, size_t index) {
    size_t g = 0;
    while (index >= group_at(command, g).count) {
        index -= group_at(command, g++).count;
    }
    return &group_at(command, g).options[index];
}

static const char *option_name(const void *list, size_t index) { return option_at(list, index)->name; }

static bool is_name(const char *name, const char *text, size_t length) {
    return name != NULL && strlen(name) == length && memcmp(name, text, length) == 0;
}

static option *find_option(const command *command, const char *name, size_t length) {
    for (size_t i = 0; i < option_count(command); i++) {
        option *option = option_at(command, i);
        if (is_name(option->name, name, length) || is_name(option_alias(option), name, length)) {
            return option;
        }
    }
    return NULL;
}

static option *find_letter(const command *command, char letter) {
    for (size_t i = 0; i < option_count(command); i++) {
        if (option_letter(option_at(command, i)) == letter) {
            return option_at(command, i);
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

/* ---- options ---- */

typedef struct {
    const command *command;
    int argc;
    char **argv;
    int at;             /* the argument that is read */
    size_t operands;    /* read so far */
    bool only_operands; /* after -- */
} reader;

char *called_as(const command *command) {
    return command->verb != NULL ? text_of("recurve %s", command->verb) : text_of("recurve");
}

static parsed wrong_option(const command *command, const char *dashes, const char *name, size_t length) {
    char typed[LONGEST_NAME + 1];
    snprintf(typed, sizeof typed, "%.*s", (int)(length < LONGEST_NAME ? length : LONGEST_NAME), name);
    const bool is_letter = length == 1 && dashes[1] == '\0';
    const char *near = is_letter ? NULL : nearest_name(typed, option_count(command), option_name, command);
    const char *who = command->verb != NULL ? command->verb : "recurve";
    if (near != NULL) {
        say("%s has no option %s%s; did you mean --%s?", who, dashes, typed, near);
    } else {
        char *call = called_as(command);
        say("%s has no option %s%s; see %s --help", who, dashes, typed, call);
        free(call);
    }
    return PARSED_WRONG;
}

/* Stores the option's value: `value`, or the next argument where `value` is NULL and the option takes one. */
static parsed take_value(reader *r, option *option, char *value) {
    if (is_help(option) && value == NULL) {
        if (r->command->verb != NULL) {
            print_help(r->command);
        }
        return PARSED_HELP;
    }
    const bool may_be_false = option->type == OPTION_SETTING && option->negated == NULL; /* --tied=false */
    if (option->value == NULL && value != NULL && !may_be_false) {
        say("--%s takes no value", option->name);
        return PARSED_WRONG;
    }
    if (option->value != NULL && value == NULL) {
        if (r->at + 1 >= r->argc) {
            say("--%s needs a value: --%s %s", option->name, option->name, option->value);
            return PARSED_WRONG;
        }
        value = r->argv[++r->at];
    }
    return set_option_value(option, value) ? PARSED_GO : PARSED_WRONG;
}

/* "--name", "--name value" or "--name=value" */
static parsed parse_long(reader *r) {
    char *name = r->argv[r->at] + 2;
    const size_t length = strcspn(name, "=");
    option *option = find_option(r->command, name, length);
    if (option == NULL) {
        return wrong_option(r->command, "--", name, length);
    }
    return take_value(r, option, name[length] == '=' ? name + length + 1 : NULL);
}

/* "-o value", "-ovalue" or "-o=value", and flags together: "-qv". A long name with one dash is a mistake. */
static parsed parse_letters(reader *r) {
    char *letters = r->argv[r->at] + 1;
    const size_t length = strcspn(letters, "=");
    if (length > 1 && find_option(r->command, letters, length) != NULL) {
        return wrong_option(r->command, "-", letters, length);
    }
    parsed result = PARSED_GO;
    for (size_t i = 0; letters[i] != '\0' && result == PARSED_GO; i++) {
        option *option = find_letter(r->command, letters[i]);
        if (option == NULL) {
            return wrong_option(r->command, "-", i == 0 ? letters : letters + i, i == 0 ? length : 1);
        }
        char *rest = letters[i + 1] != '\0' ? letters + i + 1 : NULL;
        const bool takes_rest = option->value != NULL || (rest != NULL && rest[0] == '=');
        result = take_value(r, option, !takes_rest || rest == NULL ? NULL : rest[0] == '=' ? rest + 1 : rest);
        if (takes_rest) {
            break;
        }
    }
    return result;
}

/* Reads the argument at r->at if it is an option; false: it is an operand. */
static bool parse_option(reader *r, parsed *result) {
    const char *argument = r->argv[r->at];
    if (r->only_operands || argument[0] != '-' || argument[1] == '\0') {
        return false;
    }
    *result = PARSED_GO;
    if (strcmp(argument, "--") == 0) {
        r->only_operands = true;
    } else {
        *result = argument[1] == '-' ? parse_long(r) : parse_letters(r);
    }
    return true;
}

/* ---- operands ---- */

/* Is the first operand one of the words that it may be? */
static bool is_a_choice(const command *command, const char *argument) {
    const char *const *choices = command->choices;
    char *known = text_of("%s", "");
    bool found = false;
    for (size_t i = 0; choices[i] != NULL; i++) {
        found |= strcmp(choices[i], argument) == 0;
        char *longer = text_of("%s%s%s", known, i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ", choices[i]);
        free(known);
        known = longer;
    }
    if (!found && choices[1] == NULL) {
        const char *next = command->operand_count > 1 ? command->operands[1].name : "";
        say("%s has no '%.60s'; use %s %s %s", command->verb, argument, command->verb, known, next);
    } else if (!found) {
        say("%s must be %s, not '%.60s'", command->operands[0].name, known, argument);
    }
    free(known);
    return found;
}

/* Stores the next operand, or one more of the last one where it may be repeated. */
static parsed take_operand(reader *r, const char *argument) {
    const command *command = r->command;
    if (r->operands == command->operand_count && command->last_count != NULL) {
        command->operands[r->operands - 1].destination[(*command->last_count)++] = argument;
        return PARSED_GO;
    }
    if (r->operands == command->operand_count && r->operands == 0) {
        say("%s takes no operand: remove '%.60s'", command->verb, argument);
        return PARSED_WRONG;
    }
    if (r->operands == command->operand_count) {
        char *call = called_as(command);
        say("'%.60s' is one operand too many for %s; see %s --help", argument, command->verb, call);
        free(call);
        return PARSED_WRONG;
    }
    if (r->operands == 0 && command->choices != NULL && !is_a_choice(command, argument)) {
        return PARSED_WRONG;
    }
    *command->operands[r->operands++].destination = argument;
    if (command->last_count != NULL && r->operands == command->operand_count) {
        *command->last_count = 1;
    }
    return PARSED_GO;
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

/* ---- a command line ---- */

/* Not NULL: tables are read and nothing is parsed. */
static void (*table_reader)(const command *command, void *user);
static void *table_user;

void command_read_table(int (*run)(int argc, char **argv), const char *verb,
                        void (*read)(const command *command, void *user), void *user) {
    char *name = text_of("%s", verb), *argv[] = {name, NULL};
    table_reader = read;
    table_user = user;
    (void)run(1, argv);
    table_reader = NULL;
    free(name);
}

parsed command_parse_options(const command *command, int argc, char **argv, int *first) {
    reader r = {.command = command, .argc = argc, .argv = argv, .at = 1};
    parsed result = PARSED_GO;
    for (; r.at < argc && !r.only_operands && parse_option(&r, &result); r.at++) {
        if (result != PARSED_GO) {
            return result;
        }
    }
    *first = r.at;
    return PARSED_GO;
}

parsed command_parse(const command *command, int argc, char **argv) {
    if (table_reader != NULL) {
        table_reader(command, table_user);
        return PARSED_HELP;
    }
    reader r = {.command = command, .argc = argc, .argv = argv, .at = 1};
    for (; r.at < argc; r.at++) {
        parsed result = PARSED_GO;
        if (!parse_option(&r, &result)) {
            result = take_operand(&r, argv[r.at]);
        }
        if (result != PARSED_GO) {
            return result;
        }
    }
    return check_complete(command, r.operands);
}

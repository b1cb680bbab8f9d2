/* The script for zsh: a function for each verb, with a line of _arguments for each option and operand. */
#include "completion/completion.h"

#include <stdlib.h>
#include <string.h>

/* A text inside of '...' in a specification of _arguments, where : [ ] and \ have a meaning; for free(). */
static char *quoted(const char *text) {
    char *specification = escaped(text, ":[]\\", "\\"), *shell = escaped(specification, "'", "'\\'");
    free(specification);
    return shell;
}

/* ":PLACEHOLDER:ACTION" */
static void print_action(const char *placeholder, candidates found) {
    char *name = quoted(placeholder);
    printf(":%s:", name);
    if (found.words != NULL && found.pattern != NULL) {
        printf("_recurve_words_or_files \"%s\" \"%s\"", found.pattern, found.words);
    } else if (found.words != NULL) {
        printf("(%s)", found.words);
    } else if (found.pattern != NULL && strcmp(found.pattern, "/") == 0) {
        printf("_files -/");
    } else if (found.pattern != NULL) {
        printf("_files -g \"%s\"", found.pattern);
    } else {
        printf(" ");
    }
    free(name);
    free(found.words);
}

/* The names of an option: --tied, or {-o,--output} outside of quotes, with a sign for a value. */
static void print_names(const option *option) {
    const char letter = option_letter(option), *alias = option_alias(option);
    const char *equals = option->value != NULL ? "=" : "";
    if (option->type == OPTION_SIZES) {
        printf("'*'");
    } else if (letter != 0 || alias != NULL) {
        printf("'(--%s", option->name);
        if (letter != 0) {
            printf(" -%c", letter);
        }
        printf(alias != NULL ? " --%s)'" : ")'", alias);
    }
    if (letter != 0 && alias == NULL) {
        printf("{-%c%s,--%s%s}", letter, option->value != NULL ? "+" : "", option->name, equals);
    } else if (alias != NULL) {
        printf("{--%s%s,--%s%s}", option->name, equals, alias, equals);
    } else {
        printf("--%s%s", option->name, equals);
    }
}

static void print_option(const option *option) {
    char *help = quoted(option->help);
    printf("        ");
    print_names(option);
    printf("'[%s]", help);
    if (option->value != NULL) {
        print_action(option->value, option_candidates(option));
    }
    printf("' \\\n");
    free(help);
}

static void print_options(const command *command) {
    for (size_t g = 0; g < group_count(command); g++) {
        const option_group group = group_at(command, g);
        for (size_t i = 0; i < group.count; i++) {
            print_option(&group.options[i]);
        }
    }
}

static void print_verb(const command *command, void *user) {
    (void)user;
    printf("_recurve_%s() {\n    _arguments -s -S \\\n", command->verb);
    print_options(command);
    for (size_t i = 0; i < command->operand_count; i++) {
        const bool is_repeated = command->last_count != NULL && i + 1 == command->operand_count;
        printf(is_repeated ? "        '*" : "        '%zu", i + 1);
        printf("%s", !is_repeated && i + command->optional_count >= command->operand_count ? ":" : "");
        print_action(command->operands[i].name, operand_candidates(command, i));
        printf("' \\\n");
    }
    printf("        && return 0\n}\n\n");
}

static const char end[] = "    local curcontext=$curcontext state line\n"
                          "    _arguments -C \\\n"
                          "%s"
                          "        '1: :->verb' \\\n"
                          "        '*:: :->rest' && return 0\n"
                          "    case $state in\n"
                          "    verb) _describe -t verbs verb verbs ;;\n"
                          "    rest)\n"
                          "        if [[ $words[1] == help ]]; then\n"
                          "            _describe -t verbs verb verbs\n"
                          "        elif (( $+functions[_recurve_$words[1]] )); then\n"
                          "            _recurve_$words[1]\n"
                          "        fi\n"
                          "        ;;\n"
                          "    esac\n"
                          "}\n"
                          "\n"
                          "if [[ $funcstack[1] == _recurve ]]; then\n"
                          "    _recurve \"$@\"\n"
                          "else\n"
                          "    compdef _recurve recurve\n"
                          "fi\n";

void print_zsh_completion(void) {
    printf("#compdef recurve\n# Completion of recurve %s in zsh, printed by `recurve completion zsh`.\n\n",
           rcv_version());
    printf("_recurve_words_or_files() { # PATTERN WORDS\n"
           "    compadd -- ${=2}\n"
           "    _files -g \"$1\"\n"
           "}\n\n");
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        command_read_table(verb_at(i)->run, verb_at(i)->name, print_verb, NULL);
    }
    printf("_recurve() {\n    local -a verbs\n    verbs=(\n        'help:describe a verb'\n");
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        char *summary = quoted(verb_at(i)->summary);
        printf("        '%s:%s'\n", verb_at(i)->name, summary);
        free(summary);
    }
    printf("    )\n");
    const char *rest = strstr(end, "%s");
    printf("%.*s", (int)(rest - end), end);
    print_options(command_before_verb());
    fputs(rest + 2, stdout);
}

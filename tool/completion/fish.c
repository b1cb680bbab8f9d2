/* The script for fish: one `complete` line for each verb, option and operand. */
#include "completion/completion.h"

#include <stdlib.h>
#include <string.h>

static char *quoted(const char *text) { return escaped(text, "'\\", "\\"); }

/* " -x -a 'words (files)'": no files but these; " -F": all files */
static void print_candidates(candidates found, bool is_value) {
    const bool all = found.pattern != NULL && strcmp(found.pattern, "*") == 0;
    const char *no_others = is_value ? " -x" : " -f";
    if (all && found.words == NULL) {
        printf(is_value ? " -r -F" : " -F");
    } else if (found.pattern != NULL && strcmp(found.pattern, "/") == 0) {
        printf("%s -a '(__fish_complete_directories)'", no_others);
    } else if (found.pattern != NULL && !all) {
        printf("%s -a '%s%s(__fish_complete_suffix %s)'", no_others, found.words != NULL ? found.words : "",
               found.words != NULL ? " " : "", found.pattern + 1);
    } else if (found.words != NULL) {
        printf("%s -a '%s'", no_others, found.words);
    } else if (is_value) {
        printf(" -x");
    }
    free(found.words);
}

static void print_option(const char *verb, const option *option) {
    const char letter = option_letter(option), *alias = option_alias(option);
    char *help = quoted(option->help);
    printf("complete -c recurve -n '__recurve_verb %s' -l %s", verb, option->name);
    if (letter != 0) {
        printf(" -s %c", letter);
    }
    if (alias != NULL) {
        printf(" -l %s", alias);
    }
    if (option->value != NULL) {
        print_candidates(option_candidates(option), true);
    }
    printf(" -d '%s'\n", help);
    free(help);
}

static void print_table(const command *command, void *user) {
    (void)user;
    const char *verb = command->verb != NULL ? command->verb : "";
    for (size_t i = 0; i < command->operand_count; i++) {
        printf("complete -c recurve -n '__recurve_verb %s'", verb);
        print_candidates(operand_candidates(command, i), false);
        printf("\n");
    }
    for (size_t g = 0; g < group_count(command); g++) {
        const option_group group = group_at(command, g);
        for (size_t i = 0; i < group.count; i++) {
            print_option(verb, &group.options[i]);
        }
    }
}

static const char begin[] = "# Is this the verb of the command line? Without an argument: is there no verb yet?\n"
                            "function __recurve_verb\n"
                            "    for token in (commandline -opc)[2..-1]\n"
                            "        if not string match -q -- '-*' $token\n"
                            "            test \"$token\" = \"$argv[1]\"\n"
                            "            return\n"
                            "        end\n"
                            "    end\n"
                            "    test -z \"$argv[1]\"\n"
                            "end\n"
                            "\n"
                            "complete -c recurve -f\n";

void print_fish_completion(void) {
    printf("# Completion of recurve %s in fish, printed by `recurve completion fish`.\n\n%s", rcv_version(), begin);
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        char *summary = quoted(verb_at(i)->summary);
        printf("complete -c recurve -n '__recurve_verb' -a %s -d '%s'\n", verb_at(i)->name, summary);
        printf("complete -c recurve -n '__recurve_verb help' -a %s\n", verb_at(i)->name);
        free(summary);
    }
    print_table(command_before_verb(), NULL);
    for (size_t i = 0; verb_at(i) != NULL; i++) {
        command_read_table(verb_at(i)->run, verb_at(i)->name, print_table, NULL);
    }
}

/* recurve completion: the script that completes the command in a shell. */
#include "completion/completion.h"

#include <string.h>

int verb_completion(int argc, char **argv) {
    static const char *const shells[] = {"bash", "zsh", "fish", NULL};
    static void (*const print[])(void) = {print_bash_completion, print_zsh_completion, print_fish_completion};
    const char *shell = NULL;
    const operand operands[] = {{"SHELL", "bash, zsh or fish", &shell}};
    const command command = {
        .verb = "completion",
        .summary = "Prints the script that completes recurve's verbs, options and values in a shell",
        .details = "make install puts the scripts where the shells look for them. Elsewhere:\n\n"
                   "bash: recurve completion bash >~/.local/share/bash-completion/completions/recurve\n\n"
                   "zsh: recurve completion zsh >FOLDER/_recurve, with a FOLDER of $fpath\n\n"
                   "fish: recurve completion fish >~/.config/fish/completions/recurve.fish",
        .operands = operands,
        .operand_count = COUNT(operands),
        .choices = shells};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    for (size_t i = 0; i < COUNT(print); i++) {
        if (strcmp(shell, shells[i]) == 0) {
            print[i]();
        }
    }
    return EXIT_DONE;
}

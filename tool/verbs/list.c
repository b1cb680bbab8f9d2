#include "tool.h"

#include <stdio.h>

int verb_list(int argc, char **argv) {
    const command command = {.verb = "list", .summary = "Lists the built-in cells"};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        printf("%-16s %s\n", rcv_builtin_name(i), rcv_builtin_summary(i));
    }
    return EXIT_DONE;
}

#include "tool.h"
int verb_doctor(int argc, char **argv) {
    const command command = {.verb = "doctor", .summary = "x"};
    const parsed next = command_parse(&command, argc, argv);
    return next == PARSED_GO || next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
}

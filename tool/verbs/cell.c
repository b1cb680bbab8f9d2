#include "tool.h"

#include <stdio.h>
#include <string.h>

static rcv_status describe(const char *name, unsigned flags) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    char *text = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_cell_open(context, name, &cell);
    }
    if (status == RCV_OK) {
        status = rcv_cell_describe(cell, flags, &text);
    }
    if (status == RCV_OK) {
        const size_t length = strlen(text);
        printf("%s%s", text, length > 0 && text[length - 1] == '\n' ? "" : "\n");
        rcv_text_free(context, text);
    }
    rcv_cell_free(cell);
    rcv_context_free(context);
    return status;
}

int verb_cell(int argc, char **argv) {
    const char *name;
    bool backward = false, json = false;
    option options[] = {
        {"backward", OPTION_FLAG, &backward, .help = "also the derivative, as a recurrence"},
        {"json", OPTION_FLAG, &json, .help = "print JSON"},
    };
    const operand operands[] = {{"NAME|FILE", "a built-in cell, or a .cell file", &name}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "cell",
                             .summary =
                                 "Shows the equations of a cell, its parameters with their shapes, its stages "
                                 "over\ntime with their class and the reason, and which values the derivative keeps",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    const unsigned flags = (backward ? RCV_DESCRIBE_BACKWARD : 0u) | (json ? RCV_DESCRIBE_JSON : 0u);
    const rcv_status status = describe(name, flags);
    return status == RCV_OK ? EXIT_DONE : fail(status);
}

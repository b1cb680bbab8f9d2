/* Mutated cells. What is accepted prints, and what was printed parses to the same cell; it can be described, and networks of it made. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"cell ",    "state ",
                                     "param ",   "input ",
                                     "output ",  "let ",
                                     " = ",      "'",
                                     "[t-1]",    "[t-64]",
                                     "[t]",      "sigmoid(",
                                     "tanh(",    "relu(",
                                     "softmax(", "mean(",
                                     "sum(",     "exp(",
                                     ")",        "(",
                                     " * ",      " + ",
                                     " - ",      " / ",
                                     " @ ",      "\n",
                                     "# ",       ",",
                                     ":",        "[hidden]",
                                     "[input]",  "[hidden, hidden]",
                                     "h",        "x",
                                     "W",        "1",
                                     "0.5",      "size ",
                                     "bias_",    "h'",
                                     "\xc3\xa9", "((((((((((((((((",
                                     "{",        "}",
                                     ";",        "init ",
                                     NULL};

static bool seed(size_t index, fuzz_input *input) {
    const char *name = rcv_builtin_name(index);
    rcv_cell *cell = NULL;
    if (!name || rcv_cell_open(fuzz_context(), name, &cell)) return false;
    fuzz_text(rcv_cell_source(cell), input);
    rcv_cell_free(cell);
    return true;
}

/* Names, operations and derivatives; NULL where they cannot be told. */
static char *meaning(const rcv_cell *cell) {
    char *text = NULL;
    rcv_status status = rcv_cell_describe(cell, RCV_DESCRIBE_BACKWARD | RCV_DESCRIBE_JSON, &text);
    if (status) fuzz_check_refusal(status, text);
    return text;
}

static void check_again(const rcv_cell *cell) {
    char *text = NULL, *again = NULL;
    rcv_cell *copy = NULL;
    fuzz_check(rcv_cell_print(cell, &text) == RCV_OK);
    fuzz_check(rcv_cell_parse(fuzz_context(), text, strlen(text), "printed", &copy) == RCV_OK);
    fuzz_check(rcv_cell_print(copy, &again) == RCV_OK);
    fuzz_check(strcmp(text, again) == 0);
    char *before = meaning(cell), *after = meaning(copy);
    fuzz_check(before ? after && strcmp(before, after) == 0 : !after);
    rcv_text_free(fuzz_context(), before);
    rcv_text_free(fuzz_context(), after);
    rcv_cell_free(copy);
    rcv_text_free(fuzz_context(), again);
    rcv_text_free(fuzz_context(), text);
}

static void check_uses(const rcv_cell *cell) {
    rcv_net *net = NULL;
    rcv_status status = rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = 2), &net);
    if (status) fuzz_check_refusal(status, net);
    if (!status) fuzz_check(rcv_net_parameter_elements(net) >= 0 && rcv_net_output(net) > 0);
    rcv_net_free(net);
}

static bool read_cell(const uint8_t *bytes, size_t length) {
    rcv_cell *cell = NULL;
    rcv_status status = rcv_cell_parse(fuzz_context(), (const char *)bytes, length, "mutated", &cell);
    if (status) {
        fuzz_check_refusal(status, cell);
        fuzz_check(strstr(rcv_message(), "mutated") != NULL);
        return false;
    }
    check_again(cell);
    check_uses(cell);
    rcv_cell_free(cell);
    return true;
}

static const fuzz_target target = {.name = "cell", .count = 10000, .seed = seed, .pieces = pieces, .read = read_cell};
FUZZ_PROGRAM(target)

#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static rcv_status evaluate(const char *model, const char *text, size_t bytes, double *loss, int64_t *predictions) {
    rcv_context *context = NULL;
    rcv_lm *lm = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_lm_load(context, model, &lm);
    }
    if (status == RCV_OK) {
        status = rcv_lm_evaluate(lm, text, bytes, loss, predictions);
    }
    rcv_lm_free(lm);
    rcv_context_free(context);
    return status;
}

int verb_eval(int argc, char **argv) {
    const char *model, *path;
    const operand operands[] = {
        {"MODEL", "a language model that recurve train wrote", &model},
        {"TEXT", "the file to read", &path},
    };
    const command command = {.verb = "eval",
                             .summary = "Measures how well a language model predicts each next byte of a text",
                             .operands = operands,
                             .operand_count = COUNT(operands)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    size_t bytes;
    char *text = read_text(path, &bytes);
    if (text == NULL) {
        return EXIT_FAILED;
    }
    double loss;
    int64_t predictions;
    const rcv_status status = evaluate(model, text, bytes, &loss, &predictions);
    free(text);
    if (status != RCV_OK) {
        return fail(status);
    }
    printf("nats/byte   %.6f\nbits/byte   %.6f\nperplexity  %.6f\nbytes       %lld\n", loss, loss / log(2), exp(loss),
           (long long)predictions);
    return EXIT_DONE;
}

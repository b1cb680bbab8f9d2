#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    bool terminal;
    int error; /* errno of a failed write */
} sink;

/* A terminal gets no control bytes but newline and tab: they could do anything to it. */
static bool emit(void *user, uint8_t byte) {
    sink *sink = user;
    const bool control = (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
    errno = 0;
    if (putchar(sink->terminal && control ? '?' : byte) == EOF || fflush(stdout) != 0) {
        sink->error = errno != 0 ? errno : EIO;
        return false;
    }
    return true;
}

static rcv_status generate(const char *model, const char *prompt, int64_t count, double temperature, uint64_t seed,
                           sink *sink) {
    rcv_context *context = NULL;
    rcv_lm *lm = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_lm_load(context, model, &lm);
    }
    if (status == RCV_OK) {
        status = rcv_lm_generate(lm, prompt, strlen(prompt), (size_t)count, temperature, seed, emit, sink);
    }
    rcv_lm_free(lm);
    rcv_context_free(context);
    return status;
}

int verb_generate(int argc, char **argv) {
    const char *model, *prompt = "";
    int64_t count = 500;
    double temperature = 0.8;
    uint64_t seed = 0;
    option options[] = {
        {"prompt", OPTION_TEXT, &prompt, .value = "TEXT", .help = "what the text begins with; it is read, not written"},
        {"bytes", OPTION_INTEGER, &count, 0, 1e15, .value = "N", .help = "how much to write"},
        {"temperature", OPTION_REAL, &temperature, 0, 1000, .value = "X",
         .help = "0: always the likeliest byte; 1: as the model says"},
        {"seed", OPTION_SEED, &seed, .value = "N", .help = "of the random choices"},
    };
    const operand operands[] = {{"MODEL", "a language model that recurve train wrote", &model}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "generate",
                             .summary = "Writes text, byte by byte, as a trained language model would continue",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    sink sink = {.terminal = isatty(STDOUT_FILENO) == 1};
    const rcv_status status = generate(model, prompt, count, temperature, seed, &sink);
    if (status == RCV_OK || sink.error == EPIPE) {
        return EXIT_DONE;
    }
    if (sink.error != 0) {
        say("cannot write to standard output: %s", strerror(sink.error));
        return EXIT_FAILED;
    }
    return fail(status);
}

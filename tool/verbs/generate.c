/* recurve generate: samples text from a trained language model, and writes each token at once. */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    bool terminal;
    char part[4]; /* bytes of an incomplete character: a model of bytes writes one byte at a time */
    size_t part_length;
    int error; /* errno of a failed write */
} sink;

/* How many bytes at the end may be the beginning of a UTF-8 character. */
static size_t incomplete(const char *text, size_t length) {
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        const unsigned char byte = (unsigned char)text[length - back];
        if ((byte & 0xc0) != 0x80) {
            const size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
            return whole > back ? back : 0;
        }
    }
    return 0;
}

/* Escapes control characters other than newline and tab, since this is a terminal. `more`: further text follows. */
static bool write_safely(sink *sink, const char *text, size_t length, bool more) {
    char *all = need(sink->part_length + length + 1, 1);
    memcpy(all, sink->part, sink->part_length);
    memcpy(all + sink->part_length, text, length);
    length += sink->part_length;
    sink->part_length = more ? incomplete(all, length) : 0;
    length -= sink->part_length;
    memcpy(sink->part, all + length, sink->part_length);
    char *safe = safe_text(all, length, "\n\t");
    const bool good = fputs(safe, stdout) >= 0;
    free(safe);
    free(all);
    return good;
}

static bool emit(void *user, const char *text, size_t length) {
    sink *sink = user;
    errno = 0;
    const bool good =
        sink->terminal ? write_safely(sink, text, length, true) : fwrite(text, 1, length, stdout) == length;
    if (!good || fflush(stdout) != 0) {
        sink->error = errno != 0 ? errno : EIO;
        return false;
    }
    return stop_signal() == 0;
}

/* Reads all of standard input, for free(); NULL after saying what is wrong. */
static char *read_prompt(size_t *length) {
    size_t room = 4096;
    char *text = need(room, 1);
    *length = 0;
    for (size_t got; (got = fread(text + *length, 1, room - *length, stdin)) > 0;) {
        *length += got;
        if (*length > LIMIT_PROMPT) {
            say("the prompt on standard input has more than the %zu bytes allowed", LIMIT_PROMPT);
            free(text);
            return NULL;
        }
        if (*length == room) {
            char *larger = need(2 * room, 1);
            memcpy(larger, text, room);
            free(text);
            text = larger;
            room *= 2;
        }
    }
    if (ferror(stdin)) {
        say("cannot read the prompt from standard input");
        free(text);
        return NULL;
    }
    return text;
}

static rcv_status generate(const char *model, const char *device, const rcv_generation *options, sink *sink) {
    rcv_context *context = NULL;
    rcv_learner *learner = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_learner_load(context, model, device, RCV_FLOAT32, &learner);
    }
    if (status == RCV_OK) {
        stop_on_signals();
        status = rcv_learner_generate(learner, options, emit, sink);
    }
    rcv_learner_free(learner);
    rcv_context_free(context);
    return status;
}

static int write_text(const char *model, const char *device, rcv_generation *options) {
    sink sink = {.terminal = isatty(STDOUT_FILENO) == 1};
    char *read = NULL;
    options->prompt_bytes = strlen(options->prompt);
    if (strcmp(options->prompt, "-") == 0) {
        options->prompt = read = read_prompt(&options->prompt_bytes);
        if (read == NULL) {
            return EXIT_FAILED;
        }
    }
    const rcv_status status = generate(model, device, options, &sink);
    free(read);
    if (sink.terminal && sink.part_length > 0 && sink.error == 0) {
        (void)write_safely(&sink, "", 0, false);
    }
    if (status == RCV_OK || sink.error == EPIPE) {
        return EXIT_DONE;
    }
    if (sink.error != 0) {
        say("cannot write to standard output: %s", strerror(sink.error));
        return EXIT_FAILED;
    }
    return status == RCV_STOPPED ? stop_status() : fail(status);
}

int verb_generate(int argc, char **argv) {
    const char *model, *device = NULL;
    rcv_generation generation = RCV_INIT(rcv_generation, .prompt = "", .count = 500, .temperature = 0.8);
    option options[] = {
        {"prompt", OPTION_TEXT, &generation.prompt, .value = "TEXT",
         .help = "read first, not written; -: standard input"},
        {"tokens", OPTION_INTEGER, &generation.count, 0, 1e15, .value = "N",
         .help = "bytes, characters, words or pieces to write"},
        {"temperature", OPTION_REAL, &generation.temperature, 0, 1000, .value = "X",
         .help = "0: the most likely token; 1: the model's distribution"},
        {"top-k", OPTION_INTEGER, &generation.top_k, 0, 1e9, .value = "N",
         .help = "sample from the N most likely; 0: from all"},
        {"top-p", OPTION_REAL, &generation.top_p, 0, 1, .value = "P",
         .help = "sample from the most likely with this total; 0: all"},
        {"seed", OPTION_SEED, &generation.seed, .value = "N", .help = "of the sampling"},
        {"device", OPTION_TEXT, &device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &generation.threads, 0, 1024, .value = "N",
         .help = "at most; 0: one for each core"},
    };
    const operand operands[] = {{"MODEL", "a language model that recurve train wrote", &model}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "generate",
                             .summary = "Generates text, token by token, with a trained language model",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    return next == PARSED_GO ? write_text(model, device, &generation) : next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
}

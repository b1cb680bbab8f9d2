/* recurve generate: text as a trained language model would go on, written as it is made. */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    bool terminal;
    char part[4]; /* of a character that is not complete yet; a model of bytes writes one at a time */
    size_t part_length;
    int error; /* errno of a failed write */
} sink;

/* Bytes at the end that may be the beginning of a character. */
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

/* A terminal gets no control characters but newline and tab: they could do anything to it. `more` may still come. */
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

/* All of standard input, for free(); NULL after saying why not. */
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
    rcv_generation generation = {.prompt = "", .count = 500, .temperature = 0.8};
    option options[] = {
        {"prompt", OPTION_TEXT, &generation.prompt, .value = "TEXT",
         .help = "what the text begins with; it is read, not written; -: standard input"},
        {"tokens", OPTION_INTEGER, &generation.count, 0, 1e15, .value = "N",
         .help = "how many bytes or words to write"},
        {"temperature", OPTION_REAL, &generation.temperature, 0, 1000, .value = "X",
         .help = "0: always the likeliest; 1: as the model says"},
        {"top-k", OPTION_INTEGER, &generation.top_k, 0, 1e9, .value = "N",
         .help = "only of the likeliest N; 0: of all"},
        {"top-p", OPTION_REAL, &generation.top_p, 0, 1, .value = "P",
         .help = "only of the likeliest that have this probability together; 0: of all"},
        {"seed", OPTION_SEED, &generation.seed, .value = "N", .help = "of the random choices"},
        {"device", OPTION_TEXT, &device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &generation.threads, 0, 1024, .value = "N", .help = "at most; 0: one a core"},
    };
    const operand operands[] = {{"MODEL", "a language model that recurve train wrote", &model}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "generate",
                             .summary = "Writes text, token by token, as a trained language model would go on",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    return next == PARSED_GO ? write_text(model, device, &generation) : next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
}

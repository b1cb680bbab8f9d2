/* recurve train: reads a text, trains, writes the model at the end, also when asked to stop. */
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    const char *text, *output, *resume;
    network network;
    int64_t embedding;
    rcv_lm_training training;
} arguments;

enum { DEFAULT_STEPS = 1000 };

/* ---- the progress line ---- */

typedef struct {
    const arguments *arguments;
    bool terminal;
    double shown; /* seconds at which the last line was shown */
    rcv_lm_progress last;
} display;

static double seconds_left(const arguments *arguments, const rcv_lm_progress *progress) {
    double left = INFINITY;
    if (progress->steps > 0) {
        left = progress->seconds / (double)progress->step * (double)(progress->steps - progress->step);
    }
    if (arguments->training.seconds > 0) {
        left = fmin(left, fmax(arguments->training.seconds - progress->seconds, 0));
    }
    return left;
}

static void show(const display *display, const rcv_lm_progress *progress, bool last) {
    const double left = last ? 0 : seconds_left(display->arguments, progress);
    const long minutes = (long)(left / 60);
    fprintf(stderr, "%sstep %lld  loss %.4f nats  %.4f bits/byte  %.0f bytes/s  %ld:%02d left%s",
            display->terminal ? "\r" : "", (long long)progress->step, progress->loss, progress->loss / log(2),
            progress->bytes_per_second, minutes, (int)(left - 60 * (double)minutes),
            !display->terminal ? "\n"
            : last             ? "\033[K\n"
                               : "\033[K");
    fflush(stderr);
}

static bool on_progress(void *user, const rcv_lm_progress *progress) {
    display *display = user;
    const double interval = display->terminal ? 0.1 : 5;
    if (progress->step == 1 || progress->seconds - display->shown >= interval) {
        show(display, progress, false);
        display->shown = progress->seconds;
    }
    display->last = *progress;
    return stop_signal() == 0;
}

/* ---- the work ---- */

static rcv_status make_model(rcv_context *context, arguments *arguments, rcv_cell **cell, rcv_lm **lm) {
    if (arguments->resume != NULL) {
        return rcv_lm_load(context, arguments->resume, lm);
    }
    const rcv_status status = network_open(&arguments->network, context, cell);
    if (status != RCV_OK) {
        return status;
    }
    const rcv_lm_options options = {.embedding = arguments->embedding, .net = arguments->network.net};
    return rcv_lm_new(*cell, &options, arguments->training.seed, lm);
}

/* Trains and writes. A loss that is no number ends here, before anything is written. */
static int train_and_save(rcv_lm *lm, const arguments *arguments, const char *text, size_t bytes) {
    display display = {.arguments = arguments, .terminal = isatty(STDERR_FILENO) == 1};
    rcv_lm_training training = arguments->training;
    training.progress = on_progress;
    training.user = &display;
    rcv_status status = RCV_OK;
    if (training.steps > 0 || training.seconds > 0) {
        stop_on_signals();
        status = rcv_lm_train(lm, text, bytes, &training);
        if (display.last.step > 0 && (display.terminal || display.last.step > 1)) {
            show(&display, &display.last, true);
        }
    }
    if (status != RCV_OK && status != RCV_STOPPED) {
        return fail(status);
    }
    status = rcv_lm_save(lm, arguments->output);
    if (status != RCV_OK) {
        return fail(status);
    }
    say("%swrote %s after %lld update%s; recurve train --resume goes on from it", stop_signal() != 0 ? "stopped: " : "",
        arguments->output, (long long)rcv_lm_steps(lm), rcv_lm_steps(lm) == 1 ? "" : "s");
    return stop_status();
}

static int work(arguments *arguments, const char *text, size_t bytes) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_lm *lm = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = make_model(context, arguments, &cell, &lm);
    }
    const int result = status == RCV_OK ? train_and_save(lm, arguments, text, bytes) : fail(status);
    rcv_lm_free(lm);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return result;
}

/* What a resumed model already is cannot be chosen again. */
static bool resume_is_clear(const arguments *arguments, const option_group *shape, const option *embedding) {
    if (arguments->resume == NULL) {
        return true;
    }
    const option *given = embedding->given ? embedding : group_given(shape);
    if (given != NULL) {
        say("--%s cannot be changed with --resume: the model in %s has it already", given->name, arguments->resume);
        return false;
    }
    return true;
}

int verb_train(int argc, char **argv) {
    arguments arguments = {
        .embedding = 64,
        .training = {.batch = 16, .length = 64, .steps = DEFAULT_STEPS, .learning_rate = 0.003, .clip = 1}};
    rcv_lm_training *training = &arguments.training;
    const option_group shape = network_group(&arguments.network, false);
    option options[] = {
        {"output", OPTION_TEXT, &arguments.output, .value = "MODEL", .help = "the model file to write",
         .required = true},
        {"resume", OPTION_TEXT, &arguments.resume, .value = "MODEL",
         .help = "go on with this model instead of a new one"},
        {"embedding", OPTION_INTEGER, &arguments.embedding, 1, 1 << 24, .value = "N",
         .help = "features of a byte's embedding"},
        {"batch", OPTION_INTEGER, &training->batch, 1, 1 << 24, .value = "N", .help = "sequences side by side"},
        {"length", OPTION_INTEGER, &training->length, 1, 1 << 24, .value = "N",
         .help = "steps of truncated back-propagation"},
        {"steps", OPTION_INTEGER, &training->steps, 0, 1e15, .value = "N",
         .help = "updates at most; 0, or --seconds alone: no limit"},
        {"seconds", OPTION_REAL, &training->seconds, 0, 1e9, .value = "X", .help = "time at most; 0: no limit"},
        {"learning-rate", OPTION_REAL, &training->learning_rate, 1e-12, 1e6, .value = "X", .help = "of Adam"},
        {"clip", OPTION_REAL, &training->clip, 0, 1e30, .value = "X", .help = "largest norm of the gradient; 0: any"},
        {"seed", OPTION_SEED, &training->seed, .value = "N", .help = "of the initial parameters and of dropout"},
    };
    const operand operands[] = {{"TEXT", "the text file to learn from", &arguments.text}};
    const option_group groups[] = {{"Training", options, COUNT(options)}, shape};
    const command command = {.verb = "train",
                             .summary = "Trains a byte-level language model on a text",
                             .details =
                                 "Without --steps and --seconds it does 1000 updates; --steps 0 alone writes the\n"
                                 "model untrained. Ctrl-C ends training after the current update and writes the\n"
                                 "model; a second Ctrl-C ends at once and writes nothing.",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    const option *steps = &options[5], *seconds = &options[6];
    if (!steps->given && seconds->given) training->steps = 0;
    if (!resume_is_clear(&arguments, &shape, &options[2])) {
        return EXIT_USAGE;
    }
    if (!output_is_writable(arguments.output)) {
        return EXIT_FAILED;
    }
    size_t bytes;
    char *text = read_text(arguments.text, &bytes);
    if (text == NULL) {
        return EXIT_FAILED;
    }
    const int result = work(&arguments, text, bytes);
    free(text);
    return result;
}

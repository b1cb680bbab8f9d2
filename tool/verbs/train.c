/* recurve train: opens the data, trains, shows progress and writes the log. The library writes the checkpoints. */
#include "data_files.h"
#include "paths.h"
#include "ranks.h"
#include "settings_options.h"
#include "verbs/train_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *data, *output, *resume;
    bool overwrite;
    settings_arguments settings;
} arguments;

typedef struct {
    rcv_context *context;
    rcv_settings *settings;
    rcv_trainer *trainer;
    ranks ranks; /* rank 0 shows progress and writes the log */
    data_files files;
    const char *output;
    train_log log;
    bool overwrite, resumes, terminal, is_text, is_bytes;
    double shown;      /* time of the last progress line */
    double validation; /* the last validation shown */
} run;

/* ---- the progress line ---- */

/* "perplexity 91.2", "bits/byte 1.52", or the loss alone. */
static void describe_loss(const run *run, double loss, char *text, size_t room) {
    const double other = run->is_bytes ? loss / log(2) : perplexity_of(loss);
    const char *name = run->is_bytes ? "bits/byte" : "perplexity";
    if (!isfinite(loss)) {
        snprintf(text, room, "the loss is not a number");
    } else if (!run->is_text || loss > 1e6) {
        snprintf(text, room, "loss %.5g", loss);
    } else {
        snprintf(text, room, other < 1e9 ? "loss %.4f  %s %.*f" : "loss %.4f  %s %.*g", loss, name,
                 run->is_bytes ? 4 : 2, other);
    }
}

static void describe_left(double left, char *text, size_t room) {
    const long seconds = (long)left;
    if (left < 0) {
        snprintf(text, room, "?");
    } else if (seconds >= 3600) {
        snprintf(text, room, "%ld:%02ld:%02ld", seconds / 3600, seconds / 60 % 60, seconds % 60);
    } else {
        snprintf(text, room, "%ld:%02ld", seconds / 60, seconds % 60);
    }
}

static void show(const run *run, const rcv_progress *progress, bool last) {
    char loss[96], left[32];
    if (is_quiet()) {
        return;
    }
    describe_loss(run, progress->loss, loss, sizeof loss);
    describe_left(last ? 0 : progress->left, left, sizeof left);
    const char *end = !run->terminal ? "\n" : last ? "\033[K\n" : "\033[K";
    fprintf(stderr, "%sepoch %.2f  step %lld  %s  rate %.4g  %.0f %s/s  %s left%s", run->terminal ? "\r" : "",
            progress->epochs, (long long)progress->step, loss, progress->rate, progress->tokens_per_second,
            !run->is_text   ? "examples"
            : run->is_bytes ? "bytes"
                            : "tokens",
            left, end);
    fflush(stderr);
}

static void show_validation(run *run, const rcv_progress *progress) {
    char loss[96];
    run->validation = progress->validation;
    if (is_quiet()) {
        return;
    }
    describe_loss(run, progress->validation, loss, sizeof loss);
    fprintf(stderr, "%svalidation at epoch %.2f  step %lld  %s%s%s\n", run->terminal ? "\r" : "", progress->epochs,
            (long long)progress->step, loss, progress->validation <= progress->best ? "  (best)" : "",
            run->terminal ? "\033[K" : "");
}

static bool on_progress(void *user, const rcv_progress *progress) {
    run *run = user;
    const double time = now();
    if (!run->ranks.leads) {
        return stop_signal() == 0;
    }
    if (progress->validation != run->validation) {
        show_validation(run, progress);
    }
    if (progress->step > 0 && time - run->shown >= (run->terminal ? 0.1 : 5)) {
        show(run, progress, false);
        run->shown = time;
    }
    return stop_signal() == 0;
}

static void on_log(void *user, const char *line) {
    run *run = user;
    if (run->ranks.leads) {
        train_log_line(&run->log, line);
    }
}

/* ---- the end ---- */

static bool is_not_stopped(void *user) {
    (void)user;
    return stop_signal() == 0;
}

/* The run's best model by validation, or its last, on the test data. */
static rcv_status test(run *run) {
    const rcv_evaluation_options options = RCV_INIT(rcv_evaluation_options, .go_on = is_not_stopped);
    char *best = NULL, loss[96];
    rcv_learner *learner = NULL;
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    rcv_status status = data_files_open_test(&run->files, run->context, run->settings);
    if (status == RCV_OK) {
        status = rcv_trainer_best_model(run->trainer, run->output, &best);
    }
    const char *path = best != NULL ? best : run->output;
    if (status == RCV_OK && best == NULL && run->files.data[PART_VALID] != NULL) {
        note("this run has no best model for %s: the last one is tested", run->output);
    }
    if (status == RCV_OK) {
        const char *device = rcv_settings_get(run->settings, "device");
        const bool wide = strcmp(rcv_settings_get(run->settings, "dtype"), "float64") == 0;
        status = rcv_learner_load(run->context, path, device, wide ? RCV_FLOAT64 : RCV_FLOAT32, &learner);
    }
    if (status == RCV_OK) {
        status = rcv_learner_evaluate(learner, run->files.data[PART_TEST], &options, &result);
    }
    if (status == RCV_OK) {
        describe_loss(run, result.loss, loss, sizeof loss);
        say_result("test of %s: %s", path, loss);
        char *numbers = isfinite(result.loss)
                            ? text_of("\"loss\":%.9g,\"perplexity\":%.9g", result.loss, perplexity_of(result.loss))
                            : text_of("\"loss\":null,\"perplexity\":null");
        char *line = text_of("{\"event\":\"test\",%s,\"counted\":%lld}", numbers, (long long)result.counted);
        free(numbers);
        on_log(run, line);
        free(line);
    }
    rcv_learner_free(learner);
    rcv_text_free(run->context, best);
    return status;
}

static int finish(run *run, rcv_status status) {
    const rcv_progress *progress = rcv_trainer_progress(run->trainer);
    if (run->ranks.leads && progress->step > 0) {
        show(run, progress, true);
    }
    if (status != RCV_OK && status != RCV_STOPPED) {
        return ranks_fail(&run->ranks, status);
    }
    if (!run->ranks.leads) {
        return stop_status();
    }
    if (progress->written < 0) {
        say("stopped before the first update%s: nothing was written", run->resumes ? " of this run" : "");
        return stop_status();
    }
    note("%swrote %s after %lld update%s; recurve train --resume %s continues from it",
         stop_signal() != 0 ? "stopped: " : "", run->output, (long long)progress->written,
         progress->written == 1 ? "" : "s", run->output);
    if (status == RCV_OK && run->files.paths[PART_TEST] != NULL) {
        status = test(run);
        if (status != RCV_OK) {
            return fail(status);
        }
    }
    return stop_status();
}

/* ---- the work ---- */

static rcv_status open_trainer(run *run, const char *resume) {
    rcv_vocabulary *vocabulary = NULL;
    if (run->files.is_named_by_file[PART_TRAIN] && run->ranks.leads) {
        note("the data is the one named in %s: %s", resume, rcv_settings_get(run->settings, "data"));
    }
    rcv_status status = resume != NULL ? rcv_checkpoint_vocabulary(run->context, resume, &vocabulary) : RCV_OK;
    const char *wisdom = rcv_settings_get(run->settings, "wisdom");
    if (status == RCV_OK && wisdom != NULL && wisdom[0] != '\0' && access(wisdom, F_OK) == 0) {
        status = rcv_wisdom_load(run->context, wisdom);
    }
    if (status == RCV_OK) {
        status = data_files_open(&run->files, run->context, run->settings, vocabulary);
    }
    rcv_vocabulary_free(vocabulary);
    if (run->ranks.world != NULL) {
        status = rcv_world_agree(run->ranks.world, status);
    }
    if (status == RCV_OK) {
        status = rcv_trainer_join(run->context, run->settings, run->files.data[PART_TRAIN], run->files.data[PART_VALID],
                                  run->ranks.world, &run->trainer);
    }
    if (status == RCV_OK && resume != NULL) {
        status = rcv_trainer_resume(run->trainer, resume);
    }
    return status;
}

static int train(run *run, const char *resume) {
    const rcv_status opened = open_trainer(run, resume);
    if (opened != RCV_OK) {
        return ranks_fail(&run->ranks, opened);
    }
    hold_messages(!run->ranks.leads);
    if (run->ranks.world != NULL) {
        note("%d ranks over %s", rcv_world_size(run->ranks.world), rcv_world_name(run->ranks.world));
    }
    const char *kind = rcv_settings_get(run->settings, "kind"), *wisdom = rcv_settings_get(run->settings, "wisdom");
    run->is_text = strcmp(kind, "stream") == 0 || strcmp(kind, "lines") == 0;
    run->is_bytes = strcmp(rcv_settings_get(run->settings, "level"), "byte") == 0;
    const rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .output = run->output, .overwrite = run->overwrite, .progress = on_progress,
                 .log = on_log, .user = run);
    stop_on_signals();
    rcv_status status = rcv_trainer_run(run->trainer, &options);
    if (run->ranks.leads && wisdom != NULL && wisdom[0] != '\0' && (status == RCV_OK || status == RCV_STOPPED)) {
        const rcv_status saved = rcv_wisdom_save(run->context, wisdom);
        status = saved != RCV_OK ? saved : status;
    }
    return finish(run, status);
}

/* Of the library's log lines, prints problems with plans and files; with --verbose also chosen plans. */
static void on_library_log(void *user, const char *line) {
    (void)user; /* messages of other ranks than 0 are held */
    const bool chosen = strncmp(line, "plan of ", 8) == 0 && strstr(line, "; pinned") == NULL;
    const bool is_of_files = strncmp(line, "checkpoint: ", 12) == 0 || strstr(line, " is not used: ") != NULL;
    if ((chosen && is_verbose()) || strncmp(line, "the plan ", 9) == 0 || is_of_files) {
        note("%s", line);
    }
}

/* With --resume the settings of the model cannot be changed. */
static bool check_resume(const arguments *arguments) {
    for (size_t i = 0; arguments->resume != NULL && i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        if (strcmp(setting->group, "model") == 0 && rcv_settings_given(arguments->settings.given, setting->name)) {
            say("--%s cannot be changed with --resume: the model in %s has a fixed value", setting->name,
                arguments->resume);
            return false;
        }
    }
    return true;
}

/* A run may resume with another arrangement of ranks. Layers of stages and units of batches are kept only if the arrangement is the same. */
static rcv_status reset_arrangement(const settings_arguments *given, rcv_settings *base) {
    static const char *const details[] = {"split", "micro-batches", "time-chunks"};
    const char *now = rcv_settings_get(given->given, "parallel"), *then = rcv_settings_get(base, "parallel");
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < COUNT(details) && strcmp(now, then) != 0 && status == RCV_OK; i++) {
        status = rcv_settings_set(base, details[i], i == 0 ? "" : "0");
    }
    return status == RCV_OK ? rcv_settings_set(base, "parallel", "") : status;
}

/* The settings: with --resume those of the checkpoint, then those of the command line. */
static parsed collect_settings(const arguments *arguments, run *run) {
    rcv_settings *base = NULL;
    if (!check_resume(arguments)) {
        return PARSED_WRONG;
    }
    if (arguments->resume != NULL && (rcv_checkpoint_settings(run->context, arguments->resume, &base) != RCV_OK ||
                                      reset_arrangement(&arguments->settings, base) != RCV_OK)) {
        say("%s", rcv_message());
        rcv_settings_free(base);
        return PARSED_WRONG;
    }
    const parsed next = settings_from_arguments(&arguments->settings, base, run->context, &run->settings);
    rcv_settings_free(base);
    if (next == PARSED_GO && arguments->resume != NULL) {
        const bool given = arguments->data != NULL || rcv_settings_given(arguments->settings.given, "data");
        data_files_note_names(&run->files, run->settings, arguments->settings.given, given);
    }
    if (next != PARSED_GO || arguments->data == NULL) {
        return next;
    }
    if (rcv_settings_set(run->settings, "data", arguments->data) == RCV_OK) {
        return PARSED_GO;
    }
    say("%s", rcv_message());
    return PARSED_WRONG;
}

/* Checks the files before anything is opened: all are different, and none of another run is replaced. */
static bool check_files(const arguments *arguments, run *run) {
    paths paths = {0};
    paths_add(&paths, PATH_RESUMED, "--resume", arguments->resume);
    paths_add(&paths, PATH_READ, "--config", arguments->settings.config);
    paths_add_data_files(&paths, &run->files, run->settings);
    paths_add_model(&paths, run->output, strtoll(rcv_settings_get(run->settings, "keep"), NULL, 10));
    paths_add(&paths, PATH_WRITTEN, rcv_settings_given(run->settings, "log") ? "--log" : "the log", run->log.path);
    paths_add(&paths, PATH_WRITTEN, "--wisdom", rcv_settings_get(run->settings, "wisdom"));
    if (!paths_are_apart(&paths)) {
        return false;
    }
    if (rcv_trainer_check_output(run->context, run->settings, arguments->resume, run->output, run->overwrite) !=
        RCV_OK) {
        say("%s", rcv_message());
        return false;
    }
    return train_log_is_free(&run->log, run->overwrite);
}

/* Checks what does not depend on the data, before the data is read and its tokens are cached. */
static rcv_status check_early(const run *run) {
    rcv_cell *cell = NULL;
    rcv_status status = rcv_settings_check(run->settings);
    if (status == RCV_OK) {
        status = rcv_cell_open(run->context, rcv_settings_get(run->settings, "cell"), &cell);
    }
    rcv_cell_free(cell);
    return status == RCV_OK ? rcv_device_describe(run->context, rcv_settings_get(run->settings, "device"), NULL)
                            : status;
}

/* Settings and files of the run. EXIT_DONE, or the exit status after saying what is wrong. `over`: the verb is done. */
static int prepare(const arguments *arguments, run *run, bool *over) {
    const parsed next = collect_settings(arguments, run);
    *over = next == PARSED_HELP;
    if (next != PARSED_GO) {
        return *over ? EXIT_DONE : EXIT_USAGE;
    }
    if (run->output == NULL && arguments->resume == NULL) {
        say("train needs --output MODEL; see recurve train --help");
        return EXIT_USAGE;
    }
    run->output = run->output != NULL ? run->output : arguments->resume;
    train_log_begin(&run->log, run->settings, run->output, run->resumes);
    const bool good = data_files_find(&run->files, run->settings) && (!run->ranks.leads || check_files(arguments, run));
    const rcv_status status = good ? check_early(run) : RCV_OK;
    return status != RCV_OK ? fail(status) : good ? EXIT_DONE : EXIT_FAILED;
}

static int work(const arguments *arguments, rcv_context *context) {
    run run = {.context = context,
               .terminal = isatty(STDERR_FILENO) == 1,
               .output = arguments->output,
               .overwrite = arguments->overwrite,
               .resumes = arguments->resume != NULL};
    bool over = false;
    int result = ranks_open(&run.ranks, context, &arguments->settings, "train");
    if (result == EXIT_DONE) {
        result = ranks_agree(&run.ranks, prepare(arguments, &run, &over));
        if (result == EXIT_DONE && !over) {
            result = train(&run, arguments->resume);
        }
    }
    rcv_trainer_free(run.trainer);
    data_files_close(&run.files);
    rcv_settings_free(run.settings);
    if (!train_log_end(&run.log) && result == EXIT_DONE) {
        result = EXIT_FAILED;
    }
    ranks_close(&run.ranks);
    return result;
}

static parsed parse(arguments *arguments, int argc, char **argv) {
    option options[] = {
        {"output", OPTION_TEXT, &arguments->output, .value = "MODEL",
         .help = "the model to write, and its checkpoints"},
        {"resume", OPTION_TEXT, &arguments->resume, .value = "MODEL",
         .help = "continue from this checkpoint, bit for bit"},
        {"overwrite", OPTION_FLAG, &arguments->overwrite, .help = "replace model, checkpoints and log of another run"},
    };
    const operand operands[] = {{"DATA", "a text, or a folder with train, valid, test; as --data", &arguments->data}};
    option_group groups[1 + SETTINGS_GROUPS] = {{"Run", options, COUNT(options)}};
    memcpy(groups + 1, arguments->settings.groups, arguments->settings.group_count * sizeof *groups);
    const command command = {
        .verb = "train",
        .summary = "Trains a language model on text, or a model of classes or values of sequences",
        .details = "MODEL is written at validations and at the end, whole or not at all; the previous one\n"
                   "is kept as MODEL.1 (--keep). MODEL.best is the best by validation; MODEL.jsonl is the\n"
                   "log (see recurve report). Ctrl-C ends training after the current update with a\n"
                   "checkpoint; a second Ctrl-C ends it at once. All files of a run must be different;\n"
                   "MODEL.lock prevents a second training of the same MODEL.",
        .verbose = "print more: the chosen plans",
        .operands = operands,
        .operand_count = COUNT(operands),
        .optional_count = 1,
        .groups = groups,
        .group_count = 1 + arguments->settings.group_count};
    return command_parse(&command, argc, argv);
}

int verb_train(int argc, char **argv) {
    rcv_context *context = NULL;
    const rcv_context_options options = RCV_INIT(rcv_context_options, .log = on_library_log);
    arguments arguments = {0};
    rcv_status status = rcv_context_new(&options, &context);
    if (status == RCV_OK) {
        status = settings_begin(&arguments.settings, context);
    }
    int result = status == RCV_OK ? EXIT_USAGE : fail(status);
    if (status == RCV_OK) {
        const parsed next = parse(&arguments, argc, argv);
        result = next == PARSED_HELP ? EXIT_DONE : next == PARSED_WRONG ? EXIT_USAGE : work(&arguments, context);
    }
    settings_end(&arguments.settings);
    rcv_context_free(context);
    return result;
}

/* recurve train: opens the data, trains, shows progress and writes the log. The library writes the checkpoints. */
#include "data_files.h"
#include "json.h"
#include "paths.h"
#include "ranks.h"
#include "settings_options.h"
#include "training/summary.h"
#include "training/test_result.h"
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
    progress progress;
    bool overwrite, resumes;
    bool is_summarised, has_started; /* what was printed */
} run;

/* ---- progress ---- */

/* With the first call of the library, so that a run that is refused prints one line. */
static void summarise(run *run) {
    if (run->is_summarised || !run->ranks.leads) {
        return;
    }
    run->is_summarised = true;
    summarise_data(&run->files, run->settings);
    summarise_model(rcv_trainer_learner(run->trainer), run->settings);
    summarise_machine(run->settings, run->output, run->log.path);
}

static bool on_progress(void *user, const rcv_progress *progress) {
    run *run = user;
    if (run->ranks.leads) {
        summarise(run);
        progress_update(&run->progress, progress);
    }
    return stop_signal() == 0;
}

static void on_validating(void *user, double part) { progress_phase(&((run *)user)->progress, "validating", part); }

/* The first line of the log: plans are made. */
static void see_start(run *run, const char *line) {
    json_t *object = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    if (event != NULL && (strcmp(event, "start") == 0 || strcmp(event, "resume") == 0)) {
        summarise(run);
        progress_clear(&run->progress);
        summarise_training(run->settings, json_integer_value(json_object_get(object, "batches")),
                           json_integer_value(json_object_get(object, "step")));
        progress_start(&run->progress);
        run->has_started = true;
    }
    json_decref(object);
}

static void on_log(void *user, const char *line) {
    run *run = user;
    if (!run->ranks.leads) {
        return;
    }
    if (!run->has_started) {
        see_start(run, line);
    }
    if (!train_log_line(&run->log, line)) {
        progress_clear(&run->progress);
        train_log_failure(&run->log);
    }
}

/* Of the library's messages, prints problems with plans and files; with --verbose also chosen plans. */
static void on_library_log(void *user, const char *line) {
    run *run = user; /* messages of other ranks than 0 are held */
    const bool chosen = strncmp(line, "plan of ", 8) == 0 && strstr(line, "; pinned") == NULL;
    const bool is_of_files = strncmp(line, "checkpoint: ", 12) == 0 || strstr(line, " is not used: ") != NULL;
    if ((chosen && is_verbose()) || strncmp(line, "the plan ", 9) == 0 || is_of_files) {
        progress_clear(&run->progress);
        note("%s", line);
    }
}

/* ---- the end ---- */

static rcv_status log_test(run *run, const rcv_learner *learner, const test_result *result) {
    char *line = NULL;
    const rcv_status status =
        rcv_evaluation_print(run->context, learner, &result->evaluation, result->confusion, &line);
    if (status == RCV_OK) {
        on_log(run, line);
    }
    rcv_text_free(run->context, line);
    return status;
}

/* The run's best model by validation, or its last, on the test data. */
static rcv_status test(run *run, const char *best) {
    rcv_learner *learner = NULL;
    test_result result = {.confusion = NULL};
    rcv_status status = data_files_open_test(&run->files, run->context, run->settings);
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
        status = test_model(learner, run->files.data[PART_TEST], path, &run->progress, &result);
    }
    if (status == RCV_OK) {
        status = log_test(run, learner, &result);
    }
    test_result_free(&result);
    rcv_learner_free(learner);
    return status;
}

/* What was written, and what can be done with it. */
static void say_written(const run *run, const rcv_progress *progress, const char *best) {
    const rcv_data_kind kind = rcv_data_get_kind(run->files.data[PART_TRAIN]);
    const bool is_text = kind == RCV_DATA_STREAM || kind == RCV_DATA_LINES;
    const char *model = best != NULL ? best : run->output;
    note("%swrote %s after %lld update%s; recurve train --resume %s continues from it",
         stop_signal() != 0 ? "stopped: " : "", run->output, (long long)progress->written,
         progress->written == 1 ? "" : "s", run->output);
    if (best != NULL) {
        note("the best model by validation is %s", best);
    }
    note("next: recurve %s %s%s; recurve report %s", is_text ? "generate" : "predict", model, is_text ? "" : " DATA",
         run->log.path);
}

static int finish_lead(run *run, rcv_status status) {
    const rcv_progress *progress = rcv_trainer_progress(run->trainer);
    char *best = NULL;
    if (progress->written < 0) {
        say("stopped before the first update%s: nothing was written", run->resumes ? " of this run" : "");
        return stop_status();
    }
    rcv_status ended = rcv_trainer_best_model(run->trainer, run->output, &best);
    if (ended == RCV_OK && status == RCV_OK && data_files_has_test(&run->files)) {
        ended = test(run, best);
        progress_clear(&run->progress);
    }
    const int result = ended != RCV_OK ? fail(ended) : stop_status();
    say_written(run, progress, best);
    rcv_text_free(run->context, best);
    return result;
}

static int finish(run *run, rcv_status status) {
    if (run->ranks.leads) {
        progress_end(&run->progress, rcv_trainer_progress(run->trainer));
    }
    if (status != RCV_OK && status != RCV_STOPPED) {
        return ranks_fail(&run->ranks, status);
    }
    return run->ranks.leads ? finish_lead(run, status) : stop_status();
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
    const char *wisdom = rcv_settings_get(run->settings, "wisdom");
    const rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .output = run->output, .overwrite = run->overwrite, .progress = on_progress,
                 .log = on_log, .user = run, .validating = on_validating);
    progress_begin(&run->progress, run->settings, run->files.data[PART_TRAIN], "", run->ranks.leads);
    stop_on_signals();
    rcv_status status = rcv_trainer_run(run->trainer, &options);
    if (run->ranks.leads && wisdom != NULL && wisdom[0] != '\0' && (status == RCV_OK || status == RCV_STOPPED)) {
        const rcv_status saved = rcv_wisdom_save(run->context, wisdom);
        status = saved != RCV_OK ? saved : status;
    }
    return finish(run, status);
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

static int work(const arguments *arguments, run *run) {
    bool over = false;
    run->output = arguments->output;
    run->overwrite = arguments->overwrite;
    run->resumes = arguments->resume != NULL;
    int result = ranks_open(&run->ranks, run->context, &arguments->settings, "train");
    if (result == EXIT_DONE) {
        result = ranks_agree(&run->ranks, prepare(arguments, run, &over));
        if (result == EXIT_DONE && !over) {
            result = train(run, arguments->resume);
        }
    }
    rcv_trainer_free(run->trainer);
    data_files_close(&run->files);
    rcv_settings_free(run->settings);
    if (!train_log_end(&run->log) && result == EXIT_DONE) {
        result = EXIT_FAILED;
    }
    ranks_close(&run->ranks);
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
    run run = {.context = NULL};
    const rcv_context_options options = RCV_INIT(rcv_context_options, .log = on_library_log, .log_user = &run);
    arguments arguments = {0};
    rcv_status status = rcv_context_new(&options, &run.context);
    if (status == RCV_OK) {
        status = settings_begin(&arguments.settings, run.context);
    }
    int result = status == RCV_OK ? EXIT_USAGE : fail(status);
    if (status == RCV_OK) {
        const parsed next = parse(&arguments, argc, argv);
        result = next == PARSED_HELP ? EXIT_DONE : next == PARSED_WRONG ? EXIT_USAGE : work(&arguments, &run);
    }
    settings_end(&arguments.settings);
    rcv_context_free(run.context);
    return result;
}

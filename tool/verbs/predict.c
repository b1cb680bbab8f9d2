/* recurve predict: classes with probabilities, values, or log-probabilities of texts, of data without targets. */
#include "predict/predict.h"
#include "columnar/columnar.h"
#include "paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const formats[] = {"auto", "csv", "jsonl", "npy", NULL}; /* as results_format, after auto */

static const char *const *choices_of(const char *setting) {
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        if (strcmp(rcv_setting_at(i)->name, setting) == 0) {
            return rcv_setting_at(i)->choices;
        }
    }
    return NULL;
}

/* ---- progress ---- */

bool predictor_is_not_stopped(void *user) {
    (void)user;
    return stop_signal() == 0;
}

void predictor_clear_progress(const predictor *p) {
    if (p->shown > 0) {
        fprintf(stderr, "\r\033[K");
    }
}

bool predictor_go_on(predictor *p) {
    const double time = now();
    if (p->total > 0 && time - p->begun > 1 && time - p->shown > 0.2 && isatty(STDERR_FILENO) == 1) {
        const double left = p->done > 0 ? (time - p->begun) * (double)(p->total - p->done) / (double)p->done : 0;
        fprintf(stderr, "\rrecurve: %lld of %lld, %.0f s left\033[K", (long long)p->done, (long long)p->total, left);
        p->shown = time;
    }
    return stop_signal() == 0 && p->results.file->error == 0;
}

/* ---- what is predicted ---- */

/* Copies of `count` names between commas, for the columns of values; y0, y1, ... where there are not as many. */
static void name_values(predictor *p, const char *list) {
    int64_t given = list[0] != '\0';
    for (const char *at = list; *at != '\0'; at++) {
        given += *at == ',';
    }
    for (int64_t i = 0; i < p->outputs; i++) {
        const size_t length = strcspn(list, ",");
        p->names[i] = given == p->outputs ? text_of("%.*s", (int)length, list) : text_of("y%lld", (long long)i);
        list += length + (list[length] == ',');
    }
}

static void name_outputs(predictor *p) {
    size_t count = 0;
    const char *const *classes = rcv_learner_classes(p->learner, &count);
    if (p->is_text) {
        return;
    }
    p->names = need((size_t)p->outputs, sizeof *p->names);
    if (!p->is_classes) {
        name_values(p, rcv_learner_target_names(p->learner));
        return;
    }
    p->probability_names = need((size_t)p->outputs, sizeof *p->probability_names);
    for (size_t i = 0; i < (size_t)p->outputs; i++) {
        p->names[i] = i < count ? text_of("%s", classes[i]) : text_of("%zu", i);
        p->probability_names[i] = text_of("p_%s", p->names[i]);
    }
}

static void describe_model(predictor *p) {
    const rcv_data_kind kind = rcv_learner_kind(p->learner);
    p->is_text = kind == RCV_DATA_STREAM || kind == RCV_DATA_LINES;
    p->is_steps = rcv_learner_predicts_steps(p->learner) && !p->is_text;
    p->is_classes = kind == RCV_DATA_CLASSES || kind == RCV_DATA_STEP_CLASSES;
    p->sequence = rcv_learner_sequence_name(p->learner);
    p->horizon = rcv_learner_horizon(p->learner);
    p->outputs = rcv_learner_outputs(p->learner);
    name_outputs(p);
}

static void free_predictor(predictor *p) {
    for (int64_t i = 0; i < p->outputs && p->names != NULL; i++) {
        free(p->names[i]);
    }
    for (int64_t i = 0; i < p->outputs && p->probability_names != NULL; i++) {
        free(p->probability_names[i]);
    }
    free(p->names);
    free(p->probability_names);
    scorer_free(p->scorer);
    rcv_learner_free(p->learner);
    rcv_context_free(p->context);
}

/* The format that is given, or that the name of the output says. */
static results_format format_of(const predict_arguments *arguments) {
    const char *output = arguments->output, *dot = output != NULL ? strrchr(output, '.') : NULL;
    if (arguments->format > 0) {
        return (results_format)(arguments->format - 1);
    }
    return dot == NULL                                                 ? RESULTS_CSV
           : strcmp(dot, ".npy") == 0                                  ? RESULTS_NPY
           : strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0 ? RESULTS_JSON
                                                                       : RESULTS_CSV;
}

/* Options that this model cannot have. */
static bool check_model(const predictor *p) {
    const predict_arguments *a = p->arguments;
    if (a->tokens && !p->is_text) {
        say("--tokens is for models of texts; %s predicts %s", a->model, p->is_classes ? "classes" : "values");
    } else if (a->probabilities && !p->is_classes) {
        say("--probabilities is for models of classes; %s predicts %s", a->model, p->is_text ? "tokens" : "values");
    } else if (a->last && !p->is_steps) {
        say("--last is for models that predict at every time step; %s predicts once a %s", a->model,
            p->is_text ? "text" : "sequence");
    } else {
        return true;
    }
    return false;
}

/* ---- a file ---- */

static char *sentence_of(const char *path, const char *name) {
    int64_t line;
    return strcmp(path, name) == 0 ? text_of("%s", rcv_message()) : message_about(path, name, 0, 0, &line);
}

int predict_file(predictor *p, const char *path, const char *name) {
    const rcv_data_options options = RCV_INIT(rcv_data_options, .cache = p->arguments->cache, .unlabelled = true,
                                              .format = (rcv_file_format)p->arguments->data_format);
    rcv_data *data = NULL;
    rcv_status status = rcv_learner_open_data(p->learner, path, &options, &data);
    if (status != RCV_OK) {
        char *sentence = sentence_of(path, name);
        say("%s", sentence);
        free(sentence);
        return EXIT_FAILED;
    }
    const bool is_stream = rcv_data_get_kind(data) == RCV_DATA_STREAM;
    p->total = is_stream ? rcv_data_tokens(data) : rcv_data_sequences(data);
    if (p->results.format == RESULTS_NPY &&
        p->results.file->path == NULL) { /* the array's header is in the way of no row yet */
        results_begin(&p->results, RESULTS_NPY, p->results.file, rows_of(p, data), predictor_columns(p));
    }
    rows_write_header(p);
    status = p->is_text ? predict_texts(p, data) : predict_sequences(p, data);
    if (status == RCV_OK && p->is_text) {
        predict_texts_end(p);
    }
    rcv_data_free(data);
    predictor_clear_progress(p);
    if (status == RCV_OK) {
        return EXIT_DONE;
    }
    if (stop_signal() != 0) {
        note("stopped");
        return stop_status();
    }
    return p->results.file->error != 0 ? EXIT_DONE : fail(status); /* closing the output says what is wrong with it */
}

/* ---- the work ---- */

/* `path`: of the data, or "-". */
static int predict_with(predictor *p, const char *path) {
    const predict_arguments *a = p->arguments;
    const bool reads_input = strcmp(path, "-") == 0;
    const results_format format = format_of(a);
    describe_model(p);
    if (!check_model(p)) {
        return EXIT_USAGE;
    }
    if (format == RESULTS_NPY && reads_input && a->output == NULL) {
        say("an array's size stands at its beginning, and is not known before the end of standard input: give --output "
            "FILE");
        return EXIT_USAGE;
    }
    output_file *file = output_file_open(a->output);
    if (file == NULL) {
        return EXIT_FAILED;
    }
    p->begun = now();
    if (format == RESULTS_NPY && a->output == NULL) {
        p->results = (results){.format = format, .file = file};
    } else {
        results_begin(&p->results, format, file, -1, predictor_columns(p));
    }
    int code = reads_input ? predict_standard_input(p) : predict_file(p, path, path);
    const bool keep = code == EXIT_DONE || (a->keep_going && code == EXIT_FAILED && p->results.rows > 0);
    if (keep) {
        results_end(&p->results, predictor_columns(p));
    }
    const bool closed = output_file_close(file, keep);
    return closed || code != EXIT_DONE ? code : EXIT_FAILED;
}

static int predict(const predict_arguments *arguments) {
    predictor p = {.arguments = arguments};
    stop_on_signals();
    rcv_status status = rcv_context_new(NULL, &p.context);
    if (status == RCV_OK) {
        status = rcv_learner_load(p.context, arguments->model, arguments->device, arguments->dtype, &p.learner);
    }
    char *path = text_of("%s", arguments->data);
    int code = status == RCV_OK ? EXIT_FAILED : fail(status);
    if (status == RCV_OK && columnar_convert(&path)) {
        code = predict_with(&p, path);
    }
    free(path);
    free_predictor(&p);
    return code;
}

static parsed parse(predict_arguments *a, int argc, char **argv) {
    option options[] = {
        {"output", OPTION_TEXT, &a->output, .value = "FILE", .help = "where predictions go; else standard output"},
        {"format", OPTION_CHOICE, &a->format, .value = "FORMAT",
         .help = "csv, jsonl, npy; auto: as the name of the output", .choices = formats},
        {"overwrite", OPTION_FLAG, &a->overwrite, .help = "replace a file that may be something else"},
        {"probabilities", OPTION_FLAG, &a->probabilities, .help = "of every class"},
        {"last", OPTION_FLAG, &a->last, .help = "of every sequence the last time step, such as a forecast's"},
        {"tokens", OPTION_FLAG, &a->tokens, .help = "of a text every token"},
        {"keep-going", OPTION_FLAG, &a->keep_going, .help = "standard input: after a line that is wrong"},
        {"data-format", OPTION_CHOICE, &a->data_format, .value = "FORMAT",
         .help = "how DATA is read: text, csv, tsv, jsonl, numbers, npy, npz, safetensors",
         .choices = choices_of("format")},
        {"cache", OPTION_TEXT, &a->cache, .value = "FOLDER",
         .help = "where DATA is cached as the model reads it; else beside it"},
    };
    option machine[] = {
        {"batch", OPTION_INTEGER, &a->batch, 0, 1 << 20, .value = "N", .help = "sequences at once; 0: automatic"},
        {"dtype", OPTION_PRODUCT, &a->dtype, .value = "TYPE",
         .help = "float32, float64, bfloat16; GPU: tfloat32, float16"},
        {"device", OPTION_TEXT, &a->device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &a->threads, 0, 1024, .value = "N", .help = "at most; 0: one for each core"},
    };
    const operand operands[] = {
        {"MODEL", "a model that recurve train wrote", &a->model},
        {"DATA", "a file as for training, without targets, or - for standard input", &a->data},
    };
    const option_group groups[] = {{"Options", options, COUNT(options)}, {"Machine", machine, COUNT(machine)}};
    const command command = {
        .verb = "predict",
        .summary = "Predicts classes, values or forecasts, or log-probabilities of a text",
        .details = "DATA is read as the model's training data was: columns by their names, missing values and\n"
                   "normalisation as then. Targets that it has are not used.\n\n"
                   "From standard input each line (or each sequence of a table, when the next one begins) has\n"
                   "its answer as soon as it has come.",
        .operands = operands,
        .operand_count = COUNT(operands),
        .groups = groups,
        .group_count = COUNT(groups)};
    return command_parse(&command, argc, argv);
}

int verb_predict(int argc, char **argv) {
    predict_arguments arguments = {.dtype = RCV_FLOAT32};
    const parsed next = parse(&arguments, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0};
    paths_add(&paths, PATH_READ, "MODEL", arguments.model);
    paths_add(&paths, PATH_READ, "DATA", strcmp(arguments.data, "-") == 0 ? NULL : arguments.data);
    paths_add(&paths, PATH_WRITTEN, "--output", arguments.output);
    paths_add(&paths, PATH_FOLDER, "--cache", arguments.cache);
    if (!paths_are_apart(&paths) ||
        (arguments.output != NULL && !arguments.overwrite && !output_is_free(arguments.output, OUTPUT_PREDICTIONS))) {
        return EXIT_FAILED;
    }
    return predict(&arguments);
}

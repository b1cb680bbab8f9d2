/* recurve eval: the metrics of a trained model on data. */
#include "columnar/columnar.h"
#include "data_files.h"
#include "json.h"
#include "paths.h"
#include "tool.h"
#include "training/class_table.h"
#include "training/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *model, *path, *device, *json, *cache;
    int64_t batch, threads;
    rcv_dtype dtype;
} arguments;

typedef struct {
    const rcv_learner *learner;
    rcv_evaluation numbers;
    size_t classes;
    const char *const *names; /* [classes] */
    int64_t *confusion;       /* [classes, classes]; NULL: no classes, or too many */
} evaluation;

enum { MOST_COUNTED = 4096, MOST_LISTED = 20 }; /* classes */

static bool is_not_stopped(void *user) {
    (void)user;
    return stop_signal() == 0;
}

/* ---- names ---- */

static bool is_text(const evaluation *e) {
    const rcv_data_kind kind = rcv_learner_kind(e->learner);
    return kind == RCV_DATA_STREAM || kind == RCV_DATA_LINES;
}

static bool is_bytes(const evaluation *e) {
    return is_text(e) && rcv_vocabulary_level(rcv_learner_vocabulary(e->learner)) == RCV_LEVEL_BYTE;
}

/* What the loss is the mean over, of one and of many. */
static const char *unit_of(const evaluation *e, bool many) {
    static const char *const levels[][2] = {[RCV_LEVEL_WORD] = {"token", "tokens"},
                                            [RCV_LEVEL_BYTE] = {"byte", "bytes"},
                                            [RCV_LEVEL_CHARACTER] = {"character", "characters"},
                                            [RCV_LEVEL_PIECE] = {"piece", "pieces"}};
    if (is_text(e)) {
        return levels[rcv_vocabulary_level(rcv_learner_vocabulary(e->learner))][many];
    }
    return rcv_learner_predicts_steps(e->learner) ? many ? "time steps" : "time step" : many ? "sequences" : "sequence";
}

/* Every number with its name for people and in JSON, in the order of printing. One that does not apply is NaN. */
typedef struct {
    const char *name, *key;
    double value;
    const char *note; /* printed behind it; or NULL */
} metric;

enum { METRICS = 16 };

static size_t list_metrics(const evaluation *e, metric metrics[METRICS]) {
    const rcv_evaluation *n = &e->numbers;
    const double none = NAN;
    const metric all[] = {
        {"bits/byte", "bits_per_byte", is_bytes(e) ? n->loss / log(2) : none, NULL},
        {"perplexity", "perplexity", is_text(e) && !is_bytes(e) ? perplexity_of(n->loss) : none, NULL},
        {"accuracy", "accuracy", e->classes > 0 ? n->accuracy : none, NULL},
        {"precision", "precision", e->classes > 0 ? n->precision : none, "mean over the classes, as recall and F1"},
        {"recall", "recall", e->classes > 0 ? n->recall : none, NULL},
        {"F1", "f1", e->classes > 0 ? n->f1 : none, NULL},
        {"AUC", "auc", e->classes > 0 ? n->auc : none, e->classes > 2 ? "mean of each class against the others" : NULL},
        {"MAE", "mae", n->mae, "mean absolute error"},
        {"RMSE", "rmse", n->rmse, "root of the mean square error"},
        {"R2", "r2", n->r2, "explained part of the variance"},
        {"naive MAE", "naive_mae", n->naive_mae, "of the last known value as the forecast"},
        {"naive RMSE", "naive_rmse", n->naive_rmse, "of the last known value as the forecast"},
    };
    size_t count = 0;
    const bool has_values = !is_text(e) && e->classes == 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        const bool is_of_values = i >= 7;
        if (!isnan(all[i].value) && (has_values || !is_of_values)) {
            metrics[count++] = all[i];
        }
    }
    return count;
}

/* ---- printing ---- */

static void print_evaluation(const evaluation *e) {
    metric metrics[METRICS];
    const size_t count = list_metrics(e, metrics);
    for (size_t i = 0; i < count; i++) {
        printf(fabs(metrics[i].value) < 1e7 ? "%-12s%12.6f%s%s\n" : "%-12s%12.6g%s%s\n", metrics[i].name,
               metrics[i].value, metrics[i].note != NULL ? "  " : "", metrics[i].note != NULL ? metrics[i].note : "");
    }
    const bool has_values = !is_text(e) && e->classes == 0;
    printf("%-12s%12.6g  %s a %s\n", "loss", e->numbers.loss, has_values ? "squared error" : "nats", unit_of(e, false));
    printf("%-12s%12s\n", unit_of(e, true), count_text(e->numbers.counted).text);
    if (e->confusion != NULL && e->classes <= MOST_LISTED) {
        printf("\n");
        print_class_table(stdout, e->names, e->classes, e->confusion);
        printf("\n");
        print_confusion(stdout, e->names, e->classes, e->confusion);
    }
}

static json_t *classes_json(const evaluation *e) {
    json_t *names = json_array();
    for (size_t i = 0; i < e->classes; i++) {
        json_array_append_new(names, text(e->names[i]));
    }
    return names;
}

static json_t *confusion_json(const evaluation *e) {
    json_t *rows = json_array();
    for (size_t r = 0; r < e->classes; r++) {
        json_t *row = json_array();
        for (size_t c = 0; c < e->classes; c++) {
            json_array_append_new(row, json_integer(e->confusion[r * e->classes + c]));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *evaluation_json(const evaluation *e, const arguments *arguments) {
    metric metrics[METRICS];
    const size_t count = list_metrics(e, metrics);
    json_t *all = json_pack("{s:s, s:s, s:o, s:I}", "model", arguments->model, "data", arguments->path, "loss",
                            number(e->numbers.loss), "counted", (json_int_t)e->numbers.counted);
    for (size_t i = 0; i < count; i++) {
        json_object_set_new(all, metrics[i].key, number(metrics[i].value));
    }
    if (e->confusion != NULL) {
        json_object_set_new(all, "classes", classes_json(e));
        json_object_set_new(all, "confusion", confusion_json(e));
    }
    return all;
}

/* ---- the work ---- */

/* The file that is read, for free(): of a folder its test file. NULL after saying what is wrong. */
static char *find_data(const char *path) {
    struct stat info;
    char *found = NULL;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        found = text_of("%s", path);
    } else if ((found = data_files_part(path, PART_TEST)) == NULL) {
        say("%s is a directory without a test file, such as test.txt or test.csv: give the file itself", path);
    }
    if (found != NULL && !columnar_convert(&found)) {
        free(found);
        found = NULL;
    }
    return found;
}

/* Sequences at once: many, as long as their padded steps are not. A text is read as a whole, so that every token has all before it as context. */
static int64_t batch_for(const rcv_data *data, int64_t given) {
    const int64_t most_rows = 1 << 15, most = 256;
    if (given > 0 || rcv_data_get_kind(data) == RCV_DATA_STREAM) {
        return given > 0 ? given : 1;
    }
    const int64_t fitting = most_rows / (rcv_data_longest(data) + 1), sequences = rcv_data_sequences(data);
    const int64_t batch = fitting < most ? fitting : most;
    return batch < 1 ? 1 : batch < sequences ? batch : sequences;
}

static rcv_status compute(rcv_learner *learner, const rcv_data *data, const arguments *arguments, evaluation *e) {
    e->learner = learner;
    e->names = rcv_learner_classes(learner, &e->classes);
    if (e->classes > 0 && e->classes <= MOST_COUNTED) {
        e->confusion = need(e->classes * e->classes, sizeof *e->confusion);
    }
    const rcv_evaluation_options options =
        RCV_INIT(rcv_evaluation_options, .batch = batch_for(data, arguments->batch), .threads = arguments->threads,
                 .go_on = is_not_stopped, .confusion = e->confusion);
    return rcv_learner_evaluate(learner, data, &options, &e->numbers);
}

static int evaluate(const arguments *arguments, const char *path) {
    rcv_context *context = NULL;
    rcv_learner *learner = NULL;
    rcv_data *data = NULL;
    evaluation e = {.numbers = RCV_INIT(rcv_evaluation)};
    const rcv_data_options options = RCV_INIT(rcv_data_options, .cache = arguments->cache);
    stop_on_signals();
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_learner_load(context, arguments->model, arguments->device, arguments->dtype, &learner);
    }
    if (status == RCV_OK) {
        status = rcv_learner_open_data(learner, path, &options, &data);
    }
    if (status == RCV_OK) {
        status = compute(learner, data, arguments, &e);
    }
    int code = status == RCV_OK ? EXIT_DONE : fail(status);
    if (status == RCV_OK) {
        print_evaluation(&e);
        if (arguments->json != NULL && !save_json(arguments->json, evaluation_json(&e, arguments))) {
            code = EXIT_FAILED;
        }
    }
    free(e.confusion);
    rcv_data_free(data);
    rcv_learner_free(learner);
    rcv_context_free(context);
    return code;
}

static parsed parse(arguments *arguments, int argc, char **argv) {
    option options[] = {
        {"batch", OPTION_INTEGER, &arguments->batch, 0, 1 << 20, .value = "N",
         .help = "sequences at once, or parts of a text, each without context; 0: a text as a whole"},
        {"json", OPTION_TEXT, &arguments->json, .value = "FILE", .help = "write all results as JSON"},
        {"cache", OPTION_TEXT, &arguments->cache, .value = "FOLDER",
         .help = "where DATA is cached as the model reads it; else beside it"},
        {"dtype", OPTION_PRODUCT, &arguments->dtype, .value = "TYPE",
         .help = "float32, float64, bfloat16; GPU: tfloat32, float16"},
        {"device", OPTION_TEXT, &arguments->device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &arguments->threads, 0, 1024, .value = "N",
         .help = "at most; 0: one for each core"},
    };
    const operand operands[] = {
        {"MODEL", "a model that recurve train wrote", &arguments->model},
        {"DATA", "a file as for training, or a folder with a test file", &arguments->path},
    };
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {
        .verb = "eval",
        .summary = "Computes the metrics of a trained model on data",
        .details = "Of a text bits a byte, or the perplexity; of classes accuracy, precision, recall, F1, AUC and\n"
                   "the confusion matrix; of values MAE, RMSE and R2, beside the naive forecast where there is one.",
        .operands = operands,
        .operand_count = COUNT(operands),
        .groups = groups,
        .group_count = COUNT(groups)};
    return command_parse(&command, argc, argv);
}

int verb_eval(int argc, char **argv) {
    arguments arguments = {.dtype = RCV_FLOAT32};
    const parsed next = parse(&arguments, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0}; /* what is read from DATA is cached beside it */
    paths_add(&paths, PATH_READ, "MODEL", arguments.model);
    paths_add(&paths, PATH_READ, "DATA", arguments.path);
    paths_add(&paths, PATH_WRITTEN, "--json", arguments.json);
    paths_add(&paths, PATH_FOLDER, "--cache", arguments.cache);
    if (!paths_are_apart(&paths) || (arguments.json != NULL && !output_is_free(arguments.json, OUTPUT_JSON))) {
        return EXIT_FAILED;
    }
    char *path = find_data(arguments.path);
    const int code = path != NULL ? evaluate(&arguments, path) : EXIT_FAILED;
    free(path);
    return code;
}

/* recurve eval: the loss of a trained model on data. */
#include "data_files.h"
#include "paths.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *model, *path, *device;
    int64_t batch, threads;
    rcv_dtype dtype;
} arguments;

static bool is_not_stopped(void *user) {
    (void)user;
    return stop_signal() == 0;
}

static void print_result(const rcv_learner *learner, const rcv_evaluation *result) {
    const rcv_data_kind kind = rcv_learner_kind(learner);
    const rcv_vocabulary *vocabulary = rcv_learner_vocabulary(learner);
    if (kind == RCV_DATA_VALUES) {
        printf("squares     %.6g\nexamples    %lld\n", result->loss, (long long)result->counted);
        return;
    }
    const bool bytes = vocabulary != NULL && rcv_vocabulary_level(vocabulary) == RCV_LEVEL_BYTE;
    const char *what = kind == RCV_DATA_CLASSES ? "example" : bytes ? "byte" : "token";
    char name[32];
    snprintf(name, sizeof name, "nats/%s", what);
    printf("%-12s%.6f\n", name, result->loss);
    snprintf(name, sizeof name, "bits/%s", what);
    const double perplexity = perplexity_of(result->loss);
    printf("%-12s%.6f\n", name, result->loss / log(2));
    printf(perplexity < 1e9 ? "perplexity  %.6f\n" : "perplexity  %.6g\n", perplexity);
    if (kind == RCV_DATA_CLASSES) {
        printf("accuracy    %.6f\n", result->accuracy);
    }
    snprintf(name, sizeof name, "%ss", what);
    printf("%-12s%lld\n", name, (long long)result->counted);
}

static rcv_status open_data(rcv_context *context, const rcv_learner *learner, const char *path, rcv_data **data) {
    const rcv_vocabulary *vocabulary = rcv_learner_vocabulary(learner);
    struct stat info;
    char *part = stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? data_files_part(path, PART_TEST) : NULL;
    size_t class_count = 0;
    const char *const *classes = rcv_learner_classes(learner, &class_count);
    const rcv_data_options options = RCV_INIT(
        rcv_data_options, .level = vocabulary != NULL ? rcv_vocabulary_level(vocabulary) : RCV_LEVEL_BYTE,
        .kind = rcv_learner_kind(learner),
        .vocabulary = vocabulary != NULL && rcv_vocabulary_level(vocabulary) != RCV_LEVEL_BYTE ? vocabulary : NULL,
        .classes = classes, .class_count = class_count);
    const rcv_status status = rcv_data_open(context, part != NULL ? part : path, &options, data);
    free(part);
    return status;
}

static int evaluate(const arguments *arguments) {
    rcv_context *context = NULL;
    rcv_learner *learner = NULL;
    rcv_data *data = NULL;
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    const rcv_evaluation_options options = RCV_INIT(rcv_evaluation_options, .batch = arguments->batch,
                                                    .threads = arguments->threads, .go_on = is_not_stopped);
    stop_on_signals();
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_learner_load(context, arguments->model, arguments->device, arguments->dtype, &learner);
    }
    if (status == RCV_OK) {
        status = open_data(context, learner, arguments->path, &data);
    }
    if (status == RCV_OK) {
        status = rcv_learner_evaluate(learner, data, &options, &result);
    }
    if (status == RCV_OK) {
        print_result(learner, &result);
    }
    const int code = status == RCV_OK ? EXIT_DONE : fail(status);
    rcv_data_free(data);
    rcv_learner_free(learner);
    rcv_context_free(context);
    return code;
}

int verb_eval(int argc, char **argv) {
    arguments arguments = {.batch = 1, .dtype = RCV_FLOAT32};
    option options[] = {
        {"batch", OPTION_INTEGER, &arguments.batch, 1, 1 << 20, .value = "N",
         .help = "parts of the text in parallel; each starts without context"},
        {"dtype", OPTION_PRODUCT, &arguments.dtype, .value = "TYPE",
         .help = "float32, float64, bfloat16; GPU: tfloat32, float16"},
        {"device", OPTION_TEXT, &arguments.device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &arguments.threads, 0, 1024, .value = "N", .help = "at most; 0: one for each core"},
    };
    const operand operands[] = {
        {"MODEL", "a model that recurve train wrote", &arguments.model},
        {"DATA", "a file, or a folder with a test file", &arguments.path},
    };
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "eval",
                             .summary =
                                 "Computes the loss of a trained model: of the next token, or of classes or values",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0}; /* the tokens of DATA are cached beside it */
    paths_add(&paths, PATH_READ, "MODEL", arguments.model);
    paths_add(&paths, PATH_READ, "DATA", arguments.path);
    return paths_are_apart(&paths) ? evaluate(&arguments) : EXIT_FAILED;
}

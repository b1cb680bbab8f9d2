/* recurve report: a page of a training log, or of several that are compared. */
#include "report/report.h"

#include "paths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The log's path with .html in place of .jsonl, or appended. */
static char *page_path(const char *log) {
    const size_t length = strlen(log), ending = strlen(".jsonl");
    const bool usual = length > ending && strcmp(log + length - ending, ".jsonl") == 0;
    return text_of("%.*s.html", (int)(usual ? length - ending : length), log);
}

static int work(const char *const *logs, size_t count, double loss, const char *output) {
    rcv_context *context = NULL;
    rcv_settings *settings = NULL;
    paths paths = {0};
    for (size_t i = 0; i < count; i++) {
        paths_add(&paths, PATH_READ, "LOG", logs[i]);
    }
    paths_add(&paths, PATH_WRITTEN, "the page", output);
    if (!paths_are_apart(&paths) || !output_is_free(output, OUTPUT_PAGE)) {
        return EXIT_FAILED;
    }
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_settings_new(context, &settings);
    }
    int result = EXIT_FAILED;
    if (status != RCV_OK) {
        result = fail(status);
    } else if (count == 1 ? write_training_page(logs[0], output, settings)
                          : write_comparison_page(logs, count, loss, output, settings)) {
        note("wrote %s", output);
        result = EXIT_DONE;
    }
    rcv_settings_free(settings);
    rcv_context_free(context);
    return result;
}

static const char details[] = "The page is one file that loads nothing from elsewhere. If a run was resumed from a\n"
                              "checkpoint, updates after that checkpoint are shown once. An incomplete last line is\n"
                              "ignored. With several ranks the page has the timeline of one update. Several logs are\n"
                              "compared: throughput over the number of ranks, bytes sent, idle time, and the time to\n"
                              "reach a loss. Runs that train another model are compared separately.";

static parsed parse(int argc, char **argv, const char **logs, size_t *count, double *loss, const char **output) {
    option options[] = {
        {"output", OPTION_TEXT, output, .value = "PAGE", .help = "the page to write; default: LOG with .html"},
        {"loss", OPTION_REAL, loss, .maximum = INFINITY, .value = "X",
         .help = "of several logs: show the time to this loss"},
    };
    const operand operands[] = {{"LOG", "a log that recurve train wrote", logs}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "report",
                             .summary = "Writes an HTML page of a training log, or of several that are compared",
                             .details = details,
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .last_count = count,
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next == PARSED_GO && *count == 1 && !isnan(*loss)) {
        say("--loss needs several logs, and there is one");
        return PARSED_WRONG;
    }
    return next;
}

int verb_report(int argc, char **argv) {
    const char **logs = need((size_t)argc, sizeof *logs), *output = NULL;
    size_t count = 0;
    double loss = NAN;
    const parsed next = parse(argc, argv, logs, &count, &loss, &output);
    int result = next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    if (next == PARSED_GO) {
        char *path = output != NULL ? text_of("%s", output) : page_path(logs[0]);
        result = work(logs, count, loss, path);
        free(path);
    }
    free(logs);
    return result;
}

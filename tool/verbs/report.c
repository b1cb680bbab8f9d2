/* recurve report: a page of a training log, or of several that are laid over each other. */
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

static bool prints_json(const report *report) { return report->json != NULL && strcmp(report->json, "-") == 0; }

/* May the outputs be written? Says why not. */
static bool check_paths(const report *report) {
    const bool saves_json = report->json != NULL && !prints_json(report);
    paths paths = {0};
    for (size_t i = 0; i < report->count; i++) {
        paths_add(&paths, PATH_READ, "LOG", report->logs[i]);
    }
    paths_add(&paths, PATH_WRITTEN, "the page", report->output);
    paths_add(&paths, PATH_WRITTEN, "--json", saves_json ? report->json : NULL);
    return paths_are_apart(&paths) && output_is_free(report->output, OUTPUT_PAGE) &&
           (!saves_json || output_is_free(report->json, OUTPUT_JSON));
}

static int write_pages(const report *report, bool watch, rcv_settings *settings) {
    if (!watch) {
        return write_report(report, settings) ? EXIT_DONE : EXIT_FAILED;
    }
    stop_on_signals();
    say("writing %s while the runs go on; Ctrl-C ends this", report->output);
    return watch_report(report, settings);
}

static int work(const report *report, bool watch) {
    rcv_context *context = NULL;
    rcv_settings *settings = NULL;
    if (!check_paths(report)) {
        return EXIT_FAILED;
    }
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_settings_new(context, &settings);
    }
    const int result = status == RCV_OK ? write_pages(report, watch, settings) : fail(status);
    if (result != EXIT_FAILED) {
        note("wrote %s", report->output);
    }
    rcv_settings_free(settings);
    rcv_context_free(context);
    return result;
}

static const char details[] =
    "The page is one file that loads nothing from elsewhere. If a run was resumed from a\n"
    "checkpoint, updates after that checkpoint are shown once. An incomplete last line is\n"
    "ignored. With several ranks the page has the timeline of one update.\n"
    "\n"
    "Several logs are laid over each other: losses, metric and speed over updates, time or\n"
    "epochs, and tables of the runs and of the settings in which they differ. Where runs of one\n"
    "model have different numbers of ranks, the page also has throughput over the number of\n"
    "ranks, bytes sent, idle time, and the time to reach a loss.";

typedef struct {
    report report;
    bool watch;
} request;

static parsed parse(int argc, char **argv, const char **logs, request *request) {
    report *report = &request->report;
    option options[] = {
        {"output", OPTION_TEXT, &report->output, .value = "PAGE", .help = "the page to write; default: LOG with .html"},
        {"json", OPTION_TEXT, &report->json, .value = "FILE",
         .help = "write a summary of the runs as JSON; -: to standard output"},
        {"watch", OPTION_FLAG, &request->watch,
         .help = "write the page again whenever a log grows, until all runs end"},
        {"loss", OPTION_REAL, &report->loss, .maximum = INFINITY, .value = "X",
         .help = "of several logs: show the time to this loss"},
    };
    const operand operands[] = {{"LOG", "a log that recurve train wrote", logs}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "report",
                             .summary = "Writes an HTML page of a training log, or of several that are compared",
                             .details = details,
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .last_count = &report->count,
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next == PARSED_GO && report->count == 1 && !isnan(report->loss)) {
        say("--loss needs several logs, and there is one");
        return PARSED_WRONG;
    }
    return next;
}

int verb_report(int argc, char **argv) {
    const char **logs = need((size_t)argc, sizeof *logs);
    request request = {.report = {.logs = logs, .loss = NAN}};
    const parsed next = parse(argc, argv, logs, &request);
    int result = next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    if (next == PARSED_GO) {
        char *path = request.report.output != NULL ? text_of("%s", request.report.output) : page_path(logs[0]);
        request.report.output = path;
        result = work(&request.report, request.watch);
        free(path);
    }
    free(logs);
    return result;
}

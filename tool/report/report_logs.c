/* recurve report: a page of a training log, or of several that are compared. */
#include "report/report_logs.h"

#include "paths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ---- */

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool write_one(const char *log_path, const char *output, rcv_settings *settings) {
    training_log log;
    page page;
    if (!log_read(&log, log_path)) {
        return false;
    }
    bool good = page_open(&page, output);
    if (good) {
        begin_page(page.file, "recurve report", name_of(log_path));
        put_training(page.file, &log, settings);
        good = page_close(&page);
    }
    log_free(&log);
    return good;
}

static void put_traces(FILE *out, const run *runs, size_t count) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (!trace_is_drawn(&runs[i].log.trace)) {
            continue;
        }
        if (!any) {
            begin_traces(out);
        }
        any = true;
        fprintf(out, "<h3>");
        put_text(out, runs[i].name);
        fprintf(out, "</h3>\n");
        put_trace(out, &runs[i].log.trace);
    }
    fprintf(out, "%s", any ? "</section>\n" : "");
}

static bool put_comparison(const run *runs, size_t count, double loss, const char *output, rcv_settings *settings) {
    page page;
    if (!page_open(&page, output)) {
        return false;
    }
    bool one_model = true;
    char *title = text_of("%zu runs", count);
    begin_page(page.file, "recurve report", title);
    for (size_t i = 0; i < count; i++) {
        fprintf(page.file, "%s", i > 0 ? ", " : "");
        put_text(page.file, runs[i].name);
        one_model = one_model && runs[i].model == 0;
    }
    fprintf(page.file, "</p>\n");
    put_runs(page.file, runs, count, loss);
    put_traces(page.file, runs, count);
    if (one_model) {
        put_settings(page.file, &runs[0].log, settings, true);
    }
    free(title);
    return page_close(&page);
}

static bool write_several(const char *const *paths, size_t count, double loss, const char *output,
                          rcv_settings *settings) {
    run *runs = need(count, sizeof *runs);
    const bool good = runs_read(runs, paths, count) && put_comparison(runs, count, loss, output, settings);
    runs_free(runs, count);
    return good;
}

/* ---- the verb ---- */

/* The log's path with .html instead of .jsonl, or behind it. */
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
    } else if (count == 1 ? write_one(logs[0], output, settings) : write_several(logs, count, loss, output, settings)) {
        say("wrote %s", output);
        result = EXIT_DONE;
    }
    rcv_settings_free(settings);
    rcv_context_free(context);
    return result;
}

static const char details[] = "The page is one file that fetches nothing. What a run did behind the checkpoint from\n"
                              "which it later went on is left out. A last line that is cut short is passed over. Of\n"
                              "several ranks it draws one update, rank by rank. Several logs are compared: speed\n"
                              "against the number of ranks, what is sent, who waits, and the time to a loss. Runs of\n"
                              "other models than the first are compared apart.";

static parsed parse(int argc, char **argv, const char **logs, size_t *count, double *loss, const char **output) {
    option options[] = {
        {"output", OPTION_TEXT, output, .value = "PAGE",
         .help = "the page to write; else the first LOG with .html for .jsonl"},
        {"loss", OPTION_REAL, loss, .maximum = INFINITY, .value = "X",
         .help = "of several logs: time to this loss; else to the largest at an end"},
    };
    const operand operands[] = {{"LOG", "a log that recurve train wrote", logs}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "report",
                             .summary = "Writes a page with the curves of a training log, or one that compares several",
                             .details = details,
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .last_count = count,
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next == PARSED_GO && *count == 1 && !isnan(*loss)) {
        say("--loss compares runs, and there is one log");
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

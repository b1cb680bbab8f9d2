/* The pages of training logs. */
#include "report/report.h"
#include "report/training_sections.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool write_training_page(const char *log_path, const char *output, rcv_settings *settings) {
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

static bool write_runs(const run *runs, size_t count, double loss, const char *output, rcv_settings *settings) {
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

bool write_comparison_page(const char *const *paths, size_t count, double loss, const char *output,
                           rcv_settings *settings) {
    run *runs = need(count, sizeof *runs);
    const bool good = runs_read(runs, paths, count) && write_runs(runs, count, loss, output, settings);
    runs_free(runs, count);
    return good;
}

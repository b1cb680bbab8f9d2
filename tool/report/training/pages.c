/* The pages of training logs, written once or again and again while the logs grow. */
#include "report/report.h"
#include "report/training/sections.h"
#include "report/training/summary.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- one version of the page ---- */

static void put_traces(FILE *out, const run *runs, size_t count) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (!trace_is_drawn(&runs[i].log->trace)) {
            continue;
        }
        if (!any) {
            begin_traces(out);
        }
        any = true;
        fprintf(out, "<h3>");
        put_text(out, runs[i].name);
        fprintf(out, "</h3>\n");
        put_trace(out, &runs[i].log->trace);
    }
    fprintf(out, "%s", any ? "</section>\n" : "");
}

/* The rules by which the checkbox of a run hides its lines; for free(). */
static char *run_rules(size_t count) {
    char *rules = text_of("<style>");
    for (size_t i = 0; i < count; i++) {
        char *more = text_of("%s#i%zu:not(:checked)~section .r%zu{display:none}"
                             "#i%zu:not(:checked)~section [for=i%zu]{opacity:.4}"
                             "#i%zu:focus-visible~section [for=i%zu]{outline:2px solid}\n",
                             rules, i, i, i, i, i, i);
        free(rules);
        rules = more;
    }
    char *whole = text_of("%s</style>", rules);
    free(rules);
    return whole;
}

/* Reloads the page while the runs go on; a browser keeps what was chosen and how far was scrolled. */
static const char reload[] = "<meta http-equiv=\"refresh\" content=\"3\">";

static void put_one(FILE *out, const log_file *file, bool goes_on, rcv_settings *settings) {
    char *name = run_name(file, 1, 0);
    begin_page(out, "recurve report", name, goes_on ? reload : NULL);
    if (goes_on) {
        fprintf(out, "%s ",
                file->exists ? "The run goes on; this page reloads itself."
                             : "The log does not exist yet; this page reloads itself.");
    }
    put_training(out, &file->log, settings);
    free(name);
}

static void put_several(FILE *out, const report *report, const log_file *files, bool goes_on) {
    run *runs = runs_new(files, report->count);
    char *title = text_of("%zu runs", report->count), *rules = run_rules(report->count),
         *head = text_of("%s%s", rules, goes_on ? reload : "");
    begin_page(out, "recurve report", title, head);
    for (size_t i = 0; i < report->count && report->count <= 8; i++) {
        fprintf(out, "%s", i > 0 ? ", " : "");
        put_text(out, runs[i].name);
    }
    fprintf(out, "%s</p>\n", goes_on ? ". Not all runs have ended; this page reloads itself." : "");
    put_comparison(out, runs, report->count, report->loss);
    put_scaling_sections(out, runs, report->count, report->loss);
    put_traces(out, runs, report->count);
    free(title);
    free(rules);
    free(head);
    runs_free(runs, report->count);
}

static bool write_page(const report *report, const log_file *files, bool goes_on, rcv_settings *settings) {
    page page;
    if (!page_open(&page, report->output)) {
        return false;
    }
    if (report->count == 1) {
        put_one(page.file, files, goes_on, settings);
    } else {
        put_several(page.file, report, files, goes_on);
    }
    return page_close(&page);
}

static bool write_all(const report *report, const log_file *files, bool goes_on, rcv_settings *settings) {
    return write_page(report, files, goes_on, settings) &&
           (report->json == NULL || goes_on || write_summary(report->json, files, report->count));
}

/* ---- once ---- */

static log_file *files_new(const report *report, bool waits) {
    log_file *files = need(report->count, sizeof *files);
    for (size_t i = 0; i < report->count; i++) {
        files[i] = (log_file){.path = report->logs[i], .waits = waits};
    }
    return files;
}

static void files_free(log_file *files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        log_file_free(&files[i]);
    }
    free(files);
}

/* False after saying what is wrong with the first file that has a fault. */
static bool files_are_good(const log_file *files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (files[i].wrong != NULL) {
            say("%s", files[i].wrong);
            return false;
        }
    }
    return true;
}

/* Several runs need something to compare. */
static void check_files(log_file *files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        log_file_check(&files[i]);
        if (files[i].wrong == NULL && count > 1 && files[i].log.progress.count == 0) {
            files[i].wrong = text_of("%s has no progress lines: there is nothing to compare", files[i].path);
        }
    }
}

bool write_report(const report *report, rcv_settings *settings) {
    log_file *files = files_new(report, false);
    log_files_read(files, report->count);
    check_files(files, report->count);
    const bool good = files_are_good(files, report->count) && write_all(report, files, false, settings);
    files_free(files, report->count);
    return good;
}

bool write_comparison_page(const char *const *logs, size_t count, double loss, const char *output,
                           rcv_settings *settings) {
    const report report = {.logs = logs, .count = count, .loss = loss, .output = output};
    return write_report(&report, settings);
}

/* ---- again and again ---- */

static bool all_are_over(const log_file *files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!log_is_over(&files[i].log)) {
            return false;
        }
    }
    return true;
}

/* A signal ends the wait. */
static void wait_a_second(void) {
    const struct timespec second = {.tv_sec = 1};
    nanosleep(&second, NULL);
}

int watch_report(const report *report, rcv_settings *settings) {
    log_file *files = files_new(report, true);
    bool good = true, over = false;
    for (bool first = true; good && !over && stop_signal() == 0; first = false) {
        const bool changed = log_files_read(files, report->count);
        good = files_are_good(files, report->count);
        over = all_are_over(files, report->count);
        if (good && !over && (changed || first)) {
            good = write_page(report, files, true, settings);
        }
        if (good && !over) {
            wait_a_second();
        }
    }
    /* The last version does not reload itself, also if a log turned out to be wrong. */
    const bool written = write_all(report, files, false, settings);
    files_free(files, report->count);
    return !good || !written ? EXIT_FAILED : over ? EXIT_DONE : stop_status();
}

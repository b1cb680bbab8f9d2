#define _XOPEN_SOURCE 700 /* newlocale, nl_langinfo_l */
#define _DEFAULT_SOURCE   /* TIOCGWINSZ */

#include "training/progress.h"

#include "tool.h"
#include "training/progress_parts.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- the terminal ---- */

enum { USUAL_COLUMNS = 80, FEWEST_COLUMNS = 20 };

/* The terminal knows its width, also after a resize; COLUMNS is for one that does not. */
size_t terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    const char *given = getenv("COLUMNS");
    const long columns = given != NULL ? strtol(given, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (size_t)columns : USUAL_COLUMNS;
}

static bool can_rewrite(void) {
    const char *name = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && name != NULL && name[0] != '\0' && strcmp(name, "dumb") != 0;
}

/* The process's own locale stays "C". */
static bool locale_is_unicode(void) {
    const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (locale == (locale_t)0) {
        return false;
    }
    const bool result = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return result;
}

/* Rewrites the line. The last column stays free: a character there would move the cursor to the next line. */
static void draw(progress *progress, part_line *line) {
    const size_t columns = terminal_columns();
    char *text = parts_print(line, (columns > FEWEST_COLUMNS ? columns : FEWEST_COLUMNS) - 1, progress->is_unicode);
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
    free(text);
    progress->has_line = true;
    progress->drawn = now();
}

void progress_clear(progress *progress) {
    if (progress->has_line) {
        fprintf(stderr, "\r\033[K");
        progress->has_line = false;
    }
}

/* ---- the parts of a line ---- */

/* How much of the run is done; NaN: not known. `left` ends at the nearest limit. */
static double part_done(const progress *progress, const rcv_progress *report) {
    const double passed = progress->begun > 0 ? now() - progress->begun : 0;
    const double by_time = progress->limit > 0 ? passed / progress->limit : NAN;
    const double by_updates = report->steps > 0 ? (double)report->step / (double)report->steps : NAN;
    const double done = fmax(by_time, by_updates); /* fmax leaves out what is NaN */
    return done > 1 ? 1 : done;
}

static void add_work(part_line *line, const progress *progress, const rcv_progress *report) {
    const double done = part_done(progress, report);
    const number_text step = count_text(report->step), steps = count_text(report->steps);
    if (isfinite(done)) {
        line->done = done;
        parts_add(line, 1, "%3d%%", (int)(100 * done));
        if (progress->is_terminal) {
            parts_add_bar(line, 4);
        }
    }
    if (report->steps > 0) {
        parts_add(line, 7, "%s/%s", step.text, steps.text);
    } else {
        parts_add(line, isfinite(done) ? 7 : 1, "update %s", step.text);
    }
    parts_add(line, 8, "epoch %.2f", report->epochs);
}

/* The metric of the last validation; NaN before the first. */
static double measured(const rcv_progress *report) { return report->validation != 0 ? report->metric : NAN; }

static void add_loss(part_line *line, const progress *progress, const rcv_progress *report) {
    const double metric = metric_value(progress->metric, report->loss, measured(report));
    if (!isfinite(report->loss)) {
        parts_add(line, 2, "the loss is not a number");
        return;
    }
    parts_add(line, 2, "loss %s", decimals_text(report->loss).text);
    if (isfinite(metric)) {
        parts_add(line, 5, "%s %s", metric_name(progress->metric), metric_text(progress->metric, metric).text);
    }
}

static void add_prefix(part_line *line, const progress *progress) {
    if (progress->prefix[0] != '\0') {
        parts_add(line, 0, "%s", progress->prefix);
    }
}

static part_line line_of(const progress *progress, const rcv_progress *report, bool is_last) {
    part_line line = {.count = 0};
    add_prefix(&line, progress);
    add_work(&line, progress, report);
    add_loss(&line, progress, report);
    parts_add(&line, 6, "%s %s/s", short_text(report->tokens_per_second).text, progress->unit);
    if (is_last) {
        parts_add(&line, 3, "in %s", clock_text(report->seconds).text);
    } else if (report->left >= 0) {
        parts_add(&line, 3, "%s left", clock_text(report->left).text);
    }
    return line;
}

/* ---- lines that stay ---- */

/* Plain lines have no bar and nothing is left out. */
static void print_line(progress *progress, part_line *line) {
    if (progress->is_terminal) {
        draw(progress, line);
        fputc('\n', stderr);
        progress->has_line = false;
    } else {
        char *text = parts_print(line, (size_t)-1, false);
        fprintf(stderr, "%s\n", text + strspn(text, " "));
        free(text);
    }
}

/* Short validations one after the other do not fill the screen: the last one of them is shown later. */
static bool validation_is_due(const progress *progress) {
    const double passed = progress->begun > 0 ? now() - progress->begun : 0;
    return now() - progress->last_validation >= fmax(1, passed / 600);
}

static part_line validation_line(const progress *progress, const rcv_progress *report) {
    const double metric = metric_value(progress->metric, report->validation, report->metric);
    part_line line = {.count = 0};
    add_prefix(&line, progress);
    parts_add(&line, 0, "validation");
    parts_add(&line, 4, "update %s", count_text(report->step).text);
    parts_add(&line, 5, "epoch %.2f", report->epochs);
    if (!isfinite(report->validation)) {
        parts_add(&line, 1, "the loss is not a number");
        return line;
    }
    parts_add(&line, 1, "loss %s", decimals_text(report->validation).text);
    if (isfinite(metric)) {
        parts_add(&line, 3, "%s %s", metric_name(progress->metric), metric_text(progress->metric, metric).text);
    }
    return line;
}

static void print_validation(progress *progress, const rcv_progress *report) {
    static const char best[] = "  best";
    const bool is_best = report->validation <= report->best, is_green = is_best && use_color(stderr);
    const size_t columns = progress->is_terminal ? terminal_columns() : SIZE_MAX;
    part_line line = validation_line(progress, report);
    char *text = parts_print(&line, columns > sizeof best ? columns - sizeof best : 1, false);
    progress_clear(progress);
    fprintf(stderr, "%s%s%s%s\n", text, is_green ? "\033[32m" : "", is_best ? best : "", is_green ? "\033[0m" : "");
    free(text);
    progress->last_validation = now();
    progress->is_held = false;
}

static void see_validation(progress *progress, const rcv_progress *report) {
    const bool is_new = report->validation != progress->validation || progress->has_validated;
    if (!is_new || report->validation == 0) {
        return;
    }
    progress->validation = report->validation;
    progress->has_validated = false;
    progress->held_report = *report;
    progress->is_held = true;
    if (report->validation <= report->best) {
        progress->best_metric = metric_value(progress->metric, report->validation, report->metric);
    }
}

static void show_validation(progress *progress, bool is_last) {
    if (progress->is_held && progress->is_shown && (is_last || validation_is_due(progress))) {
        print_validation(progress, &progress->held_report);
    }
}

/* ---- the run ---- */

void progress_begin(progress *progress, const rcv_settings *settings, const rcv_data *data, const char *prefix,
                    bool leads) {
    *progress = (struct progress){.is_shown = leads && !is_quiet(),
                                  .is_terminal = can_rewrite(),
                                  .is_unicode = locale_is_unicode(),
                                  .metric = metric_of_data(data),
                                  .unit = token_name(data),
                                  .limit = strtod(rcv_settings_get(settings, "seconds"), NULL),
                                  .best_metric = NAN,
                                  .last_validation = -INFINITY};
    snprintf(progress->prefix, sizeof progress->prefix, "%s", prefix);
}

void progress_start(progress *progress) { progress->begun = progress->printed = now(); }

/* Seconds between plain lines: 10 in the first ten minutes, a minute after an hour, at most ten minutes. */
static double seconds_between(double passed) { return fmin(fmax(10, passed / 60), 600); }

void progress_update(progress *progress, const rcv_progress *report) {
    const double time = now();
    see_validation(progress, report);
    if (progress->begun == 0) {
        progress_phase(progress, "planning", NAN);
        return;
    }
    progress->phase_begun = 0;
    show_validation(progress, false);
    if (!progress->is_shown || !isfinite(report->loss)) {
        return;
    }
    part_line line = line_of(progress, report, false);
    if (progress->is_terminal && time - progress->drawn >= 0.1) {
        draw(progress, &line);
    } else if (!progress->is_terminal && time - progress->printed >= seconds_between(time - progress->begun)) {
        print_line(progress, &line);
        progress->printed = time;
    }
}

void progress_phase(progress *progress, const char *what, double part) {
    const double time = now();
    progress->phase_begun = progress->phase_begun > 0 ? progress->phase_begun : time;
    progress->has_validated = progress->has_validated || strcmp(what, "validating") == 0;
    if (!progress->is_shown || !progress->is_terminal || time - progress->drawn < 0.1) {
        return;
    }
    part_line line = {.done = part};
    add_prefix(&line, progress);
    parts_add(&line, 0, "%s ...", what);
    if (isfinite(part)) {
        parts_add(&line, 2, "%3d%%", (int)(100 * part));
        parts_add_bar(&line, 3);
    }
    parts_add(&line, 4, "%s", clock_text(time - progress->phase_begun).text);
    draw(progress, &line);
}

void progress_end(progress *progress, const rcv_progress *report) {
    see_validation(progress, report);
    progress->phase_begun = 0;
    if (!progress->is_shown) {
        return;
    }
    show_validation(progress, true);
    progress_clear(progress);
    if (report->step > 0) {
        part_line line = line_of(progress, report, true);
        print_line(progress, &line);
    }
    fflush(stderr);
}

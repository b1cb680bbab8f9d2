/* Reading a training log. */
#include "report/training_log.h"

#include "json.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double log_number(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *log_text(const json_t *line, const char *key) { return json_string_value(json_object_get(line, key)); }

char *log_value_text(const json_t *value) {
    if (json_is_string(value)) {
        return text_of("%s", json_string_value(value));
    }
    if (json_is_real(value)) {
        return text_of("%.17g", json_real_value(value));
    }
    return json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

const char *default_setting(const char *name) {
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        if (strcmp(rcv_setting_at(i)->name, name) == 0) {
            return rcv_setting_at(i)->default_value;
        }
    }
    return "";
}

const log_point *log_best(const training_log *log) {
    const log_point *best = NULL;
    for (size_t i = 0; i < log->validations.count; i++) {
        const log_point *point = &log->validations.points[i];
        if (isfinite(point->loss) && (best == NULL || point->loss < best->loss)) {
            best = point;
        }
    }
    return best;
}

double log_speed(const training_log *log) {
    const double whole = log_number(log->end, "tokens_per_second");
    double sum = 0, count = 0;
    for (size_t i = 0; i < log->progress.count; i++) {
        const double speed = log->progress.points[i].speed;
        sum += isfinite(speed) ? speed : 0;
        count += isfinite(speed);
    }
    return isfinite(whole) ? whole : count > 0 ? sum / count : NAN;
}

/* ---- events ---- */

/* Removes points after `step`. */
static void rewind_series(log_series *series, double step) {
    while (series->count > 0 && series->points[series->count - 1].step > step) {
        series->count--;
    }
}

static void rewind_log(training_log *log, double step) {
    rewind_series(&log->progress, step);
    rewind_series(&log->validations, step);
    rewind_series(&log->resumes, step);
    json_decref(log->end);
    log->end = NULL;
}

/* A later point of the same update replaces the earlier one. */
static void append(log_series *series, const json_t *line) {
    const log_point point = {.step = log_number(line, "step"),
                             .epoch = log_number(line, "epoch"),
                             .loss = log_number(line, "loss"),
                             .perplexity = log_number(line, "perplexity"),
                             .rate = log_number(line, "rate"),
                             .norm = log_number(line, "norm"),
                             .speed = log_number(line, "tokens_per_second"),
                             .seconds = log_number(line, "seconds"),
                             .best = json_is_true(json_object_get(line, "best"))};
    if (series->count > 0 && series->points[series->count - 1].step == point.step) {
        series->count--;
    }
    if (series->count == series->capacity) {
        const size_t capacity = series->capacity > 0 ? 2 * series->capacity : 256;
        log_point *more = need(capacity, sizeof *more);
        if (series->count > 0) {
            memcpy(more, series->points, series->count * sizeof *more);
        }
        free(series->points);
        series->points = more;
        series->capacity = capacity;
    }
    series->points[series->count++] = point;
}

static void keep_line(json_t **place, json_t *line) {
    json_decref(*place);
    *place = json_incref(line);
}

/* Handles a line. Returns what is wrong with it, or NULL. */
typedef const char *handle_event(training_log *log, json_t *line);

/* The ranks from here on. */
static const char *begin_run(training_log *log, json_t *line) {
    const json_t *ranks = json_object_get(line, "ranks");
    if (ranks != NULL && !(log_number(ranks, "replicas") >= 1 && log_number(ranks, "stages") >= 1)) {
        return "its ranks have no replicas or no stages";
    }
    keep_line(&log->begun, line);
    return NULL;
}

static const char *on_start(training_log *log, json_t *line) {
    trace_free(&log->trace);
    keep_line(&log->start, line);
    return begin_run(log, line);
}

static const char *on_end(training_log *log, json_t *line) {
    keep_line(&log->end, line);
    return NULL;
}

static const char *on_progress(training_log *log, json_t *line) {
    rewind_log(log, log_number(line, "step"));
    append(&log->progress, line);
    return NULL;
}

/* The results of the test are added to the end line. */
static const char *on_test(training_log *log, json_t *line) {
    const char *const names[][2] = {{"loss", "test_loss"}, {"perplexity", "test_perplexity"}};
    for (size_t i = 0; log->end != NULL && i < COUNT(names); i++) {
        json_t *value = json_object_get(line, names[i][0]);
        if (value != NULL) {
            json_object_set(log->end, names[i][1], value);
        }
    }
    return NULL;
}

static const char *on_validation(training_log *log, json_t *line) {
    rewind_log(log, log_number(line, "step"));
    append(&log->validations, line);
    return NULL;
}

/* The number of ranks may change: a trace of the ranks before is dropped. */
static const char *on_resume(training_log *log, json_t *line) {
    rewind_log(log, log_number(line, "step"));
    append(&log->resumes, line);
    trace_free(&log->trace);
    if (log->start == NULL) {
        keep_line(&log->start, line);
    }
    return json_object_get(line, "settings") != NULL ? begin_run(log, line) : NULL;
}

static const char *on_checkpoint(training_log *log, json_t *line) {
    (void)line;
    log->checkpoints++;
    return NULL;
}

static const char *on_timeline(training_log *log, json_t *line) { return trace_add(&log->trace, line); }

static const struct {
    const char *name;
    bool has_step;
    handle_event *handle;
} events[] = {
    {"start", false, on_start},  {"progress", true, on_progress},     {"validation", true, on_validation},
    {"resume", true, on_resume}, {"checkpoint", true, on_checkpoint}, {"end", false, on_end},
    {"test", false, on_test},    {"timeline", true, on_timeline},
};

/* What is wrong with a line, or NULL; unknown events are skipped. */
static const char *handle_line(training_log *log, json_t *line) {
    const char *name = log_text(line, "event");
    if (name == NULL) {
        return "it is not an object with an event";
    }
    for (size_t i = 0; i < COUNT(events); i++) {
        if (strcmp(events[i].name, name) == 0) {
            if (events[i].has_step && !(log_number(line, "step") >= 0)) {
                return "the event has no step";
            }
            return events[i].handle(log, line);
        }
    }
    return NULL;
}

/* ---- the file ---- */

static bool is_blank(const char *text, size_t length) {
    size_t i = 0;
    while (i < length && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0') {
        i++;
    }
    return i == length;
}

/* jansson does not notice every failed allocation while it reads. If it reads the line twice with equal results, they are complete. */
static json_t *read_line(const char *text, size_t length, json_error_t *error) {
    json_t *line = json_loadb(text, length, 0, error),
           *again = line != NULL ? json_loadb(text, length, 0, error) : NULL;
    if (line != NULL && !json_equal(line, again)) {
        json_decref(line);
        line = NULL;
        snprintf(error->text, sizeof error->text, "there is no memory to read it");
    }
    json_decref(again);
    return line;
}

static bool read_lines(training_log *log, const char *path, const char *text, size_t bytes) {
    size_t number = 1;
    for (size_t at = 0; at < bytes; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        const size_t next = at + length + 1;
        const bool last = next >= bytes || is_blank(text + next, bytes - next);
        if (length > LIMIT_LINE) {
            say("%s:%zu: the line has %zu bytes, more than the %zu allowed", path, number, length, LIMIT_LINE);
            return false;
        }
        if (!is_blank(text + at, length)) {
            json_error_t error;
            json_t *line = read_line(text + at, length, &error);
            const char *wrong = line == NULL ? error.text : handle_line(log, line);
            const bool tolerated = line == NULL && last;
            if (wrong != NULL && !tolerated) {
                say("%s:%zu: not a line of a training log: %s", path, number, wrong);
            }
            json_decref(line);
            if (wrong != NULL && !tolerated) {
                return false;
            }
        }
        at = next;
    }
    return true;
}

bool log_read(training_log *log, const char *path) {
    *log = (training_log){0};
    size_t bytes;
    char *text = read_text(path, &bytes);
    if (text == NULL) {
        return false;
    }
    bool good = read_lines(log, path, text, bytes);
    if (good && log->start == NULL && log->progress.count == 0 && log->validations.count == 0) {
        say("%s has no start, no progress and no validation: it is not a training log", path);
        good = false;
    }
    free(text);
    if (!good) {
        log_free(log);
    }
    return good;
}

void log_free(training_log *log) {
    free(log->progress.points);
    free(log->validations.points);
    free(log->resumes.points);
    trace_free(&log->trace);
    json_decref(log->start);
    json_decref(log->begun);
    json_decref(log->end);
    *log = (training_log){0};
}

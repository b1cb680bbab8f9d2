/* The events of a training log. */
#include "report/training/training_log.h"

#include "json.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

double log_number(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *log_text(const json_t *line, const char *key) { return json_string_value(json_object_get(line, key)); }

char *log_value_text(const json_t *value) {
    if (json_is_string(value)) {
        return text_of("%s", json_string_value(value));
    }
    if (json_is_real(value)) { /* the fewest digits that are read as this value */
        char text[32];
        for (int digits = 12; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, json_real_value(value));
            if (strtod(text, NULL) == json_real_value(value)) {
                break;
            }
        }
        return text_of("%s", text);
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

double series_last(const log_series *series, log_value value) {
    double last = NAN;
    for (size_t i = series->count; i > 0 && !isfinite(last); i--) {
        last = series_value(series, value, i - 1);
    }
    return last;
}

bool series_has(const log_series *series, log_value value) {
    for (size_t i = 0; series->columns[value] != NULL && i < series->count; i++) {
        if (isfinite(series->columns[value][i])) {
            return true;
        }
    }
    return false;
}

size_t log_best(const training_log *log) {
    size_t best = NO_POINT;
    for (size_t i = 0; i < log->validations.count; i++) {
        const double loss = series_value(&log->validations, VALUE_LOSS, i);
        if (isfinite(loss) && (best == NO_POINT || loss < series_value(&log->validations, VALUE_LOSS, best))) {
            best = i;
        }
    }
    return best;
}

double log_speed(const training_log *log) {
    const double whole = log_number(log->end, "tokens_per_second");
    double sum = 0, count = 0;
    for (size_t i = 0; i < log->progress.count; i++) {
        const double speed = series_value(&log->progress, VALUE_SPEED, i);
        sum += isfinite(speed) ? speed : 0;
        count += isfinite(speed);
    }
    return isfinite(whole) ? whole : count > 0 ? sum / count : NAN;
}

const char *log_speed_name(const training_log *log) {
    static const char *const names[][2] = {{"classes", "sequences a second"},
                                           {"values", "sequences a second"},
                                           {"stream", "tokens a second"},
                                           {"lines", "tokens a second"}};
    const char *kind = log_text(json_object_get(log->start, "data"), "kind");
    for (size_t i = 0; kind != NULL && i < COUNT(names); i++) {
        if (strcmp(names[i][0], kind) == 0) {
            return names[i][1];
        }
    }
    return kind != NULL ? "steps a second" : "tokens a second";
}

log_value log_measure(const training_log *log) {
    static const log_value measures[] = {VALUE_BITS, VALUE_PERPLEXITY};
    for (size_t i = 0; i < COUNT(measures); i++) {
        if (series_has(&log->progress, measures[i]) || series_has(&log->validations, measures[i])) {
            return measures[i];
        }
    }
    return VALUE_LOSS;
}

double log_test_value(const training_log *log, log_value value) {
    const json_t *line = value < FIRST_METRIC ? log->test : json_object_get(log->test, "metrics");
    return log_number(line, log_values[value].key);
}

double log_test_measure(const training_log *log, log_value measure) {
    static const double nats_a_bit = 0.69314718055994531;
    const double shown = log_test_value(log, measure);
    return measure == VALUE_BITS && !isfinite(shown) ? log_test_value(log, VALUE_LOSS) / nats_a_bit : shown;
}

bool log_is_over(const training_log *log) {
    const char *test = log_text(json_object_get(log->begun, "settings"), "test");
    const char *reason = log_text(log->end, "reason");
    const bool stopped = reason != NULL && strcmp(reason, "stopped") == 0;
    return log->end != NULL && (log->test != NULL || test == NULL || test[0] == '\0' || stopped);
}

/* ---- series ---- */

/* Removes points after `step`. */
static void rewind_series(log_series *series, double step) {
    while (series->count > 0 && series_value(series, VALUE_STEP, series->count - 1) > step) {
        series->count--;
    }
}

static void release_line(json_t **line) {
    json_decref(*line);
    *line = NULL;
}

static void rewind_log(training_log *log, double step) {
    rewind_series(&log->progress, step);
    rewind_series(&log->validations, step);
    rewind_series(&log->resumes, step);
    release_line(&log->end);
    release_line(&log->test);
}

static double *longer_column(double *column, size_t capacity) {
    double *longer = realloc(column, capacity * sizeof *longer);
    if (longer == NULL) {
        give_up(capacity * sizeof *longer);
    }
    return longer;
}

static void grow(log_series *series) {
    series->capacity = series->capacity > 0 ? 2 * series->capacity : 256;
    for (size_t i = 0; i < LOG_VALUES; i++) {
        if (series->columns[i] != NULL) {
            series->columns[i] = longer_column(series->columns[i], series->capacity);
        }
    }
}

/* A column that is NaN so far. */
static double *new_column(const log_series *series) {
    double *column = longer_column(NULL, series->capacity);
    for (size_t i = 0; i < series->count; i++) {
        column[i] = NAN;
    }
    return column;
}

/* A later point of the same update replaces the earlier one. */
static void append(log_series *series, const log_row *row) {
    if (series->count > 0 && series_value(series, VALUE_STEP, series->count - 1) == row->values[VALUE_STEP]) {
        series->count--;
    }
    if (series->count == series->capacity) {
        grow(series);
    }
    for (size_t i = 0; i < LOG_VALUES; i++) {
        if (series->columns[i] == NULL && !isnan(row->values[i])) {
            series->columns[i] = new_column(series);
        }
        if (series->columns[i] != NULL) {
            series->columns[i][series->count] = row->values[i];
        }
    }
    series->count++;
}

static void free_series(log_series *series) {
    for (size_t i = 0; i < LOG_VALUES; i++) {
        free(series->columns[i]);
    }
}

/* ---- events ---- */

static void keep_line(json_t **place, json_t *line) {
    json_decref(*place);
    *place = json_incref(line);
}

static log_row row_of(const json_t *line) {
    const json_t *metrics = json_object_get(line, "metrics");
    log_row row;
    for (size_t i = 0; i < LOG_VALUES; i++) {
        row.values[i] = log_number(i < FIRST_METRIC ? line : metrics, log_values[i].key);
    }
    return row;
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

/* Not every update has a progress line: the end is another one if it is later. */
static const char *on_end(training_log *log, json_t *line) {
    const log_row row = row_of(line);
    if (isfinite(row.values[VALUE_LOSS]) && log->progress.count > 0 &&
        row.values[VALUE_STEP] > series_value(&log->progress, VALUE_STEP, log->progress.count - 1)) {
        append(&log->progress, &row);
    }
    keep_line(&log->end, line);
    return NULL;
}

static const char *on_progress(training_log *log, json_t *line) {
    const log_row row = row_of(line);
    return log_add_row(log, SCANNED_PROGRESS, &row);
}

static const char *on_validation(training_log *log, json_t *line) {
    const log_row row = row_of(line);
    return log_add_row(log, SCANNED_VALIDATION, &row);
}

static const char *on_test(training_log *log, json_t *line) {
    keep_line(&log->test, line);
    return NULL;
}

/* The number of ranks may change: a trace of the ranks before is dropped. */
static const char *on_resume(training_log *log, json_t *line) {
    const log_row row = row_of(line);
    rewind_log(log, row.values[VALUE_STEP]);
    append(&log->resumes, &row);
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

static const char stepless[] = "the event has no step";

const char *log_add_row(training_log *log, scanned event, const log_row *row) {
    if (!(row->values[VALUE_STEP] >= 0)) {
        return stepless;
    }
    rewind_log(log, row->values[VALUE_STEP]);
    append(event == SCANNED_PROGRESS ? &log->progress : &log->validations, row);
    return NULL;
}

static const struct {
    const char *name;
    bool has_step;
    handle_event *handle;
} events[] = {
    {"start", false, on_start},  {"progress", true, on_progress},     {"validation", true, on_validation},
    {"resume", true, on_resume}, {"checkpoint", true, on_checkpoint}, {"end", false, on_end},
    {"test", false, on_test},    {"timeline", true, on_timeline},
};

const char *log_add_line(training_log *log, json_t *line) {
    const char *name = log_text(line, "event");
    if (name == NULL) {
        return "it is not an object with an event";
    }
    for (size_t i = 0; i < COUNT(events); i++) {
        if (strcmp(events[i].name, name) == 0) {
            if (events[i].has_step && !(log_number(line, "step") >= 0)) {
                return stepless;
            }
            return events[i].handle(log, line);
        }
    }
    return NULL;
}

void log_free(training_log *log) {
    free_series(&log->progress);
    free_series(&log->validations);
    free_series(&log->resumes);
    trace_free(&log->trace);
    json_decref(log->start);
    json_decref(log->begun);
    json_decref(log->end);
    json_decref(log->test);
    *log = (training_log){0};
}

/* The summary of training runs as JSON: final and best values, the test, and the settings in which the runs differ. */
#include "report/training/summary.h"

#include "json.h"
#include "report/training/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* The loss and what it is shown as, with the names of the log. */
static const log_value losses[] = {VALUE_LOSS, VALUE_PERPLEXITY, VALUE_BITS};

static void set_number(json_t *object, const char *key, double value) {
    if (isfinite(value)) {
        json_object_set_new(object, key, json_real(value));
    }
}

/* Updates are counted. */
static void set_step(json_t *object, double value) {
    if (value >= 0 && value < 9e15) {
        json_object_set_new(object, log_values[VALUE_STEP].key, json_integer((json_int_t)value));
    }
}

/* The values of a point that it has: updates, time, losses and metrics. */
static json_t *point_json(const log_series *series, size_t index) {
    if (index >= series->count) {
        return json_null();
    }
    json_t *point = json_object(), *metrics = json_object();
    set_step(point, series_value(series, VALUE_STEP, index));
    for (log_value value = VALUE_EPOCH; value < LOG_VALUES; value++) {
        set_number(value < FIRST_METRIC ? point : metrics, log_values[value].key, series_value(series, value, index));
    }
    if (json_object_size(metrics) > 0) {
        json_object_set(point, "metrics", metrics);
    }
    json_decref(metrics);
    return point;
}

static json_t *test_json(const training_log *log) {
    if (log->test == NULL) {
        return json_null();
    }
    json_t *test = json_copy(log->test);
    json_object_del(test, "event");
    return test;
}

static json_t *or_null(const json_t *line, const char *key) {
    json_t *value = json_object_get(line, key);
    return value != NULL ? json_incref(value) : json_null();
}

static json_t *final_json(const run *run) {
    json_t *final = json_object();
    set_step(final, run_updates(run));
    set_number(final, "seconds", run_seconds(run));
    for (size_t i = 0; i < COUNT(losses); i++) {
        const char *key = log_values[losses[i]].key;
        const double end = log_number(run->log->end, key);
        set_number(final, key, isfinite(end) ? end : series_last(&run->log->progress, losses[i]));
    }
    return final;
}

/* A name or a path, with bytes that are not UTF-8 escaped. */
static json_t *name_json(const char *name) {
    json_t *value = json_string(name);
    if (value != NULL) {
        return value;
    }
    char *safe = safe_text(name, strlen(name), NULL);
    value = json_string(safe);
    free(safe);
    return value != NULL ? value : json_null();
}

/* ---- settings ---- */

/* The settings in which this run and others differ, or which all share. */
static json_t *settings_json(const run *runs, size_t count, const run *of, bool shared) {
    setting_names names = settings_of_runs(runs, count);
    json_t *object = json_object(), *settings = json_object_get(of->log->begun, "settings");
    for (size_t i = 0; i < names.count; i++) {
        json_t *value = json_object_get(settings, names.names[i]);
        if (runs_share(runs, count, names.names[i]) == shared) {
            json_object_set_new(object, names.names[i],
                                value != NULL ? json_incref(value) : json_string(default_setting(names.names[i])));
        }
    }
    free(names.names);
    return object;
}

static json_t *run_json(const run *runs, size_t count, size_t index, const char *path) {
    const run *run = &runs[index];
    const training_log *log = run->log;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                     name_json(run->name), "log", name_json(path), "date", or_null(log->start, "date"), "device",
                     or_null(log->begun, "device"), "data", or_null(log->start, "data"), "parameters",
                     or_null(log->start, "parameters"), "ended", json_boolean(log->end != NULL), "reason",
                     or_null(log->end, "reason"), "tokens_per_second", number(run->speed), "ranks",
                     (json_int_t)fmin(run_ranks(run), 1e9), "final", final_json(run), "best_validation",
                     point_json(&log->validations, log_best(log)), "last_validation",
                     point_json(&log->validations, log->validations.count - 1), "test", test_json(log), "settings",
                     settings_json(runs, count, run, count == 1));
}

bool write_summary(const char *path, const log_file *files, size_t count) {
    run *runs = runs_new(files, count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, run_json(runs, count, i, files[i].path));
    }
    json_t *summary = json_pack("{s:o}", "runs", list);
    if (count > 1) {
        json_object_set_new(summary, "shared_settings", settings_json(runs, count, &runs[0], true));
    }
    runs_free(runs, count);
    if (strcmp(path, "-") != 0) {
        return save_json(path, summary);
    }
    char *text = json_text(summary, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(summary);
    const bool good = printf("%s\n", text) > 0 && fflush(stdout) == 0;
    if (!good) {
        say("cannot write the summary to standard output: %s", strerror(errno));
    }
    free(text);
    return good;
}

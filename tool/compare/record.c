/* The record of a comparison: what each run was asked to do, and what came of it. A run is recognised by all its settings, the equations of
 * its cell, and the size and time of its data files. */
#include "compare/compare.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const states[] = {
    [RUN_NEW] = "begun", [RUN_STOPPED] = "stopped", [RUN_FINISHED] = "finished", [RUN_FAILED] = "failed"};

enum { RECORD_FORMAT = JSON_COMPACT | JSON_REAL_PRECISION(9) }; /* save_json() has as many digits */

/* ---- what a run was asked to do ---- */

static json_t *file_object(const char *path) {
    struct stat info;
    if (path == NULL || stat(path, &info) != 0) {
        return json_null();
    }
    return json_pack("{s:s, s:I, s:I}", "path", path, "bytes", (json_int_t)info.st_size, "modified",
                     (json_int_t)info.st_mtime);
}

static json_t *settings_object(const cell_comparison *comparison, const rcv_settings *settings) {
    char *text = NULL;
    json_t *object = NULL;
    if (rcv_settings_print(settings, &text) == RCV_OK) {
        object = json_loads(text, 0, NULL);
    }
    rcv_text_free(comparison->context, text);
    return object;
}

/* The object as a file gives it back: with the digits that are written. */
static json_t *as_written(json_t *object) {
    char *text = object != NULL ? json_text(object, RECORD_FORMAT) : NULL;
    json_t *again = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    json_decref(object);
    return again;
}

static json_t *task_object(const cell_comparison *comparison, const compared_run *run) {
    return as_written(json_pack("{s:o, s:s, s:[o, o]}", "settings", settings_object(comparison, run->settings),
                                "equations", run->cell->equations, "data",
                                file_object(comparison->files.paths[PART_TRAIN]),
                                file_object(comparison->files.paths[PART_VALID])));
}

/* ---- reading ---- */

bool record_read(cell_comparison *comparison) {
    if (access(comparison->record, F_OK) != 0) {
        return true;
    }
    if (!output_is_free(comparison->record, OUTPUT_JSON)) {
        return false;
    }
    size_t bytes;
    json_error_t error;
    char *text = read_text(comparison->record, &bytes);
    if (text == NULL) {
        return false;
    }
    json_t *object = json_loadb(text, bytes, 0, &error);
    json_t *runs = json_object_get(object, "runs");
    comparison->earlier = json_is_object(runs) ? json_incref(runs) : NULL;
    if (comparison->earlier == NULL) {
        say("%s is not the record of a comparison%s%s: choose another folder (--output), or remove it",
            comparison->record, object == NULL ? ": " : "", object == NULL ? error.text : "");
    }
    json_decref(object);
    free(text);
    return comparison->earlier != NULL;
}

static double number_in(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static run_result result_in(const json_t *object) {
    const double step = number_in(object, "step");
    return (run_result){.step = step >= 0 && step < 9e15 ? (int64_t)step : 0,
                        .seconds = number_in(object, "seconds"),
                        .speed = number_in(object, "tokens_per_second"),
                        .loss = number_in(object, "loss"),
                        .final = number_in(object, "validation"),
                        .best = number_in(object, "best"),
                        .metric = number_in(object, "metric")};
}

static run_state state_in(const json_t *object) {
    const char *name = json_string_value(json_object_get(object, "state"));
    for (size_t i = 0; i < COUNT(states) && name != NULL; i++) {
        if (strcmp(states[i], name) == 0) {
            return (run_state)i;
        }
    }
    return RUN_NEW;
}

static char *value_text(const json_t *value) {
    return json_is_string(value) ? text_of("'%s'", json_string_value(value))
                                 : json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
}

/* "hidden 64, not 128"; for free(). */
static char *difference(const json_t *now, const json_t *before) {
    const json_t *settings = json_object_get(now, "settings"), *old = json_object_get(before, "settings");
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const char *name = rcv_setting_at(i)->name;
        const json_t *mine = json_object_get(settings, name), *other = json_object_get(old, name);
        if (other != NULL && mine != NULL && !json_equal(mine, other)) {
            char *one = value_text(other), *two = value_text(mine), *text = text_of("%s %s, not %s", name, one, two);
            free(one);
            free(two);
            return text;
        }
    }
    return text_of(json_equal(json_object_get(now, "equations"), json_object_get(before, "equations"))
                       ? "other data"
                       : "other equations of the cell");
}

bool record_find(const cell_comparison *comparison, compared_run *run) {
    const json_t *entry = json_object_get(comparison->earlier, run->name), *before = json_object_get(entry, "task");
    if (entry == NULL) {
        return true;
    }
    json_t *task = task_object(comparison, run);
    const bool is_same = json_equal(task, before);
    if (is_same) {
        const run_state state = state_in(entry);
        const bool has_log = access(run->log, F_OK) == 0, has_model = access(run->model, F_OK) == 0;
        const bool is_kept = (state == RUN_FINISHED && has_log) || (state == RUN_STOPPED && has_log && has_model);
        run->is_ours = true;
        run->state = is_kept ? state : RUN_NEW;
        run->result = is_kept ? result_in(entry) : run->result;
    } else if (!comparison->overwrite) {
        char *what = difference(task, before);
        say("the run %s in %s has %s: choose another folder (--output), or replace it (--overwrite)", run->name,
            comparison->folder, what);
        free(what);
    } else {
        run->is_ours = true;
    }
    json_decref(task);
    return is_same || comparison->overwrite;
}

/* ---- writing ---- */

static json_t *run_object(const cell_comparison *comparison, const compared_run *run) {
    const run_result *r = &run->result;
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "cell", run->cell->cell, "state",
        states[run->state], "seed", (json_int_t)strtoll(rcv_settings_get(run->settings, "seed"), NULL, 10), "log",
        run->log, "model", run->model, "parameters", (json_int_t)run->cell->parameters, "step", (json_int_t)r->step,
        "seconds", number(r->seconds), "tokens_per_second", number(r->speed), "loss", number(r->loss), "validation",
        number(r->final), "best", number(r->best), "metric", number(r->metric), "task", task_object(comparison, run));
}

static json_t *cell_object(const cell_comparison *comparison, const cell_summary *summary) {
    const run_result *mean = &summary->mean;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "cell",
                     summary->cell->cell, "shape", summary->cell->shape, "parameters",
                     (json_int_t)summary->cell->parameters, "runs", (json_int_t)summary->runs, "finished",
                     (json_int_t)summary->finished, "updates", (json_int_t)mean->step, "seconds", number(mean->seconds),
                     "tokens_per_second", number(mean->speed), "loss", number(mean->loss), "validation",
                     number(mean->final), "best", number(mean->best), "best_deviation", number(summary->best_deviation),
                     "metric_name", metric_name(comparison->metric), "metric", number(mean->metric), "metric_deviation",
                     number(summary->metric_deviation));
}

json_t *record_object(const cell_comparison *comparison) {
    json_t *runs = comparison->earlier != NULL ? json_copy(comparison->earlier) : json_object(), *cells = json_array();
    cell_summary *summaries = summarise_cells(comparison);
    bool good = runs != NULL && cells != NULL;
    for (size_t i = 0; i < comparison->run_count && good; i++) {
        const compared_run *run = &comparison->runs[i];
        good = json_object_set_new(runs, run->name, run_object(comparison, run)) == 0;
    }
    for (size_t i = 0; i < comparison->cell_count && good; i++) {
        good = json_array_append_new(cells, cell_object(comparison, &summaries[i])) == 0;
    }
    free(summaries);
    if (!good) {
        json_decref(runs);
        json_decref(cells);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "event", "comparison", "version", rcv_version(), "cells", cells, "runs",
                     runs);
}

bool record_write(const cell_comparison *comparison) {
    return save_json(comparison->record, record_object(comparison));
}

/* What training runs are compared by. */
#include "report/training/compared_runs.h"

#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double run_ranks(const run *run) { return run->replicas * run->stages; }

arrangement run_arrangement(const run *run) {
    return run->replicas > 1 ? (run->stages > 1 ? HYBRID : DATA) : run->stages > 1 ? PIPELINE : ONE_RANK;
}

/* ---- settings ---- */

bool is_execution_setting(const char *setting) {
    static const char *const names[] = {"device",
                                        "threads",
                                        "seconds",
                                        "steps",
                                        "epochs",
                                        "log",
                                        "output",
                                        "log-every",
                                        "checkpoint-every",
                                        "checkpoint-seconds",
                                        "keep",
                                        "cache",
                                        "wisdom"};
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        if (strcmp(rcv_setting_at(i)->name, setting) == 0 && strcmp(rcv_setting_at(i)->group, "parallel") == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(names[i], setting) == 0) {
            return true;
        }
    }
    return false;
}

/* The value in the log, or the default; for free(). */
static char *value_of(const json_t *settings, const char *name) {
    const json_t *value = json_object_get(settings, name);
    return value != NULL ? log_value_text(value) : text_of("%s", default_setting(name));
}

/* Equal as texts or as numbers. */
static bool is_same(const char *a, const char *b) {
    char *a_end, *b_end;
    const double x = strtod(a, &a_end), y = strtod(b, &b_end);
    const bool numbers = a_end != a && *a_end == '\0' && b_end != b && *b_end == '\0';
    return strcmp(a, b) == 0 || (numbers && x == y);
}

char *run_setting(const run *run, const char *setting) {
    return value_of(json_object_get(run->log->begun, "settings"), setting);
}

bool run_shares(const run *one, const run *with, const char *setting) {
    char *a = run_setting(one, setting), *b = run_setting(with, setting);
    const bool same = is_same(a, b);
    free(a);
    free(b);
    return same;
}

bool runs_share(const run *runs, size_t count, const char *setting) {
    for (size_t i = 1; i < count; i++) {
        if (!run_shares(&runs[i], &runs[0], setting)) {
            return false;
        }
    }
    return true;
}

static bool has_name(const setting_names *list, const char *name) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

setting_names settings_of_runs(const run *runs, size_t count) {
    setting_names list = {0};
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most += json_object_size(json_object_get(runs[i].log->begun, "settings"));
    }
    list.names = need(most + 1, sizeof *list.names);
    for (size_t i = 0; i < count; i++) {
        json_t *settings = json_object_get(runs[i].log->begun, "settings"), *value;
        const char *name;
        json_object_foreach(settings, name, value) {
            if (!has_name(&list, name)) {
                list.names[list.count++] = name;
            }
        }
    }
    return list;
}

/* Appends the difference in one setting to `list`, which may be NULL. Returns the new list; frees the old one. */
static char *add_difference(char *list, const char *name, const json_t *one, const json_t *from) {
    char *a = value_of(one, name), *b = value_of(from, name), *longer = list;
    if (!is_execution_setting(name) && !is_same(a, b)) {
        longer = text_of("%s%s%s (%s, not %s)", list != NULL ? list : "", list != NULL ? ", " : "", name,
                         a[0] != '\0' ? a : "none", b[0] != '\0' ? b : "none");
        free(list);
    }
    free(a);
    free(b);
    return longer;
}

char *run_difference(const run *one, const run *from) {
    json_t *mine = json_object_get(one->log->begun, "settings"),
           *theirs = json_object_get(from->log->begun, "settings");
    char *list = NULL;
    const char *name;
    json_t *value;
    json_object_foreach(mine, name, value) { list = add_difference(list, name, mine, theirs); }
    json_object_foreach(theirs, name, value) {
        if (json_object_get(mine, name) == NULL) {
            list = add_difference(list, name, mine, theirs);
        }
    }
    return list;
}

static size_t model_of(const run *runs, size_t index) {
    for (size_t i = 0; i < index; i++) {
        char *difference = run_difference(&runs[index], &runs[i]);
        if (difference == NULL) {
            return i;
        }
        free(difference);
    }
    return index;
}

/* ---- losses and times ---- */

double run_seconds_to(const run *run, double loss) {
    const log_series *progress = &run->log->progress;
    for (size_t i = 0; i < progress->count; i++) {
        if (series_value(progress, VALUE_LOSS, i) <= loss) {
            return series_value(progress, VALUE_SECONDS, i);
        }
    }
    return run->loss <= loss ? log_number(run->log->end, "seconds") : NAN;
}

double run_seconds(const run *run) {
    const double whole = log_number(run->log->end, "seconds");
    return isfinite(whole) ? whole : series_last(&run->log->progress, VALUE_SECONDS);
}

double run_updates(const run *run) {
    const double last = log_number(run->log->end, "step");
    return isfinite(last) ? last : series_last(&run->log->progress, VALUE_STEP);
}

/* That of the end line: not every update is logged. */
static double last_loss(const training_log *log) {
    const double loss = log_number(log->end, "loss");
    return isfinite(loss) ? loss : series_last(&log->progress, VALUE_LOSS);
}

/* ---- names ---- */

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The length of the folders that all paths begin with, and the last slash of them. */
static size_t shared_folders(const log_file *files, size_t count) {
    size_t length = strlen(files[0].path);
    for (size_t i = 1; i < count; i++) {
        size_t same = 0;
        while (same < length && files[i].path[same] == files[0].path[same]) {
            same++;
        }
        length = same;
    }
    while (length > 0 && files[0].path[length - 1] != '/') {
        length--;
    }
    return length;
}

char *run_name(const log_file *files, size_t count, size_t index) {
    bool unique = true;
    for (size_t i = 0; i < count && unique; i++) {
        for (size_t j = 0; j < i && unique; j++) {
            unique = strcmp(file_name(files[i].path), file_name(files[j].path)) != 0;
        }
    }
    const char *path = files[index].path;
    return text_of("%s", unique ? file_name(path) : path + shared_folders(files, count));
}

/* ---- runs ---- */

static double number_or(const json_t *line, const char *key, double missing) {
    const double value = log_number(line, key);
    return isfinite(value) ? value : missing;
}

static run run_of(const training_log *log) {
    const json_t *ranks = json_object_get(log->begun, "ranks");
    const char *split = log_text(ranks, "split");
    return (run){.log = log,
                 .replicas = number_or(ranks, "replicas", 1),
                 .stages = number_or(ranks, "stages", 1),
                 .micro_batches = number_or(ranks, "micro_batches", 1),
                 .time_chunks = number_or(ranks, "time_chunks", 1),
                 .split = split != NULL ? split : "",
                 .speed = log_speed(log),
                 .loss = last_loss(log)};
}

run *runs_new(const log_file *files, size_t count) {
    run *runs = need(count, sizeof *runs);
    for (size_t i = 0; i < count; i++) {
        runs[i] = run_of(&files[i].log);
        runs[i].name = run_name(files, count, i);
        runs[i].model = model_of(runs, i);
    }
    return runs;
}

void runs_free(run *runs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(runs[i].name);
    }
    free(runs);
}

bool runs_differ_in_ranks(const run *runs, size_t count, size_t model) {
    for (size_t i = 0; i < count; i++) {
        if (runs[i].model == model && run_ranks(&runs[i]) != run_ranks(&runs[model])) {
            return true;
        }
    }
    return false;
}

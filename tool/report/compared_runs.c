/* Reading training runs for a comparison. */
#include "report/compared_runs.h"

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

bool run_shares(const run *one, const run *with, const char *setting) {
    char *a = value_of(json_object_get(one->log.begun, "settings"), setting);
    char *b = value_of(json_object_get(with->log.begun, "settings"), setting);
    const bool same = is_same(a, b);
    free(a);
    free(b);
    return same;
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
    json_t *mine = json_object_get(one->log.begun, "settings"), *theirs = json_object_get(from->log.begun, "settings");
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

/* ---- losses ---- */

double run_seconds_to(const run *run, double loss) {
    const log_series *progress = &run->log.progress;
    for (size_t i = 0; i < progress->count; i++) {
        if (progress->points[i].loss <= loss) {
            return progress->points[i].seconds;
        }
    }
    return run->loss <= loss ? log_number(run->log.end, "seconds") : NAN;
}

/* That of the end line: not every update is logged. */
static double last_loss(const training_log *log) {
    double loss = log_number(log->end, "loss");
    for (size_t i = log->progress.count; i > 0 && !isfinite(loss); i--) {
        loss = log->progress.points[i - 1].loss;
    }
    return loss;
}

/* ---- reading ---- */

static double number_or(const json_t *line, const char *key, double missing) {
    const double value = log_number(line, key);
    return isfinite(value) ? value : missing;
}

static bool run_read(run *run, const char *path) {
    if (!log_read(&run->log, path)) {
        return false;
    }
    if (run->log.progress.count == 0) {
        say("%s has no progress lines: there is nothing to compare", path);
        return false;
    }
    const char *slash = strrchr(path, '/'), *split;
    const json_t *ranks = json_object_get(run->log.begun, "ranks");
    split = log_text(ranks, "split");
    run->name = slash != NULL ? slash + 1 : path;
    run->replicas = number_or(ranks, "replicas", 1);
    run->stages = number_or(ranks, "stages", 1);
    run->micro_batches = number_or(ranks, "micro_batches", 1);
    run->time_chunks = number_or(ranks, "time_chunks", 1);
    run->split = split != NULL ? split : "";
    run->speed = log_speed(&run->log);
    run->loss = last_loss(&run->log);
    return true;
}

bool runs_read(run *runs, const char *const *paths, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!run_read(&runs[i], paths[i])) {
            return false;
        }
        runs[i].model = model_of(runs, i);
    }
    return true;
}

void runs_free(run *runs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        log_free(&runs[i].log);
    }
    free(runs);
}

/* The sections about one training log: numbers, curves and tables. */
#include "report/training_sections.h"
#include "report/line_plot.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- summary ---- */

/* A card with a number; none if the log does not have it. */
static void number_card(FILE *out, double value, const char *format, const char *meaning) {
    char room[64];
    if (isfinite(value)) {
        snprintf(room, sizeof room, format, value);
        put_card(out, room, meaning);
    }
}

/* A card with the perplexity, or with the loss if there is none. */
static void result_card(FILE *out, double loss, double perplexity, const char *what) {
    char meaning[160], room[96];
    const bool whole = isfinite(perplexity);
    room[0] = '\0';
    if (isfinite(loss)) snprintf(room, sizeof room, "loss %.4f", loss);
    snprintf(meaning, sizeof meaning, "%s%s%s%s", whole ? "perplexity, " : "loss, ", what, whole && room[0] ? "; " : "",
             whole ? room : "");
    number_card(out, whole ? perplexity : loss, whole ? "%.2f" : "%.4f", meaning);
}

static void put_summary(FILE *out, const training_log *log) {
    const log_point *best = log_best(log);
    char what[96];
    fprintf(out, "<div class=\"cards\">\n");
    if (best != NULL) {
        snprintf(what, sizeof what, "best validation, after %.0f updates", best->step);
        result_card(out, best->loss, best->perplexity, what);
    }
    result_card(out, log_number(log->end, "test_loss"), log_number(log->end, "test_perplexity"), "test");
    if (log->progress.count > 0) {
        const log_point *last = &log->progress.points[log->progress.count - 1];
        snprintf(what, sizeof what, "training, after %.0f updates", last->step);
        result_card(out, last->loss, last->perplexity, what);
    }
    number_card(out, log_speed(log), "%.0f", "tokens a second");
    number_card(out, log_number(log->start, "parameters"), "%.0f", "parameters");
    number_card(out, log_number(log->end, "seconds"), "%.0f s", "total time");
    fprintf(out, "</div>\n");
}

/* ---- curves ---- */

typedef struct {
    const char *id, *title, *unit, *about;
    size_t offset; /* of the value in a point */
    bool validations, logarithmic, from_zero;
} training_plot;

static const training_plot perplexity_plot = {
    "loss",
    "Perplexity",
    "perplexity",
    "Training and validation. The axis is logarithmic: heights are proportional to losses.",
    offsetof(log_point, perplexity),
    true,
    true,
    false};
static const training_plot loss_plot = {"loss", "Loss", "loss", "Training and validation.", offsetof(log_point, loss),
                                        true,   false,  false};
static const training_plot other_plots[] = {
    {"rate", "Learning rate", "learning rate", "The learning rate of each update.", offsetof(log_point, rate), false,
     false, true},
    {"speed", "Throughput", "tokens a second", "Training only, without validation.", offsetof(log_point, speed), false,
     false, true},
    {"norm", "Gradient norm", "norm", "Before clipping.", offsetof(log_point, norm), false, true, false},
};

static double value_of(const log_point *point, size_t offset) {
    double value;
    memcpy(&value, (const char *)point + offset, sizeof value);
    return value;
}

/* The points of a series, for free(). */
static plot_point *points_of(const log_series *series, size_t offset) {
    plot_point *points = need(series->count + 1, sizeof *points);
    for (size_t i = 0; i < series->count; i++) {
        points[i] = (plot_point){series->points[i].step, value_of(&series->points[i], offset)};
    }
    return points;
}

static bool has_values(const log_series *series, size_t offset) {
    for (size_t i = 0; i < series->count; i++) {
        if (isfinite(value_of(&series->points[i], offset))) {
            return true;
        }
    }
    return false;
}

static void put_plot(FILE *out, const training_log *log, const training_plot *plot) {
    const bool validations = plot->validations && has_values(&log->validations, plot->offset);
    if (!has_values(&log->progress, plot->offset) && !validations) {
        return;
    }
    static const char *const labels[] = {"training", "validation"};
    static const int colours[] = {5, 4};
    double *resumes = need(log->resumes.count + 1, sizeof *resumes);
    for (size_t i = 0; i < log->resumes.count; i++) {
        resumes[i] = log->resumes.points[i].step;
    }
    plot_point *training = points_of(&log->progress, plot->offset), *valid = points_of(&log->validations, plot->offset);
    const plot_line lines[] = {
        {labels[0], training, log->progress.count, colours[0], .marks = log->progress.count == 1},
        {labels[1], valid, log->validations.count, colours[1], .marks = true},
    };
    const plot_style style = {.title = plot->title,
                              .unit = plot->unit,
                              .axis = "updates",
                              .logarithmic = plot->logarithmic,
                              .from_zero = plot->from_zero,
                              .lines = resumes,
                              .line_count = log->resumes.count,
                              .line_label = "resumed at"};
    put_section(out, plot->id, plot->title, plot->about);
    if (validations) {
        put_legend(out, labels, colours, COUNT(labels));
    }
    draw_plot(out, lines, validations ? 2 : 1, &style);
    fprintf(out, "</section>\n");
    free(resumes);
    free(training);
    free(valid);
}

static void put_plots(FILE *out, const training_log *log) {
    const bool perplexities =
        has_values(&log->progress, perplexity_plot.offset) || has_values(&log->validations, perplexity_plot.offset);
    put_plot(out, log, perplexities ? &perplexity_plot : &loss_plot);
    for (size_t i = 0; i < COUNT(other_plots); i++) {
        put_plot(out, log, &other_plots[i]);
    }
}

/* ---- tables ---- */

void put_number(FILE *out, double value, const char *format) {
    fprintf(out, "<td>");
    if (isfinite(value)) {
        fprintf(out, format, value);
    }
    fprintf(out, "</td>");
}

static void put_validations(FILE *out, const training_log *log) {
    if (log->validations.count == 0) {
        return;
    }
    const log_point *best = log_best(log);
    put_section(out, "validations", "Validations", "The lowest loss is bold.");
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>updates</th><th>epoch</th><th>loss</th>"
                 "<th>perplexity</th><th>seconds</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < log->validations.count; i++) {
        const log_point *point = &log->validations.points[i];
        fprintf(out, "<tr%s>", point == best ? " class=\"best\"" : "");
        put_number(out, point->step, "%.0f");
        put_number(out, point->epoch, "%.6g");
        put_number(out, point->loss, "%.4f");
        put_number(out, point->perplexity, "%.2f");
        put_number(out, point->seconds, "%.1f");
        fprintf(out, "</tr>\n");
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

/* One row for each bucket. */
static void put_buckets(FILE *out, const training_log *log) {
    const json_t *shapes = json_object_get(log->start, "shapes");
    const size_t count = json_array_size(shapes);
    double padded = 0, batches = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *shape = json_array_get(shapes, i);
        padded += log_number(shape, "steps") * log_number(shape, "batch") * log_number(shape, "batches");
        batches += log_number(shape, "batches");
    }
    if (count < 2 || !(padded > 0)) {
        return;
    }
    char *note =
        text_of("Lengths to which sequences are padded: %.4f time steps with padding for each time step of the data.",
                padded / log_number(log->start, "tokens"));
    put_section(out, "buckets", "Buckets", note);
    free(note);
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>length</th><th>sequences</th><th>batches</th>"
                 "<th>share</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < count; i++) {
        const json_t *shape = json_array_get(shapes, i);
        fprintf(out, "<tr>");
        put_number(out, log_number(shape, "steps"), "%.0f");
        put_number(out, log_number(shape, "batch"), "%.0f");
        put_number(out, log_number(shape, "batches"), "%.0f");
        put_number(out, 100 * log_number(shape, "batches") / batches, "%.1f%%");
        fprintf(out, "</tr>\n");
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

/* A row, if the value is not the default. A setting that this version does not know or accept is shown unchanged. */
static void put_setting(FILE *out, rcv_settings *settings, const char *name, const json_t *value) {
    char *text = log_value_text(value);
    const rcv_status status = rcv_settings_set(settings, name, text);
    if (status == RCV_NO_MEMORY) {
        give_up(strlen(text));
    }
    const bool known = status == RCV_OK;
    const char *shown = known ? rcv_settings_get(settings, name) : text, *usual = default_setting(name);
    if (strcmp(shown, usual) != 0) {
        fprintf(out, "<tr><td>");
        put_text(out, name);
        fprintf(out, "</td><td class=\"left\"><code>");
        put_text(out, shown);
        fprintf(out, "</code></td><td class=\"left soft\">");
        put_text(out, usual);
        fprintf(out, "</td></tr>\n");
    }
    free(text);
}

void put_settings(FILE *out, const training_log *log, rcv_settings *settings, bool shared) {
    json_t *object = json_object_get(log->start, "settings");
    const char *name;
    json_t *value;
    if (!json_is_object(object)) {
        return;
    }
    put_section(out, "settings", "Settings",
                shared
                    ? "Settings of model and training that differ from their defaults; they are the same in all runs."
                    : "Settings that differ from their defaults.");
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>setting</th><th class=\"left\">value</th>"
                 "<th class=\"left\">default</th></tr></thead><tbody>\n");
    json_object_foreach(object, name, value) {
        if (!shared || !is_execution_setting(name)) {
            put_setting(out, settings, name, value);
        }
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

static void put_fact(FILE *out, const char *name, const char *value) {
    if (value != NULL) {
        fprintf(out, "<dt>%s</dt><dd>", name);
        put_text(out, value);
        fprintf(out, "</dd>\n");
    }
}

static void put_number_fact(FILE *out, const char *name, double value) {
    if (isfinite(value)) {
        fprintf(out, "<dt>%s</dt><dd>%.0f</dd>\n", name, value);
    }
}

/* The ranks, and the bytes that they send. */
static void put_ranks_facts(FILE *out, const training_log *log) {
    const json_t *ranks = json_object_get(log->begun, "ranks");
    if (ranks == NULL) {
        return;
    }
    const double replicas = log_number(ranks, "replicas"), stages = log_number(ranks, "stages");
    fprintf(out, "<dt>ranks</dt><dd>%.0f: %.0f x %.0f, replicas x stages</dd>\n", replicas * stages, replicas, stages);
    put_fact(out, "transport", log_text(ranks, "transport"));
    put_number_fact(out, "bytes sent in an update", log_number(log->end, "sent_all"));
    put_number_fact(out, "bytes sent by the busiest rank", log_number(log->end, "sent_most"));
}

static void put_facts(FILE *out, const training_log *log) {
    fprintf(out, "<section id=\"facts\"><h2>The run</h2>\n<dl>\n");
    put_fact(out, "device", log_text(log->start, "device"));
    put_fact(out, "started", log_text(log->start, "date"));
    put_fact(out, "version", log_text(log->start, "version"));
    put_fact(out, "commit", log_text(log->start, "commit"));
    put_ranks_facts(out, log);
    put_number_fact(out, "tokens of the data", log_number(log->start, "tokens"));
    put_number_fact(out, "bytes in memory", log_number(log->start, "bytes"));
    json_t *plans = json_object_get(log->start, "plans");
    const char *last = "";
    for (size_t i = 0; i < json_array_size(plans); i++) {
        const char *plan = json_string_value(json_array_get(plans, i));
        if (plan == NULL || strcmp(plan, last) == 0) { /* buckets may share a plan */
            continue;
        }
        last = plan;
        fprintf(out, "<dt>plan</dt><dd><code>");
        put_plan(out, plan);
        fprintf(out, "</code></dd>\n");
    }
    put_number_fact(out, "checkpoints", (double)log->checkpoints);
    for (size_t i = 0; i < log->resumes.count; i++) {
        put_number_fact(out, "resumed at update", log->resumes.points[i].step);
    }
    put_fact(out, "ended by", log->end != NULL ? log_text(log->end, "reason") : "it has not ended");
    fprintf(out, "</dl></section>\n");
}

void put_training(FILE *out, const training_log *log, rcv_settings *settings) {
    const char *device = log_text(log->start, "device"), *date = log_text(log->start, "date");
    put_text(out, device != NULL ? device : "");
    fprintf(out, "%s", device != NULL && date != NULL ? ", " : "");
    put_text(out, date != NULL ? date : "");
    fprintf(out, "</p>\n");
    put_summary(out, log);
    put_plots(out, log);
    put_validations(out, log);
    put_buckets(out, log);
    if (trace_is_drawn(&log->trace)) {
        begin_traces(out);
        put_trace(out, &log->trace);
        fprintf(out, "</section>\n");
    }
    put_settings(out, log, settings, false);
    put_facts(out, log);
}

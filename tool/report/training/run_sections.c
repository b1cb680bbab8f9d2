/* The sections about one training log: numbers, curves and tables. */
#include "report/training/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- summary ---- */

void put_number_card(FILE *out, double value, const char *format, const char *meaning) {
    char room[64];
    if (isfinite(value)) {
        put_card(out, grouped(room, format, value), meaning);
    }
}

/* A result: the loss, and what it is shown as. */
typedef struct {
    double loss, shown;
} result;

/* A card with the perplexity or the bits a byte, or with the loss if there is neither. */
static void put_result_card(FILE *out, const result *result, log_value measure, const char *what) {
    char meaning[200], room[64];
    const bool whole = measure != VALUE_LOSS && isfinite(result->shown);
    snprintf(meaning, sizeof meaning, "%s, %s", log_values[whole ? measure : VALUE_LOSS].name, what);
    if (whole && isfinite(result->loss)) {
        const size_t length = strlen(meaning);
        snprintf(meaning + length, sizeof meaning - length, "; loss %s", grouped(room, "%.4f", result->loss));
    }
    put_number_card(out, whole ? result->shown : result->loss, log_values[whole ? measure : VALUE_LOSS].format,
                    meaning);
}

static result result_at(const log_series *series, log_value measure, size_t index) {
    return (result){series_value(series, VALUE_LOSS, index), series_value(series, measure, index)};
}

/* "78.2 s", "12 min 5 s" or "3 h 20 min". */
static void put_time_card(FILE *out, double seconds) {
    char room[64], text[96];
    if (!isfinite(seconds)) {
        return;
    }
    if (seconds < 120) {
        snprintf(text, sizeof text, "%.1f s", seconds);
    } else if (seconds < 7200) {
        const double whole = round(seconds);
        snprintf(text, sizeof text, "%.0f min %.0f s", floor(whole / 60), fmod(whole, 60));
    } else {
        const double minutes = round(seconds / 60);
        snprintf(text, sizeof text, "%s h %.0f min", grouped(room, "%.0f", floor(minutes / 60)), fmod(minutes, 60));
    }
    put_card(out, text, "total time");
}

static void put_summary(FILE *out, const training_log *log) {
    const log_value measure = log_measure(log);
    const size_t best = log_best(log), count = log->progress.count;
    char what[96], room[64];
    fprintf(out, "<div class=\"cards\">\n");
    put_metric_cards(out, log);
    if (best != NO_POINT) {
        snprintf(what, sizeof what, "best validation, after %s updates",
                 grouped(room, "%.0f", series_value(&log->validations, VALUE_STEP, best)));
        const result result = result_at(&log->validations, measure, best);
        put_result_card(out, &result, measure, what);
    }
    const result test = {log_test_value(log, VALUE_LOSS), log_test_measure(log, measure)};
    put_result_card(out, &test, measure, "test");
    if (count > 0) {
        snprintf(what, sizeof what, "training, after %s updates",
                 grouped(room, "%.0f", series_value(&log->progress, VALUE_STEP, count - 1)));
        const result last = result_at(&log->progress, measure, count - 1);
        put_result_card(out, &last, measure, what);
    }
    put_number_card(out, log_speed(log), "%.0f", log_speed_name(log));
    put_number_card(out, log_number(log->start, "parameters"), "%.0f", "parameters");
    put_time_card(out, log_number(log->end, "seconds"));
    fprintf(out, "</div>\n");
}

/* ---- curves ---- */

enum { MOST_POINTS = 500 };

static const char *measure_about(log_value measure) {
    return measure == VALUE_PERPLEXITY
               ? "Training and validation. The axis is logarithmic: heights are proportional to losses."
           : measure == VALUE_BITS ? "Training and validation: the loss in bits for each byte of the text."
                                   : "Training and validation.";
}

/* Says what a line stands for if it is drawn through means. */
static char *about_curve(const char *about, const log_series *series) {
    const size_t together = (series->count + MOST_POINTS - 1) / MOST_POINTS;
    return together > 1 ? text_of("%s The line goes through means of %zu neighbouring lines of the log; the band is "
                                  "their range.",
                                  about, together)
                        : text_of("%s", about);
}

static void put_losses(FILE *out, const training_log *log, const page_axes *axes) {
    const log_value measure = log_measure(log);
    const char *title = measure == VALUE_PERPLEXITY ? "Perplexity" : measure == VALUE_BITS ? "Bits a byte" : "Loss";
    const value_curve curves[] = {
        {"training", &log->progress, measure, .colour = 5, .run = -1, .band = true},
        {"validation", &log->validations, measure, .colour = 4, .run = -1, .marks = true},
    };
    const bool validations = curves_have_values(&curves[1], 1);
    if (!curves_have_values(curves, 2)) {
        return;
    }
    const curves_style style = {.title = title,
                                .unit = log_values[measure].name,
                                .logarithmic = measure == VALUE_PERPLEXITY || curves_need_logarithm(curves, 2),
                                .most_points = MOST_POINTS,
                                .resumes = &log->resumes};
    char *about = about_curve(measure_about(measure), &log->progress);
    put_section(out, "loss", title, about);
    put_curves(out, curves, validations ? 2 : 1, &style, axes);
    fprintf(out, "</section>\n");
    free(about);
}

/* The metric of the validations, and beside an error that of the naive forecast. */
static void put_metric(FILE *out, const training_log *log, const page_axes *axes) {
    const log_value metric = main_metric(log);
    if (metric >= LOG_VALUES || !series_has(&log->validations, metric)) {
        return;
    }
    const log_value naive = metric == VALUE_MAE    ? VALUE_NAIVE_MAE
                            : metric == VALUE_RMSE ? VALUE_NAIVE_RMSE
                                                   : LOG_VALUES;
    const bool compared = naive < LOG_VALUES && series_has(&log->validations, naive);
    const value_curve curves[] = {
        {log_values[metric].name, &log->validations, metric, .colour = 4, .run = -1, .marks = true},
        {"naive forecast", &log->validations, compared ? naive : metric, .colour = NEUTRAL, .dash = 1, .run = -1},
    };
    const curves_style style = {.title = log_values[metric].name,
                                .unit = log_values[metric].name,
                                .most_points = MOST_POINTS,
                                .resumes = &log->resumes};
    char *title = text_of("%s", log_values[metric].name);
    title[0] = (char)(title[0] >= 'a' && title[0] <= 'z' ? title[0] - 'a' + 'A' : title[0]);
    put_section(out, "metric", title, "Of the validations.");
    put_curves(out, curves, compared ? 2 : 1, &style, axes);
    fprintf(out, "</section>\n");
    free(title);
}

typedef struct {
    const char *id, *title;
    const char *unit; /* NULL: that of the speed */
    const char *about;
    log_value value;
    bool logarithmic, from_zero;
} training_plot;

static const training_plot other_plots[] = {
    {"rate", "Learning rate", "learning rate", "The learning rate of each update.", VALUE_RATE, false, true},
    {"speed", "Throughput", NULL, "Training only, without validation.", VALUE_SPEED, false, true},
    {"norm", "Gradient norm", "norm", "Before clipping.", VALUE_NORM, true, false},
};

static void put_plot(FILE *out, const training_log *log, const training_plot *plot, const page_axes *axes) {
    const value_curve curve = {"training",  &log->progress, plot->value,
                               .colour = 5, .run = -1,      .band = plot->value != VALUE_RATE};
    if (!curves_have_values(&curve, 1)) {
        return;
    }
    const curves_style style = {.title = plot->title,
                                .unit = plot->unit != NULL ? plot->unit : log_speed_name(log),
                                .logarithmic = plot->logarithmic,
                                .from_zero = plot->from_zero,
                                .most_points = MOST_POINTS,
                                .resumes = &log->resumes};
    char *about = curve.band ? about_curve(plot->about, &log->progress) : text_of("%s", plot->about);
    put_section(out, plot->id, plot->title, about);
    put_curves(out, &curve, 1, &style, axes);
    fprintf(out, "</section>\n");
    free(about);
}

static void put_plots(FILE *out, const training_log *log) {
    const page_axes axes = axes_of(&log, 1);
    put_axis_choice(out, &axes);
    put_losses(out, log, &axes);
    put_metric(out, log, &axes);
    for (size_t i = 0; i < COUNT(other_plots); i++) {
        put_plot(out, log, &other_plots[i], &axes);
    }
}

/* ---- tables ---- */

void put_number(FILE *out, double value, const char *format) {
    char room[64];
    fprintf(out, "<td>%s</td>", isfinite(value) ? grouped(room, format, value) : "");
}

enum { MOST_VALIDATIONS = 200 };

/* The columns of the table of validations, and how they are written. */
static size_t validation_columns(const training_log *log, log_value columns[LOG_VALUES]) {
    static const log_value first[] = {VALUE_STEP, VALUE_EPOCH, VALUE_LOSS, VALUE_PERPLEXITY, VALUE_BITS};
    size_t count = 0;
    for (size_t i = 0; i < COUNT(first); i++) {
        if (series_has(&log->validations, first[i])) {
            columns[count++] = first[i];
        }
    }
    for (log_value value = FIRST_METRIC; value < LOG_VALUES; value++) {
        if (series_has(&log->validations, value)) {
            columns[count++] = value;
        }
    }
    columns[count++] = VALUE_SECONDS;
    return count;
}

static void put_validations(FILE *out, const training_log *log) {
    const log_series *series = &log->validations;
    if (series->count == 0) {
        return;
    }
    log_value columns[LOG_VALUES];
    const size_t best = log_best(log), count = validation_columns(log, columns);
    const size_t first = series->count > MOST_VALIDATIONS ? series->count - MOST_VALIDATIONS : 0;
    char *about = first > 0 ? text_of("The last %d of %zu, and the best. The lowest loss is bold.", MOST_VALIDATIONS,
                                      series->count)
                            : text_of("The lowest loss is bold.");
    put_section(out, "validations", "Validations", about);
    free(about);
    fprintf(out, "<div class=\"table\"><table><thead><tr>");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<th>%s</th>", columns[i] == VALUE_EPOCH ? "epoch" : log_values[columns[i]].name);
    }
    fprintf(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < series->count; i++) {
        if (i < first && i != best) {
            continue;
        }
        fprintf(out, "<tr%s>", i == best ? " class=\"best\"" : "");
        for (size_t j = 0; j < count; j++) {
            put_number(out, series_value(series, columns[j], i), log_values[columns[j]].format);
        }
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

static void put_fact(FILE *out, const char *name, const char *value) {
    if (value != NULL) {
        fprintf(out, "<dt>%s</dt><dd>", name);
        put_text(out, value);
        fprintf(out, "</dd>\n");
    }
}

static void put_number_fact(FILE *out, const char *name, double value) {
    char room[64];
    if (isfinite(value)) {
        fprintf(out, "<dt>%s</dt><dd>%s</dd>\n", name, grouped(room, "%.0f", value));
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
    put_fact(out, "data", log_text(json_object_get(log->start, "data"), "description"));
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
        put_number_fact(out, "resumed at update", series_value(&log->resumes, VALUE_STEP, i));
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
    put_classes(out, log);
    put_validations(out, log);
    put_buckets(out, log);
    if (trace_is_drawn(&log->trace)) {
        begin_traces(out);
        put_trace(out, &log->trace);
        fprintf(out, "</section>\n");
    }
    put_settings(out, log, settings);
    put_facts(out, log);
}

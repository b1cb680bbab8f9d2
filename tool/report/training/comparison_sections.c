/* The sections that lay runs over each other: cards, curves, and the table of the runs. */
#include "report/training/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a page of runs shows, and how. */
typedef struct {
    const run *runs;
    size_t count;
    page_axes axes;
    log_value measure; /* of the loss: what all runs have */
    log_value metric;  /* LOG_VALUES: none */
    const char *speed_name;
    double loss; /* the time to this loss is shown; NaN: none */
} comparison;

static bool has_begun(const run *run) { return run->log->progress.count > 0 || run->log->validations.count > 0; }

/* Bits a byte or perplexity if all runs have it, else the loss. */
static log_value shared_measure(const run *runs, size_t count) {
    log_value measure = LOG_VALUES;
    for (size_t i = 0; i < count; i++) {
        if (has_begun(&runs[i])) {
            const log_value own = log_measure(runs[i].log);
            measure = measure == LOG_VALUES || measure == own ? own : VALUE_LOSS;
        }
    }
    return measure < LOG_VALUES ? measure : VALUE_LOSS;
}

static log_value shared_metric(const run *runs, size_t count) {
    log_value metric = LOG_VALUES;
    for (size_t i = 0; i < count; i++) {
        const log_value own = main_metric(runs[i].log);
        metric = own < metric ? own : metric;
    }
    return metric;
}

/* What the speed counts, if that is the same for all runs. */
static const char *shared_speed_name(const run *runs, size_t count) {
    const char *name = log_speed_name(runs[0].log);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(log_speed_name(runs[i].log), name) != 0) {
            return "tokens, sequences or steps a second";
        }
    }
    return name;
}

static comparison comparison_of(const run *runs, size_t count, double loss) {
    const training_log **logs = need(count, sizeof *logs);
    for (size_t i = 0; i < count; i++) {
        logs[i] = runs[i].log;
    }
    const comparison comparison = {.runs = runs,
                                   .count = count,
                                   .axes = axes_of(logs, count),
                                   .measure = shared_measure(runs, count),
                                   .metric = shared_metric(runs, count),
                                   .speed_name = shared_speed_name(runs, count),
                                   .loss = loss};
    free(logs);
    return comparison;
}

/* ---- values of a run ---- */

typedef double run_value(const comparison *comparison, const run *run);

static double updates(const comparison *comparison, const run *run) {
    (void)comparison;
    return run_updates(run);
}

static double training_loss(const comparison *comparison, const run *run) {
    const double last = log_number(run->log->end, log_values[comparison->measure].key);
    return isfinite(last) ? last : series_last(&run->log->progress, comparison->measure);
}

static double validation_loss(const comparison *comparison, const run *run) {
    return series_value(&run->log->validations, comparison->measure, log_best(run->log));
}

static double test_loss(const comparison *comparison, const run *run) {
    return log_test_measure(run->log, comparison->measure);
}

/* The best of the validations. */
static double best_metric(const comparison *comparison, const run *run) {
    const log_value metric = comparison->metric;
    double best = NAN;
    for (size_t i = 0; metric < LOG_VALUES && i < run->log->validations.count; i++) {
        const double value = series_value(&run->log->validations, metric, i);
        best = log_values[metric].rises ? fmax(best, value) : fmin(best, value);
    }
    return best;
}

static double test_metric(const comparison *comparison, const run *run) {
    return comparison->metric < LOG_VALUES ? log_test_value(run->log, comparison->metric) : NAN;
}

static double naive_metric(const comparison *comparison, const run *run) {
    const log_value metric = comparison->metric;
    if (metric != VALUE_MAE && metric != VALUE_RMSE) {
        return NAN;
    }
    const log_value naive = metric == VALUE_MAE ? VALUE_NAIVE_MAE : VALUE_NAIVE_RMSE;
    const double test = log_test_value(run->log, naive);
    return isfinite(test) ? test : series_last(&run->log->validations, naive);
}

static double training_time(const comparison *comparison, const run *run) {
    return run_seconds(run) / comparison->axes.unit;
}

static double time_to_loss(const comparison *comparison, const run *run) {
    return isnan(comparison->loss) ? NAN : run_seconds_to(run, comparison->loss) / comparison->axes.unit;
}

static double parameters(const comparison *comparison, const run *run) {
    (void)comparison;
    return log_number(run->log->start, "parameters");
}

static double speed(const comparison *comparison, const run *run) {
    (void)comparison;
    return run->speed;
}

/* The run with the best value; NULL: no run has one, or all have the same. */
static const run *best_run(const comparison *comparison, run_value *value_of, bool rises) {
    const run *best = NULL;
    bool differ = false;
    for (size_t i = 0; i < comparison->count; i++) {
        const run *run = &comparison->runs[i];
        const double value = value_of(comparison, run);
        if (!isfinite(value)) {
            continue;
        }
        const double least = best != NULL ? value_of(comparison, best) : value;
        differ = differ || value != least;
        best = best == NULL || (rises ? value > least : value < least) ? run : best;
    }
    return differ ? best : NULL;
}

/* ---- cards ---- */

static void put_best_card(FILE *out, const comparison *comparison, run_value *value_of, log_value kind,
                          const char *what) {
    const run *best = best_run(comparison, value_of, log_values[kind].rises);
    if (best != NULL) {
        char *meaning = text_of("%s: %s", what, best->name);
        put_number_card(out, value_of(comparison, best), log_values[kind].format, meaning);
        free(meaning);
    }
}

static void put_cards(FILE *out, const comparison *comparison) {
    const log_value metric = comparison->metric;
    const char *measure = log_values[comparison->measure].name;
    fprintf(out, "<div class=\"cards\">\n");
    if (metric < LOG_VALUES) {
        char *test = text_of("best %s, test", log_values[metric].name);
        char *valid = text_of("best %s, validation", log_values[metric].name);
        put_best_card(out, comparison, test_metric, metric, test);
        put_best_card(out, comparison, best_metric, metric, valid);
        free(test);
        free(valid);
    }
    char *test = text_of("best %s, test", measure), *valid = text_of("best %s, validation", measure),
         *training = text_of("lowest training %s at the end", measure);
    put_best_card(out, comparison, test_loss, comparison->measure, test);
    put_best_card(out, comparison, validation_loss, comparison->measure, valid);
    put_best_card(out, comparison, training_loss, comparison->measure, training);
    char *fastest = text_of("most %s", comparison->speed_name);
    put_best_card(out, comparison, speed, VALUE_SPEED, fastest);
    free(fastest);
    free(test);
    free(valid);
    free(training);
    fprintf(out, "</div>\n");
}

/* ---- curves ---- */

enum { ALL_POINTS = 12000, MOST_POINTS = 600, LEAST_POINTS = 100 }; /* of a plot; of a curve */

/* A page has a limited size, however many runs it shows. */
static size_t points_of_curve(size_t count) {
    const size_t each = ALL_POINTS / count;
    return each > MOST_POINTS ? MOST_POINTS : each < LEAST_POINTS ? LEAST_POINTS : each;
}

typedef struct {
    const char *id, *title, *about;
    bool validations; /* else progress lines */
    bool from_zero, logarithmic;
} comparison_plot;

static void put_section_of_curves(FILE *out, const comparison *comparison, const comparison_plot *plot,
                                  log_value value) {
    value_curve *curves = need(comparison->count + 1, sizeof *curves);
    size_t count = 0;
    for (size_t i = 0; i < comparison->count; i++) {
        const training_log *log = comparison->runs[i].log;
        curves[count] = (value_curve){.label = comparison->runs[i].name,
                                      .series = plot->validations ? &log->validations : &log->progress,
                                      .value = value,
                                      .colour = (int)(i % COLOURS),
                                      .dash = (int)(i / COLOURS % DASHES),
                                      .run = (int)i,
                                      .marks = plot->validations};
        count += curves_have_values(&curves[count], 1);
    }
    if (count > 0) {
        const curves_style style = {.title = plot->title,
                                    .unit = value == VALUE_SPEED ? comparison->speed_name : log_values[value].name,
                                    .logarithmic =
                                        plot->logarithmic || (!plot->from_zero && curves_need_logarithm(curves, count)),
                                    .from_zero = plot->from_zero,
                                    .most_points = points_of_curve(comparison->count)};
        put_section(out, plot->id, plot->title, plot->about);
        put_curves(out, curves, count, &style, &comparison->axes);
        fprintf(out, "</section>\n");
    }
    free(curves);
}

static void put_plots(FILE *out, const comparison *comparison) {
    const bool perplexity = comparison->measure == VALUE_PERPLEXITY;
    const char *name = log_values[comparison->measure].name;
    const char *note = perplexity ? "The axis is logarithmic: heights are proportional to losses." : "";
    char *training = text_of("Training %s", name), *valid = text_of("Validation %s", name);
    const comparison_plot loss = {"loss", training, note, false, false, perplexity};
    const comparison_plot validation = {"validation", valid, note, true, false, perplexity};
    const comparison_plot throughput = {"speed", "Throughput", "Training only, without validation.",
                                        false,   true,         false};
    put_section_of_curves(out, comparison, &loss, comparison->measure);
    put_section_of_curves(out, comparison, &validation, comparison->measure);
    if (comparison->metric < LOG_VALUES) {
        char *title = text_of("Validation %s", log_values[comparison->metric].name);
        const comparison_plot metric = {"metric", title, "", true, false, false};
        put_section_of_curves(out, comparison, &metric, comparison->metric);
        free(title);
    }
    put_section_of_curves(out, comparison, &throughput, VALUE_SPEED);
    free(training);
    free(valid);
}

/* ---- the table ---- */

typedef struct {
    char title[80];
    const char *format;
    run_value *value_of;
    enum { NO_BEST, LOWEST, HIGHEST } best;
} column;

enum { COLUMNS = 10 };

/* The columns that some run has a value for. */
static size_t table_columns(const comparison *comparison, column columns[COLUMNS]) {
    const log_value measure = comparison->measure, metric = comparison->metric;
    const char *loss = log_values[measure].name, *name = metric < LOG_VALUES ? log_values[metric].name : "";
    const int better = metric < LOG_VALUES && log_values[metric].rises ? HIGHEST : LOWEST;
    const struct {
        const char *before, *name;
        column column;
    } all[COLUMNS] = {
        {"", "updates", {"", "%.0f", updates, NO_BEST}},
        {"last training ", loss, {"", log_values[measure].format, training_loss, LOWEST}},
        {"best validation ", loss, {"", log_values[measure].format, validation_loss, LOWEST}},
        {"test ", loss, {"", log_values[measure].format, test_loss, LOWEST}},
        {"best validation ", name, {"", "%.4f", best_metric, better}},
        {"test ", name, {"", "%.4f", test_metric, better}},
        {"naive forecast's ", name, {"", "%.4f", naive_metric, NO_BEST}},
        {"", comparison->axes.name, {"", "%.2f", training_time, NO_BEST}},
        {"parameters", "", {"", "%.0f", parameters, NO_BEST}},
        {"", comparison->speed_name, {"", "%.0f", speed, HIGHEST}},
    };
    size_t count = 0;
    for (size_t i = 0; i < COLUMNS; i++) {
        bool any = false;
        for (size_t j = 0; j < comparison->count && !any; j++) {
            any = isfinite(all[i].column.value_of(comparison, &comparison->runs[j]));
        }
        if (any) {
            columns[count] = all[i].column;
            snprintf(columns[count].title, sizeof columns[count].title, "%s%s", all[i].before, all[i].name);
            count++;
        }
    }
    return count;
}

static const char *state_of(const run *run) {
    const char *reason = log_text(run->log->end, "reason");
    return !has_begun(run)         ? "has not begun"
           : run->log->end == NULL ? "has not ended"
           : reason == NULL        ? "ended"
                                   : reason;
}

static void put_run_row(FILE *out, const comparison *comparison, const run *run, const column *columns, size_t count,
                        const struct run *const *best) {
    const size_t index = (size_t)(run - comparison->runs);
    const char *device = log_text(run->log->begun, "device");
    fprintf(out,
            "<tr><td><svg class=\"sample\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"l%zu d%zu\" d=\"M1 "
            "5h24\"/></svg>",
            index % COLOURS, index / COLOURS % DASHES);
    put_text(out, run->name);
    fprintf(out, "</td>");
    for (size_t i = 0; i < count; i++) {
        char room[64];
        const double value = columns[i].value_of(comparison, run);
        fprintf(out, "<td%s>%s</td>", best[i] == run ? " class=\"best\"" : "",
                isfinite(value) ? grouped(room, columns[i].format, value) : "");
    }
    if (!isnan(comparison->loss)) {
        const double seconds = time_to_loss(comparison, run);
        char room[64];
        fprintf(out, "<td>%s</td>", isfinite(seconds) ? grouped(room, "%.2f", seconds) : "not reached");
    }
    fprintf(out, "<td class=\"left\">");
    put_text(out, state_of(run));
    fprintf(out, "</td><td class=\"left\">");
    put_text(out, device != NULL ? device : "");
    fprintf(out, "</td></tr>\n");
}

static void put_run_table(FILE *out, const comparison *comparison) {
    column columns[COLUMNS];
    const struct run *best[COLUMNS];
    const size_t count = table_columns(comparison, columns);
    put_section(out, "runs", "Runs", "The best of a column is bold.");
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>run</th>");
    for (size_t i = 0; i < count; i++) {
        best[i] =
            columns[i].best == NO_BEST ? NULL : best_run(comparison, columns[i].value_of, columns[i].best == HIGHEST);
        fprintf(out, "<th>%s</th>", columns[i].title);
    }
    if (!isnan(comparison->loss)) {
        fprintf(out, "<th>%s to loss %.6g</th>", comparison->axes.name, comparison->loss);
    }
    fprintf(out, "<th class=\"left\">ended by</th><th class=\"left\">device</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < comparison->count; i++) {
        put_run_row(out, comparison, &comparison->runs[i], columns, count, best);
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

void put_comparison(FILE *out, const run *runs, size_t count, double loss) {
    const comparison comparison = comparison_of(runs, count, loss);
    put_cards(out, &comparison);
    put_axis_choice(out, &comparison.axes);
    for (size_t i = 0; i < count; i++) { /* a style sheet hides the lines of a run whose box is not checked */
        fprintf(out, "<input type=\"checkbox\" class=\"hidden\" id=\"i%zu\" checked aria-label=\"", i);
        put_text(out, runs[i].name);
        fprintf(out, "\">");
    }
    fprintf(out, "\n");
    put_plots(out, &comparison);
    put_run_table(out, &comparison);
    put_setting_differences(out, runs, count);
}

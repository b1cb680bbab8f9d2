/* The sections that compare runs of one model on several ranks: throughput over ranks, data against pipeline parallelism. */
#include "report/line_plot.h"
#include "report/training/sections.h"

#include <math.h>
#include <stdlib.h>

static const char *const series_names[ARRANGEMENTS] = {"one rank", "data", "pipeline", "data and pipeline"};
static const int series_colours[ARRANGEMENTS] = {NEUTRAL, 0, 1, 2};

/* Runs of the same model and training. */
typedef struct {
    const run **runs;
    size_t count;
    const run *one; /* the fastest run with one rank; NULL: none */
    double loss;    /* runs are timed until this loss; NaN: no run has a loss */
} model;

static model model_new(const run *runs, size_t count, size_t first, double loss) {
    model model = {.runs = need(count, sizeof *model.runs), .loss = loss};
    for (size_t i = first; i < count; i++) {
        const run *run = &runs[i];
        if (run->model != first) {
            continue;
        }
        model.runs[model.count++] = run;
        if (run_arrangement(run) == ONE_RANK && isfinite(run->speed) &&
            (model.one == NULL || run->speed > model.one->speed)) {
            model.one = run;
        }
        if (isnan(loss) && isfinite(run->loss) && !(model.loss >= run->loss)) {
            model.loss = run->loss;
        }
    }
    return model;
}

/* ---- scaling ---- */

typedef struct {
    double *ranks, *speeds; /* [count], ranks increase */
    size_t count;
} speed_series;

/* Keeps the order, and the highest of several speeds with the same number of ranks. */
static void add_speed(speed_series *series, double ranks, double speed) {
    size_t at = 0;
    while (at < series->count && series->ranks[at] < ranks) {
        at++;
    }
    if (at < series->count && series->ranks[at] == ranks) {
        series->speeds[at] = fmax(series->speeds[at], speed);
        return;
    }
    for (size_t i = series->count; i > at; i--) {
        series->ranks[i] = series->ranks[i - 1];
        series->speeds[i] = series->speeds[i - 1];
    }
    series->ranks[at] = ranks;
    series->speeds[at] = speed;
    series->count++;
}

/* The fastest run for each number of ranks, beginning with one rank; empty if no run has this arrangement. */
static speed_series series_of(const model *model, arrangement arrangement) {
    speed_series series = {need(model->count + 1, sizeof(double)), need(model->count + 1, sizeof(double)), 0};
    for (size_t i = 0; i < model->count; i++) {
        const run *run = model->runs[i];
        if (run_arrangement(run) == arrangement && isfinite(run->speed)) {
            add_speed(&series, run_ranks(run), run->speed);
        }
    }
    if (series.count > 0 && model->one != NULL) {
        add_speed(&series, 1, model->one->speed);
    }
    return series;
}

static double most_ranks(const model *model) {
    double most = 1;
    for (size_t i = 0; i < model->count; i++) {
        most = fmax(most, run_ranks(model->runs[i]));
    }
    return most;
}

static void draw_scaling(FILE *out, const model *model) {
    const double most = most_ranks(model), speed = model->one != NULL ? model->one->speed : NAN;
    const double ideal_ranks[] = {1, most}, ideal_speeds[] = {speed, speed * most};
    plot_line lines[ARRANGEMENTS + 1];
    speed_series series[ARRANGEMENTS];
    size_t count = 0;
    if (model->one != NULL) {
        lines[count++] = (plot_line){.label = "ideal",
                                     .x = ideal_ranks,
                                     .y = ideal_speeds,
                                     .count = COUNT(ideal_ranks),
                                     .colour = NEUTRAL,
                                     .dash = 1,
                                     .run = -1};
    }
    for (int i = ARRANGEMENTS - 1; i >= 0; i--) { /* one rank is drawn last: it is the first point of every line */
        series[i] = series_of(model, (arrangement)i);
        if (series[i].count > 0) {
            lines[count++] = (plot_line){.label = series_names[i],
                                         .x = series[i].ranks,
                                         .y = series[i].speeds,
                                         .count = series[i].count,
                                         .colour = series_colours[i],
                                         .marks = true,
                                         .tips = true,
                                         .run = -1};
        }
    }
    const plot_style style = {.title = "Throughput over the number of ranks",
                              .unit = log_speed_name(model->runs[0]->log),
                              .axis = "ranks",
                              .from_zero = true,
                              .whole = true};
    put_line_legend(out, lines, count);
    draw_plot(out, lines, count, &style);
    for (size_t i = 0; i < ARRANGEMENTS; i++) {
        free(series[i].ranks);
        free(series[i].speeds);
    }
}

static void put_scaling(FILE *out, const model *model, const char *id, const char *difference) {
    put_section(out, id, "Scaling",
                "Throughput over the number of ranks. Of several runs with the same number of ranks the line shows the "
                "fastest.");
    if (difference != NULL) {
        fprintf(out, "<p>These runs are compared separately: they differ from the first in ");
        put_text(out, difference);
        fprintf(out, ".</p>\n");
    }
    fprintf(out, "<p class=\"soft\">%s</p>\n",
            model->one != NULL ? "Dashed: ideal scaling, the throughput of one rank times the number of ranks."
                               : "There is no run with one rank, so no ideal and no speed-up are shown.");
    draw_scaling(out, model);
    fprintf(out, "</section>\n");
}

/* ---- data against pipeline ---- */

static void put_bytes(FILE *out, double bytes) {
    char room[32];
    fprintf(out, "<td>%s</td>", isfinite(bytes) ? human_bytes(bytes, room) : "");
}

static void put_seconds_to(FILE *out, double seconds) {
    char room[32];
    fprintf(out, "<td>%s</td>", isfinite(seconds) ? short_number(seconds, room) : "not reached");
}

static void put_run(FILE *out, const model *model, const run *run, bool best) {
    const training_log *log = run->log;
    fprintf(out, "<tr%s><td>", best ? " class=\"best\"" : "");
    put_text(out, run->name);
    fprintf(out, "</td><td>%.0f</td><td>%.0f x %.0f</td><td>%.0f x %.0f</td><td>", run_ranks(run), run->replicas,
            run->stages, run->micro_batches, run->time_chunks);
    put_text(out, run->split);
    fprintf(out, "</td>");
    put_number(out, run->speed, "%.0f");
    put_number(out, model->one != NULL ? run->speed / model->one->speed : NAN, "%.2fx");
    put_bytes(out, log_number(log->end, "sent_most"));
    put_bytes(out, log_number(log->end, "sent_all"));
    put_number(out, trace_balance(&log->trace), "%.2f");
    put_number(out, 100 * trace_idle(&log->trace), "%.1f%%");
    put_seconds_to(out, run_seconds_to(run, model->loss));
    fprintf(out, "</tr>\n");
}

/* The run that reaches the loss first; NULL: none does. */
static const run *first_to_reach(const model *model) {
    const run *best = NULL;
    for (size_t i = 0; i < model->count; i++) {
        const double seconds = run_seconds_to(model->runs[i], model->loss);
        if (isfinite(seconds) && (best == NULL || seconds < run_seconds_to(best, model->loss))) {
            best = model->runs[i];
        }
    }
    return best;
}

/* Says if the runs differ in more than the number of ranks. */
static void put_other_differences(FILE *out, const model *model) {
    static const char *const names[] = {"device", "threads"};
    for (size_t i = 0; i < COUNT(names); i++) {
        bool shared = true;
        for (size_t j = 0; j < model->count; j++) {
            shared = shared && run_shares(model->runs[j], model->one, names[i]);
        }
        if (!shared) fprintf(out, " Not all runs have the same %s.", names[i]);
    }
}

static void put_table(FILE *out, const model *model) {
    const run *best = first_to_reach(model);
    fprintf(out,
            "<div class=\"table\"><table><thead><tr><th>log</th><th>ranks</th><th>replicas x stages</th>"
            "<th>micro-batches x chunks</th><th>layers of stages</th><th>%s</th><th>speed-up</th>"
            "<th>sent by the busiest rank</th><th>sent by all ranks</th><th>balance</th><th>idle</th>",
            log_speed_name(model->runs[0]->log));
    fprintf(out, isfinite(model->loss) ? "<th>seconds to loss %.6g</th>" : "<th>seconds to a loss</th>", model->loss);
    fprintf(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < model->count; i++) {
        if (model->runs[i] != NULL) {
            put_run(out, model, model->runs[i], model->runs[i] == best);
        }
    }
    fprintf(out, "</tbody></table></div>\n");
    if (model->one != NULL) {
        fprintf(out, "<p class=\"soft\">Speed-up over ");
        put_text(out, model->one->name);
        fprintf(out, ", the fastest run of one rank.");
        put_other_differences(out, model);
        fprintf(out, "</p>\n");
    }
}

static void put_arrangements(FILE *out, const model *model, const char *id) {
    put_section(
        out, id, "Data and pipeline parallelism",
        "Bytes are those of one update. Balance is the largest compute time of a rank over the mean; idle is the "
        "share of all ranks' time without compute; both are of the traced update. The last column is the time of "
        "training until the mean loss in the log is reached; the fastest run is bold.");
    put_table(out, model);
    fprintf(out, "</section>\n");
}

void put_scaling_sections(FILE *out, const run *runs, size_t count, double loss) {
    size_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (runs[i].model != i || !runs_differ_in_ranks(runs, count, i)) {
            continue;
        }
        char scaling[64] = "scaling", arrangements[64] = "arrangements";
        if (++number > 1) {
            snprintf(scaling, sizeof scaling, "scaling-%zu", number);
            snprintf(arrangements, sizeof arrangements, "arrangements-%zu", number);
        }
        model model = model_new(runs, count, i, loss);
        char *difference = i > 0 ? run_difference(&runs[i], &runs[0]) : NULL;
        put_scaling(out, &model, scaling, difference);
        put_arrangements(out, &model, arrangements);
        free(difference);
        free(model.runs);
    }
}

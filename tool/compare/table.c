/* The table of a comparison: the cells with their means over seeds, the best first. */
#include "compare/compare.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- means ---- */

typedef double result_number(const run_result *result);

static double step_of(const run_result *r) { return (double)r->step; }
static double seconds_of(const run_result *r) { return r->seconds; }
static double speed_of(const run_result *r) { return r->speed; }
static double loss_of(const run_result *r) { return r->loss; }
static double final_of(const run_result *r) { return r->final; }
static double best_of(const run_result *r) { return r->best; }
static double metric_of(const run_result *r) { return r->metric; }

static bool counts(const compared_run *run, const compared_cell *cell) {
    return run->cell == cell && run->state == RUN_FINISHED;
}

/* Over the finished runs of the cell; NaN: there is none. The deviation is that of a sample; NaN with fewer than two. */
static double mean_of(const cell_comparison *comparison, const compared_cell *cell, result_number *number,
                      double *deviation) {
    double sum = 0, squares = 0, count = 0;
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (counts(&comparison->runs[i], cell)) {
            sum += number(&comparison->runs[i].result);
            count++;
        }
    }
    const double mean = count > 0 ? sum / count : NAN;
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (counts(&comparison->runs[i], cell)) {
            const double from = number(&comparison->runs[i].result) - mean;
            squares += from * from;
        }
    }
    if (deviation != NULL) {
        *deviation = count > 1 ? sqrt(squares / (count - 1)) : NAN;
    }
    return mean;
}

static cell_summary summary_of(const cell_comparison *comparison, const compared_cell *cell) {
    cell_summary summary = {.cell = cell};
    for (size_t i = 0; i < comparison->run_count; i++) {
        summary.runs += comparison->runs[i].cell == cell;
        summary.finished += counts(&comparison->runs[i], cell);
    }
    const double steps = mean_of(comparison, cell, step_of, NULL);
    summary.mean = (run_result){.step = isfinite(steps) ? (int64_t)(steps + 0.5) : 0,
                                .seconds = mean_of(comparison, cell, seconds_of, NULL),
                                .speed = mean_of(comparison, cell, speed_of, NULL),
                                .loss = mean_of(comparison, cell, loss_of, NULL),
                                .final = mean_of(comparison, cell, final_of, NULL),
                                .best = mean_of(comparison, cell, best_of, &summary.best_deviation),
                                .metric = mean_of(comparison, cell, metric_of, &summary.metric_deviation)};
    return summary;
}

/* What cells are ranked by; infinite: not known. */
static double rank_of(const cell_summary *summary) {
    const double loss = isnan(summary->mean.best) ? summary->mean.loss : summary->mean.best;
    return isnan(loss) ? INFINITY : loss;
}

static int by_loss(const void *a, const void *b) {
    const cell_summary *one = a, *other = b;
    const double first = rank_of(one), second = rank_of(other);
    if (first != second) {
        return first < second ? -1 : 1;
    }
    return one->cell < other->cell ? -1 : 1; /* as they were given */
}

cell_summary *summarise_cells(const cell_comparison *comparison) {
    cell_summary *summaries = need(comparison->cell_count, sizeof *summaries);
    for (size_t i = 0; i < comparison->cell_count; i++) {
        summaries[i] = summary_of(comparison, &comparison->cells[i]);
    }
    qsort(summaries, comparison->cell_count, sizeof *summaries, by_loss);
    return summaries;
}

bool has_validation(const cell_comparison *comparison) {
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (!isnan(comparison->runs[i].result.final)) {
            return true;
        }
    }
    return false;
}

/* ---- the table ---- */

enum { TABLE_COLUMNS = 80, LONGEST_NAME = 24 };

typedef struct {
    int name; /* columns of the cell's name */
    bool validates, has_deviation;
} layout;

static layout layout_of(const cell_comparison *comparison) {
    layout layout = {.validates = has_validation(comparison),
                     .has_deviation = comparison->run_count > comparison->cell_count};
    const int others = 11 + 9 + 8 + 8 + (layout.validates ? 16 : 8) + 10 + (layout.has_deviation ? 8 : 0);
    const int most = TABLE_COLUMNS - others < LONGEST_NAME ? TABLE_COLUMNS - others : LONGEST_NAME;
    layout.name = (int)strlen("cell");
    for (size_t i = 0; i < comparison->cell_count; i++) {
        const int length = (int)strlen(comparison->cells[i].name);
        layout.name = length > layout.name ? length : layout.name;
    }
    layout.name = layout.name < most ? layout.name : most;
    return layout;
}

static void print_name(const char *name, int columns) {
    const bool is_cut = (int)strlen(name) > columns;
    char *cut = text_of("%.*s%s", is_cut ? columns - 1 : columns, name, is_cut ? "~" : "");
    printf("%-*s", columns, cut);
    free(cut);
}

static void print_row(const cell_comparison *comparison, const cell_summary *summary, const layout *layout) {
    const run_result *mean = &summary->mean;
    print_name(summary->cell->name, layout->name);
    printf(" %10s", count_text(summary->cell->parameters).text);
    if (summary->finished == 0) {
        printf("  no run has finished\n");
        return;
    }
    printf(" %8s %7.1f %7s", count_text(mean->step).text, mean->seconds, short_text(mean->speed).text);
    if (layout->validates) {
        printf(" %7s %7s", decimals_text(mean->final).text, decimals_text(mean->best).text);
    } else {
        printf(" %7s", decimals_text(mean->loss).text);
    }
    printf(" %9s", metric_text(comparison->metric, mean->metric).text);
    if (isfinite(summary->metric_deviation)) {
        const double scale = comparison->metric == METRIC_ACCURACY ? 100 : 1;
        printf(" +-%.2g", scale * summary->metric_deviation);
    }
    if (summary->finished < summary->runs) {
        printf("  (%zu of %zu runs)", summary->finished, summary->runs);
    }
    printf("\n");
}

static void print_explanation(const cell_comparison *comparison, const layout *layout) {
    const char *metric = metric_name(comparison->metric);
    if (layout->validates) {
        printf("final, best: loss of the last and the best validation; %s: of the best\n", metric);
    } else {
        printf("loss, %s: of training, since there was no validation (--validate-every)\n", metric);
    }
    if (layout->has_deviation) {
        printf("all are means over seeds; +-: the standard deviation\n");
    }
}

void print_table(const cell_comparison *comparison) {
    const layout layout = layout_of(comparison);
    cell_summary *summaries = summarise_cells(comparison);
    char unit[32];
    snprintf(unit, sizeof unit, "%.5s/s", token_name(comparison->files.data[PART_TRAIN]));
    printf("%-*s %10s %8s %7s %7s", layout.name, "cell", "parameters", "updates", "seconds", unit);
    if (layout.validates) {
        printf(" %7s %7s", "final", "best");
    } else {
        printf(" %7s", "loss");
    }
    printf(" %9s\n", metric_name(comparison->metric));
    for (size_t i = 0; i < comparison->cell_count; i++) {
        print_row(comparison, &summaries[i], &layout);
    }
    print_explanation(comparison, &layout);
    free(summaries);
}

/* Metrics of a run: cards, the classes of the test, and the confusion matrix. */
#include "report/training/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cards ---- */

log_value main_metric(const training_log *log) {
    for (log_value value = FIRST_METRIC; value < LOG_VALUES; value++) {
        if (series_has(&log->validations, value)) {
            return value;
        }
    }
    for (log_value value = FIRST_METRIC; value < LOG_VALUES; value++) {
        if (isfinite(log_test_value(log, value))) {
            return value;
        }
    }
    return LOG_VALUES;
}

/* The naive forecast's value beside which an error is shown; LOG_VALUES: none. */
static log_value naive_of(log_value value) {
    return value == VALUE_MAE ? VALUE_NAIVE_MAE : value == VALUE_RMSE ? VALUE_NAIVE_RMSE : LOG_VALUES;
}

static void put_metric_card(FILE *out, log_value value, double result, double naive, const char *of) {
    char meaning[160], room[64];
    if (isfinite(naive)) {
        snprintf(meaning, sizeof meaning, "%s, %s; the naive forecast has %s", log_values[value].name, of,
                 grouped(room, "%.4g", naive));
    } else {
        snprintf(meaning, sizeof meaning, "%s, %s", log_values[value].name, of);
    }
    put_number_card(out, result, fabs(result) < 10 ? "%.4f" : "%.5g", meaning);
}

/* Cards of all metrics of one kind of result: `result_of` gives the value. */
typedef double metric_of(const training_log *log, log_value value);

static double test_metric(const training_log *log, log_value value) { return log_test_value(log, value); }

static double best_metric(const training_log *log, log_value value) {
    return series_value(&log->validations, value, log_best(log));
}

static bool put_cards_of(FILE *out, const training_log *log, metric_of *result_of, const char *of) {
    bool any = false;
    for (log_value value = FIRST_METRIC; value < VALUE_NAIVE_MAE; value++) {
        const double result = result_of(log, value);
        const log_value naive = naive_of(value);
        if (isfinite(result)) {
            put_metric_card(out, value, result, naive < LOG_VALUES ? result_of(log, naive) : NAN, of);
            any = true;
        }
    }
    return any;
}

void put_metric_cards(FILE *out, const training_log *log) {
    if (!put_cards_of(out, log, test_metric, "test")) {
        put_cards_of(out, log, best_metric, "best validation");
    }
}

/* ---- classes ---- */

enum { MOST_IN_MATRIX = 32, MOST_ROWS = 200, MOST_CONFUSIONS = 20 };

typedef struct {
    const json_t *names;
    size_t count;
    double *counts;           /* [count][count], row: true class, column: predicted class */
    double *truths, *guesses; /* [count]: sums of rows, sums of columns */
} confusion;

static double count_at(const confusion *matrix, size_t truth, size_t guess) {
    return matrix->counts[truth * matrix->count + guess];
}

static void confusion_free(confusion *matrix) {
    free(matrix->counts);
    free(matrix->truths);
    free(matrix->guesses);
}

/* False if a number of the row is not one, or negative. */
static bool read_row(confusion *matrix, const json_t *row, size_t truth) {
    for (size_t guess = 0; guess < matrix->count; guess++) {
        const json_t *cell = json_array_get(row, guess);
        const double value = json_is_number(cell) ? json_number_value(cell) : NAN;
        if (!(value >= 0 && isfinite(value))) {
            return false;
        }
        matrix->counts[truth * matrix->count + guess] = value;
        matrix->truths[truth] += value;
        matrix->guesses[guess] += value;
    }
    return true;
}

/* Are there so many rows of so many numbers? The matrix has the size of the line then. */
static bool is_square(const json_t *rows, size_t count) {
    bool good = count > 0 && json_array_size(rows) == count;
    for (size_t i = 0; i < count && good; i++) {
        good = json_array_size(json_array_get(rows, i)) == count;
    }
    return good;
}

/* False if the log has none, or one that is not square, of numbers, and of all classes. */
static bool confusion_read(confusion *matrix, const training_log *log) {
    const json_t *rows = json_object_get(log->test, "confusion"), *names = json_object_get(log->test, "classes");
    const size_t count = json_array_size(names);
    *matrix = (confusion){.names = names, .count = count};
    if (!is_square(rows, count)) {
        return false;
    }
    matrix->counts = need(count * count, sizeof(double));
    matrix->truths = need(count, sizeof(double));
    matrix->guesses = need(count, sizeof(double));
    for (size_t i = 0; i < count; i++) {
        if (!read_row(matrix, json_array_get(rows, i), i)) {
            confusion_free(matrix);
            return false;
        }
    }
    return true;
}

static void put_class(FILE *out, const confusion *matrix, size_t index) {
    char *name = log_value_text(json_array_get(matrix->names, index));
    put_text(out, name);
    free(name);
}

static double share(double part, double whole) { return whole > 0 ? part / whole : NAN; }

/* Precision, recall and F1 of each class. */
static void put_class_table(FILE *out, const confusion *matrix) {
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>class</th><th>precision</th><th>recall</th><th>F1</th>"
                 "<th>count</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < matrix->count && i < MOST_ROWS; i++) {
        const double right = count_at(matrix, i, i);
        fprintf(out, "<tr><td>");
        put_class(out, matrix, i);
        fprintf(out, "</td>");
        put_number(out, share(right, matrix->guesses[i]), "%.4f");
        put_number(out, share(right, matrix->truths[i]), "%.4f");
        put_number(out, share(2 * right, matrix->guesses[i] + matrix->truths[i]), "%.4f");
        put_number(out, matrix->truths[i], "%.0f");
        fprintf(out, "</tr>\n");
    }
    fprintf(out, "</tbody></table></div>\n");
    if (matrix->count > MOST_ROWS) {
        fprintf(out, "<p class=\"soft\">The first %d of %zu classes.</p>\n", MOST_ROWS, matrix->count);
    }
}

static void put_matrix(FILE *out, const confusion *matrix) {
    fprintf(out, "<h3>Confusion matrix</h3>\n<p class=\"soft\">Rows: the true class. Columns: the predicted class. "
                 "The stronger the colour of a cell, the larger its share of the row.</p>\n"
                 "<div class=\"table\"><table class=\"confusion\"><thead><tr><th></th>");
    for (size_t i = 0; i < matrix->count; i++) {
        fprintf(out, "<th>");
        put_class(out, matrix, i);
        fprintf(out, "</th>");
    }
    fprintf(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < matrix->count; i++) {
        fprintf(out, "<tr><th>");
        put_class(out, matrix, i);
        fprintf(out, "</th>");
        for (size_t j = 0; j < matrix->count; j++) {
            const double of_row = count_at(matrix, i, j) > 0 ? count_at(matrix, i, j) / matrix->truths[i] : 0;
            char room[64];
            fprintf(out, "<td class=\"%s\" style=\"--s:%.3f\">%s</td>", i == j ? "right" : "wrong", of_row,
                    grouped(room, "%.0f", count_at(matrix, i, j)));
        }
        fprintf(out, "</tr>\n");
    }
    fprintf(out, "</tbody></table></div>\n");
}

typedef struct {
    size_t truth, guess;
    double count;
} mistake;

/* Keeps the largest counts, in falling order. */
static void keep_mistake(mistake list[MOST_CONFUSIONS], size_t *count, mistake added) {
    size_t at = *count < MOST_CONFUSIONS ? (*count)++ : MOST_CONFUSIONS - 1;
    if (list[at].count >= added.count) { /* of the last place of a full list; a new place has 0 */
        return;
    }
    for (; at > 0 && list[at - 1].count < added.count; at--) {
        list[at] = list[at - 1];
    }
    list[at] = added;
}

/* In place of a matrix that no page has room for. */
static void put_mistakes(FILE *out, const confusion *matrix) {
    mistake list[MOST_CONFUSIONS] = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < matrix->count * matrix->count; i++) {
        const size_t truth = i / matrix->count, guess = i % matrix->count;
        if (truth != guess && matrix->counts[i] > 0) {
            keep_mistake(list, &count, (mistake){truth, guess, matrix->counts[i]});
        }
    }
    fprintf(out, "<h3>Most frequent mistakes</h3>\n<div class=\"table\"><table><thead><tr><th>true class</th>"
                 "<th class=\"left\">predicted class</th><th>count</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<tr><td>");
        put_class(out, matrix, list[i].truth);
        fprintf(out, "</td><td class=\"left\">");
        put_class(out, matrix, list[i].guess);
        fprintf(out, "</td>");
        put_number(out, list[i].count, "%.0f");
        fprintf(out, "</tr>\n");
    }
    fprintf(out, "</tbody></table></div>\n");
}

void put_classes(FILE *out, const training_log *log) {
    confusion matrix;
    if (!confusion_read(&matrix, log)) {
        return;
    }
    put_section(out, "classes", "Classes",
                "Results on the test data. F1 is the harmonic mean of precision and recall.");
    put_class_table(out, &matrix);
    if (matrix.count <= MOST_IN_MATRIX) {
        put_matrix(out, &matrix);
    } else {
        put_mistakes(out, &matrix);
    }
    fprintf(out, "</section>\n");
    confusion_free(&matrix);
}

/* How numbers follow from the sizes of a call: samples, coefficients, values. See sizes.h. */
#include "program/sizes.h"

#include <math.h>
#include <string.h>

/* ---- terms ---- */

static int64_t chunk_count(int64_t steps, int64_t chunk) { return chunk ? (steps + chunk - 1) / chunk : 0; }

/* Of time: 1, T, ceil(T / K) of either pass, as far as they are independent of each other. */
typedef struct {
    int kinds[4], count;
} time_terms;

static int64_t time_term(const int64_t chunks[2], int kind, int64_t steps) {
    return kind == 0 ? 1 : kind == 1 ? steps : chunk_count(steps, chunks[kind - 2]);
}

static time_terms find_time_terms(const rcvi_program *program) {
    time_terms t = {.kinds = {0}, .count = 1};
    const int64_t *chunks = program->chunks;
    if (program->options.steps == 1) return t;
    t.kinds[t.count++] = 1;
    if (chunks[0]) t.kinds[t.count++] = 2;
    if (chunks[1] && chunks[1] != chunks[0]) t.kinds[t.count++] = 3;
    return t;
}

/* ---- samples ---- */

enum { MOST_TERMS = 4 };

/* Adds a row to a triangular matrix of `count` rows, if it is independent of them. */
static bool add_row(double rows[MOST_TERMS][MOST_TERMS], int *count, int columns, const double *row) {
    double left[MOST_TERMS];
    memcpy(left, row, sizeof left);
    for (int r = 0; r < *count; r++) {
        int pivot = 0;
        while (rows[r][pivot] == 0) pivot++;
        double factor = left[pivot] / rows[r][pivot];
        for (int c = 0; c < columns; c++) left[c] = c == pivot ? 0 : left[c] - factor * rows[r][c];
    }
    for (int c = 0; c < columns; c++) {
        if (fabs(left[c]) < 1e-9) continue;
        memcpy(rows[(*count)++], left, sizeof left);
        return true;
    }
    return false;
}

/* Numbers of time steps, more than any chunk has, that tell the terms apart. */
static void find_times(const rcvi_program *program, const time_terms *terms, int64_t *times) {
    double rows[MOST_TERMS][MOST_TERMS];
    int count = 0;
    int64_t longest = program->chunks[0] > program->chunks[1] ? program->chunks[0] : program->chunks[1];
    for (int64_t t = program->options.steps == 1 ? 1 : 2 * longest + 5; count < terms->count; t++) {
        double row[MOST_TERMS] = {0};
        for (int i = 0; i < terms->count; i++) row[i] = (double)time_term(program->chunks, terms->kinds[i], t);
        int before = count;
        if (add_row(rows, &count, terms->count, row)) times[before] = t;
    }
}

static int batch_samples(const rcvi_program *program) { return program->options.batch == 1 ? 1 : 2; }

int rcvi_size_samples(const rcvi_program *program, rcvi_sizes samples[RCVI_MAX_SIZE_SAMPLES]) {
    time_terms terms = find_time_terms(program);
    int64_t times[MOST_TERMS];
    int count = 0;
    find_times(program, &terms, times);
    for (int b = 0; b < batch_samples(program); b++) {
        for (int i = 0; i < terms.count; i++)
            samples[count++] = (rcvi_sizes){.steps = times[i], .batch = program->options.batch == 1 ? 1 : 2 + b};
    }
    return count;
}

/* ---- coefficients ---- */

/* Inverts the matrix of the terms at the sampled times, by Gauss and Jordan. */
static void invert(const rcvi_program *program, const time_terms *terms, const int64_t *times,
                   double inverse[MOST_TERMS][MOST_TERMS]) {
    int n = terms->count;
    double a[MOST_TERMS][2 * MOST_TERMS] = {{0}};
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < n; c++) a[r][c] = (double)time_term(program->chunks, terms->kinds[c], times[r]);
        a[r][n + r] = 1;
    }
    for (int c = 0; c < n; c++) {
        int pivot = c;
        for (int r = c + 1; r < n; r++) pivot = fabs(a[r][c]) > fabs(a[pivot][c]) ? r : pivot;
        for (int k = 0; k < 2 * n; k++) {
            double swapped = a[c][k];
            a[c][k] = a[pivot][k];
            a[pivot][k] = swapped;
        }
        for (int r = 0; r < n; r++) {
            double factor = r == c ? 0 : a[r][c] / a[c][c];
            for (int k = 0; k < 2 * n && factor != 0; k++) a[r][k] -= factor * a[c][k];
        }
    }
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < n; c++) inverse[r][c] = a[r][n + c] / a[r][r];
    }
}

int64_t rcvi_sized_value(const rcvi_sized_number *number, const int64_t chunks[2], rcvi_sizes sizes) {
    const int64_t *t = number->terms;
    return t[0] + t[1] * sizes.batch + (t[2] + t[3] * sizes.batch) * sizes.steps +
           (t[4] + t[5] * sizes.batch) * chunk_count(sizes.steps, chunks[0]) +
           (t[6] + t[7] * sizes.batch) * chunk_count(sizes.steps, chunks[1]);
}

rcv_status rcvi_sizing_fit(rcvi_pool *pool, const rcvi_program *program, size_t total, int64_t *const *values,
                           const int64_t *planned, rcvi_sizing *sizing) {
    time_terms terms = find_time_terms(program);
    int64_t times[MOST_TERMS];
    double inverse[MOST_TERMS][MOST_TERMS];
    rcvi_sizes samples[RCVI_MAX_SIZE_SAMPLES];
    int count = rcvi_size_samples(program, samples), batches = batch_samples(program);
    const rcvi_sizes most = {.steps = program->options.steps, .batch = program->options.batch};
    find_times(program, &terms, times);
    invert(program, &terms, times, inverse);
    *sizing = (rcvi_sizing){.numbers = rcvi_pool_new(pool, total, sizeof *sizing->numbers)};
    memcpy(sizing->chunks, program->chunks, sizeof sizing->chunks);
    if (!sizing->numbers) return RCV_NO_MEMORY;
    for (size_t i = 0; i < total; i++) {
        rcvi_sized_number number = {.index = i};
        bool fixed = values[0][i] == planned[i];
        for (int s = 1; s < count && fixed; s++) fixed = values[s][i] == planned[i];
        if (fixed) continue;
        for (int k = 0; k < terms.count; k++) {
            double by_batch[2] = {0, 0};
            for (int b = 0; b < batches; b++) {
                for (int t = 0; t < terms.count; t++)
                    by_batch[b] += inverse[k][t] * (double)values[b * terms.count + t][i];
            }
            double slope = batches > 1 ? by_batch[1] - by_batch[0] : 0; /* samples have 2 and 3 sequences */
            int at = 2 * terms.kinds[k]; /* of the term; the next one is the same times B */
            number.terms[at + 1] = llround(slope);
            number.terms[at] = llround(by_batch[0] - (batches > 1 ? 2 * slope : 0));
        }
        bool exact = rcvi_sized_value(&number, sizing->chunks, most) == planned[i];
        for (int s = 0; s < count && exact; s++)
            exact = rcvi_sized_value(&number, sizing->chunks, samples[s]) == values[s][i];
        if (!exact) return rcvi_fail(RCV_UNSUPPORTED, "a number of this plan does not follow from the sizes of a call");
        sizing->numbers[sizing->count++] = number;
    }
    return RCV_OK;
}

void rcvi_sizing_apply(const rcvi_sizing *sizing, rcvi_sizes sizes, int64_t *const *at) {
    for (size_t i = 0; i < sizing->count; i++) *at[i] = rcvi_sized_value(&sizing->numbers[i], sizing->chunks, sizes);
}

void rcvi_collect_number(void *user, int64_t *at) {
    rcvi_numbers *n = user;
    if (n->values) n->values[n->count] = *at;
    n->count++;
}

void rcvi_find_sized_number(void *user, int64_t *at) {
    rcvi_sized_places *p = user;
    const rcvi_sizing *sizing = p->sizing;
    if (p->found < sizing->count && sizing->numbers[p->found].index == p->seen) p->at[p->found++] = at;
    p->seen++;
}

/* Areas under ROC curves by ranks: see auc.h. */
#include "train/inference/auc.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

void rcvi_auc_init(rcvi_auc *a, rcv_context *context, int64_t classes, int64_t most) {
    const int64_t columns = classes == 2 ? 1 : classes;
    const int64_t row = columns * (int64_t)sizeof(float) + (int64_t)(sizeof(int32_t) + sizeof(double));
    *a = (rcvi_auc){.context = context, .classes = classes, .columns = columns, .most = most, .limit = 1};
    if (!most) a->most = RCVI_AUC_BYTES / row > 2 ? RCVI_AUC_BYTES / row : 2;
}

void rcvi_auc_free(rcvi_auc *a) {
    rcvi_free(a->context, a->scores);
    rcvi_free(a->context, a->targets);
    rcvi_free(a->context, a->draws);
    *a = (rcvi_auc){0};
}

/* ---- adding ---- */

/* Keeps the rows whose draw is below half of what it had to be below. */
static void halve(rcvi_auc *a) {
    int64_t kept = 0;
    a->limit /= 2;
    for (int64_t r = 0; r < a->count; r++) {
        if (!(a->draws[r] < a->limit)) continue;
        memmove(a->scores + kept * a->columns, a->scores + r * a->columns, (size_t)a->columns * sizeof *a->scores);
        a->targets[kept] = a->targets[r];
        a->draws[kept++] = a->draws[r];
    }
    a->count = kept;
}

/* Logarithms of probabilities, which unlike probabilities near 1 differ in float, too. Of two classes the difference of the logits. */
static void score(const double *logits, int64_t classes, float *scores) {
    int64_t best = 0;
    double others = 0;
    if (classes == 2) {
        scores[0] = (float)(logits[1] - logits[0]);
        return;
    }
    for (int64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < classes; c++)
        if (c != best) others += exp(logits[c] - logits[best]);
    const double sum = log1p(others);
    for (int64_t c = 0; c < classes; c++) scores[c] = (float)(logits[c] - logits[best] - sum);
}

rcv_status rcvi_auc_add(rcvi_auc *a, const double *logits, int32_t target) {
    const double draw = rcvi_hash_uniform(0, (uint64_t)a->seen++);
    if (a->broken || !(draw < a->limit)) return RCV_OK;
    if (a->count == a->most) halve(a);
    if (!(draw < a->limit) || a->count == a->most) return RCV_OK;
    const size_t rows = (size_t)a->count + 1;
    if (!rcvi_grow(a->context, &a->scores, &a->score_capacity, rows * (size_t)a->columns, sizeof *a->scores) ||
        !rcvi_grow(a->context, &a->targets, &a->target_capacity, rows, sizeof *a->targets) ||
        !rcvi_grow(a->context, &a->draws, &a->draw_capacity, rows, sizeof *a->draws))
        return RCV_NO_MEMORY;
    float *scores = a->scores + a->count * a->columns;
    score(logits, a->classes, scores);
    for (int64_t c = 0; c < a->columns; c++) a->broken |= !isfinite(scores[c]);
    a->targets[a->count] = target;
    a->draws[a->count++] = draw;
    return RCV_OK;
}

/* ---- ranks ---- */

enum { DIGIT_BITS = 11, DIGITS = 3, BUCKETS = 1 << DIGIT_BITS };

/* A number that rises with the score, and below it whether the row has the class. */
static uint64_t item_of(float score, bool has_class) {
    uint32_t bits;
    const float sum = score + 0.0f; /* -0 and 0 are equal */
    memcpy(&bits, &sum, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    return (uint64_t)bits << 1 | has_class;
}

/* One pass of a radix sort, which keeps the order of items with equal digits. */
static void sort_by_digit(int64_t count, int digit, const uint64_t *from, uint64_t *to) {
    int64_t starts[BUCKETS + 1] = {0};
    const int shift = 1 + digit * DIGIT_BITS;
    for (int64_t i = 0; i < count; i++) starts[(from[i] >> shift & (BUCKETS - 1)) + 1]++;
    for (int b = 0; b < BUCKETS; b++) starts[b + 1] += starts[b];
    for (int64_t i = 0; i < count; i++) to[starts[from[i] >> shift & (BUCKETS - 1)]++] = from[i];
}

/* items: sorted by score. Of each group of equal scores: its rows of the class are above all rows before that do not have it, and level with its own. */
static double area_of(int64_t count, const uint64_t *items) {
    double above = 0, with = 0, without = 0;
    for (int64_t i = 0; i < count;) {
        double own_with = 0, own_without = 0;
        const uint64_t score = items[i] >> 1;
        for (; i < count && items[i] >> 1 == score; i++) {
            own_with += (double)(items[i] & 1);
            own_without += (double)(~items[i] & 1);
        }
        above += own_with * (without + own_without / 2);
        with += own_with;
        without += own_without;
    }
    return above / (with * without); /* NaN where there are no pairs */
}

static double area_of_class(const rcvi_auc *a, int64_t class, uint64_t *items, uint64_t *sorted) {
    const int64_t column = a->columns == 1 ? 0 : class;
    for (int64_t r = 0; r < a->count; r++)
        items[r] = item_of(a->scores[r * a->columns + column], a->targets[r] == class);
    for (int digit = 0; digit < DIGITS; digit++) {
        sort_by_digit(a->count, digit, items, sorted);
        uint64_t *other = items;
        items = sorted;
        sorted = other;
    }
    return area_of(a->count, items);
}

rcv_status rcvi_auc_find(const rcvi_auc *a, double *area) {
    *area = NAN;
    if (a->broken || a->classes < 2 || a->count == 0) return RCV_OK;
    uint64_t *items = rcvi_new(a->context, (size_t)a->count, sizeof *items);
    uint64_t *sorted = rcvi_new(a->context, (size_t)a->count, sizeof *sorted);
    double sum = 0;
    int64_t found = 0;
    for (int64_t c = a->columns == 1; items && sorted && c < a->classes; c++) {
        const double own = area_of_class(a, c, items, sorted);
        if (isnan(own)) continue;
        sum += own;
        found++;
    }
    if (found) *area = sum / (double)found;
    rcv_status status = items && sorted ? RCV_OK : RCV_NO_MEMORY;
    rcvi_free(a->context, items);
    rcvi_free(a->context, sorted);
    return status;
}

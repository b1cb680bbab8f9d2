/* Rows of embedding tables, dropout masks, and rows of logits: softmax, losses, gradients. Included once per float type, with REAL,
 * MAP and EXP_SUM (the kernels of this type) defined; no include guard on purpose.
 *
 * Sums and maxima have LANES partial results, which compilers keep in vector registers. */
#include "base/random.h"
#include "device/cpu/learn/learn.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, BLOCK = 512 /* elements of a block, which stays in L1 between two loops */ };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- tables ---- */

static void gather(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_rows *self = job;
    const REAL *table = self->from;
    REAL *out = self->out;
    size_t bytes = (size_t)self->columns * sizeof(REAL);
    int64_t row, end;
    for (rcvi_learn_share_range(share, self->rows, 1, &row, &end); row < end; row++) {
        if (self->ids[row] < 0)
            memset(out + row * self->columns, 0, bytes);
        else
            memcpy(out + row * self->columns, table + self->ids[row] * self->columns, bytes);
    }
}

static void add_row(int64_t n, const REAL *restrict from, REAL *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* Adds the rows of the member's groups; rows of one group in order. */
static void scatter(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_rows *self = job;
    const rcvi_groups *groups = self->groups;
    const REAL *from = self->from;
    int64_t group, end, columns = self->columns;
    for (rcvi_learn_share_range(share, *groups->count, 1, &group, &end); group < end; group++) {
        REAL *out = (REAL *)self->out + (self->by_id ? groups->ids[group] : group) * columns;
        if (!self->by_id) memset(out, 0, (size_t)columns * sizeof(REAL));
        for (int32_t i = groups->starts[group]; i < groups->starts[group + 1]; i++)
            add_row(columns, from + groups->order[i] * columns, out);
    }
}

/* ---- masks ---- */

/* Masks up to BLOCK elements. Element i has the index index + i, or `index` where `same`. */
static void mask_block(const rcvi_learn_rows *self, int64_t n, uint64_t index, bool same, const REAL *from, REAL *out) {
    const double keep = 1 - self->mask->probability, inverse = 1 / keep;
    const uint64_t key = rcvi_hash_key(self->seed), below = (uint64_t)ceil(keep * 0x1p53);
    uint8_t kept[BLOCK];
    for (int64_t i = 0; i < n; i++) kept[i] = rcvi_hash_bits(key, same ? index : index + (uint64_t)i) < below;
    for (int64_t i = 0; i < n; i++) out[i] = kept[i] ? (REAL)((double)from[i] * inverse) : 0;
}

static void mask_row(const rcvi_learn_rows *self, int64_t row, const REAL *from, REAL *out) {
    const rcvi_mask *mask = self->mask;
    bool same = mask->kind == RCVI_MASK_IDS;
    int64_t line = mask->kind == RCVI_MASK_OVER_TIME ? mask->shard.first + row % mask->period
                                                     : rcvi_shard_row(&mask->shard, mask->period, row);
    int64_t first = same ? mask->ids[row] : line * self->columns;
    for (int64_t i = 0; i < self->columns; i += BLOCK)
        mask_block(self, smaller(BLOCK, self->columns - i), (uint64_t)(same ? first : first + i), same, from + i,
                   out + i);
}

static void mask(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_rows *self = job;
    int64_t row, end;
    for (rcvi_learn_share_range(share, self->rows, 1, &row, &end); row < end; row++)
        mask_row(self, row, (const REAL *)self->from + row * self->columns, (REAL *)self->out + row * self->columns);
}

/* ---- logits ---- */

static void add_bias(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    REAL *logits = self->logits;
    int64_t row, end;
    for (rcvi_learn_share_range(share, self->rows, 1, &row, &end); row < end; row++)
        add_row(self->classes, self->head->bias, logits + row * self->classes);
}

/* lanes = max(lanes, x[n]); ignores NaN. */
static void update_maxima(int64_t n, const REAL *x, REAL *lanes) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    for (int l = 0; i + l < n; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
}

/* Adds the bias, where there is one, to x[n]; returns the largest element. */
static REAL add_bias_and_max(int64_t n, const REAL *bias, REAL *x) {
    REAL lanes[LANES], most = -(REAL)INFINITY;
    for (int l = 0; l < LANES; l++) lanes[l] = most;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = smaller(BLOCK, n - i);
        if (bias) add_row(count, bias + i, x + i);
        update_maxima(count, x + i, lanes);
    }
    for (int l = 0; l < LANES; l++) most = lanes[l] > most ? lanes[l] : most;
    return most;
}

/* x = exp(x - most), block by block; returns the sum. */
static double exp_and_sum(const rcvi_kernels *kernels, int64_t n, REAL most, REAL *x) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = smaller(BLOCK, n - i);
        sum += kernels->EXP_SUM(count, (double)most, x + i, x + i);
    }
    return sum;
}

/* The loss is log sum exp x - x[target]; its gradient is the softmax, less 1 at the target. */
static double softmax_row(const rcvi_kernels *kernels, const rcvi_learn_chunk *self, int32_t target, REAL *x) {
    int64_t n = self->classes;
    REAL most = add_bias_and_max(n, self->head->bias, x);
    double target_logit = (double)x[target];
    double sum = exp_and_sum(kernels, n, most, x);
    const REAL *class_weights = self->head->class_weights;
    double own = class_weights ? (double)class_weights[target] : 1, weight = self->weight * own;
    if (self->head->dy) {
        REAL factor = (REAL)(weight / sum);
        for (int64_t i = 0; i < n; i++) x[i] *= factor;
        x[target] -= (REAL)weight;
    }
    return own * (log(sum) + ((double)most - target_logit));
}

static void softmax(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    int64_t row, end;
    for (rcvi_learn_share_range(share, self->rows, 1, &row, &end); row < end; row++) {
        REAL *x = (REAL *)self->logits + row * self->classes;
        int32_t target = self->head->targets[self->row + row];
        self->losses[row] = target < 0 ? 0 : softmax_row(share->learn->kernels, self, target, x);
        if (target < 0) memset(x, 0, (size_t)self->classes * sizeof(REAL));
    }
}

static double square_row(const rcvi_learn_chunk *self, const REAL *restrict values, REAL *restrict x) {
    double sum = 0, classes = (double)self->classes;
    REAL factor = (REAL)(2 * self->weight / classes);
    if (self->head->bias) add_row(self->classes, self->head->bias, x);
    for (int64_t i = 0; i < self->classes; i++) {
        REAL off = x[i] - values[i];
        sum += (double)off * (double)off;
        x[i] = off * factor;
    }
    return sum / classes;
}

static void square(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    int64_t row, end;
    for (rcvi_learn_share_range(share, self->rows, 1, &row, &end); row < end; row++) {
        REAL *x = (REAL *)self->logits + row * self->classes;
        const REAL *values = (const REAL *)self->head->values + (self->row + row) * self->classes;
        bool counts = !isnan(values[0]);
        self->losses[row] = counts ? square_row(self, values, x) : 0;
        if (!counts) memset(x, 0, (size_t)self->classes * sizeof(REAL));
    }
}

/* Sums rows in order, for a block of columns whose sums stay in L1. */
static void sum_bias(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    REAL *dbias = self->head->dbias;
    int64_t column, end, count;
    for (rcvi_learn_share_range(share, self->classes, LANES, &column, &end); column < end; column += count) {
        count = smaller(BLOCK, end - column);
        if (self->row == 0 && !self->head->accumulate) memset(dbias + column, 0, (size_t)count * sizeof(REAL));
        for (int64_t row = 0; row < self->rows; row++)
            add_row(count, (const REAL *)self->logits + row * self->classes + column, dbias + column);
    }
}

/* Rows of tables, masks, and what happens to a row of logits. Included once per float type, with REAL, MAP and EXP_SUM (the
 * kernels' of this type) defined. No include guard on purpose.
 *
 * Sums and maxima have LANES partial ones side by side, which every compiler keeps in vector registers. */
#include "base/random.h"
#include "device/cpu/learn/learn.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, BLOCK = 512 /* elements that stay in the nearest cache from one loop to the next */ };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- tables ---- */

static void gather(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_rows *self = job;
    const REAL *table = self->from;
    REAL *out = self->out;
    size_t bytes = (size_t)self->columns * sizeof(REAL);
    int64_t row, end;
    for (rcvi_learn_cut(share, self->rows, 1, &row, &end); row < end; row++) {
        if (self->ids[row] < 0)
            memset(out + row * self->columns, 0, bytes);
        else
            memcpy(out + row * self->columns, table + self->ids[row] * self->columns, bytes);
    }
}

static void add_row(int64_t n, const REAL *restrict from, REAL *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* The member's groups; the rows of one in order. */
static void scatter(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_rows *self = job;
    const rcvi_groups *groups = self->groups;
    const REAL *from = self->from;
    int64_t group, end, columns = self->columns;
    for (rcvi_learn_cut(share, *groups->count, 1, &group, &end); group < end; group++) {
        REAL *out = (REAL *)self->out + (self->by_id ? groups->ids[group] : group) * columns;
        if (!self->by_id) memset(out, 0, (size_t)columns * sizeof(REAL));
        for (int32_t i = groups->starts[group]; i < groups->starts[group + 1]; i++)
            add_row(columns, from + groups->order[i] * columns, out);
    }
}

/* ---- masks ---- */

/* Up to BLOCK elements, whose indices are `index` and those that follow, or all `index` where `same`. */
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
    for (rcvi_learn_cut(share, self->rows, 1, &row, &end); row < end; row++)
        mask_row(self, row, (const REAL *)self->from + row * self->columns, (REAL *)self->out + row * self->columns);
}

/* ---- logits ---- */

static void add_bias(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    REAL *logits = self->logits;
    int64_t row, end;
    for (rcvi_learn_cut(share, self->rows, 1, &row, &end); row < end; row++)
        add_row(self->classes, self->head->bias, logits + row * self->classes);
}

/* lanes = max(lanes, x[n]); NaN is passed over. */
static void lift(int64_t n, const REAL *x, REAL *lanes) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    for (int l = 0; i + l < n; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
}

/* The largest of x[n] after bias was added where there is one. */
static REAL largest(int64_t n, const REAL *bias, REAL *x) {
    REAL lanes[LANES], most = -(REAL)INFINITY;
    for (int l = 0; l < LANES; l++) lanes[l] = most;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = smaller(BLOCK, n - i);
        if (bias) add_row(count, bias + i, x + i);
        lift(count, x + i, lanes);
    }
    for (int l = 0; l < LANES; l++) most = lanes[l] > most ? lanes[l] : most;
    return most;
}

/* x = exp(x - most), block by block; gives the sum. */
static double exponentials(const rcvi_kernels *kernels, int64_t n, REAL most, REAL *x) {
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
    REAL most = largest(n, self->head->bias, x);
    double aimed = (double)x[target];
    double sum = exponentials(kernels, n, most, x);
    if (self->head->dy) {
        REAL factor = (REAL)(self->weight / sum);
        for (int64_t i = 0; i < n; i++) x[i] *= factor;
        x[target] -= (REAL)self->weight;
    }
    return log(sum) + ((double)most - aimed);
}

static void softmax(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    int64_t row, end;
    for (rcvi_learn_cut(share, self->rows, 1, &row, &end); row < end; row++) {
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
    for (rcvi_learn_cut(share, self->rows, 1, &row, &end); row < end; row++) {
        REAL *x = (REAL *)self->logits + row * self->classes;
        const REAL *values = (const REAL *)self->head->values + (self->row + row) * self->classes;
        bool counts = !isnan(values[0]);
        self->losses[row] = counts ? square_row(self, values, x) : 0;
        if (!counts) memset(x, 0, (size_t)self->classes * sizeof(REAL));
    }
}

/* Rows in order, for columns that stay in the nearest cache meanwhile. */
static void sum_bias(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_chunk *self = job;
    REAL *dbias = self->head->dbias;
    int64_t column, end, count;
    for (rcvi_learn_cut(share, self->classes, LANES, &column, &end); column < end; column += count) {
        count = smaller(BLOCK, end - column);
        if (self->row == 0 && !self->head->accumulate) memset(dbias + column, 0, (size_t)count * sizeof(REAL));
        for (int64_t row = 0; row < self->rows; row++)
            add_row(count, (const REAL *)self->logits + row * self->classes + column, dbias + column);
    }
}

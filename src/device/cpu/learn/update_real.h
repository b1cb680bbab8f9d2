/* The norm of a gradient and the update of parameters. Included once per float type after learn/rows_real.h; no include guard on
 * purpose. */

/* ---- the gradient ---- */

/* Loss scaling and clipping by value, applied to an element before the norm: inverse * g, clamped to +-limit. NaN stays NaN. */
typedef struct {
    REAL inverse, limit;
} scaling;

static scaling scaling_of(const rcvi_control *control) {
    return (scaling){(REAL)(1 / control->scale), control->clip_value > 0 ? (REAL)control->clip_value : (REAL)INFINITY};
}

static bool is_identity(scaling scaling) { return scaling.inverse == 1 && scaling.limit == (REAL)INFINITY; }

static inline REAL scale_gradient(scaling scaling, REAL g) {
    REAL x = g * scaling.inverse;
    x = x > scaling.limit ? scaling.limit : x;
    return x < -scaling.limit ? -scaling.limit : x;
}

/* The sum of squares without scaling. */
static double sum_of_plain_squares(int64_t n, const REAL *g) {
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) lanes[l] += (double)g[i + l] * (double)g[i + l];
    }
    for (int l = 0; i + l < n; l++) lanes[l] += (double)g[i + l] * (double)g[i + l];
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

static double sum_of_squares(int64_t n, const REAL *g, scaling scaling) {
    if (is_identity(scaling)) return sum_of_plain_squares(n, g);
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            double x = (double)scale_gradient(scaling, g[i + l]);
            lanes[l] += x * x;
        }
    }
    for (int l = 0; i + l < n; l++) {
        double x = (double)scale_gradient(scaling, g[i + l]);
        lanes[l] += x * x;
    }
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

/* First element of slot s of `count` elements. */
static int64_t slot_begin(int64_t count, int64_t s) {
    return count / RCVI_LEARN_SLOTS * s + count % RCVI_LEARN_SLOTS * s / RCVI_LEARN_SLOTS;
}

static void sum_slots(const rcvi_learn_share *share, int part, int64_t count, const REAL *g, scaling scaling) {
    double *slots = share->learn->squares + part * RCVI_LEARN_SLOTS;
    int64_t s, end;
    for (rcvi_learn_share_range(share, RCVI_LEARN_SLOTS, 1, &s, &end); s < end; s++) {
        int64_t first = slot_begin(count, s);
        slots[s] = sum_of_squares(slot_begin(count, s + 1) - first, g + first, scaling);
    }
}

static void norm(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_update *self = job;
    const rcvi_update *update = self->update;
    const rcvi_sparse_part *sparse = &update->sparse;
    scaling scaling = scaling_of(self->control);
    for (int i = 0; i < update->part_count; i++)
        sum_slots(share, i, update->parts[i].count, update->parts[i].gradient, scaling);
    if (sparse->gradient)
        sum_slots(share, update->part_count, *sparse->groups.count * sparse->columns, sparse->gradient, scaling);
}

/* ---- the update ---- */

/* Coefficients of the update, computed once from the control. */
typedef struct coefficients {
    const rcvi_kernels *kernels;
    scaling scaling;
    REAL factor; /* of clipping by norm */
    REAL rate, decay, momentum, average;
    REAL beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    REAL epsilon, step, inverse2;    /* step: rate / correction1; inverse2: 1 / sqrt(correction2) */
    REAL keep;                       /* adamw: 1 - rate * decay; else 1 */
} coefficients;

static coefficients coefficients_of(const rcvi_learn *learn, const rcvi_learn_update *self) {
    const rcvi_control *c = self->control;
    double factor = c->clip > 0 ? c->clip / (self->outcome->norm + 1e-6) : 1;
    bool decoupled = self->update->kind == RCVI_ADAMW;
    return (coefficients){.kernels = learn->kernels,
                          .scaling = scaling_of(c),
                          .factor = (REAL)(factor < 1 ? factor : 1),
                          .rate = (REAL)c->rate,
                          .decay = decoupled ? 0 : (REAL)c->decay,
                          .momentum = (REAL)c->momentum,
                          .average = (REAL)c->average,
                          .beta1 = (REAL)c->beta1,
                          .beta2 = (REAL)c->beta2,
                          .rest1 = (REAL)(1 - c->beta1),
                          .rest2 = (REAL)(1 - c->beta2),
                          .epsilon = (REAL)c->epsilon,
                          .step = (REAL)(c->rate / c->correction1),
                          .inverse2 = (REAL)(1 / sqrt(c->correction2)),
                          .keep = decoupled ? (REAL)(1 - c->rate * c->decay) : 1};
}

/* Updates at most BLOCK elements of a part, whose gradient is scaled. */
typedef void update_block(const coefficients *coefficients, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                          REAL *restrict first, REAL *restrict second);

static void sgd(const coefficients *coefficients, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                REAL *restrict first, REAL *restrict second) {
    const struct coefficients k = *coefficients;
    (void)first, (void)second;
    for (int64_t i = 0; i < n; i++) p[i] -= k.rate * (gradient[i] * k.factor + k.decay * p[i]);
}

static void momentum(const coefficients *coefficients, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                     REAL *restrict first, REAL *restrict second) {
    const struct coefficients k = *coefficients;
    (void)second;
    for (int64_t i = 0; i < n; i++) {
        first[i] = k.momentum * first[i] + (gradient[i] * k.factor + k.decay * p[i]);
        p[i] -= k.rate * first[i];
    }
}

static void adam(const coefficients *coefficients, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                 REAL *restrict first, REAL *restrict second) {
    REAL roots[BLOCK];
    const struct coefficients k = *coefficients;
    for (int64_t i = 0; i < n; i++) {
        REAL g = gradient[i] * k.factor + k.decay * p[i];
        first[i] = k.beta1 * first[i] + k.rest1 * g;
        second[i] = k.beta2 * second[i] + k.rest2 * (g * g);
    }
    coefficients->kernels->MAP[RCVI_SQRT](n, second, NULL, roots);
    for (int64_t i = 0; i < n; i++) p[i] = p[i] * k.keep - k.step * first[i] / (roots[i] * k.inverse2 + k.epsilon);
}

static update_block *const kinds[] = {
    [RCVI_SGD] = sgd, [RCVI_MOMENTUM] = momentum, [RCVI_ADAM] = adam, [RCVI_ADAMW] = adam};

static void update_average(int64_t n, REAL weight, const REAL *restrict p, REAL *restrict average) {
    for (int64_t i = 0; i < n; i++) average[i] += (p[i] - average[i]) * weight;
}

/* A scaled block of a gradient: the gradient itself where nothing is to be scaled, else in `scratch`. */
static const REAL *scale_block(scaling scaling, int64_t n, const REAL *gradient, REAL *scratch) {
    if (is_identity(scaling)) return gradient;
    for (int64_t i = 0; i < n; i++) scratch[i] = scale_gradient(scaling, gradient[i]);
    return scratch;
}

static REAL *offset_by(void *array, int64_t count) { return array ? (REAL *)array + count : NULL; }

/* Updates the member's elements block by block, so that the average reads parameters that are still in L1. */
static void update_part(const rcvi_learn_share *share, const rcvi_update_part *part, update_block *kind,
                        const coefficients *coefficients) {
    REAL scratch[BLOCK];
    int64_t i, end, count;
    for (rcvi_learn_share_range(share, part->count, LANES, &i, &end); i < end; i += count) {
        count = smaller(BLOCK, end - i);
        REAL *p = (REAL *)part->parameters + i;
        const REAL *gradient = scale_block(coefficients->scaling, count, (const REAL *)part->gradient + i, scratch);
        kind(coefficients, count, gradient, p, offset_by(part->first, i), offset_by(part->second, i));
        if (part->average && coefficients->average != 0)
            update_average(count, coefficients->average, p, offset_by(part->average, i));
    }
}

/* Updates the rows of the member's groups; the ids of groups differ. */
static void update_sparse(const rcvi_learn_share *share, const rcvi_sparse_part *part, coefficients coefficients) {
    const rcvi_learn_share alone = {share->learn, 0, 1};
    int64_t group, end, columns = part->columns;
    coefficients.decay = coefficients.average = 0;
    for (rcvi_learn_share_range(share, *part->groups.count, 1, &group, &end); group < end; group++) {
        rcvi_update_part row = {.count = columns,
                                .parameters = (REAL *)part->table + part->groups.ids[group] * columns,
                                .gradient = (const REAL *)part->gradient + group * columns};
        update_part(&alone, &row, sgd, &coefficients);
    }
}

static void update(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_update *self = job;
    coefficients coefficients = coefficients_of(share->learn, self);
    for (int i = 0; i < self->update->part_count; i++)
        update_part(share, &self->update->parts[i], kinds[self->update->kind], &coefficients);
    if (self->update->sparse.gradient) update_sparse(share, &self->update->sparse, coefficients);
}

/* The norm of a gradient and the update of parameters. Included once per float type behind learn/rows_real.h. No include
 * guard on purpose. */

/* ---- the gradient ---- */

/* What becomes of an element before the norm is taken: inverse * g, within +-limit. NaN stays NaN. */
typedef struct {
    REAL inverse, limit;
} reading;

static reading reading_of(const rcvi_control *control) {
    return (reading){(REAL)(1 / control->scale), control->clip_value > 0 ? (REAL)control->clip_value : (REAL)INFINITY};
}

static bool reads_plainly(reading reading) { return reading.inverse == 1 && reading.limit == (REAL)INFINITY; }

static inline REAL read_gradient(reading reading, REAL g) {
    REAL x = g * reading.inverse;
    x = x > reading.limit ? reading.limit : x;
    return x < -reading.limit ? -reading.limit : x;
}

/* Where every element is read as it is. */
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

static double sum_of_squares(int64_t n, const REAL *g, reading reading) {
    if (reads_plainly(reading)) return sum_of_plain_squares(n, g);
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            double x = (double)read_gradient(reading, g[i + l]);
            lanes[l] += x * x;
        }
    }
    for (int l = 0; i + l < n; l++) {
        double x = (double)read_gradient(reading, g[i + l]);
        lanes[l] += x * x;
    }
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

/* Where slot s of `count` elements begins. */
static int64_t slot_begin(int64_t count, int64_t s) {
    return count / RCVI_LEARN_SLOTS * s + count % RCVI_LEARN_SLOTS * s / RCVI_LEARN_SLOTS;
}

static void fill_slots(const rcvi_learn_share *share, int part, int64_t count, const REAL *g, reading reading) {
    double *slots = share->learn->squares + part * RCVI_LEARN_SLOTS;
    int64_t s, end;
    for (rcvi_learn_cut(share, RCVI_LEARN_SLOTS, 1, &s, &end); s < end; s++) {
        int64_t first = slot_begin(count, s);
        slots[s] = sum_of_squares(slot_begin(count, s + 1) - first, g + first, reading);
    }
}

static void norm(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_update *self = job;
    const rcvi_update *update = self->update;
    const rcvi_sparse_part *sparse = &update->sparse;
    reading reading = reading_of(self->control);
    for (int i = 0; i < update->part_count; i++)
        fill_slots(share, i, update->parts[i].count, update->parts[i].gradient, reading);
    if (sparse->gradient)
        fill_slots(share, update->part_count, *sparse->groups.count * sparse->columns, sparse->gradient, reading);
}

/* ---- the update ---- */

/* A control's numbers as elements meet them. */
typedef struct numbers {
    const rcvi_kernels *kernels;
    reading reading;
    REAL factor; /* by which the norm is clipped */
    REAL rate, decay, momentum, average;
    REAL beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    REAL epsilon, step, inverse2;    /* step: rate / correction1; inverse2: 1 / sqrt(correction2) */
    REAL keep;                       /* adamw: 1 - rate * decay; else 1 */
} numbers;

static numbers numbers_of(const rcvi_learn *learn, const rcvi_learn_update *self) {
    const rcvi_control *c = self->control;
    double factor = c->clip > 0 ? c->clip / (self->outcome->norm + 1e-6) : 1;
    bool apart = self->update->kind == RCVI_ADAMW;
    return (numbers){.kernels = learn->kernels,
                     .reading = reading_of(c),
                     .factor = (REAL)(factor < 1 ? factor : 1),
                     .rate = (REAL)c->rate,
                     .decay = apart ? 0 : (REAL)c->decay,
                     .momentum = (REAL)c->momentum,
                     .average = (REAL)c->average,
                     .beta1 = (REAL)c->beta1,
                     .beta2 = (REAL)c->beta2,
                     .rest1 = (REAL)(1 - c->beta1),
                     .rest2 = (REAL)(1 - c->beta2),
                     .epsilon = (REAL)c->epsilon,
                     .step = (REAL)(c->rate / c->correction1),
                     .inverse2 = (REAL)(1 / sqrt(c->correction2)),
                     .keep = apart ? (REAL)(1 - c->rate * c->decay) : 1};
}

/* At most BLOCK elements of a part, whose gradient was read. */
typedef void update_block(const numbers *numbers, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                          REAL *restrict first, REAL *restrict second);

static void sgd(const numbers *numbers, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                REAL *restrict first, REAL *restrict second) {
    const struct numbers k = *numbers;
    (void)first, (void)second;
    for (int64_t i = 0; i < n; i++) p[i] -= k.rate * (gradient[i] * k.factor + k.decay * p[i]);
}

static void momentum(const numbers *numbers, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                     REAL *restrict first, REAL *restrict second) {
    const struct numbers k = *numbers;
    (void)second;
    for (int64_t i = 0; i < n; i++) {
        first[i] = k.momentum * first[i] + (gradient[i] * k.factor + k.decay * p[i]);
        p[i] -= k.rate * first[i];
    }
}

static void adam(const numbers *numbers, int64_t n, const REAL *restrict gradient, REAL *restrict p,
                 REAL *restrict first, REAL *restrict second) {
    REAL roots[BLOCK];
    const struct numbers k = *numbers;
    for (int64_t i = 0; i < n; i++) {
        REAL g = gradient[i] * k.factor + k.decay * p[i];
        first[i] = k.beta1 * first[i] + k.rest1 * g;
        second[i] = k.beta2 * second[i] + k.rest2 * (g * g);
    }
    numbers->kernels->MAP[RCVI_SQRT](n, second, NULL, roots);
    for (int64_t i = 0; i < n; i++) p[i] = p[i] * k.keep - k.step * first[i] / (roots[i] * k.inverse2 + k.epsilon);
}

static update_block *const kinds[] = {
    [RCVI_SGD] = sgd, [RCVI_MOMENTUM] = momentum, [RCVI_ADAM] = adam, [RCVI_ADAMW] = adam};

static void follow(int64_t n, REAL weight, const REAL *restrict p, REAL *restrict average) {
    for (int64_t i = 0; i < n; i++) average[i] += (p[i] - average[i]) * weight;
}

/* A block of a gradient as it is read: where it lies, or in `room`. */
static const REAL *read_block(reading reading, int64_t n, const REAL *gradient, REAL *room) {
    if (reads_plainly(reading)) return gradient;
    for (int64_t i = 0; i < n; i++) room[i] = read_gradient(reading, gradient[i]);
    return room;
}

static REAL *behind(void *array, int64_t count) { return array ? (REAL *)array + count : NULL; }

/* The member's elements, a block at a time, so that the average meets them while they are near. */
static void update_part(const rcvi_learn_share *share, const rcvi_update_part *part, update_block *kind,
                        const numbers *numbers) {
    REAL room[BLOCK];
    int64_t i, end, count;
    for (rcvi_learn_cut(share, part->count, LANES, &i, &end); i < end; i += count) {
        count = smaller(BLOCK, end - i);
        REAL *p = (REAL *)part->parameters + i;
        const REAL *gradient = read_block(numbers->reading, count, (const REAL *)part->gradient + i, room);
        kind(numbers, count, gradient, p, behind(part->first, i), behind(part->second, i));
        if (part->average && numbers->average != 0) follow(count, numbers->average, p, behind(part->average, i));
    }
}

/* The member's groups, whose ids differ. */
static void update_sparse(const rcvi_learn_share *share, const rcvi_sparse_part *part, numbers numbers) {
    const rcvi_learn_share alone = {share->learn, 0, 1};
    int64_t group, end, columns = part->columns;
    numbers.decay = numbers.average = 0;
    for (rcvi_learn_cut(share, *part->groups.count, 1, &group, &end); group < end; group++) {
        rcvi_update_part row = {.count = columns,
                                .parameters = (REAL *)part->table + part->groups.ids[group] * columns,
                                .gradient = (const REAL *)part->gradient + group * columns};
        update_part(&alone, &row, sgd, &numbers);
    }
}

static void update(const rcvi_learn_share *share, const void *job) {
    const rcvi_learn_update *self = job;
    numbers numbers = numbers_of(share->learn, self);
    for (int i = 0; i < self->update->part_count; i++)
        update_part(share, &self->update->parts[i], kinds[self->update->kind], &numbers);
    if (self->update->sparse.gradient) update_sparse(share, &self->update->sparse, numbers);
}

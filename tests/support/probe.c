#include "probe.h"

#include <math.h>

uint64_t random_bits(random_source *source) {
    uint64_t z = source->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double random_between(random_source *source, double from, double to) {
    return from + (to - from) * (double)(random_bits(source) >> 11) * 0x1p-53;
}

int random_below(random_source *source, int bound) { return (int)(random_bits(source) % (uint64_t)bound); }

uint64_t random_seed_of(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static double *poisoned(int64_t count) {
    double *array = malloc((size_t)(count + 1) * sizeof *array);
    assert_non_null(array);
    memset(array, 0xff, (size_t)(count + 1) * sizeof *array); /* NaN */
    return array;
}

static double *drawn(random_source *source, int64_t count, double from, double to) {
    double *array = poisoned(count);
    for (int64_t i = 0; i < count; i++) array[i] = random_between(source, from, to);
    return array;
}

static void poison(double *array, int64_t count) {
    if (array) memset(array, 0xff, (size_t)count * sizeof *array);
}

/* One long sequence, the others of any length; resets at about a third of the steps. */
static void draw_masks(probe *self, random_source *source) {
    const probe_config *config = &self->config;
    self->lengths = malloc((size_t)config->batch * sizeof *self->lengths);
    self->resets = malloc((size_t)(config->steps * config->batch));
    assert_true(self->lengths && self->resets);
    for (int64_t b = 0; b < config->batch; b++) {
        self->lengths[b] = b == 0 ? config->steps : 1 + random_below(source, (int)config->steps);
    }
    for (int64_t i = 0; i < config->steps * config->batch; i++) self->resets[i] = random_below(source, 3) == 0;
}

static void draw_data(probe *self, random_source *source) {
    const probe_config *config = &self->config;
    int64_t rows = config->steps * config->batch;
    bool initial = config->states == STATES_INITIAL || config->states == STATES_BOTH;
    bool restart = config->states == STATES_RESTART || config->states == STATES_BOTH;
    self->parameters = drawn(source, self->parameter_count, -0.8, 0.8);
    self->x = drawn(source, rows * config->net.input, -1, 1);
    self->y = poisoned(rows * self->output);
    self->dy = drawn(source, rows * self->output, -1, 1);
    self->dx = poisoned(rows * config->net.input);
    self->dparameters = poisoned(self->parameter_count);
    for (size_t s = 0; s < self->states; s++) {
        int64_t count = self->state_count[s];
        /* Positive: a normaliser, such as that of slstm, is never negative. */
        self->initial[s] = initial ? drawn(source, count, 0.1, 0.9) : drawn(source, count, 0, 0);
        self->dinitial[s] = poisoned(count);
        if (restart) self->restart[s] = drawn(source, count, 0.1, 0.9);
        if (restart) self->drestart[s] = poisoned(count);
        self->final[s] = poisoned(count);
        self->dfinal[s] = drawn(source, count, -1, 1);
    }
}

void probe_open(probe *self, const rcv_cell *cell, const probe_config *config) {
    memset(self, 0, sizeof *self);
    self->config = *config;
    random_source source = {config->seed};
    rcv_net_options net = config->net; /* tables of tests leave the size out */
    net.size = sizeof net;
    check_ok(rcv_net_new(cell, &net, &self->net));
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = config->steps, .batch = config->batch, .dtype = RCV_FLOAT64,
                 .training = true, .lengths = config->lengths, .resets = config->resets,
                 .schedule = config->schedule ? config->schedule : "naive");
    check_ok(rcv_plan_new(self->net, &options, &self->plan));
    check_ok(rcv_run_new(self->plan, &self->run));
    self->output = rcv_net_output(self->net);
    self->parameter_count = rcv_net_parameter_elements(self->net);
    self->states = rcv_net_state_count(self->net);
    assert_true(self->states <= PROBE_MAX_STATES);
    for (size_t s = 0; s < self->states; s++) {
        self->state_count[s] = rcv_net_state(self->net, s)->total * config->batch;
    }
    draw_masks(self, &source);
    draw_data(self, &source);
}

void probe_close(probe *self) {
    free(self->parameters);
    free(self->x);
    free(self->y);
    free(self->dy);
    free(self->dx);
    free(self->dparameters);
    for (size_t s = 0; s < self->states; s++) {
        free(self->initial[s]);
        free(self->restart[s]);
        free(self->dinitial[s]);
        free(self->drestart[s]);
        free(self->final[s]);
        free(self->dfinal[s]);
    }
    free(self->lengths);
    free(self->resets);
    rcv_run_free(self->run);
    rcv_plan_free(self->plan);
    rcv_net_free(self->net);
}

static double forward(probe *self, bool initial_given) {
    int64_t y_count = self->config.steps * self->config.batch * self->output;
    poison(self->y, y_count);
    for (size_t s = 0; s < self->states; s++) poison(self->final[s], self->state_count[s]);
    rcv_forward data = RCV_INIT(
        rcv_forward, .parameters = self->parameters, .x = self->x,
        .lengths = self->config.lengths ? self->lengths : NULL, .resets = self->config.resets ? self->resets : NULL,
        .initial = initial_given ? (const void *const *)self->initial : NULL,
        .restart = (const void *const *)self->restart, .y = self->y, .final = (void *const *)self->final, .seed = 5);
    check_ok(rcv_run_forward(self->run, &data));
    double loss = 0;
    for (int64_t i = 0; i < y_count; i++) loss += self->dy[i] * self->y[i];
    for (size_t s = 0; s < self->states; s++) {
        for (int64_t i = 0; i < self->state_count[s]; i++) loss += self->dfinal[s][i] * self->final[s][i];
    }
    return loss;
}

double probe_loss(probe *self) { return forward(self, true); }

void probe_gradients(probe *self) {
    bool initial_given = self->config.states == STATES_INITIAL || self->config.states == STATES_BOTH;
    double loss = forward(self, initial_given);
    assert_true(isfinite(loss));
    poison(self->dx, self->config.steps * self->config.batch * self->config.net.input);
    poison(self->dparameters, self->parameter_count);
    for (size_t s = 0; s < self->states; s++) {
        poison(self->dinitial[s], self->state_count[s]);
        poison(self->drestart[s], self->state_count[s]);
    }
    rcv_backward data = RCV_INIT(rcv_backward, .dy = self->dy, .dfinal = (const void *const *)self->dfinal,
                                 .dx = self->dx, .dinitial = (void *const *)self->dinitial,
                                 .drestart = (void *const *)self->drestart, .dparameters = self->dparameters);
    check_ok(rcv_run_backward(self->run, &data));
}

/* ---- central differences -----------------------------------------------------------------------------------------
 *
 * The relative error of a tensor is max|a - n| / max|n| over the derivatives checked in it, a from backward and n from
 * differences; where all of them are tiny, max|n| counts as FLOOR, for below it n is rounding noise. */

#define TOLERANCE 1e-6
#define FLOOR 1e-3
#define STEP 2e-5
#define DOUBT 2e-8 /* relative error from which on a difference is refined */

enum { MAX_ELEMENTS = 32 };

typedef struct {
    probe *self;
    const char *label, *name;
    double *values;         /* the tensor, changed in place and restored */
    const double *gradient; /* of it, from backward */
    int64_t count;
} tensor_check;

/* One derivative: of element `element`, or along `direction` where that is not NULL. */
typedef struct {
    int64_t element;
    const double *direction;
    double analytic, numeric;
} derivative;

static void move(const tensor_check *check, const derivative *d, const double *origin, double step) {
    if (d->direction) {
        for (int64_t i = 0; i < check->count; i++) check->values[i] = origin[i] + step * d->direction[i];
    } else {
        check->values[d->element] = origin[d->element] + step;
    }
}

static double difference(const tensor_check *check, const derivative *d, const double *origin, double step) {
    move(check, d, origin, step);
    double above = probe_loss(check->self);
    move(check, d, origin, -step);
    double below = probe_loss(check->self);
    memcpy(check->values, origin, (size_t)check->count * sizeof *origin);
    return (above - below) / (2 * step);
}

/* Ridders' method: differences with ever smaller steps, extrapolated to step zero; of all extrapolations the one that
 * its neighbours confirm best. It finds the balance between curvature and rounding by itself, and does not look at what
 * backward says. */
static double extrapolate(const tensor_check *check, const derivative *d, const double *origin) {
    enum { LEVELS = 8 };
    double table[LEVELS][LEVELS], best = d->numeric, least = INFINITY, step = 100 * STEP;
    for (int i = 0; i < LEVELS; i++, step /= 2) {
        table[i][0] = difference(check, d, origin, step);
        double factor = 4;
        for (int k = 1; k <= i; k++, factor *= 4) {
            table[i][k] = (factor * table[i][k - 1] - table[i - 1][k - 1]) / (factor - 1);
            double doubt = fmax(fabs(table[i][k] - table[i][k - 1]), fabs(table[i][k] - table[i - 1][k - 1]));
            if (doubt >= least) continue;
            least = doubt;
            best = table[i][k];
        }
    }
    return best;
}

/* A derivative that disagrees is measured again with smaller steps. A smooth function then agrees; an error of backward
 * disagrees with steps that agree among themselves; where the steps disagree among themselves there is a kink. */
static bool is_kink(const tensor_check *check, const derivative *d, const double *origin, double scale, double *error) {
    double low = d->numeric, high = d->numeric;
    *error = fabs(d->analytic - d->numeric);
    for (double step = STEP / 4; step > STEP / 300; step /= 4) {
        double numeric = difference(check, d, origin, step);
        if (numeric < low) low = numeric;
        if (numeric > high) high = numeric;
        *error = fabs(d->analytic - numeric);
        if (*error <= TOLERANCE * scale) return false;
    }
    return high - low > 10 * TOLERANCE * scale;
}

static void compare(const tensor_check *check, derivative *all, int count, const double *origin, probe_tally *tally) {
    double scale = FLOOR;
    for (int i = 0; i < count; i++) {
        if (fabs(all[i].numeric) > scale) scale = fabs(all[i].numeric);
    }
    for (int i = 0; i < count; i++) {
        tally->checked++;
        if (fabs(all[i].analytic - all[i].numeric) > DOUBT * scale)
            all[i].numeric = extrapolate(check, &all[i], origin);
        double error = fabs(all[i].analytic - all[i].numeric);
        if (!(error <= TOLERANCE * scale)) {
            if (is_kink(check, &all[i], origin, scale, &error)) {
                tally->skipped++;
                continue;
            }
        }
        if (!(error <= TOLERANCE * scale)) {
            fail_msg("%s: derivative %s %s%ld is %.12g, differences say %.12g (relative error %.2g)", check->label,
                     check->name, all[i].direction ? "direction " : "element ", (long)all[i].element, all[i].analytic,
                     all[i].numeric, error / scale);
        }
        if (error / scale > tally->worst) tally->worst = error / scale;
    }
}

static void check_tensor(const tensor_check *check, int elements, random_source *source, probe_tally *tally) {
    if (check->count == 0) return;
    assert_true(elements <= MAX_ELEMENTS);
    derivative all[MAX_ELEMENTS + 1];
    double *origin = malloc((size_t)check->count * sizeof *origin);
    double *direction = drawn(source, check->count, -1, 1);
    assert_non_null(origin);
    memcpy(origin, check->values, (size_t)check->count * sizeof *origin);

    int count = 0;
    bool every = check->count <= elements;
    for (; count < (every ? (int)check->count : elements); count++) {
        int64_t element = every ? count : random_below(source, (int)check->count);
        all[count] = (derivative){.element = element, .analytic = check->gradient[element]};
    }
    if (!every) {
        double along = 0;
        for (int64_t i = 0; i < check->count; i++) along += check->gradient[i] * direction[i];
        all[count++] = (derivative){.direction = direction, .analytic = along};
    }
    for (int i = 0; i < count; i++) all[i].numeric = difference(check, &all[i], origin, STEP);
    compare(check, all, count, origin, tally);
    free(origin);
    free(direction);
}

void probe_check(probe *self, int elements, const char *label, probe_tally *tally) {
    random_source source = {self->config.seed ^ 0x5bd1e995};
    probe_gradients(self);
    tensor_check check = {.self = self,
                          .label = label,
                          .name = "dx",
                          .values = self->x,
                          .gradient = self->dx,
                          .count = self->config.steps * self->config.batch * self->config.net.input};
    check_tensor(&check, elements, &source, tally);
    for (size_t s = 0; s < self->states; s++) {
        char name[128];
        check.name = name;
        check.count = self->state_count[s];
        snprintf(name, sizeof name, "of initial %s", rcv_net_state(self->net, s)->name);
        check.values = self->initial[s];
        check.gradient = self->dinitial[s];
        check_tensor(&check, elements, &source, tally);
        snprintf(name, sizeof name, "of restart %s", rcv_net_state(self->net, s)->name);
        check.values = self->restart[s];
        check.gradient = self->drestart[s];
        if (self->restart[s]) check_tensor(&check, elements, &source, tally);
    }
    for (size_t p = 0; p < rcv_net_parameter_count(self->net); p++) {
        const rcv_parameter *parameter = rcv_net_parameter(self->net, p);
        check.name = parameter->name;
        check.values = self->parameters + parameter->offset;
        check.gradient = self->dparameters + parameter->offset;
        check.count = parameter->count;
        check_tensor(&check, elements, &source, tally);
    }
}

/* Updates against the formulas in double, one update at a time from what the device has, so that errors do not pile up.
 *
 * Every operation on an element may round by a unit of its operands; bounds count them, and what a division makes of them. The
 * norm, which may be a factor of the gradient, is a sum in double. */
#include "learn/learn_fixture.h"

#include <math.h>

enum { PARTS = 3, UPDATES = 4 };
enum { FEW = 2200, MANY = 40000 }; /* of the largest part: many are worth several threads */

typedef struct {
    learn_fixture fixture;
    rcvi_update_part parts[PARTS];
    rcvi_update update;
    rcvi_control control;
    void *outcome;
} subject_update;

static double clipped(const rcvi_control *control, double g) {
    double x = g / control->scale;
    if (control->clip_value > 0 && x > control->clip_value) return control->clip_value;
    return control->clip_value > 0 && x < -control->clip_value ? -control->clip_value : x;
}

static double clip_factor(const rcvi_control *control, double norm) {
    double factor = control->clip > 0 ? control->clip / (norm + 1e-6) : 1;
    return factor < 1 ? factor : 1;
}

/* ---- one element ---- */

typedef struct {
    double p, first, second, average;
} element;

/* `was` becomes what it should be; `off` how far from that it may be. */
static void loop_element(rcvi_update_kind kind, const rcvi_control *c, double g, double unit, element *was,
                         element *off) {
    double p = was->p, m = was->first, v = was->second, decay = kind == RCVI_ADAMW ? 0 : c->decay;
    double eg = 8 * unit * (fabs(g) + fabs(decay * p)) + roundings(MANY) * 0x1p-53 * fabs(g);
    double change, echange;
    g += decay * p;
    switch (kind) {
    case RCVI_SGD:
        change = c->rate * g;
        echange = c->rate * eg;
        break;
    case RCVI_MOMENTUM:
        was->first = c->momentum * m + g;
        off->first = eg + 4 * unit * (fabs(m) + fabs(g));
        change = c->rate * was->first;
        echange = c->rate * off->first;
        break;
    default: {
        was->first = c->beta1 * m + (1 - c->beta1) * g;
        was->second = c->beta2 * v + (1 - c->beta2) * g * g;
        off->first = (1 - c->beta1) * eg + 4 * unit * (fabs(c->beta1 * m) + fabs((1 - c->beta1) * g));
        off->second = (1 - c->beta2) * 2 * fabs(g) * eg + 8 * unit * was->second;
        double root = sqrt(was->second / c->correction2),
               low = sqrt(fmax(0, was->second - off->second) / c->correction2);
        double step = c->rate / c->correction1;
        if (kind == RCVI_ADAMW) p -= c->rate * c->decay * p;
        change = step * was->first / (root + c->epsilon);
        echange = step * off->first / (low + c->epsilon) + fabs(change) * (root - low) / (low + c->epsilon);
    }
    }
    was->p = p - change;
    off->p = 2 * echange + 8 * unit * (fabs(p) + fabs(change));
    if (c->average != 0) {
        off->average = off->p + 4 * unit * (fabs(was->average) + fabs(was->p));
        was->average += (was->p - was->average) * c->average;
    }
}

/* ---- a part ---- */

enum { P, FIRST, SECOND, AVERAGE, ARRAYS };

static double *get_array(learn_fixture *fixture, const void *from, int64_t count) {
    return from ? fixture_get(fixture, from, count) : host_new(count);
}

static void get_part(subject_update *self, int i, double *arrays[ARRAYS]) {
    const rcvi_update_part *part = &self->parts[i];
    const void *from[ARRAYS] = {part->parameters, part->first, part->second, part->average};
    for (int a = 0; a < ARRAYS; a++) arrays[a] = get_array(&self->fixture, from[a], part->count);
}

static double square_sum(subject_update *self, const void *gradient, int64_t count) {
    double *g = fixture_get(&self->fixture, gradient, count), sum = 0;
    for (int64_t i = 0; i < count; i++) sum += clipped(&self->control, g[i]) * clipped(&self->control, g[i]);
    free(g);
    return sum;
}

static double norm_of(subject_update *self) {
    double sum = 0;
    for (int i = 0; i < self->update.part_count; i++)
        sum += square_sum(self, self->parts[i].gradient, self->parts[i].count);
    return sqrt(sum);
}

static void check_part(subject_update *self, int i, double *before[ARRAYS], double norm) {
    static const char *const names[ARRAYS] = {"parameters", "first moments", "second moments", "averages"};
    const rcvi_update_part *part = &self->parts[i];
    double *after[ARRAYS], *off[ARRAYS], *g = fixture_get(&self->fixture, part->gradient, part->count);
    get_part(self, i, after);
    for (int a = 0; a < ARRAYS; a++) off[a] = host_new(part->count);
    for (int64_t n = 0; n < part->count; n++) {
        element was = {before[P][n], before[FIRST][n], before[SECOND][n], before[AVERAGE][n]}, error = {0};
        loop_element(self->update.kind, &self->control,
                     clipped(&self->control, g[n]) * clip_factor(&self->control, norm),
                     fixture_precision(&self->fixture).unit, &was, &error);
        before[P][n] = was.p, before[FIRST][n] = was.first, before[SECOND][n] = was.second;
        off[P][n] = error.p, off[FIRST][n] = error.first, off[SECOND][n] = error.second;
        if (part->average) before[AVERAGE][n] = was.average, off[AVERAGE][n] = error.average;
    }
    for (int a = 0; a < ARRAYS; a++) {
        check_near(names[a], part->count, after[a], before[a], off[a]);
        free(after[a]), free(off[a]), free(before[a]);
    }
    free(g);
}

static void check_norm(subject_update *self, double want, int64_t count) {
    double got = fixture_get_outcome(&self->fixture, self->outcome).norm;
    double bound = want * fixture_precision(&self->fixture).unit * roundings(count);
    check_near("norm", 1, &got, &want, &bound);
}

/* ---- all kinds with all controls ---- */

static void *put_drawn(learn_fixture *fixture, int64_t count, double from, double to) {
    double *values = host_draw(fixture, count, from, to);
    void *made = fixture_put(fixture, values, count);
    free(values);
    return made;
}

static void open_update(subject_update *self, const learn_subject *subject, rcvi_update_kind kind, bool average,
                        int64_t largest) {
    const int64_t counts[PARTS] = {1, 1537, largest};
    memset(self, 0, sizeof *self);
    learn_fixture *fixture = &self->fixture;
    fixture_open(fixture, subject, 4, 4, 4, 0, 500);
    for (int i = 0; i < PARTS; i++) {
        rcvi_update_part *part = &self->parts[i];
        *part = (rcvi_update_part){.count = counts[i],
                                   .parameters = put_drawn(fixture, counts[i], -1, 1),
                                   .gradient = put_drawn(fixture, counts[i], -1, 1)};
        if (kind != RCVI_SGD) part->first = put_drawn(fixture, counts[i], -0.1, 0.1);
        if (kind == RCVI_ADAM || kind == RCVI_ADAMW) part->second = put_drawn(fixture, counts[i], 0, 0.1);
        if (average) part->average = put_drawn(fixture, counts[i], -1, 1);
    }
    self->update = (rcvi_update){.kind = kind, .parts = self->parts, .part_count = PARTS};
    self->control =
        (rcvi_control){.scale = 1, .rate = 0.05, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    self->outcome = fixture_outcome(fixture, 11, NAN);
}

/* With the norm taken to the host and back: for those who ask others what it is. */
static void update_in_halves(subject_update *self, const rcvi_control *control) {
    learn_fixture *fixture = &self->fixture;
    check_ok(fixture->calls->sum_squares(fixture->learn, &self->update, control, self->outcome));
    rcvi_outcome outcome = fixture_get_outcome(fixture, self->outcome);
    outcome.norm = sqrt(outcome.norm);
    check_ok(fixture->calls->send(fixture->learn, self->outcome, &outcome, sizeof outcome));
    check_ok(fixture->calls->apply(fixture->learn, &self->update, control, self->outcome));
}

/* Whole, and every second time in halves. */
static void take_update(subject_update *self, int n) {
    rcvi_control *control = &self->control;
    control->correction1 = 1 - pow(control->beta1, n);
    control->correction2 = 1 - pow(control->beta2, n);
    double *before[PARTS][ARRAYS], want = norm_of(self);
    for (int i = 0; i < PARTS; i++) get_part(self, i, before[i]);
    const rcvi_control *there = fixture_control(&self->fixture, control);
    if (n % 2)
        check_ok(self->fixture.calls->update(self->fixture.learn, &self->update, there, self->outcome));
    else
        update_in_halves(self, there);
    check_norm(self, want, MANY);
    assert_true(fixture_get_outcome(&self->fixture, self->outcome).loss == 11); /* the head's */
    for (int i = 0; i < PARTS; i++) check_part(self, i, before[i], want);
    for (int i = 0; i < PARTS; i++) self->parts[i].gradient = put_drawn(&self->fixture, self->parts[i].count, -1.5, 1);
}

void check_updates(const learn_subject *subject) {
    enum { DECAY = 1, CLIP = 2, CLIP_VALUE = 4, SCALE = 8, AVERAGE_TOO = 16, CONTROLS = 32 };
    for (int kind = RCVI_SGD; kind <= RCVI_ADAMW; kind++) {
        for (int controls = 0; controls < CONTROLS; controls++) {
            subject_update self;
            open_update(&self, subject, (rcvi_update_kind)kind, controls & AVERAGE_TOO,
                        controls == 0 || controls == CONTROLS - 1 ? MANY : FEW);
            self.control.decay = controls & DECAY ? 0.1 : 0;
            self.control.clip = controls & CLIP ? 2 : 0;
            self.control.clip_value = controls & CLIP_VALUE ? 0.125 : 0;
            self.control.scale = controls & SCALE ? 3 : 1;
            for (int n = 1; n <= UPDATES; n++) {
                if (controls & AVERAGE_TOO) self.control.average = n < 2 ? 0 : 1.0 / (n - 1); /* not begun at first */
                if (controls & CLIP && n == 3) self.control.clip = 1e6;                       /* larger than any norm */
                take_update(&self, n);
            }
            fixture_close(&self.fixture);
        }
    }
}

/* ---- a sparse part ---- */

enum { TABLE_ROWS = 50, COLUMNS = 37, ROOM = 20 };

void check_update_sparse(const learn_subject *subject) {
    for (int32_t groups = 0; groups <= 13; groups += 13) {
        subject_update self;
        open_update(&self, subject, RCVI_SGD, true, MANY);
        learn_fixture *fixture = &self.fixture;
        int32_t ids[ROOM];
        for (int32_t i = 0; i < ROOM; i++) ids[i] = (i * 17 + 3) % TABLE_ROWS;
        self.control.clip = 1;
        self.control.clip_value = 0.5;
        self.control.decay = 0.1; /* of the parts, not of the table */
        self.control.average = 0.5;
        double *table = host_draw(fixture, TABLE_ROWS * COLUMNS, -1, 1), *bounds = host_new(TABLE_ROWS * COLUMNS),
               *gradient = host_draw(fixture, ROOM * COLUMNS, -1, 1);
        for (int64_t i = groups * COLUMNS; i < ROOM * COLUMNS; i++) gradient[i] = NAN; /* of no group */
        self.update.sparse = (rcvi_sparse_part){
            .groups = {.count = fixture_put_ids(fixture, &groups, 1), .ids = fixture_put_ids(fixture, ids, ROOM)},
            .rows = ROOM,
            .columns = COLUMNS,
            .table = fixture_put(fixture, table, TABLE_ROWS * COLUMNS),
            .gradient = fixture_put(fixture, gradient, ROOM * COLUMNS)};
        double rows = square_sum(&self, self.update.sparse.gradient, groups * COLUMNS), dense = norm_of(&self);
        double norm = sqrt(dense * dense + rows), *before[PARTS][ARRAYS];
        for (int i = 0; i < PARTS; i++) get_part(&self, i, before[i]);
        check_ok(fixture->calls->update(fixture->learn, &self.update, fixture_control(fixture, &self.control),
                                        self.outcome));
        check_norm(&self, norm, MANY);
        for (int i = 0; i < PARTS; i++) check_part(&self, i, before[i], norm);
        for (int64_t i = 0; i < groups * COLUMNS; i++) {
            double change = self.control.rate * clipped(&self.control, gradient[i]) * clip_factor(&self.control, norm);
            int64_t to = ids[i / COLUMNS] * COLUMNS + i % COLUMNS;
            table[to] -= change;
            bounds[to] = 8 * fixture_precision(fixture).unit * (fabs(table[to]) + fabs(change)) +
                         roundings(MANY) * 0x1p-53 * fabs(change);
        }
        double *got = fixture_get(fixture, self.update.sparse.table, TABLE_ROWS * COLUMNS);
        check_near("the table", TABLE_ROWS * COLUMNS, got, table, bounds); /* other rows exactly */
        free(got), free(table), free(bounds), free(gradient);
        fixture_close(fixture);
    }
}

/* ---- what is no number ---- */

static void check_untouched(subject_update *self, double poison) {
    rcvi_update_part *part = &self->parts[1];
    double *g = host_draw(&self->fixture, part->count, -1, 1), *before[PARTS][ARRAYS];
    g[part->count - 1] = poison;
    part->gradient = fixture_put(&self->fixture, g, part->count);
    for (int i = 0; i < PARTS; i++) get_part(self, i, before[i]);
    check_ok(self->fixture.calls->update(self->fixture.learn, &self->update,
                                         fixture_control(&self->fixture, &self->control), self->outcome));
    assert_false(isfinite(fixture_get_outcome(&self->fixture, self->outcome).norm));
    for (int i = 0; i < PARTS; i++) {
        double *after[ARRAYS];
        get_part(self, i, after);
        for (int a = 0; a < ARRAYS; a++) {
            assert_memory_equal(after[a], before[i][a], (size_t)self->parts[i].count * sizeof(double));
            free(after[a]), free(before[i][a]);
        }
    }
    free(g);
}

void check_update_not_finite(const learn_subject *subject) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    for (int kind = RCVI_SGD; kind <= RCVI_ADAMW; kind++) {
        for (int i = 0; i < 6; i++) {
            subject_update self;
            open_update(&self, subject, (rcvi_update_kind)kind, true, i == 0 ? MANY : FEW);
            self.control.clip = i < 3 ? 1 : 0;
            self.control.average = 0.5;
            self.control.correction1 = self.control.correction2 = 0.1;
            check_untouched(&self, poisons[i % 3]);
            fixture_close(&self.fixture);
        }
    }
}

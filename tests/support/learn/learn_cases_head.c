/* The head against loops in double.
 *
 * How far may a value be? An operand of a product is rounded by `operand` of itself, twice in a product, and a sum of n by `roundings`
 * units of the sum of magnitudes. So logits of a row are off by E at most; a softmax then by e^2E - 1 of itself, and by some units more for exp,
 * whose argument has the error of a difference; and what is made of it by products, by that and the roundings of those. */
#include "learn/learn_fixture.h"

#include <math.h>

typedef struct {
    int64_t rows, features, classes, chunk;
    bool bias, accumulate, adds_loss, squares;
    bool weighted;  /* by class, of softmax */
    bool parted;    /* in several calls, where the device has them */
    int64_t called; /* rows of the call; 0: all */
} head_case;

/* All arrays of a head on the host, as numbers. */
typedef struct {
    learn_fixture fixture;
    head_case shape;
    int64_t rows;
    double weight; /* of control */
    double *y, *w, *b, *values, *class_weights;
    int32_t *targets;
    double *before_dw, *before_db;
    double *x, *ex;           /* [rows, classes] logits, and how far they may be off */
    double *g, *eg;           /* their gradients */
    double *losses, *elosses; /* [rows] */
    rcvi_head head;           /* on the device */
    void *control, *outcome;
} subject_head;

static const double loss_before = 3.5;

static void draw_targets(subject_head *self) {
    const head_case *shape = &self->shape;
    self->targets = malloc((size_t)shape->rows * sizeof *self->targets);
    assert_non_null(self->targets);
    for (int64_t r = 0; r < shape->rows; r++) {
        bool counts = r == 0 || random_below(&self->fixture.random, 4) > 0;
        self->targets[r] = counts ? random_below(&self->fixture.random, (int)shape->classes) : -1;
        for (int64_t c = 0; !counts && c < shape->classes; c++)
            self->values[r * shape->classes + c] = c == 0 || c == 2 ? NAN : 1;
    }
}

static void open_head(subject_head *self, const learn_subject *subject, const head_case *shape, uint64_t seed) {
    *self = (subject_head){.shape = *shape, .rows = shape->called ? shape->called : shape->rows};
    learn_fixture *fixture = &self->fixture;
    fixture_open(fixture, subject, shape->rows, shape->features, shape->classes, shape->chunk, seed);
    int64_t weights = shape->classes * shape->features, values = shape->rows * shape->classes;
    self->y = host_draw(fixture, shape->rows * shape->features, -1, 1);
    double spread = 3 / sqrt((double)shape->features); /* logits of a few units, however many features there are */
    self->w = host_draw(fixture, weights, -spread, spread);
    self->b = host_draw(fixture, shape->classes, -1, 1);
    self->values = host_draw(fixture, values, -1, 1);
    self->before_dw = host_draw(fixture, weights, -1, 1);
    self->before_db = host_draw(fixture, shape->classes, -1, 1);
    self->weight = 64.0 / (double)shape->rows;
    draw_targets(self);
    self->class_weights = host_draw(fixture, shape->classes, 0.25, 4);
    rcvi_head *head = &self->head;
    *head = (rcvi_head){.rows = self->rows, .accumulate = shape->accumulate, .adds_loss = shape->adds_loss};
    head->y = fixture_put(fixture, self->y, shape->rows * shape->features);
    head->weight = fixture_put(fixture, self->w, weights);
    void *bias = fixture_put(fixture, self->b, shape->classes);
    if (shape->bias) head->bias = bias;
    void *class_weights = fixture_put(fixture, self->class_weights, shape->classes);
    if (shape->weighted) head->class_weights = class_weights;
    if (shape->squares)
        head->values = fixture_put(fixture, self->values, values);
    else
        head->targets = fixture_put_ids(fixture, self->targets, shape->rows);
    head->dy = fixture_poison(fixture, shape->rows * shape->features);
    head->dweight =
        shape->accumulate ? fixture_put(fixture, self->before_dw, weights) : fixture_poison(fixture, weights);
    head->dbias = shape->accumulate ? fixture_put(fixture, self->before_db, shape->classes)
                                    : fixture_poison(fixture, shape->classes);
    self->control = fixture_control(fixture, &(rcvi_control){.weight = self->weight, .scale = 64});
    self->outcome = fixture_outcome(fixture, shape->adds_loss ? loss_before : NAN, 7);
}

static void close_head(subject_head *self) {
    double *arrays[] = {self->class_weights, self->y, self->w,  self->b, self->values, self->before_dw,
                        self->before_db,     self->x, self->ex, self->g, self->eg,     self->losses,
                        self->elosses};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(self->targets);
    fixture_close(&self->fixture);
}

/* ---- the loops ---- */

static void loop_logits(subject_head *self) {
    int64_t features = self->shape.features, classes = self->shape.classes;
    precision p = fixture_precision(&self->fixture);
    self->x = host_new(self->rows * classes);
    self->ex = host_new(self->rows * classes);
    for (int64_t i = 0; i < self->rows * classes; i++) {
        const double *y = self->y + i / classes * features, *w = self->w + i % classes * features;
        double sum = self->shape.bias ? self->b[i % classes] : 0, all = fabs(sum), sizes = 0;
        for (int64_t f = 0; f < features; f++) {
            sum += y[f] * w[f];
            all += fabs(y[f] * w[f]);
            sizes += fabs(y[f]) + fabs(w[f]);
        }
        self->x[i] = sum;
        self->ex[i] = (2.1 * p.operand + roundings(features) * p.unit) * all + p.tiny * sizes;
    }
}

static double loop_softmax_row(subject_head *self, int64_t row, double *error) {
    int64_t n = self->shape.classes, first = row * n;
    double unit = fixture_precision(&self->fixture).unit, most = -INFINITY, sum = 0, off = 0;
    for (int64_t i = first; i < first + n; i++) {
        most = fmax(most, self->x[i]);
        off = fmax(off, self->ex[i]);
    }
    for (int64_t i = first; i < first + n; i++) sum += exp(self->x[i] - most);
    for (int64_t i = first; i < first + n; i++) {
        double share = exp(self->x[i] - most) / sum;
        bool aimed = i - first == self->targets[row];
        self->g[i] = self->weight * (share - aimed);
        self->eg[i] = self->weight * (share * (expm1(2 * off) + 16 * unit * (1 + fabs(self->x[i]) + fabs(most))) +
                                      (aimed ? 4 * unit : 0));
    }
    double aimed = self->x[first + self->targets[row]], loss = log(sum) + most - aimed;
    *error = 2 * off + 16 * unit * (1 + fabs(most) + fabs(aimed));
    const double own = self->shape.weighted ? self->class_weights[self->targets[row]] : 1;
    for (int64_t i = first; i < first + n; i++) {
        self->g[i] *= own;
        self->eg[i] *= own;
    }
    *error = own * (*error + 4 * unit * fabs(loss));
    return own * loss;
}

static double loop_squares_row(subject_head *self, int64_t row, double *error) {
    int64_t n = self->shape.classes, first = row * n;
    double unit = fixture_precision(&self->fixture).unit, loss = 0;
    *error = 0;
    for (int64_t i = first; i < first + n; i++) {
        double off = self->x[i] - self->values[i], e = self->ex[i] + unit * (fabs(self->x[i]) + fabs(self->values[i]));
        loss += off * off / (double)n;
        *error += (2 * fabs(off) * e + e * e + 8 * unit * off * off) / (double)n;
        self->g[i] = self->weight * 2 * off / (double)n;
        self->eg[i] = self->weight * 2 * (e + 4 * unit * fabs(off)) / (double)n;
    }
    return loss;
}

static void loop_rows(subject_head *self) {
    loop_logits(self);
    self->g = host_new(self->rows * self->shape.classes);
    self->eg = host_new(self->rows * self->shape.classes);
    self->losses = host_new(self->rows);
    self->elosses = host_new(self->rows);
    for (int64_t r = 0; r < self->rows; r++) {
        if (self->targets[r] < 0) continue;
        self->losses[r] = (self->shape.squares ? loop_squares_row : loop_softmax_row)(self, r, &self->elosses[r]);
    }
}

/* sums[k] += sum over i < n of g[i * g_step] * others[i, k] for k < width, and how far each may be off. */
static void loop_sums(const subject_head *self, int64_t n, const double *g, const double *eg, int64_t g_step,
                      const double *others, int64_t width, double *sums, double *bounds) {
    precision p = fixture_precision(&self->fixture);
    double *all = host_new(width);
    for (int64_t k = 0; k < width; k++) all[k] = fabs(sums[k]), bounds[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = g[i * g_step], error = eg[i * g_step];
        const double *other = others + i * width;
        for (int64_t k = 0; k < width; k++) {
            sums[k] += value * other[k];
            all[k] += fabs(value * other[k]);
            bounds[k] += error * fabs(other[k]) * 1.1 + p.tiny * (fabs(value) + fabs(other[k]));
        }
    }
    for (int64_t k = 0; k < width; k++) bounds[k] += (2.1 * p.operand + roundings(n) * p.unit) * all[k];
    free(all);
}

/* The same where the other operand is 1, which no product rounds. */
static void loop_sum(const subject_head *self, int64_t n, const double *g, const double *eg, int64_t g_step,
                     double *sum, double *bound) {
    precision p = fixture_precision(&self->fixture);
    double all = fabs(*sum), off = 0;
    for (int64_t i = 0; i < n; i++) {
        *sum += g[i * g_step];
        all += fabs(g[i * g_step]);
        off += eg[i * g_step] * 1.1;
    }
    *bound = off + roundings(n) * p.unit * all;
}

/* ---- checks ---- */

static void check_array(subject_head *self, const char *what, const void *there, int64_t count, double *want,
                        double *bounds) {
    double *got = fixture_get(&self->fixture, there, count);
    check_near(what, count, got, want, bounds);
    free(got), free(want), free(bounds);
}

static void check_gradients(subject_head *self) {
    int64_t features = self->shape.features, classes = self->shape.classes;
    double *want = host_new(self->rows * features), *bounds = host_new(self->rows * features);
    for (int64_t r = 0; r < self->rows; r++)
        loop_sums(self, classes, self->g + r * classes, self->eg + r * classes, 1, self->w, features,
                  want + r * features, bounds + r * features);
    check_array(self, "dy", self->head.dy, self->rows * features, want, bounds);
    want = host_new(classes * features), bounds = host_new(classes * features);
    for (int64_t c = 0; self->head.dweight && c < classes; c++) {
        for (int64_t f = 0; self->shape.accumulate && f < features; f++)
            want[c * features + f] = self->before_dw[c * features + f];
        loop_sums(self, self->rows, self->g + c, self->eg + c, classes, self->y, features, want + c * features,
                  bounds + c * features);
    }
    check_array(self, "dweight", self->head.dweight, classes * features, want, bounds);
    want = host_new(classes), bounds = host_new(classes);
    for (int64_t i = 0; i < classes; i++) {
        if (self->shape.accumulate) want[i] = self->before_db[i];
        loop_sum(self, self->rows, self->g + i, self->eg + i, classes, &want[i], &bounds[i]);
    }
    check_array(self, "dbias", self->head.dbias, classes, want, bounds);
}

static void check_loss(subject_head *self) {
    rcvi_outcome outcome = fixture_get_outcome(&self->fixture, self->outcome);
    double want = self->shape.adds_loss ? loss_before : 0, bound = 0;
    for (int64_t r = 0; r < self->rows; r++) {
        want += self->losses[r];
        bound += self->elosses[r];
    }
    bound += 0x1p-50 * fabs(want);
    check_near("loss", 1, &outcome.loss, &want, &bound);
    assert_true(outcome.norm == 7); /* a head has none */
}

/* dy past the rows of the call stays as it was. */
static void check_rest(subject_head *self) {
    int64_t first = self->rows * self->shape.features, all = self->shape.rows * self->shape.features;
    double *got = fixture_get(&self->fixture, self->head.dy, all);
    for (int64_t i = first; i < all; i++) assert_true(isnan(got[i]));
    free(got);
}

static void take_head(subject_head *self) {
    const rcvi_learn_table *calls = self->fixture.calls;
    bool parted = self->shape.parted && calls->head_gradients;
    self->head.rounded = self->head.later = parted;
    if (parted) check_ok(calls->prepare_head(self->fixture.learn, &self->head, NULL));
    check_ok(calls->head(self->fixture.learn, &self->head, self->control, self->outcome));
    if (parted) check_ok(calls->head_gradients(self->fixture.learn, &self->head, NULL));
}

static void check_head(const learn_subject *subject, const head_case *shape, uint64_t seed) {
    subject_head self;
    open_head(&self, subject, shape, seed);
    const rcvi_learn_table *calls = self.fixture.calls;
    loop_rows(&self);
    take_head(&self);
    check_loss(&self);
    check_gradients(&self);
    check_rest(&self);
    /* Less of it: what is not wanted is not touched. */
    rcvi_head less = self.head;
    less.dweight = less.dbias = NULL;
    self.outcome = fixture_outcome(&self.fixture, shape->adds_loss ? loss_before : NAN, 7);
    check_ok(calls->head(self.fixture.learn, &less, self.control, self.outcome));
    check_loss(&self);
    check_gradients(&self);
    less.dy = NULL;
    self.outcome = fixture_outcome(&self.fixture, shape->adds_loss ? loss_before : NAN, 7);
    check_ok(calls->head(self.fixture.learn, &less, self.control, self.outcome));
    check_loss(&self);
    check_gradients(&self);
    close_head(&self);
}

static const int64_t shapes[][5] = {
    /* rows, features, classes, chunk, called */
    {1, 1, 1, 0, 0},       {1, 5, 7, 0, 0},       {33, 17, 257, 0, 0}, {33, 17, 257, 5, 0},
    {33, 9, 7, 32, 0},     {33, 40, 1, 8, 0},     {70, 33, 300, 0, 0}, {70, 33, 300, 1, 11},
    {130, 64, 513, 0, 77}, {130, 20, 65, 100, 0}, {17, 3, 40, 16, 0},  {9, 600, 20, 4, 9},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_heads(const learn_subject *subject, bool squares) {
    for (int i = 0; i < SHAPES * 4; i++) {
        const int64_t *s = shapes[i / 4];
        head_case shape = {.rows = s[0],
                           .features = s[1],
                           .classes = s[2],
                           .chunk = s[3],
                           .called = s[4],
                           .bias = i % 4 != 2,
                           .accumulate = i & 1,
                           .adds_loss = i & 2,
                           .squares = squares,
                           .weighted = !squares && i % 3 == 1,
                           .parted = (i / 4 + i) % 2};
        check_head(subject, &shape, 100 + (uint64_t)i);
    }
}

void check_head_softmax(const learn_subject *subject) { check_heads(subject, false); }
void check_head_squares(const learn_subject *subject) { check_heads(subject, true); }

/* ---- differences ---- */

static double loss_of(subject_head *self) {
    rcvi_head head = self->head;
    head.dy = NULL;
    check_ok(self->fixture.calls->head(self->fixture.learn, &head, self->control, self->outcome));
    return fixture_get_outcome(&self->fixture, self->outcome).loss;
}

/* Every `stride`-th derivative by central differences, for an array whose values are `host` and lie at `there`. */
static void check_differences(subject_head *self, const char *what, int64_t count, int64_t stride, double *host,
                              void *there, const void *gradient) {
    const double step = 1e-5;
    const size_t bytes = (size_t)count * sizeof *host;
    double *got = fixture_get(&self->fixture, gradient, count);
    for (int64_t i = 0; i < count; i += stride) {
        double before = host[i], losses[2];
        for (int side = 0; side < 2; side++) {
            host[i] = before + (side ? step : -step);
            check_ok(self->fixture.calls->send(self->fixture.learn, there, host, bytes));
            losses[side] = loss_of(self);
        }
        host[i] = before;
        double want = self->weight * (losses[1] - losses[0]) / (2 * step);
        double bound = 1e-7 * self->weight * (double)self->rows; /* step^2, and the loss's roundings over the step */
        check_near(what, 1, &got[i], &want, &bound);
    }
    check_ok(self->fixture.calls->send(self->fixture.learn, there, host, bytes));
    free(got);
}

void check_head_differences(const learn_subject *subject) {
    if (subject->dtype != RCV_FLOAT64) return; /* others are held against the same loops */
    for (int i = 0; i < 3; i++) {
        head_case shape = {
            .rows = 13, .features = 6, .classes = 11, .chunk = 4, .bias = true, .squares = i == 1, .weighted = i == 2};
        subject_head self;
        open_head(&self, subject, &shape, 200);
        rcvi_head *head = &self.head;
        check_ok(self.fixture.calls->head(self.fixture.learn, head, self.control, self.outcome));
        check_differences(&self, "dy", 13 * 6, 5, self.y, (void *)(uintptr_t)head->y, head->dy);
        check_differences(&self, "dweight", 11 * 6, 5, self.w, (void *)(uintptr_t)head->weight, head->dweight);
        check_differences(&self, "dbias", 11, 2, self.b, (void *)(uintptr_t)head->bias, head->dbias);
        close_head(&self);
    }
}

/* ---- what is no number ---- */

/* An infinite or NaN input of a row that counts is seen in the loss and the gradient; other rows keep theirs. */
void check_head_nan(const learn_subject *subject) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        head_case shape = {.rows = 9, .features = 5, .classes = 40, .chunk = 4, .bias = true, .squares = i / 3};
        subject_head self;
        open_head(&self, subject, &shape, 300);
        loop_rows(&self);
        rcvi_head *head = &self.head;
        double *y = host_new(9 * 5), *got;
        memcpy(y, self.y, 9 * 5 * sizeof *y);
        y[0] = poisons[i % 3]; /* the first row counts */
        head->y = fixture_put(&self.fixture, y, 9 * 5);
        check_ok(self.fixture.calls->head(self.fixture.learn, head, self.control, self.outcome));
        assert_false(isfinite(fixture_get_outcome(&self.fixture, self.outcome).loss));
        got = fixture_get(&self.fixture, head->dy, 9 * 5);
        for (int j = 0; j < 9 * 5; j++) assert_int_equal(isfinite(got[j]) != 0, j >= 5);
        free(got), free(y);
        close_head(&self);
    }
}

/* ---- logits ---- */

void check_logits(const learn_subject *subject) {
    for (int i = 0; i < SHAPES * 2; i++) {
        const int64_t *s = shapes[i / 2];
        head_case shape = {
            .rows = s[0], .features = s[1], .classes = s[2], .chunk = s[3], .called = s[4], .bias = i & 1};
        subject_head self;
        open_head(&self, subject, &shape, 400 + (uint64_t)i);
        loop_logits(&self);
        void *out = fixture_poison(&self.fixture, self.rows * shape.classes);
        check_ok(self.fixture.calls->logits(self.fixture.learn, &self.head, out));
        double *got = fixture_get(&self.fixture, out, self.rows * shape.classes);
        check_near("logits", self.rows * shape.classes, got, self.x, self.ex);
        free(got);
        close_head(&self);
    }
}

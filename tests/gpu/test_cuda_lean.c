/* The output layer whose gradient is never stored, on a GPU: the same as where it is stored, in five types, clipped and not; what is
 * refused; what is left alone; calls that are repeated, with memory that is lent and without; how much memory it takes. */
#include "base/random.h"
#include "gpu.h"
#include "learn/learn_fixture.h"
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>

enum { OTHERS = 37 /* parameters of a network */ };

static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_TFLOAT32, RCV_BFLOAT16, RCV_FLOAT16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static test_allocator counter;

static learn_subject subject_of(rcv_dtype dtype, bool lean) {
    return (learn_subject){test_context(&counter), &rcvi_device_cuda, 0, dtype, 0, lean, 0};
}

static void end_subject(learn_subject *subject) { test_context_end(&counter, subject->context); }

/* ---- an output layer, and what it is given ---- */

typedef struct {
    int64_t rows, features, classes, chunk;
    double largest; /* of weights: a power of 2 */
} layer_shape;

/* y in sixteenths of 1 and weights in sixteenths of `largest`: the same numbers in every type, and sums of their products that take fewer
 * bits than a float has. So logits are exact in whatever order they are summed, and the same in both ways. */
typedef struct {
    layer_shape shape;
    double *y, *weight, *bias, *others, *dothers;
    int32_t *targets;
} numbers;

static double *draw_sixteenths(random_source *random, int64_t count, double largest) {
    double *made = host_new(count);
    for (int64_t i = 0; i < count; i++) made[i] = (random_below(random, 33) - 16) / 16.0 * largest;
    return made;
}

static numbers draw(layer_shape s, uint64_t seed) {
    random_source random = {seed};
    numbers n = {.shape = s,
                 .y = draw_sixteenths(&random, s.rows * s.features, 1),
                 .weight = draw_sixteenths(&random, s.classes * s.features, s.largest),
                 .bias = draw_sixteenths(&random, s.classes, 1),
                 .others = draw_sixteenths(&random, OTHERS, 1),
                 .dothers = draw_sixteenths(&random, OTHERS, 64),
                 .targets = malloc((size_t)s.rows * sizeof(int32_t))};
    assert_non_null(n.targets);
    for (int64_t r = 0; r < s.rows; r++) n.targets[r] = r % 7 == 3 ? -1 : random_below(&random, (int)s.classes);
    n.targets[0] = (int32_t)s.classes - 1;
    n.targets[1] = 0;
    return n;
}

static void free_numbers(numbers *n) {
    free(n->y), free(n->weight), free(n->bias), free(n->others), free(n->dothers), free(n->targets);
}

/* ---- one way of learning, or the other ---- */

typedef struct {
    learn_fixture fixture;
    const layer_shape *shape;
    rcvi_head head;
    void *others, *dothers, *outcome;
    void *control;
} layer;

/* A learn has room for a few rows more. */
static void open_layer(layer *l, const learn_subject *subject, numbers *n, const rcvi_control *control) {
    const layer_shape *s = &n->shape;
    learn_fixture *w = &l->fixture;
    *l = (layer){.shape = s};
    fixture_open(w, subject, s->rows + 3, s->features, s->classes, subject->lean ? s->chunk : 0, 1);
    l->head = (rcvi_head){.rows = s->rows,
                          .y = fixture_put(w, n->y, s->rows * s->features),
                          .weight = fixture_put(w, n->weight, s->classes * s->features),
                          .bias = fixture_put(w, n->bias, s->classes),
                          .targets = fixture_put_ids(w, n->targets, s->rows),
                          .dy = fixture_poison(w, s->rows * s->features)};
    if (!subject->lean) {
        l->head.dweight = fixture_poison(w, s->classes * s->features);
        l->head.dbias = fixture_poison(w, s->classes);
    }
    l->others = fixture_put(w, n->others, OTHERS);
    l->dothers = fixture_put(w, n->dothers, OTHERS);
    l->outcome = fixture_outcome(w, NAN, NAN);
    l->control = fixture_control(w, control);
}

static void *as_parameters(const void *array) {
    void *made;
    memcpy(&made, &array, sizeof made);
    return made;
}

/* What is lent is the owner's again. */
static rcv_status reclaim(layer *l) {
    const learn_fixture *w = &l->fixture;
    return w->spare ? w->calls->copy(w->learn, w->spare, w->poison, (size_t)w->subject->spare * fixture_real(w))
                    : RCV_OK;
}

static rcv_status take_update(layer *l) {
    const rcvi_head *h = &l->head;
    const rcvi_learn_table *calls = l->fixture.calls;
    const rcvi_update_part parts[] = {
        {.count = OTHERS, .parameters = l->others, .gradient = l->dothers},
        {.count = l->shape->classes * l->shape->features,
         .parameters = as_parameters(h->weight),
         .gradient = h->dweight},
        {.count = l->shape->classes, .parameters = as_parameters(h->bias), .gradient = h->dbias}};
    bool lean = l->fixture.subject->lean;
    const rcvi_update update = {.kind = RCVI_SGD, .parts = parts, .part_count = lean ? 1 : 3, .head = lean ? h : NULL};
    RCVI_TRY(reclaim(l));
    RCVI_TRY(calls->head(l->fixture.learn, h, l->control, l->outcome));
    RCVI_TRY(reclaim(l));
    return calls->update(l->fixture.learn, &update, l->control, l->outcome);
}

/* ---- both ---- */

/* How far the two ways may be apart. */
typedef struct {
    double operand; /* a gradient of a logit, relative to it: rounded once more or once less, and its share */
    double tiny;    /* and absolutely, where the type sinks */
    double norm;    /* of the gradient */
    double factor, factor_off;
} distance;

/* Logits are the same, and so is the largest of a row. Sums of exponentials are joined over strips: each strip's are multiplied by an
 * exponential, which is off by 2^6 units at most, as those of the row are. A gradient that is off by that may be rounded to its other
 * neighbour. */
static distance distance_of(const learn_fixture *w, const layer_shape *s) {
    precision p = fixture_precision(w);
    return (distance){.operand = 2 * p.operand + (256 + 2 * roundings(s->classes)) * p.unit, .tiny = 2 * p.tiny};
}

/* Of each class, the bound of dbias before it is divided by the scale, and of all elements of a row of dweight: the sum over rows of what
 * their gradients may be off, |y| being 1 at most. These sum to dbias + 2 weight for each row that has the class as its target, at most:
 * all are positive but the targets'. */
static double *bounds_of(const numbers *n, const rcvi_control *c, const learn_fixture *w, const distance *d,
                         const double *dbias) {
    double *bounds = host_new(n->shape.classes);
    double sums = roundings(n->shape.rows) * fixture_precision(w).unit * 2;
    for (int64_t i = 0; i < n->shape.classes; i++) bounds[i] = dbias[i];
    for (int64_t r = 0; r < n->shape.rows; r++)
        if (n->targets[r] >= 0) bounds[n->targets[r]] += 2 * c->weight;
    for (int64_t i = 0; i < n->shape.classes; i++)
        bounds[i] = fabs(bounds[i]) * (d->operand + sums) + d->tiny * (double)n->shape.rows;
    return bounds;
}

/* The norm of what may be off is the most that norms differ by; clipping elements brings them no further apart. */
static void check_norm(const numbers *n, const rcvi_control *c, const double *bounds, double got, double want,
                       distance *d) {
    double sum = 0;
    for (int64_t i = 0; i < n->shape.classes; i++)
        sum += (double)(n->shape.features + 1) * bounds[i] * bounds[i] / c->scale / c->scale;
    d->norm = sqrt(sum) + 1e-6 * want;
    check_near("norm", 1, &got, &want, &d->norm);
    assert_true(want > 0 && d->norm < 0.2 * want);
    d->factor = c->clip > 0 && c->clip < want ? c->clip / (want + 1e-6) : 1;
    d->factor_off = c->clip > 0 ? 2 * d->norm / want * d->factor : 0;
}

/* p - rate factor g, of elements whose g may be off by bounds[i / each]. */
static void check_parameters(const char *what, const learn_fixture *w, const rcvi_control *c, const distance *d,
                             int64_t count, const double *before, const double *g, const double *bounds, int64_t each,
                             const double *got, const double *want) {
    double unit = fixture_precision(w).unit, moved = 0;
    for (int64_t i = 0; i < count; i++) {
        double step = fabs(g[i]) / c->scale;
        if (c->clip_value > 0) step = fmin(step, c->clip_value);
        double off = d->factor * bounds[i / each] / c->scale + d->factor_off * step;
        double bound = c->rate * off + 4 * unit * (fabs(before[i]) + c->rate * step);
        check_near(what, 1, &got[i], &want[i], &bound);
        moved = fmax(moved, fabs(got[i] - before[i]) / (bound + 1e-30));
    }
    assert_true(moved > 4); /* what was compared is more than what may be off */
}

static void check_outputs(layer *lean, layer *stored, const numbers *n, const rcvi_control *c, const distance *d) {
    const layer_shape *s = &n->shape;
    learn_fixture *w = &stored->fixture;
    double *got = fixture_get(&lean->fixture, lean->head.dy, s->rows * s->features),
           *want = fixture_get(w, stored->head.dy, s->rows * s->features);
    double loss = fixture_get_outcome(&lean->fixture, lean->outcome).loss,
           wanted = fixture_get_outcome(w, stored->outcome).loss;
    double unit = fixture_precision(w).unit;
    /* logarithms of sums that differ by 2^6 units and by their order */
    double bound = (64 + roundings(s->classes)) * unit * (double)s->rows + 1e-12 * fabs(wanted);
    check_near("loss", 1, &loss, &wanted, &bound);
    /* gradients of a row sum to 2 weight at most */
    bound =
        s->largest * (2 * c->weight * (d->operand + 2 * roundings(s->classes) * unit) + d->tiny * (double)s->classes);
    for (int64_t i = 0; i < s->rows * s->features; i++) check_near("dy", 1, &got[i], &want[i], &bound);
    free(got), free(want);
}

static void compare(layer *lean, layer *stored, const numbers *n, const rcvi_control *c) {
    const layer_shape *s = &n->shape;
    learn_fixture *a = &lean->fixture, *b = &stored->fixture;
    int64_t weights = s->classes * s->features;
    distance d = distance_of(b, s);
    check_outputs(lean, stored, n, c, &d);
    double *dweight = fixture_get(b, stored->head.dweight, weights),
           *dbias = fixture_get(b, stored->head.dbias, s->classes);
    double *bounds = bounds_of(n, c, b, &d, dbias), none[1] = {0};
    check_norm(n, c, bounds, fixture_get_outcome(a, lean->outcome).norm, fixture_get_outcome(b, stored->outcome).norm,
               &d);
    const struct {
        const char *what;
        int64_t count, each;
        const void *got, *want;
        const double *before, *g, *bounds;
    } arrays[] = {{"weight", weights, s->features, lean->head.weight, stored->head.weight, n->weight, dweight, bounds},
                  {"bias", s->classes, 1, lean->head.bias, stored->head.bias, n->bias, dbias, bounds},
                  {"others", OTHERS, OTHERS, lean->others, stored->others, n->others, n->dothers, none}};
    for (int i = 0; i < 3; i++) {
        double *got = fixture_get(a, arrays[i].got, arrays[i].count),
               *want = fixture_get(b, arrays[i].want, arrays[i].count);
        check_parameters(arrays[i].what, b, c, &d, arrays[i].count, arrays[i].before, arrays[i].g, arrays[i].bounds,
                         arrays[i].each, got, want);
        free(got), free(want);
    }
    free(dweight), free(dbias), free(bounds);
}

/* The loss is scaled, and the update divides by that. */
static const rcvi_control controls[] = {
    {.weight = 64, .scale = 64, .rate = 1},
    {.weight = 64, .scale = 64, .rate = 2, .clip = 2},
    {.weight = 64, .scale = 64, .rate = 4, .clip = 0.5, .clip_value = 0.25},
};
enum { CONTROLS = sizeof controls / sizeof *controls };

/* The device's choice of strips, and others: the last one of whole pieces of 16 bytes and not, or all in one. */
static const layer_shape shapes[] = {
    {700, 650, 33278, 0, 0.125}, {33, 650, 10000, 1000, 0.125}, {700, 22, 10000, 3333, 1},
    {33, 22, 33278, 5000, 1},    {33, 22, 10003, 20000, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_as_stored(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        numbers n = draw(shapes[i], 100 + (uint64_t)i);
        for (int k = 0; k < DTYPES * CONTROLS; k++) {
            if (i == 0 && k % CONTROLS != k / CONTROLS % CONTROLS) continue; /* the large one once a type */
            const rcvi_control *control = &controls[k % CONTROLS];
            learn_subject is_lean = subject_of(dtypes[k / CONTROLS], true), stores = is_lean;
            stores.lean = false;
            layer lean, stored;
            open_layer(&lean, &is_lean, &n, control);
            open_layer(&stored, &stores, &n, control);
            check_ok(take_update(&lean));
            check_ok(take_update(&stored));
            compare(&lean, &stored, &n, control);
            fixture_close(&lean.fixture);
            fixture_close(&stored.fixture);
            end_subject(&is_lean);
        }
        free_numbers(&n);
    }
}

/* ---- logits, and losses alone ---- */

static void test_forward_alone(void **state) {
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        numbers n = draw(shapes[3], 7);
        const layer_shape *s = &n.shape;
        learn_subject is_lean = subject_of(dtypes[i], true), stores = is_lean;
        stores.lean = false;
        layer both[2] = {0};
        double *logits[2], losses[2];
        memset(both, 0, sizeof both);
        for (int k = 0; k < 2; k++) {
            learn_fixture *w = &both[k].fixture;
            open_layer(&both[k], k ? &stores : &is_lean, &n, &controls[0]);
            void *out = fixture_poison(w, s->rows * s->classes);
            both[k].head.dy = both[k].head.dweight = both[k].head.dbias = NULL;
            check_ok(w->calls->logits(w->learn, &both[k].head, out));
            check_ok(w->calls->head(w->learn, &both[k].head, both[k].control, both[k].outcome));
            logits[k] = fixture_get(w, out, s->rows * s->classes);
            losses[k] = fixture_get_outcome(w, both[k].outcome).loss;
        }
        /* which are exact, but for the bias, that is one addition */
        for (int64_t e = 0; e < s->rows * s->classes; e++) assert_true(logits[0][e] == logits[1][e]);
        double bound = (64 + roundings(s->classes)) * fixture_precision(&both[0].fixture).unit * (double)s->rows;
        check_near("loss", 1, &losses[0], &losses[1], &bound);
        free(logits[0]), free(logits[1]);
        fixture_close(&both[0].fixture);
        fixture_close(&both[1].fixture);
        free_numbers(&n);
        end_subject(&is_lean);
    }
}

/* ---- what is left alone ---- */

/* A norm that is no number changes nothing; losses and dy are what they are. */
static void test_not_finite(void **state) {
    (void)state;
    static const double bad[] = {NAN, INFINITY};
    for (int i = 0; i < DTYPES * 2; i++) {
        learn_subject subject = subject_of(dtypes[i / 2], true);
        numbers n = draw(shapes[1], 3);
        const layer_shape *s = &n.shape;
        n.y[5 * s->features + 3] = bad[i % 2];
        layer l;
        open_layer(&l, &subject, &n, &controls[1 + i % 2]);
        learn_fixture *w = &l.fixture;
        check_ok(take_update(&l));
        assert_false(isfinite(fixture_get_outcome(w, l.outcome).norm));
        const void *arrays[] = {l.head.weight, l.head.bias, l.others};
        const double *before[] = {n.weight, n.bias, n.others};
        const int64_t counts[] = {s->classes * s->features, s->classes, OTHERS};
        for (int k = 0; k < 3; k++) {
            double *got = fixture_get(w, arrays[k], counts[k]);
            for (int64_t e = 0; e < counts[k]; e++) assert_true(got[e] == before[k][e]);
            free(got);
        }
        fixture_close(w);
        free_numbers(&n);
        end_subject(&subject);
    }
}

/* No rows, or none that counts: the head changes by nothing. */
static void test_no_rows(void **state) {
    (void)state;
    for (int i = 0; i < DTYPES * 2; i++) {
        learn_subject subject = subject_of(dtypes[i / 2], true);
        numbers n = draw(shapes[3], 5);
        const layer_shape *s = &n.shape;
        for (int64_t r = 0; r < s->rows; r++) n.targets[r] = -1;
        layer l;
        open_layer(&l, &subject, &n, &controls[0]);
        learn_fixture *w = &l.fixture;
        if (i % 2) l.head.rows = 0;
        check_ok(take_update(&l));
        rcvi_outcome outcome = fixture_get_outcome(w, l.outcome);
        double norm = 0, bound;
        for (int k = 0; k < OTHERS; k++) norm += n.dothers[k] * n.dothers[k];
        norm = sqrt(norm) / controls[0].scale;
        bound = 1e-6 * norm;
        check_near("norm", 1, &outcome.norm, &norm, &bound);
        assert_true(outcome.loss == 0);
        double *got = fixture_get(w, l.head.weight, s->classes * s->features);
        for (int64_t e = 0; e < s->classes * s->features; e++) assert_true(got[e] == n.weight[e]);
        free(got);
        fixture_close(w);
        free_numbers(&n);
        end_subject(&subject);
    }
}

/* ---- calls that repeat ---- */

enum { UPDATES = 5, KEY = 9 };

/* Bits after every update, of which the third and all later ones are graph launches. */
static void learn(const learn_subject *subject, bool repeats, uint64_t *hashes) {
    numbers n = draw(shapes[1], 11);
    const layer_shape *s = &n.shape;
    layer l;
    open_layer(&l, subject, &n, &controls[1]);
    learn_fixture *w = &l.fixture;
    for (int k = 0; k < UPDATES; k++) {
        rcvi_control control = controls[k % CONTROLS];
        bool done = false;
        control.rate *= 1 + k;
        check_ok(w->calls->send(w->learn, l.control, &control, sizeof control));
        n.targets[2] = k;
        check_ok(
            w->calls->send(w->learn, as_parameters(l.head.targets), n.targets, (size_t)s->rows * sizeof *n.targets));
        if (repeats) check_ok(w->calls->replay(w->learn, KEY, &done));
        if (!done) check_ok(take_update(&l));
        if (repeats && !done) check_ok(w->calls->end_recording(w->learn, KEY));
        assert_int_equal(done, repeats && k >= 2);
        const void *arrays[] = {l.head.weight, l.head.bias, l.head.dy, l.others};
        const int64_t counts[] = {s->classes * s->features, s->classes, s->rows * s->features, OTHERS};
        hashes[k] = 0;
        for (int a = 0; a < 4; a++) {
            unsigned char *bits = fixture_get_bits(w, arrays[a], counts[a]);
            for (size_t b = 0; b < (size_t)counts[a] * fixture_real(w); b++)
                hashes[k] = (hashes[k] ^ bits[b]) * UINT64_C(0x100000001b3);
            free(bits);
        }
    }
    fixture_close(w);
    free_numbers(&n);
}

static void test_repeating(void **state) {
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        learn_subject subject = subject_of(dtypes[i], true);
        static const int64_t spares[] = {0, 50000,
                                         1 << 20}; /* elements: for nothing, for logits, for all that may lie there */
        uint64_t want[UPDATES], got[UPDATES];
        learn(&subject, false, want);
        for (int j = 0; j < 3; j++) {
            subject.spare = spares[j];
            learn(&subject, true, got);
            for (int k = 0; k < UPDATES; k++) {
                assert_true(got[k] == want[k]);
                if (k) assert_true(want[k] != want[k - 1]);
            }
        }
        end_subject(&subject);
    }
}

/* ---- memory ---- */

/* A text of 33,278 words: logits take less than a quarter of logits and gradients of all, and all there is less than dweight would. */
static void test_memory(void **state) {
    (void)state;
    const int64_t rows = 700, classes = 33278, features = 650;
    const rcvi_learn_table *calls = rcvi_device_cuda.learn;
    for (int i = 0; i < DTYPES; i++) {
        learn_subject subject = subject_of(dtypes[i], true);
        rcvi_learn_shape shape = {
            .dtype = dtypes[i], .rows = rows, .features = features, .classes = classes, .training = true, .lean = true};
        size_t real = dtypes[i] == RCV_FLOAT64 ? sizeof(double) : sizeof(float);
        rcvi_learn *learn = NULL;
        check_ok(calls->open(subject.context, 0, &shape, &learn));
        assert_true(calls->head_bytes(learn) < 2 * (size_t)(rows * classes) * real / 4);
        assert_true(calls->bytes(learn) < (size_t)(classes * features) * real / 2);
        size_t strips = calls->head_bytes(learn);
        calls->close(learn);
        shape.spare_bytes = 27 << 20; /* of a network's gradient: strips become larger, and most of that lies there */
        check_ok(rcvi_device_cuda.memory->allocate(0, shape.spare_bytes, &shape.spare));
        check_ok(calls->open(subject.context, 0, &shape, &learn));
        assert_true(calls->head_bytes(learn) > strips + strips / 2);
        assert_true(calls->head_bytes(learn) < 2 * (size_t)(rows * classes) * real / 4);
        assert_true(calls->bytes(learn) < (size_t)(classes * features) * real / 2);
        calls->close(learn);
        rcvi_device_cuda.memory->release(0, shape.spare);
        end_subject(&subject);
    }
}

/* ---- training ---- */

enum { WORDS = 300 };

/* A text of so many different words, each some times. */
static char *make_text(void) {
    random_source random = {17};
    char *text = malloc(WORDS * 8 * 8), *at = text;
    assert_non_null(text);
    for (int i = 0; i < WORDS * 8; i++) {
        int word = i < WORDS ? i : random_below(&random, WORDS);
        at += sprintf(at, "w%d%c", word, i % 11 == 10 ? '\n' : ' ');
    }
    return text;
}

static double *parameters_of(const rcv_trainer *t) {
    const rcv_learner *l = t->learner;
    double *values = host_new(l->elements);
    check_ok(rcvi_device_read(l, values, l->parameters, (size_t)l->elements * sizeof *values));
    return values;
}

/* Updates of a whole trainer, validated on the way, with an output layer that is lean and one that is not; in double, where sums in
 * another order differ by 2^-53 of what they sum, some updates long. */
static void test_training(void **state) {
    (void)state;
    static const char *const kinds[] = {"kind=stream batch=4 length=6", "kind=lines batch=4 buckets=none"};
    char *text = make_text();
    for (int i = 0; i < 2; i++) {
        const rcv_data_kind kind = i ? RCV_DATA_LINES : RCV_DATA_STREAM;
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *train = train_fixture_data(&s, "train", kind, text, NULL),
                       *valid = train_fixture_data(&s, "valid", kind, "w1 w2 w3 w4\nw5 w6 w7 w8 w9 w10\n", train);
        char line[256];
        snprintf(line, sizeof line,
                 "%s device=cuda dtype=float64 hidden=24 optimiser=sgd learning-rate=2 clip=0.5 dropout-output=0.2 "
                 "eval-batch=1 steps=9 validate-every=4 chunk=64",
                 kinds[i]);
        rcv_trainer *a = train_fixture_trainer(&s, line, "lean=yes", train, valid),
                    *b = train_fixture_trainer(&s, line, "lean=no", train, valid);
        double *start = parameters_of(a), moved = 0, off = 0;
        recorder x = {0}, y = {0};
        check_ok(train_fixture_run(a, NULL, &x));
        check_ok(train_fixture_run(b, NULL, &y));
        double *got = parameters_of(a), *want = parameters_of(b);
        for (int64_t k = 0; k < a->learner->elements; k++) {
            off = fmax(off, fabs(got[k] - want[k]));
            moved = fmax(moved, fabs(got[k] - start[k]));
        }
        assert_true(off < 1e-11 && moved > 1e-2);
        assert_int_equal(x.validations, 3); /* the last one at the end of the run */
        for (int v = 0; v < 3; v++) assert_true(fabs(x.validation[v] - y.validation[v]) < 1e-10);
        assert_int_equal(rcvi_work_gradient_count(a->work),
                         rcvi_work_gradient_count(b->work) - (a->learner->elements - a->learner->weight_offset));
        free(start), free(got), free(want);
        rcv_trainer_free(a);
        rcv_trainer_free(b);
        train_fixture_close(&s);
    }
    free(text);
}

/* ---- what is refused ---- */

static void test_refusals(void **state) {
    (void)state;
    learn_subject subject = subject_of(RCV_BFLOAT16, true);
    numbers n = draw((layer_shape){9, 22, 130, 64, 1}, 13);
    layer l;
    open_layer(&l, &subject, &n, &controls[0]);
    const rcvi_learn_table *calls = l.fixture.calls;
    rcvi_learn *learn = l.fixture.learn;
    rcvi_head head = l.head;
    rcvi_update update = {.kind = RCVI_SGD, .head = &l.head};
    head.dweight = l.others;
    check_fails(calls->head(learn, &head, l.control, l.outcome), RCV_INVALID, "stores no gradient");
    head = l.head, head.accumulate = true;
    check_fails(calls->head(learn, &head, l.control, l.outcome), RCV_INVALID, "does not accumulate");
    head = l.head, head.values = head.y, head.targets = NULL;
    check_fails(calls->head(learn, &head, l.control, l.outcome), RCV_INVALID, "needs targets");
    check_fails(calls->update(learn, &update, l.control, l.outcome), RCV_INVALID, "that of the call before");
    head = l.head, head.dy = NULL;
    check_ok(calls->head(learn, &head, l.control, l.outcome));
    check_fails(calls->update(learn, &update, l.control, l.outcome), RCV_INVALID, "that of the call before");
    check_ok(calls->head(learn, &l.head, l.control, l.outcome));
    update.kind = RCVI_ADAM;
    check_fails(calls->update(learn, &update, l.control, l.outcome), RCV_INVALID, "by sgd and nothing else");
    update.kind = RCVI_SGD;
    check_ok(calls->update(learn, &update, l.control, l.outcome));
    check_fails(calls->update(learn, &update, l.control, l.outcome), RCV_INVALID, "that of the call before");
    fixture_close(&l.fixture);
    subject.lean = false;
    open_layer(&l, &subject, &n, &controls[0]);
    check_fails(l.fixture.calls->update(l.fixture.learn, &update, l.control, l.outcome), RCV_INVALID, "opened as lean");
    fixture_close(&l.fixture);
    free_numbers(&n);
    end_subject(&subject);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_stored), cmocka_unit_test(test_forward_alone), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_no_rows),   cmocka_unit_test(test_repeating),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_training),  cmocka_unit_test(test_refusals),
    };
    return has_gpu() ? cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down) : SKIPPED;
}

/* One update against difference quotients, and updates that must be the same however they were made. */
#include "sample.h"
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>

/* ---- gradients ---- */

typedef struct {
    const char *name, *settings;
    rcv_data_kind kind;
} gradient_case;

/* The two columns of the stream are the two lines: each can be evaluated as a text of its own. */
static const char *const columns[] = {"the cat sat on the mat\n", "on the log lay a dog\n"};

static const gradient_case cases[] = {
    {"stream", "cell=lstm batch=2 length=6", RCV_DATA_STREAM},
    {"two layers", "cell=gru batch=2 length=6 layers=2 embedding=2", RCV_DATA_STREAM},
    {"tied", "cell=lstm batch=2 length=6 layers=2 tied=true", RCV_DATA_STREAM},
    {"fixed", "cell=gru batch=2 length=6 embedding-kind=fixed", RCV_DATA_STREAM},
    {"chunks", "cell=gru batch=2 length=6 chunk=5", RCV_DATA_STREAM},
    {"accumulating kinds", "cell=rnn_tanh batch=2 length=6 optimiser=momentum momentum=0", RCV_DATA_STREAM},
    {"by sequence", "cell=lstm batch=2 length=6 loss=sequence", RCV_DATA_STREAM},
    {"lines", "cell=lstm batch=8 buckets=none", RCV_DATA_LINES},
    {"lines, tied", "cell=gru batch=8 buckets=none tied=true", RCV_DATA_LINES},
    {"lines, a batch not full", "cell=gru batch=11 buckets=none", RCV_DATA_LINES},
    {"lines by sequence", "cell=gru batch=8 buckets=none loss=sequence", RCV_DATA_LINES},
    {"lines by sequence, a batch not full", "cell=gru batch=11 buckets=none loss=sequence", RCV_DATA_LINES},
    {"classes", "cell=lstm batch=6 buckets=none", RCV_DATA_CLASSES},
    {"classes both ways", "cell=gru batch=8 buckets=none bidirectional=true layers=2", RCV_DATA_CLASSES},
    {"values", "cell=gru batch=5 buckets=none", RCV_DATA_VALUES},
    {"values of low rank", "cell=lstm batch=7 buckets=none layers=2 rank=1", RCV_DATA_VALUES},
    {"classes of steps", "cell=lstm batch=5 buckets=none", RCV_DATA_STEP_CLASSES},
    {"classes of steps, a batch not full", "cell=gru batch=7 buckets=none", RCV_DATA_STEP_CLASSES},
    {"classes of steps both ways", "cell=gru batch=5 buckets=none bidirectional=true layers=2", RCV_DATA_STEP_CLASSES},
    {"classes of steps by sequence", "cell=lstm batch=5 buckets=none loss=sequence", RCV_DATA_STEP_CLASSES},
    {"weights of classes", "cell=lstm batch=6 buckets=none class-weights=a=3,c=0.25", RCV_DATA_CLASSES},
    {"weights of classes of steps", "cell=lstm batch=7 buckets=none class-weights=balanced chunk=4",
     RCV_DATA_STEP_CLASSES},
    {"values of steps", "cell=lstm batch=5 buckets=none layers=2", RCV_DATA_STEP_VALUES},
    {"values of steps in chunks", "cell=gru batch=7 buckets=none chunk=3", RCV_DATA_STEP_VALUES},
    {"values of steps both ways", "cell=gru batch=5 buckets=none bidirectional=true", RCV_DATA_STEP_VALUES},
    {"values of steps by sequence", "cell=lstm batch=6 buckets=none loss=sequence", RCV_DATA_STEP_VALUES},
};
enum { CASES = sizeof cases / sizeof *cases };
static const char plain[] = "optimiser=sgd learning-rate=1 clip=0 shuffle=false steps=1 seed=3 dtype=float64";

typedef struct {
    const rcv_data *train, *parts[2];
    size_t count;
} subject;

static void open_subject(train_fixture *w, rcv_data_kind kind, subject *s) {
    char both[128];
    snprintf(both, sizeof both, "%s%s", columns[0], columns[1]);
    const char *text = kind == RCV_DATA_STREAM ? both : train_fixture_text(kind);
    s->train = s->parts[0] = train_fixture_data(w, "train", kind, text, NULL);
    s->count = 1;
    if (kind != RCV_DATA_STREAM) return;
    s->parts[0] = train_fixture_data(w, "first", kind, columns[0], s->train);
    s->parts[1] = train_fixture_data(w, "second", kind, columns[1], s->train);
    s->count = 2;
}

/* What the update is the gradient of: the mean, or, by sequence, the sum over time. */
static double loss_of(rcv_trainer *t, const subject *s) {
    const rcv_evaluation_options options =
        RCV_INIT(rcv_evaluation_options, .batch = s->count == 1 ? rcv_data_sequences(s->train) : 1);
    double sum = 0, counted = 0;
    for (size_t i = 0; i < s->count; i++) {
        rcv_evaluation result = RCV_INIT(rcv_evaluation);
        check_ok(rcv_learner_evaluate(t->learner, s->parts[i], &options, &result));
        sum += result.loss * (double)result.counted;
        counted += (double)result.counted;
    }
    /* one sequence of these has no target, and does not count */
    const bool own_steps = rcv_data_get_kind(s->train) >= RCV_DATA_STEP_CLASSES;
    const int64_t sequences = s->count == 2 ? 2 : rcv_data_sequences(s->train) - own_steps;
    return t->options.by_sequence ? sum / (double)sequences : sum / counted;
}

static double quotient(rcv_trainer *t, const subject *s, double *at) {
    const double value = *at, step = 1e-5;
    *at = value + step;
    const double above = loss_of(t, s);
    *at = value - step;
    const double below = loss_of(t, s);
    *at = value;
    return (above - below) / (2 * step);
}

/* Elements between the parts belong to no parameter and stay zero. */
static bool is_parameter(const rcv_learner *l, int64_t element) {
    for (size_t i = 0; i < rcvi_learner_tensor_count(l); i++) {
        rcvi_tensor_place place;
        rcvi_learner_tensor_at(l, i, &place);
        if (element >= place.offset && element < place.offset + place.count) return true;
    }
    return false;
}

static void check_gradient(const gradient_case *c) {
    train_fixture w;
    subject s;
    train_fixture_open(&w);
    open_subject(&w, c->kind, &s);
    char line[256];
    snprintf(line, sizeof line, "%s %s", plain, train_fixture_kind(c->kind));
    rcv_trainer *t = train_fixture_trainer(&w, line, c->settings, s.train, NULL);
    double *before = train_fixture_parameters(t);
    const double loss = loss_of(t, &s);
    recorder recorder = {0};
    check_ok(train_fixture_run(t, NULL, &recorder));
    assert_int_equal(recorder.updates, 1);
    if (!t->options.by_sequence && fabs(t->progress.last_loss - loss) > 1e-12 * loss)
        fail_msg("%s: training says the loss is %.15g, evaluation %.15g", c->name, t->progress.last_loss, loss);
    double *after = train_fixture_parameters(t), *values = t->learner->parameters;
    train_fixture_set_parameters(t, before);
    int64_t moved = 0;
    for (int64_t i = 0; i < t->learner->elements; i++) {
        const double gradient = before[i] - after[i];
        const bool fixed = t->learner->shape.fixed && i < t->learner->net_offset;
        if (!is_parameter(t->learner, i)) assert_true(before[i] == 0 && after[i] == 0);
        if ((i % 3 && i >= t->learner->net_offset) || !sample_takes((size_t)i)) continue;
        const double expected = fixed || !is_parameter(t->learner, i) ? 0 : quotient(t, &s, &values[i]);
        if (!(fabs(gradient - expected) < 2e-9))
            fail_msg("%s: gradient %lld is %.12g, the difference quotient %.12g", c->name, (long long)i, gradient,
                     expected);
        moved += fabs(expected) > 1e-4;
    }
    assert_true(sample_is_partial() || moved > 20);
    free(before);
    free(after);
    rcv_trainer_free(t);
    train_fixture_close(&w);
}

static void test_gradients(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) check_gradient(&cases[i]);
}

/* The same updates in float32, a few of them. */
static void test_float32(void **unused) {
    (void)unused;
    const char *const line = "optimiser=adam learning-rate=0.01 steps=6 layers=2 dropout=0.3 dropout-input=0.2 seed=3";
    for (rcv_data_kind kind = RCV_DATA_STREAM; kind <= RCV_DATA_STEP_VALUES; kind++) {
        train_fixture w;
        subject s;
        train_fixture_open(&w);
        open_subject(&w, kind, &s);
        char first[256];
        const char *more = kind == RCV_DATA_STREAM ? "batch=2 length=3" : "";
        snprintf(first, sizeof first, "%s %s %s", line, train_fixture_kind(kind), more);
        rcv_trainer *a = train_fixture_trainer(&w, first, "dtype=float64", s.train, NULL);
        rcv_trainer *b = train_fixture_trainer(&w, first, "dtype=float32", s.train, NULL);
        double *start = train_fixture_parameters(b);
        train_fixture_set_parameters(a, start);
        free(start);
        recorder x = {0}, y = {0};
        check_ok(train_fixture_run(a, NULL, &x));
        check_ok(train_fixture_run(b, NULL, &y));
        assert_int_equal(x.updates, 6);
        for (int i = 0; i < 6; i++) assert_true(fabs(x.loss[i] - y.loss[i]) < 2e-5 * x.loss[i]);
        assert_true(train_fixture_difference(a, b) < 2e-4);
        rcv_trainer_free(a);
        rcv_trainer_free(b);
        train_fixture_close(&w);
    }
}

/* ---- the loss that dropout leaves is the one that is differentiated ---- */

static double dropped_loss(const train_fixture *w, const char *settings, const rcv_data *data,
                           const double *parameters) {
    rcv_trainer *t = train_fixture_trainer(w, plain, settings, data, NULL);
    recorder recorder = {0};
    train_fixture_set_parameters(t, parameters);
    check_ok(train_fixture_run(t, NULL, &recorder));
    const double loss = t->progress.last_loss;
    rcv_trainer_free(t);
    return loss;
}

static void check_dropout(const char *settings) {
    train_fixture w;
    train_fixture_open(&w);
    const rcv_data *data = train_fixture_data(&w, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&w, plain, settings, data, NULL);
    double *before = train_fixture_parameters(t);
    recorder recorder = {0};
    check_ok(train_fixture_run(t, NULL, &recorder));
    double *after = train_fixture_parameters(t);
    int64_t moved = 0;
    size_t index = 0;
    for (int64_t i = 0; i < t->learner->elements; i += i < t->learner->net_offset ? 2 : 5) {
        const double value = before[i], step = 1e-5;
        if (!sample_takes(index++)) continue;
        before[i] = value + step;
        const double above = dropped_loss(&w, settings, data, before);
        before[i] = value - step;
        const double below = dropped_loss(&w, settings, data, before);
        before[i] = value;
        const double expected = is_parameter(t->learner, i) ? (above - below) / (2 * step) : 0;
        if (!(fabs(before[i] - after[i] - expected) < 2e-9))
            fail_msg("%s: gradient %lld is %.12g, the difference quotient %.12g", settings, (long long)i,
                     before[i] - after[i], expected);
        moved += fabs(expected) > 1e-4;
    }
    assert_true(sample_is_partial() || moved > 10);
    free(before);
    free(after);
    rcv_trainer_free(t);
    train_fixture_close(&w);
}

static void test_dropout_gradients(void **unused) {
    (void)unused;
    check_dropout("cell=lstm batch=2 length=5 dropout-input=0.4 dropout-output=0.3");
    check_dropout("cell=gru batch=2 length=5 dropout-input=0.4 dropout-output=0.3 variational=true");
    check_dropout("cell=lstm batch=2 length=5 layers=2 dropout=0.4 dropout-embedding=0.3");
    check_dropout("cell=lstm batch=2 length=5 layers=2 weight-drop=0.4");
    check_dropout("cell=lstm batch=2 length=5 layers=2 dropout=0.4 zoneout=0.3 variational=true");
    check_dropout("cell=gru batch=2 length=5 tied=true dropout-embedding=0.3 dropout-output=0.2");
}

/* ---- the same however it was made ---- */

typedef struct {
    const char *name, *settings, *first, *second;
    rcv_data_kind kind;
    const char *text;
    double most; /* by which parameters may differ; 0: bit for bit */
} pair;

/* Lines by length, four of each. */
static const char sorted[] =
    "the cat\na dog\nthe dog\na log\nthe cat saw a\na dog sat on\nthe log lay on\na mat ran on\n"
    "the cat sat on the mat a log\na dog saw the log on a mat\nthe mat on the log lay a dog\n"
    "a cat ran on a mat the dog\n";

static const pair pairs[] = {
    {"rows alone or the whole embedding", "kind=stream batch=2 length=4 steps=9 learning-rate=0.5 clip=0",
     "optimiser=sgd", "optimiser=momentum momentum=0", RCV_DATA_STREAM, sorted, 1e-14},
    {"the same, clipped", "kind=stream batch=2 length=4 steps=9 learning-rate=0.5 clip=0.1", "optimiser=sgd",
     "optimiser=momentum momentum=0", RCV_DATA_STREAM, sorted, 1e-14},
    {"the same by value", "kind=stream batch=2 length=4 steps=9 learning-rate=0.5 clip-value=0.01", "optimiser=sgd",
     "optimiser=momentum momentum=0", RCV_DATA_STREAM, sorted, 1e-14},
    {"of lines", "kind=lines batch=5 steps=9 learning-rate=0.5 clip=0.1", "optimiser=sgd",
     "optimiser=momentum momentum=0", RCV_DATA_LINES, sorted, 1e-14},
    {"buckets or one length", "kind=lines batch=4 shuffle=false steps=9 optimiser=momentum", "buckets=none",
     "buckets=3,5,9", RCV_DATA_LINES, sorted, 1e-12},
    {"the same, every step by itself", "kind=lines batch=4 shuffle=false steps=9 schedule=naive optimiser=adam",
     "buckets=none", "buckets=3,5,9", RCV_DATA_LINES, sorted, 0},
    {"buckets that were found", "kind=lines batch=4 shuffle=false steps=9 optimiser=adamw", "buckets=auto:3",
     "buckets=none", RCV_DATA_LINES, sorted, 1e-12},
    {"buckets of two layers", "kind=lines batch=4 shuffle=false steps=7 layers=2 optimiser=sgd", "buckets=none",
     "buckets=3,6,9", RCV_DATA_LINES, sorted, 1e-12},
    {"two batches or one", "kind=classes shuffle=false steps=8 optimiser=momentum clip=0.5 buckets=none", "batch=6",
     "batch=3 accumulate=2", RCV_DATA_CLASSES, NULL, 1e-12},
    {"the same with adam", "kind=classes shuffle=false steps=8 optimiser=adam learning-rate=0.1 buckets=none",
     "batch=6", "batch=2 accumulate=3", RCV_DATA_CLASSES, NULL, 1e-12},
    {"two batches of lines or one", "kind=lines shuffle=false steps=3 optimiser=sgd buckets=none", "batch=4",
     "batch=2 accumulate=2", RCV_DATA_LINES, sorted, 1e-12},
    {"logits in chunks", "kind=stream batch=3 length=5 steps=9 optimiser=adam", "chunk=4", "chunk=1000",
     RCV_DATA_STREAM, sorted, 1e-12},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void check_pair(const pair *p) {
    train_fixture w;
    train_fixture_open(&w);
    char line[256];
    snprintf(line, sizeof line, "dtype=float64 seed=5 %s", p->settings);
    const rcv_data *data = train_fixture_data(&w, "train", p->kind, p->text ? p->text : train_fixture_examples, NULL);
    rcv_trainer *a = train_fixture_trainer(&w, line, p->first, data, NULL),
                *b = train_fixture_trainer(&w, line, p->second, data, NULL);
    double *start = train_fixture_parameters(a);
    recorder x = {0}, y = {0};
    check_ok(train_fixture_run(a, NULL, &x));
    check_ok(train_fixture_run(b, NULL, &y));
    const double difference = train_fixture_difference(a, b);
    if (difference > p->most) fail_msg("%s: parameters differ by %g", p->name, difference);
    assert_int_equal(x.updates, y.updates);
    for (int64_t i = 0; i < x.updates; i++)
        if (fabs(x.loss[i] - y.loss[i]) > 1e-11) fail_msg("%s: losses %g and %g", p->name, x.loss[i], y.loss[i]);
    double *end = train_fixture_parameters(a), moved = 0;
    for (int64_t i = 0; i < a->learner->elements; i++) moved = fmax(moved, fabs(end[i] - start[i]));
    assert_true(moved > 1e-3);
    free(start);
    free(end);
    rcv_trainer_free(a);
    rcv_trainer_free(b);
    train_fixture_close(&w);
}

static void test_pairs(void **unused) {
    (void)unused;
    for (size_t i = 0; i < PAIRS; i++) check_pair(&pairs[i]);
}

/* ---- weights that decay ---- */

static void test_weight_decay(void **unused) {
    (void)unused;
    static const char *const kinds[] = {"optimiser=sgd", "optimiser=momentum", "optimiser=adamw"};
    for (size_t k = 0; k < 3; k++) {
        train_fixture w;
        train_fixture_open(&w);
        const rcv_data *data = train_fixture_data(&w, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
        char line[256];
        snprintf(line, sizeof line, "%s %s", "dtype=float64 batch=2 length=5 steps=1 learning-rate=0.1 clip=0",
                 kinds[k]);
        rcv_trainer *a = train_fixture_trainer(&w, line, "", data, NULL),
                    *b = train_fixture_trainer(&w, line, "weight-decay=0.3", data, NULL);
        double *start = train_fixture_parameters(a);
        recorder x = {0}, y = {0};
        check_ok(train_fixture_run(a, NULL, &x));
        check_ok(train_fixture_run(b, NULL, &y));
        double *without = train_fixture_parameters(a), *with = train_fixture_parameters(b);
        for (int64_t i = 0; i < a->learner->elements; i++)
            if (fabs(without[i] - with[i] - 0.1 * 0.3 * start[i]) > 1e-14)
                fail_msg("%s: parameter %lld decays from %g by %g", kinds[k], (long long)i, start[i],
                         without[i] - with[i]);
        free(start);
        free(without);
        free(with);
        rcv_trainer_free(a);
        rcv_trainer_free(b);
        train_fixture_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_float32),      cmocka_unit_test(test_dropout_gradients),
        cmocka_unit_test(test_pairs),     cmocka_unit_test(test_weight_decay),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

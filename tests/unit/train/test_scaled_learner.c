/* Learners whose features and values are normalised or filled in: the same training as on data that was normalised before; predictions in the units of
 * the data; files, checkpoints and streams that know the numbers. */
#include "scratch.h"
#include "train_fixture.h"

#include "base/json.h"
#include "train/learner/learner_data.h"

#include <math.h>
#include <unistd.h>

enum { SEQUENCES = 6, MOST = 5, FEATURES = 2 };

/* Numbers of sequence s, time step t. */
static int64_t length_of(int s) { return 2 + s * 3 % 4; }
static double feature_at(int s, int64_t t, int f) {
    return f ? 3000 + 100 * sin(s + 2. * (double)t) : 0.01 * cos(3. * s + (double)t);
}
static double value_at(int s, int64_t t) { return 500 + 40 * sin(1.7 * s + (double)t); }

/* The data in units: (number - mean) * scale of each; NULL: as it is. One of five targets is missing. */
static void write_data(char *text, size_t room, const rcvi_scaling *scaling) {
    size_t at = 0;
    for (int s = 0; s < SEQUENCES; s++) {
        at += (size_t)snprintf(text + at, room - at, "{\"x\": [");
        for (int64_t t = 0; t < length_of(s); t++) {
            float x[FEATURES];
            for (int f = 0; f < FEATURES; f++) x[f] = (float)feature_at(s, t, f);
            rcvi_scaling_apply(scaling, x, 1, NULL);
            at += (size_t)snprintf(text + at, room - at, "%s[%.9g, %.9g]", t ? ", " : "", (double)x[0], (double)x[1]);
        }
        at += (size_t)snprintf(text + at, room - at, "], \"y\": [");
        for (int64_t t = 0; t < length_of(s); t++) {
            float y = (float)value_at(s, t);
            rcvi_scaling_apply_targets(scaling, &y, 1);
            at += (s + t) % 5 == 0 ? (size_t)snprintf(text + at, room - at, "%snull", t ? ", " : "")
                                   : (size_t)snprintf(text + at, room - at, "%s%.9g", t ? ", " : "", (double)y);
        }
        at += (size_t)snprintf(text + at, room - at, "]}\n");
    }
    assert_true(at < room);
}

static const char usual[] = "kind=step-values cell=gru hidden=5 batch=3 optimiser=adam learning-rate=0.02 steps=12 "
                            "seed=2 dtype=float64";

typedef struct {
    train_fixture fixture;
    const rcv_data *raw;
    rcv_trainer *trainer; /* with normalise */
    char text[1 << 13];
} subject;

static void open_subject(subject *s) {
    train_fixture_open(&s->fixture);
    write_data(s->text, sizeof s->text, NULL);
    s->raw = train_fixture_data(&s->fixture, "raw", RCV_DATA_STEP_VALUES, s->text, NULL);
    s->trainer = train_fixture_trainer(&s->fixture, usual, "normalise=true", s->raw, s->raw);
}

static void close_subject(subject *s) {
    rcv_trainer_free(s->trainer);
    train_fixture_close(&s->fixture);
}

/* All sequences as a caller has them: x [MOST, SEQUENCES, FEATURES]. */
static void read_all(float *x, int64_t *lengths, const rcvi_scaling *scaling) {
    for (int s = 0; s < SEQUENCES; s++) {
        lengths[s] = length_of(s);
        for (int64_t t = 0; t < MOST; t++) {
            float *row = x + (t * SEQUENCES + s) * FEATURES;
            for (int f = 0; f < FEATURES; f++) row[f] = (float)feature_at(s, t, f);
            rcvi_scaling_apply(scaling, row, 1, NULL);
        }
    }
}

static void predict(rcv_learner *l, const float *x, const int64_t *lengths, double *out) {
    const rcv_prediction p = RCV_INIT(rcv_prediction, .steps = MOST, .batch = SEQUENCES, .x = x, .lengths = lengths,
                                      .out = out, .threads = 1);
    check_ok(rcv_learner_predict(l, &p));
}

/* ---- the same training ---- */

static void test_same_training(void **unused) {
    (void)unused;
    static subject s;
    static char text[1 << 13];
    float x[MOST * SEQUENCES * FEATURES], scaled[MOST * SEQUENCES * FEATURES];
    double a[MOST * SEQUENCES], b[MOST * SEQUENCES];
    int64_t lengths[SEQUENCES];
    open_subject(&s);
    const rcvi_scaling *scaling = s.trainer->learner->scaling;
    assert_non_null(scaling);
    write_data(text, sizeof text, scaling);
    const rcv_data *before = train_fixture_data(&s.fixture, "scaled", RCV_DATA_STEP_VALUES, text, NULL);
    rcv_trainer *other = train_fixture_trainer(&s.fixture, usual, "", before, before);
    assert_null(other->learner->scaling);
    recorder one = {0}, two = {0};
    check_ok(train_fixture_run(s.trainer, NULL, &one));
    check_ok(train_fixture_run(other, NULL, &two));
    assert_true(train_fixture_same(s.trainer, other));
    assert_true(one.updates == 12 && one.loss[0] > 0.1 && one.loss[0] < 10);
    for (int i = 0; i < 12; i++) assert_true(one.loss[i] == two.loss[i]);
    assert_true(one.validations == two.validations && one.validation[0] == two.validation[0]);
    /* Predictions are in the data's units. */
    read_all(x, lengths, NULL);
    read_all(scaled, lengths, scaling);
    predict(s.trainer->learner, x, lengths, a);
    predict(other->learner, scaled, lengths, b);
    for (int i = 0; i < MOST * SEQUENCES; i++) {
        const bool ended = i / SEQUENCES >= lengths[i % SEQUENCES];
        const double expected = ended ? 0 : b[i] / (double)scaling->target_scale[0] + (double)scaling->target_mean[0];
        if (!(fabs(a[i] - expected) < 1e-9 * fabs(expected) + 1e-300)) fail_msg("%d: %g, not %g", i, a[i], expected);
        if (!ended) assert_true(a[i] > 300 && a[i] < 700);
    }
    rcv_trainer_free(other);
    close_subject(&s);
}

/* ---- files ---- */

static void check_same_scaling(const rcvi_scaling *a, const rcvi_scaling *b) {
    assert_true(a && b && a->missing == b->missing && a->normalises == b->normalises);
    assert_true(a->features == FEATURES && b->features == FEATURES && a->outputs == 1 && b->outputs == 1);
    assert_memory_equal(a->mean, b->mean, sizeof(float) * FEATURES);
    assert_memory_equal(a->scale, b->scale, sizeof(float) * FEATURES);
    assert_true(a->target_mean[0] == b->target_mean[0] && a->target_scale[0] == b->target_scale[0]);
}

/* A model with other metadata in recurve.data is refused. */
static void check_forged(const subject *s, const char *json, const char *fragment) {
    rcv_tensors *tensors;
    rcv_learner *learner = NULL;
    check_ok(rcv_tensors_load(s->fixture.context, path_in("model"), &tensors));
    check_ok(rcv_tensors_set_metadata(tensors, "recurve.data", json));
    check_ok(rcv_tensors_save(tensors, path_in("forged")));
    rcv_tensors_free(tensors);
    check_fails(rcv_learner_load(s->fixture.context, path_in("forged"), NULL, RCV_FLOAT64, &learner), RCV_FORMAT,
                fragment);
    assert_null(learner);
}

#define SCALING(missing, mean, scale, target_mean, target_scale)                                                       \
    "{\"schema\": null, \"scaling\": {\"missing\": \"" missing "\", \"normalise\": true, \"mean\": " mean              \
    ", \"scale\": " scale ", \"target_mean\": " target_mean ", \"target_scale\": " target_scale "}}"

static void test_files(void **unused) {
    (void)unused;
    static subject s;
    static const char *const wrong[] = {"[]",
                                        "{",
                                        SCALING("none", "[1, 2]", "[1, 1]", "[0]", "[1]"),
                                        SCALING("mean", "[1]", "[1, 1]", "[0]", "[1]"),
                                        SCALING("mean", "[1, 2, 3]", "[1, 1, 1]", "[0]", "[1]"),
                                        SCALING("mean", "[1, 2]", "[1, 0]", "[0]", "[1]"),
                                        SCALING("mean", "[1, 2]", "[1, -1]", "[0]", "[1]"),
                                        SCALING("mean", "[1, 1e39]", "[1, 1]", "[0]", "[1]"),
                                        SCALING("mean", "[1, null]", "[1, 1]", "[0]", "[1]"),
                                        SCALING("mean", "[1, 2]", "[1, 1]", "[]", "[]"),
                                        SCALING("mean", "[1, 2]", "[1, 1]", "[0]", "[0]"),
                                        "{\"scaling\": 3}",
                                        "{\"class_weights\": [1]}"};
    float x[MOST * SEQUENCES * FEATURES];
    double a[MOST * SEQUENCES], b[MOST * SEQUENCES];
    int64_t lengths[SEQUENCES];
    rcv_learner *loaded;
    open_subject(&s);
    recorder seen = {0};
    check_ok(train_fixture_run(s.trainer, NULL, &seen));
    rcv_learner *l = s.trainer->learner;
    check_ok(rcv_learner_save(l, path_in("model")));
    check_ok(rcv_learner_load(s.fixture.context, path_in("model"), NULL, RCV_FLOAT64, &loaded));
    check_same_scaling(l->scaling, loaded->scaling);
    read_all(x, lengths, NULL);
    predict(l, x, lengths, a);
    predict(loaded, x, lengths, b);
    assert_memory_equal(a, b, sizeof a);
    rcv_evaluation here = RCV_INIT(rcv_evaluation), there = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_evaluate(l, s.raw, NULL, &here));
    check_ok(rcv_learner_evaluate(loaded, s.raw, NULL, &there));
    assert_true(here.loss == there.loss);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_forged(&s, wrong[i], "recurve.data");
    rcv_learner_free(loaded);
    unlink(path_in("model"));
    unlink(path_in("forged"));
    close_subject(&s);
}

/* A run that is resumed keeps its numbers, also with other data, whose own would be others. */
static void test_resumed(void **unused) {
    (void)unused;
    static subject s;
    static const char other_text[] = "{\"x\": [[0, 1], [2, 3]], \"y\": [5, 9]}\n{\"x\": [[4, 1]], \"y\": [7]}\n";
    open_subject(&s);
    recorder seen = {.stop_at = 5}, rest = {0};
    check_fails(train_fixture_run(s.trainer, path_in("run"), &seen), RCV_STOPPED, "5 updates");
    const rcv_data *other = train_fixture_data(&s.fixture, "other", RCV_DATA_STEP_VALUES, other_text, NULL);
    rcv_trainer *t = train_fixture_trainer(&s.fixture, usual, "normalise=true", other, s.raw);
    assert_true(t->learner->scaling->mean[1] != s.trainer->learner->scaling->mean[1]);
    check_ok(rcv_trainer_resume(t, path_in("run")));
    check_same_scaling(t->learner->scaling, s.trainer->learner->scaling);
    check_ok(train_fixture_run(t, NULL, &rest));
    /* The batches are made with them: on the same data both validations agree. */
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_evaluate(t->learner, s.raw, NULL, &result));
    assert_true(rest.validations > 0);
    assert_true(fabs(rest.validation[rest.validations - 1] - result.loss) < 1e-12 * result.loss);
    rcv_trainer_free(t);
    /* A run without them refuses data in which features may be missing, and has not changed. */
    static const char missing_text[] = "{\"x\": [[0, null], [2, 3]], \"y\": [5, 9]}\n";
    const rcv_data_options options =
        RCV_INIT(rcv_data_options, .kind = RCV_DATA_STEP_VALUES, .missing = RCV_MISSING_ZERO);
    FILE *file = fopen(path_in("text-missing"), "wb");
    rcv_data *data;
    assert_non_null(file);
    fputs(missing_text, file);
    fclose(file);
    check_ok(rcv_data_open(s.fixture.context, path_in("text-missing"), &options, &data));
    t = train_fixture_trainer(&s.fixture, usual, "", data, NULL);
    check_fails(rcv_trainer_resume(t, path_in("run")), RCV_INVALID, "missing=error");
    assert_true(t->learner->scaling && t->learner->scaling->missing == RCV_MISSING_ZERO && t->state.step == 0);
    rcv_evaluation none = RCV_INIT(rcv_evaluation);
    check_fails(rcv_learner_evaluate(s.trainer->learner, data, NULL, &none), RCV_INVALID, "missing=error");
    rcv_trainer_free(t);
    rcv_data_free(data);
    train_fixture_remove("run");
    close_subject(&s);
}

static void test_refused(void **unused) {
    (void)unused;
    train_fixture w;
    train_fixture_open(&w);
    const rcv_data *text = train_fixture_data(&w, "text", RCV_DATA_LINES, train_fixture_verse, NULL);
    rcv_settings *settings = train_fixture_settings(&w, "kind=lines normalise=true");
    rcv_trainer *t = NULL;
    check_fails(rcv_trainer_new(w.context, settings, text, NULL, &t), RCV_INVALID, "normalise is for data of numbers");
    rcv_settings_free(settings);
    train_fixture_close(&w);
}

/* ---- missing features ---- */

/* What predictions and streams fill in: the frame before, the mean where there is none. */
static void test_missing(void **unused) {
    (void)unused;
    static const char text[] =
        "{\"x\": [[1, 2], [null, 4], [3, null]], \"y\": \"a\"}\n{\"x\": [[5, 6]], \"y\": \"b\"}\n";
    train_fixture w;
    train_fixture_open(&w);
    const rcv_data_options options =
        RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .missing = RCV_MISSING_PREVIOUS);
    FILE *file = fopen(path_in("text-gaps"), "wb");
    rcv_data *data;
    rcv_learner *l = NULL, *plain = NULL;
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    check_ok(rcv_data_open(w.context, path_in("text-gaps"), &options, &data));
    rcv_settings *settings = train_fixture_settings(&w, "kind=classes cell=lstm init=0.5 missing=previous");
    check_ok(rcv_learner_new(w.context, settings, data, &l));
    rcv_settings_free(settings);
    assert_true(l->scaling && !l->scaling->normalises && l->scaling->mean[0] == 3 && l->scaling->mean[1] == 4);
    /* [2 steps, 2 rows, 2 features] and what it means */
    const float gaps[] = {NAN, 2, 7, NAN, 5, NAN, NAN, 1}, full[] = {3, 2, 7, 4, 5, 2, 7, 1};
    float a[2 * 2], b[2 * 2], steps[2 * 2 * 2];
    const rcv_prediction p = RCV_INIT(rcv_prediction, .steps = 2, .batch = 2, .x = gaps, .out = a, .threads = 1),
                         q = RCV_INIT(rcv_prediction, .steps = 2, .batch = 2, .x = full, .out = b, .threads = 1);
    check_ok(rcv_learner_predict(l, &p));
    check_ok(rcv_learner_predict(l, &q));
    assert_memory_equal(a, b, sizeof a);
    /* A stream, frame by frame; a row that is reset knows no frame before. */
    rcv_stream *stream;
    check_ok(rcv_stream_new_learner(l, &RCV_INIT(rcv_stream_options, .batch = 2, .threads = 1, .effort = RCV_ESTIMATE),
                                    &stream));
    for (int t = 0; t < 2; t++) check_ok(rcv_stream_step(stream, gaps + 4 * t, 1, steps + 4 * t));
    for (int i = 0; i < 4; i++) assert_true(fabs((double)(steps[4 + i] - b[i])) < 1e-6);
    check_ok(rcv_stream_reset(stream, (const uint8_t[]){1, 0}));
    check_ok(rcv_stream_step(stream, (const float[]){NAN, 2, 0, 0}, 1, steps + 4));
    assert_memory_equal(steps, steps + 4, 2 * sizeof *steps);
    rcv_stream_free(stream);
    /* A model that fills in nothing says so. */
    const rcv_data *whole = train_fixture_data(&w, "whole", RCV_DATA_CLASSES, train_fixture_examples, NULL);
    settings = train_fixture_settings(&w, "kind=classes cell=lstm");
    check_ok(rcv_learner_new(w.context, settings, whole, &plain));
    rcv_settings_free(settings);
    float out[2 * 3] = {0};
    rcv_prediction refused = p;
    refused.out = out;
    check_fails(rcv_learner_predict(plain, &refused), RCV_INVALID, "feature 0 at step 0 of row 0 is missing (NaN)");
    check_ok(
        rcv_stream_new_learner(plain, &RCV_INIT(rcv_stream_options, .threads = 1, .effort = RCV_ESTIMATE), &stream));
    check_fails(rcv_stream_step(stream, (const float[]){1, NAN}, 1, out), RCV_INVALID, "feature 1 at step 0 of row 0");
    rcv_stream_free(stream);
    rcv_learner_free(plain);
    rcv_learner_free(l);
    rcv_data_free(data);
    train_fixture_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_training), cmocka_unit_test(test_files),   cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

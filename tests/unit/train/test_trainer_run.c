/* Runs: learning-rate schedules, validations and what they trigger, dropout, limits, errors. */
#include "scratch.h"
#include "train_fixture.h"

#include "train/run/rate.h"

#include <math.h>

/* ---- rates ---- */

static rcvi_train_options options_of(const train_fixture *s, const char *line) {
    rcv_settings *settings = train_fixture_settings(s, line);
    rcvi_train_options options;
    rcvi_train_options_read(&options, settings);
    rcv_settings_free(settings);
    return options;
}

static void check_rate(double rate, double expected) {
    if (!(fabs(rate - expected) <= 1e-14 * expected)) fail_msg("the rate is %.17g, not %.17g", rate, expected);
}

static void test_rates(void **unused) {
    (void)unused;
    const double pi = 3.14159265358979323846;
    train_fixture s;
    train_fixture_open(&s);
    const rcvi_train_options none = options_of(&s, "learning-rate=2 decay=none"),
                             epoch = options_of(&s, "learning-rate=2 decay=epoch decay-after=4 decay-factor=0.8"),
                             plateau = options_of(&s, "learning-rate=2 decay=plateau"),
                             step = options_of(&s, "learning-rate=2 decay=step decay-every=10 decay-factor=0.25"),
                             cosine = options_of(&s, "learning-rate=2 decay=cosine final-rate=0.5 warmup=20"),
                             warm = options_of(&s, "learning-rate=2 decay=none warmup=4");
    for (int64_t n = 0; n < 200; n++) {
        check_rate(rcvi_rate(&none, n, n / 10, 100, 0.5), 2);
        /* 4 epochs as they are, the fifth with 0.8, the sixth with 0.64. */
        check_rate(rcvi_rate(&epoch, n, n / 10, 100, 0.5), 2 * pow(0.8, n < 40 ? 0 : floor((double)n / 10) - 3));
        check_rate(rcvi_rate(&plateau, n, n / 10, 100, 0.5), 1);
        check_rate(rcvi_rate(&step, n, 0, 0, 1), 2 * pow(0.25, floor((double)n / 10)));
        check_rate(rcvi_rate(&warm, n, 0, 0, 1), n < 4 ? 2 * ((double)n + 1) / 4 : 2);
        const double part = n >= 100 ? 1 : (double)(n - 20) / 80;
        check_rate(rcvi_rate(&cosine, n, 0, 100, 1),
                   n < 20 ? 2 * ((double)n + 1) / 20 : 0.5 + 1.5 * (1 + cos(pi * part)) / 2);
    }
    train_fixture_close(&s);
}

/* Zaremba's run: 3 updates an epoch. */
static void test_epoch_decay(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=3 length=5 optimiser=sgd learning-rate=1 epochs=5",
                                           "decay=epoch decay-after=2 decay-factor=0.5", data, NULL);
    recorder w = {0};
    check_ok(train_fixture_run(t, NULL, &w));
    const int64_t each = rcvi_batcher_count(t->batcher);
    const double expected[] = {1, 1, 0.5, 0.25, 0.125};
    assert_true(each > 1);
    assert_int_equal(w.updates, 5 * each);
    for (int64_t i = 0; i < w.updates; i++) assert_true(w.rate[i] == expected[i / each]);
    assert_string_equal(w.end, "epochs");
    const rcv_progress *p = rcv_trainer_progress(t);
    assert_true(p->step == 5 * each && p->steps == p->step && p->epoch == 5 && p->epochs == 5);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

/* A cosine ends where the run does, also where an update's batches reach over the end of an epoch. */
static void test_cosine_ends_with_the_run(void **unused) {
    (void)unused;
    static const char *const limits[] = {"epochs=3", "epochs=3 accumulate=2", "epochs=3 accumulate=4", "steps=7",
                                         "steps=7 epochs=3"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
        rcv_trainer *t = train_fixture_trainer(&s, "batch=3 length=3 optimiser=sgd learning-rate=1 decay=cosine",
                                               limits[i], data, NULL);
        recorder w = {0};
        check_ok(train_fixture_run(t, NULL, &w));
        const int64_t n = w.updates;
        assert_true(n > 3);
        for (int64_t k = 0; k < n; k++) {
            const double expected = (1 + cos(acos(-1) * (double)k / (double)n)) / 2;
            if (fabs(w.rate[k] - expected) > 1e-11)
                fail_msg("%s: update %lld of %lld has rate %g, not %g", limits[i], (long long)k, (long long)n,
                         w.rate[k], expected);
        }
        assert_int_equal(rcv_trainer_progress(t)->steps, n);
        rcv_trainer_free(t);
        train_fixture_close(&s);
    }
}

/* ---- validations that only get worse ---- */

static const char much_a[] = "a a a a a a a a a a a a a a a a a a a a a b\n", all_b[] = "b b b b b b b b\n";
static const char worse[] =
    "batch=1 length=4 optimiser=sgd learning-rate=0.2 validate-every=2 eval-batch=1 dtype=float64 ";

static rcv_trainer *worsening(train_fixture *s, const char *more) {
    train_fixture_open(s);
    const rcv_data *train = train_fixture_data(s, "train", RCV_DATA_STREAM, much_a, NULL);
    const rcv_data *valid = train_fixture_data(s, "valid", RCV_DATA_STREAM, all_b, train);
    return train_fixture_trainer(s, worse, more, train, valid);
}

static void check_worsening(const recorder *w) {
    for (int64_t i = 0; i < w->validations; i++) {
        assert_true(w->best[i] == (i == 0));
        assert_true(i == 0 || w->validation[i] > w->validation[i - 1]);
    }
}

static void test_patience(void **unused) {
    (void)unused;
    train_fixture s;
    rcv_trainer *t = worsening(&s, "patience=3 steps=100");
    recorder w = {0};
    check_ok(train_fixture_run(t, NULL, &w));
    check_worsening(&w);
    assert_int_equal(w.validations, 4);
    assert_int_equal(w.updates, 8);
    assert_string_equal(w.end, "patience");
    const rcv_progress *p = rcv_trainer_progress(t);
    assert_true(fabs(p->best - w.validation[0]) < 1e-11 && fabs(p->validation - w.validation[3]) < 1e-11);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

static void test_plateau(void **unused) {
    (void)unused;
    train_fixture s;
    rcv_trainer *t = worsening(&s, "steps=16 decay=plateau decay-patience=2 decay-factor=0.5");
    recorder w = {0};
    check_ok(train_fixture_run(t, NULL, &w));
    check_worsening(&w);
    assert_int_equal(w.validations, 8);
    /* Bad are validations 2, 3 (of update 6), 4, 5 (of update 10), 6, 7 (of update 14). */
    for (int64_t i = 0; i < 16; i++) check_rate(w.rate[i], 0.2 * pow(0.5, i < 6 ? 0 : i < 10 ? 1 : i < 14 ? 2 : 3));
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

/* ---- averages ---- */

typedef struct {
    rcv_trainer *trainer;
    double *sum;
    int64_t count; /* of updates in the sum */
    const rcv_data *valid;
    double of_average; /* loss of it */
} averager;

static double loss_with(rcv_learner *l, void *parameters, const rcv_data *data) {
    void *own = l->parameters;
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    l->parameters = parameters;
    check_ok(rcv_learner_evaluate(l, data, NULL, &result));
    l->parameters = own;
    return result.loss;
}

/* Behind update 8 averaging begins: with `nonmono` 2, that is the first validation with more than two before it, of which all but
 * the last two were better. */
static void follow_average(void *user) {
    averager *a = user;
    const rcv_learner *l = a->trainer->learner;
    if (a->trainer->state.step <= 8) {
        assert_int_equal(a->trainer->state.averaged_updates, a->trainer->state.step == 8);
        return;
    }
    a->count++;
    for (int64_t i = 0; i < l->elements; i++) {
        a->sum[i] += ((const double *)l->parameters)[i];
        assert_true(fabs(((const double *)a->trainer->optimiser.average)[i] - a->sum[i] / (double)a->count) < 1e-14);
    }
    assert_int_equal(a->trainer->state.averaged_updates, a->count + 1);
    if (a->trainer->state.step % 2) return;
    const double plain = loss_with(a->trainer->learner, l->parameters, a->valid);
    a->of_average = loss_with(a->trainer->learner, a->trainer->optimiser.average, a->valid);
    assert_true(plain > a->of_average + 1e-6);
    assert_true(fabs(a->trainer->progress.report.validation - a->of_average) < 1e-12);
}

static void test_averages(void **unused) {
    (void)unused;
    train_fixture s;
    rcv_trainer *t = worsening(&s, "optimiser=asgd nonmono=2 steps=18 checkpoint-every=18");
    averager a = {.trainer = t, .sum = calloc((size_t)t->learner->elements, sizeof(double)), .valid = s.data[1]};
    recorder w = {.each = follow_average, .user = &a};
    assert_non_null(a.sum);
    check_ok(train_fixture_run(t, path_in("model"), &w));
    assert_int_equal(a.count, 10);
    /* Loading a file of the run gives the average. */
    rcv_learner *loaded;
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT64, &loaded));
    check_ok(rcv_learner_evaluate(loaded, s.data[1], NULL, &result));
    assert_true(fabs(result.loss - a.of_average) < 1e-12);
    rcv_learner_free(loaded);
    free(a.sum);
    rcv_trainer_free(t);
    assert_true(train_fixture_remove("model") > 0);
    train_fixture_close(&s);
}

static void test_no_average_before_its_time(void **unused) {
    (void)unused;
    train_fixture s;
    rcv_trainer *t = worsening(&s, "optimiser=asgd nonmono=4 steps=9");
    recorder w = {0};
    check_ok(train_fixture_run(t, path_in("model"), &w));
    assert_int_equal(t->state.averaged_updates, 0);
    rcv_learner *loaded;
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT64, &loaded));
    assert_memory_equal(loaded->parameters, t->learner->parameters, (size_t)loaded->elements * sizeof(double));
    rcv_learner_free(loaded);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* ---- dropout ---- */

static const char *const drops[] = {"dropout=0.4 layers=2",
                                    "dropout-input=0.4",
                                    "dropout-output=0.4",
                                    "dropout-embedding=0.4",
                                    "weight-drop=0.4",
                                    "zoneout=0.4",
                                    "dropout-input=0.4 variational=true",
                                    "dropout-output=0.4 variational=true"};
enum { DROPS = sizeof drops / sizeof *drops };
static const char dropping[] = "batch=2 length=5 steps=6 optimiser=momentum learning-rate=0.1 init=0.3 layers=2";

/* From the same parameters with another seed. */
static rcv_trainer *run_with(const train_fixture *s, const char *more, const char *seed, const double *start,
                             const rcv_data *data, recorder *w) {
    char line[256];
    snprintf(line, sizeof line, "%s %s", more, seed);
    rcv_trainer *t = train_fixture_trainer(s, dropping, line, data, NULL);
    if (start) train_fixture_set_parameters(t, start);
    check_ok(train_fixture_run(t, NULL, w));
    return t;
}

static void test_dropout(void **unused) {
    (void)unused;
    for (size_t i = 0; i < 2 * DROPS; i++) {
        train_fixture s;
        char line[128];
        train_fixture_open(&s);
        snprintf(line, sizeof line, "%s %s", drops[i / 2], i % 2 ? "dtype=float64" : "dtype=float32");
        const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
        rcv_trainer *fresh = train_fixture_trainer(&s, dropping, line, data, NULL);
        rcv_trainer *plain = train_fixture_trainer(&s, dropping, i % 2 ? "dtype=float64" : "dtype=float32", data, NULL);
        double *start = train_fixture_parameters(fresh);
        assert_true(train_fixture_same(fresh, plain) || i / 2 == 0); /* dropout is no part of the model */
        rcv_evaluation with = RCV_INIT(rcv_evaluation), without = RCV_INIT(rcv_evaluation);
        check_ok(rcv_learner_evaluate(fresh->learner, data, NULL, &with));
        check_ok(rcv_learner_evaluate(plain->learner, data, NULL, &without));
        const bool zones =
            strstr(line, "zoneout") != NULL; /* with zoneout the mean of the masked models is another model */
        assert_true((with.loss == without.loss) == !zones && with.counted == without.counted);
        recorder w[4] = {{0}, {0}, {0}, {0}};
        rcv_trainer *one = run_with(&s, line, "seed=0", start, data, &w[0]);
        rcv_trainer *same = run_with(&s, line, "seed=0", start, data, &w[1]);
        rcv_trainer *other = run_with(&s, line, "seed=1", start, data, &w[2]);
        check_ok(train_fixture_run(plain, NULL, &w[3]));
        assert_true(train_fixture_same(one, same));
        assert_false(train_fixture_same(one, other));
        assert_false(train_fixture_same(one, plain));
        assert_true(w[0].loss[0] != w[3].loss[0] && w[0].loss[0] != w[2].loss[0]);
        rcv_trainer *const all[] = {fresh, plain, one, same, other};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) rcv_trainer_free(all[k]);
        free(start);
        train_fixture_close(&s);
    }
}

/* What validation reads is the model as it is. */
static void test_validation_drops_nothing(void **unused) {
    (void)unused;
    for (rcv_data_kind kind = RCV_DATA_STREAM; kind <= RCV_DATA_STEP_VALUES; kind++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *data = train_fixture_data(&s, "train", kind, train_fixture_text(kind), NULL);
        rcv_trainer *t = train_fixture_trainer(&s, train_fixture_kind(kind),
                                               "dropout=0.4 dropout-input=0.3 dropout-output=0.3 dropout-embedding=0.2 "
                                               "weight-drop=0.3 layers=2 batch=2 length=5 eval-batch=1 steps=4 "
                                               "validate-every=4 dtype=float64",
                                               data, data);
        recorder w = {0};
        rcv_evaluation result = RCV_INIT(rcv_evaluation);
        check_ok(train_fixture_run(t, NULL, &w));
        check_ok(rcv_learner_evaluate(t->learner, data, NULL, &result));
        assert_int_equal(w.validations, 1);
        if (fabs(w.validation[0] - result.loss) > 1e-11 * result.loss)
            fail_msg("%s: validation says %.15g, evaluation %.15g", train_fixture_kind(kind), w.validation[0],
                     result.loss);
        rcv_trainer_free(t);
        train_fixture_close(&s);
    }
}

/* ---- the end of a run ---- */

static void test_stopping(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *stopped = train_fixture_trainer(&s, dropping, "steps=100", data, NULL);
    rcv_trainer *plain = train_fixture_trainer(&s, dropping, "steps=3", data, NULL);
    recorder a = {.stop_at = 3}, b = {0};
    check_fails(train_fixture_run(stopped, NULL, &a), RCV_STOPPED, "3 updates");
    check_ok(train_fixture_run(plain, NULL, &b));
    assert_true(train_fixture_same(stopped, plain));
    assert_string_equal(a.end, "stopped");
    assert_string_equal(b.end, "steps");
    a.stop_at = 5; /* continues where it was */
    check_fails(train_fixture_run(stopped, NULL, &a), RCV_STOPPED, "5 updates");
    rcv_trainer_free(plain);
    plain = train_fixture_trainer(&s, dropping, "steps=5", data, NULL);
    check_ok(train_fixture_run(plain, NULL, &b));
    assert_true(train_fixture_same(stopped, plain));
    rcv_trainer_free(stopped);
    rcv_trainer_free(plain);
    train_fixture_close(&s);
}

static void test_no_number(void **unused) {
    (void)unused;
    const char *const line =
        "kind=values batch=5 buckets=none cell=rnn_relu hidden=8 optimiser=sgd learning-rate=1e6 clip=0";
    for (int saves = 0; saves < 2; saves++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_VALUES, train_fixture_values, NULL);
        rcv_trainer *t = train_fixture_trainer(&s, line, "steps=100 checkpoint-every=1", data, NULL);
        recorder w = {0};
        const rcv_status status = train_fixture_run(t, saves ? path_in("model") : NULL, &w);
        char update[64], good[64];
        snprintf(update, sizeof update, "of update %lld is not a number", (long long)w.updates + 1);
        snprintf(good, sizeof good, saves ? "model, of update %lld" : "no checkpoint was written",
                 (long long)w.updates);
        check_fails(status, RCV_INVALID, update);
        assert_true(strstr(rcv_message(), good) != NULL);
        assert_true(w.updates > 0 && w.updates < 50);
        rcv_trainer_free(t);
        assert_int_equal(train_fixture_remove("model") > 0, saves);
        train_fixture_close(&s);
    }
}

/* Validations overflow while updates do not: they count as worse than any, and the run continues, also when it is resumed. */
static void test_validation_without_number(void **unused) {
    (void)unused;
    const char *const line =
        "kind=values batch=5 buckets=none cell=rnn_relu hidden=8 init=0.9 optimiser=sgd validate-every=1 "
        "checkpoint-every=1 keep=1";
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_VALUES, train_fixture_values, NULL);
    const rcv_data *huge = train_fixture_data(
        &s, "valid", RCV_DATA_VALUES,
        "{\"x\": [[3e38, 3e38], [3e38, -3e38], [-3e38, 3e38], [-3e38, -3e38]], \"y\": [3e38, -3e38]}\n"
        "{\"x\": [[3e38, -3e38], [3e38, -3e38], [3e38, -3e38], [3e38, -3e38]], \"y\": [1, 2]}\n",
        data);
    rcv_trainer *t = train_fixture_trainer(&s, line, "steps=3", data, huge), *again;
    recorder w = {0};
    check_ok(train_fixture_run(t, path_in("model"), &w));
    assert_int_equal(w.updates, 3);
    assert_int_equal(w.validations, 3);
    for (int i = 0; i < 3; i++) assert_true(isnan(w.validation[i]) && !w.best[i] && isfinite(w.loss[i]));
    assert_true(isinf(rcv_trainer_progress(t)->validation) && rcv_trainer_progress(t)->best == 0);
    assert_true(t->state.bad_validations == 3 && isinf(t->state.best_loss));
    again = train_fixture_trainer(&s, line, "steps=5", data, huge);
    check_ok(rcv_trainer_resume(again, path_in("model")));
    assert_int_equal(again->state.loss_count, 3);
    for (int i = 0; i < 3; i++) assert_true(isinf(again->state.validation_losses[i]));
    assert_true(again->state.bad_validations == 3 && isinf(again->state.best_loss));
    check_ok(train_fixture_run(again, NULL, &w));
    assert_int_equal(again->state.step, 5);
    rcv_trainer_free(again);
    rcv_trainer_free(t);
    assert_int_equal(train_fixture_remove("model"), 1);
    train_fixture_close(&s);
}

static void test_memorising(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_LINES, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "kind=lines hidden=24 steps=200 batch=4 learning-rate=0.02",
                                           "optimiser=adam", data, NULL);
    rcv_evaluation before = RCV_INIT(rcv_evaluation), after = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_evaluate(t->learner, data, NULL, &before));
    check_ok(rcv_trainer_run(t, NULL));
    check_ok(rcv_learner_evaluate(t->learner, data, NULL, &after));
    assert_true(before.loss > 2);
    /* Which line comes is a matter of log 8 nats, over its 6.6 tokens or so. */
    assert_true(after.loss < 0.4);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

/* ---- refusals ---- */

/* ---- memory ---- */

/* Between validations a window of theirs has its plan and its states, and nothing more. */
static void test_validation_memory(void **unused) {
    (void)unused;
    static const char line[] = "kind=stream batch=2 length=5 eval-batch=1 optimiser=sgd steps=6 validate-every=2";
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL),
                   *valid = train_fixture_data(&s, "valid", RCV_DATA_STREAM, "the cat sat on a log\n", train);
    rcv_trainer *a = train_fixture_trainer(&s, line, "", train, valid),
                *b = train_fixture_trainer(&s, line, "", train, NULL);
    recorder x = {0}, y = {0};
    check_ok(train_fixture_run(a, NULL, &x));
    check_ok(train_fixture_run(b, NULL, &y));
    assert_int_equal(x.validations, 3);
    for (int i = 0; i < 3; i++) assert_true(x.validation[i] > 0.1);
    const rcvi_window *v = &a->work->windows[a->windows.numbers[a->windows.train_count]];
    assert_true(v->plan && !v->runs);
    size_t states = 0;
    for (size_t i = 0; i < rcv_net_state_count(a->learner->net); i++)
        states += 2 * rcvi_window_state_bytes(a->work, v, i);
    assert_int_equal(rcv_trainer_bytes(a), rcv_trainer_bytes(b) + states);
    rcv_trainer_free(a);
    rcv_trainer_free(b);
    train_fixture_close(&s);
}

/* Windows of buckets take turns in the memory of the longest one's. */
static void test_bucket_memory(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_LINES, train_fixture_verse, NULL);
    const char *line = "kind=lines batch=4 hidden=24 layers=2 steps=8";
    rcv_trainer *one = train_fixture_trainer(&s, line, "buckets=none", train, NULL);
    rcv_trainer *three = train_fixture_trainer(&s, line, "buckets=auto:3", train, NULL);
    recorder x = {0}, y = {0};
    check_ok(train_fixture_run(one, NULL, &x));
    check_ok(train_fixture_run(three, NULL, &y));
    assert_int_equal(three->windows.train_count, 3);
    const size_t run = rcv_run_bytes(one->work->windows[0].runs[0]);
    assert_true(rcv_trainer_bytes(three) < rcv_trainer_bytes(one) + run);
    rcv_trainer_free(one);
    rcv_trainer_free(three);
    train_fixture_close(&s);
}

/* Many lines of two steps and one of thirty: the plan of the short ones serves both, also where another is chosen for the long one. */
static void test_bucket_plans(void **unused) {
    (void)unused;
    enum { SHORT = 300, STEPS = 30 };
    char text[2 * SHORT + 2 * STEPS] = "", *end = text;
    for (int i = 0; i < SHORT; i++) end = strcpy(end, "a\n") + 2;
    for (int i = 0; i < STEPS - 1; i++) end = strcpy(end, i < STEPS - 2 ? "b " : "b\n") + 2;
    int different = 0;
    for (int i = 0; i < 6; i++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_LINES, text, NULL);
        char line[80];
        snprintf(line, sizeof line, "kind=lines buckets=2 steps=2 batch=%d hidden=%d", 1 + 3 * (i % 3),
                 i < 3 ? 24 : 96);
        rcv_trainer *t = train_fixture_trainer(&s, line, "", train, NULL);
        recorder w = {0};
        check_ok(train_fixture_run(t, NULL, &w));
        assert_int_equal(t->windows.train_count, 2);
        rcv_plan_options o = RCV_INIT(rcv_plan_options, .batch = 1 + 3 * (i % 3), .dtype = t->learner->dtype,
                                      .training = true, .lengths = true, .effort = RCV_ESTIMATE, .threads = 1);
        rcv_plan *plans[2];
        for (int k = 0; k < 2; k++) {
            o.steps = k ? STEPS : 2;
            check_ok(rcv_plan_new(t->learner->net, &o, &plans[k]));
        }
        different += strcmp(rcv_plan_string(plans[0]), rcv_plan_string(plans[1])) != 0;
        for (int k = 0; k < 2; k++) {
            const rcvi_window *v = &t->work->windows[t->windows.numbers[k]];
            assert_int_equal(v->steps, k ? STEPS : 2);
            assert_string_equal(rcv_plan_string(v->plan), rcv_plan_string(plans[0]));
        }
        for (int k = 0; k < 2; k++) rcv_plan_free(plans[k]);
        rcv_trainer_free(t);
        train_fixture_close(&s);
    }
    assert_true(different > 0); /* else nothing was compared */
}

/* The CPU always stores the gradient of the output layer, and refuses lean=yes with a message. */
static void test_lean(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t =
        train_fixture_trainer(&s, "kind=stream batch=2 length=5 optimiser=sgd steps=1", "lean=yes", train, NULL);
    recorder w = {0};
    check_fails(train_fixture_run(t, NULL, &w), RCV_UNSUPPORTED, "lean learning is for GPUs");
    assert_int_equal(w.updates, 0);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

static void test_refusals(void **unused) {
    (void)unused;
    const struct {
        const char *settings, *sentence;
    } wrong[] = {
        {"kind=lines", "kind of data"},
        {"decay=cosine", "set epochs or steps"},
        {"bidirectional=true", "bidirectional"},
        {"tied=true embedding=5", "tied"},
        {"tied=true embedding-kind=fixed", "fixed"},
        {"sizes=proj", "NAME=N"},
        {"cell=nosuchcell", "nosuchcell"},
        {"batch=1000", "window"},
        {"device=gpu", "gpu"},
        {"lean=yes", "the optimiser must be sgd"}, /* it is adam */
        {"lean=yes optimiser=asgd", "the optimiser must be sgd"},
        {"lean=yes optimiser=sgd accumulate=2", "accumulate must be 1"},
        {"lean=yes optimiser=sgd weight-decay=0.1", "weight-decay must be 0"},
        {"lean=yes optimiser=sgd tied=true", "must not be tied"},
    };
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[128];
        snprintf(line, sizeof line, "batch=2 length=5 %s", wrong[i].settings);
        rcv_settings *settings = train_fixture_settings(&s, line);
        rcv_trainer *t = (rcv_trainer *)settings;
        const rcv_status status = rcv_trainer_new(s.context, settings, data, NULL, &t);
        if (status == RCV_OK) fail_msg("%s is taken", wrong[i].settings);
        if (!strstr(rcv_message(), wrong[i].sentence)) fail_msg("%s: %s", wrong[i].settings, rcv_message());
        assert_null(t);
        rcv_settings_free(settings);
    }
    const rcv_data *lines = train_fixture_data(&s, "lines", RCV_DATA_LINES, train_fixture_verse, NULL);
    static const char *const buckets[] = {"buckets=3,2", "buckets=auto:0", "buckets=autox", "buckets=x", "buckets=3;4"};
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        rcv_settings *settings = train_fixture_settings(&s, buckets[i]);
        rcv_trainer *t = NULL;
        check_ok(rcv_settings_set(settings, "kind", "lines"));
        check_fails(rcv_trainer_new(s.context, settings, lines, NULL, &t), RCV_INVALID, "buckets");
        rcv_settings_free(settings);
    }
    train_fixture_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_epoch_decay),
        cmocka_unit_test(test_cosine_ends_with_the_run),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_plateau),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_no_average_before_its_time),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_validation_drops_nothing),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_validation_without_number),
        cmocka_unit_test(test_memorising),
        cmocka_unit_test(test_validation_memory),
        cmocka_unit_test(test_bucket_memory),
        cmocka_unit_test(test_bucket_plans),
        cmocka_unit_test(test_lean),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

/* Metrics: small cases computed by hand, areas under curves against all pairs, evaluations of learners against their predictions. */
#include "scratch.h"
#include "train_fixture.h"

#include "base/random.h"
#include "train/inference/metrics.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static void check_close(const char *what, double got, double want, double most) {
    if (isnan(want) ? isnan(got) : fabs(got - want) <= most) return;
    fail_msg("%s is %.15g, not %.15g", what, got, want);
}

/* ---- classes by hand ---- */

static void test_classes(void **unused) {
    (void)unused;
    /* Rows (class, predicted): 0 as 0, 0 as 0, 0 as 1, 1 as 1, 1 as 2. Class 2 has no row, class 3 neither row nor prediction. */
    static const int pairs[][2] = {{0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 2}};
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    int64_t confusion[16];
    rcvi_metrics m;
    rcv_evaluation r = RCV_INIT(rcv_evaluation);
    memset(confusion, 0x11, sizeof confusion);
    check_ok(rcvi_metrics_init(&m, context, RCV_DATA_CLASSES, 4, confusion, false));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        double logits[4] = {-1, -1, -1, -1};
        logits[pairs[i][1]] = 2;
        check_ok(rcvi_metrics_add_class(&m, logits, pairs[i][0]));
    }
    check_ok(rcvi_metrics_finish(&m, &r));
    check_close("accuracy", r.accuracy, 3. / 5, 1e-15);
    check_close("precision", r.precision, (1 + 1. / 2) / 2, 1e-15); /* class 0: 2 of 2, class 1: 1 of 2 */
    check_close("recall", r.recall, (2. / 3 + 1. / 2) / 2, 1e-15);
    check_close("F1", r.f1, (4. / 5 + 2. / 4) / 2, 1e-15);
    check_close("AUC", r.auc, NAN, 0);
    check_close("MAE", r.mae, NAN, 0);
    const int64_t expected[16] = {2, 1, 0, 0, 0, 1, 1, 0};
    assert_memory_equal(confusion, expected, sizeof expected);
    rcvi_metrics_free(&m);
    /* Nothing was added: nothing is known. */
    check_ok(rcvi_metrics_init(&m, context, RCV_DATA_STEP_CLASSES, 2, NULL, true));
    check_ok(rcvi_metrics_finish(&m, &r));
    assert_true(r.accuracy == 0 && isnan(r.precision) && isnan(r.auc));
    rcvi_metrics_free(&m);
    test_context_end(&counting, context);
}

/* ---- values by hand ---- */

static void test_values(void **unused) {
    (void)unused;
    /* Output 0: errors 1, -1, 0 of 1, 2, 6; output 1 is constant, errors 2, 0, 2. The naive forecast is not known of the third row. */
    static const double wanted[][2] = {{1, 5}, {2, 5}, {6, 5}}, predicted[][2] = {{2, 7}, {1, 5}, {6, 7}},
                        naive[][2] = {{0, 5}, {1, 6}, {NAN, NAN}};
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcvi_metrics m;
    rcv_evaluation r = RCV_INIT(rcv_evaluation);
    check_ok(rcvi_metrics_init(&m, context, RCV_DATA_STEP_VALUES, 2, NULL, true));
    for (int i = 0; i < 3; i++) rcvi_metrics_add_values(&m, predicted[i], wanted[i], naive[i]);
    check_ok(rcvi_metrics_finish(&m, &r));
    check_close("MAE", r.mae, 6. / 6, 1e-15);
    check_close("RMSE", r.rmse, sqrt(10. / 6), 1e-15);
    check_close("R2", r.r2, 1 - 2. / 14, 1e-14); /* of output 0 alone: variance 4 + 1 + 9 about 3 */
    check_close("naive MAE", r.naive_mae, (1 + 0 + 1 + 1) / 4., 1e-15);
    check_close("naive RMSE", r.naive_rmse, sqrt(3 / 4.), 1e-15);
    assert_true(r.accuracy == 0 && isnan(r.f1) && isnan(r.auc));
    rcvi_metrics_free(&m);
    check_ok(rcvi_metrics_init(&m, context, RCV_DATA_VALUES, 1, NULL, true));
    rcvi_metrics_add_values(&m, (double[]){3}, (double[]){1}, NULL);
    check_ok(rcvi_metrics_finish(&m, &r));
    assert_true(r.mae == 2 && r.rmse == 2 && isnan(r.r2) && isnan(r.naive_mae)); /* one row has no variance */
    rcvi_metrics_free(&m);
    test_context_end(&counting, context);
}

/* ---- areas ---- */

enum { ROWS = 500, CLASSES = 4 };

typedef struct {
    double logits[ROWS][CLASSES];
    int32_t targets[ROWS];
} drawn;

/* With `coarse`, many scores are equal. */
static void draw(drawn *d, int64_t classes, bool coarse, uint64_t seed) {
    for (int r = 0; r < ROWS; r++) {
        d->targets[r] = (int32_t)(rcvi_hash_uniform(seed, (uint64_t)r) * (double)classes);
        for (int64_t c = 0; c < classes; c++) {
            const double noise = 4 * rcvi_hash_uniform(seed + 1, (uint64_t)(r * CLASSES + c)) - 2;
            d->logits[r][c] = noise + (c == d->targets[r] ? 1 : 0);
            if (coarse) d->logits[r][c] = round(d->logits[r][c]);
        }
    }
}

static double probability(const double *logits, int64_t classes, int64_t class) {
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += exp(logits[c] - logits[class]);
    return 1 / sum;
}

/* All pairs of a row of the class and another row. */
static double area_by_pairs(const drawn *d, int64_t classes, int64_t class) {
    static double scores[ROWS];
    double above = 0, pairs = 0;
    for (int r = 0; r < ROWS; r++) scores[r] = probability(d->logits[r], classes, class);
    for (int a = 0; a < ROWS; a++) {
        for (int b = 0; d->targets[a] == class && b < ROWS; b++) {
            if (d->targets[b] == class) continue;
            const bool equal = fabs(scores[a] - scores[b]) < 1e-12;
            above += equal ? 0.5 : scores[a] > scores[b];
            pairs++;
        }
    }
    return above / pairs;
}

static double area_of(rcv_context *context, const drawn *d, int64_t classes, int64_t most) {
    rcvi_auc auc;
    double area;
    rcvi_auc_init(&auc, context, classes, most);
    for (int r = 0; r < ROWS; r++) check_ok(rcvi_auc_add(&auc, d->logits[r], d->targets[r]));
    if (most) assert_true(auc.count <= most && auc.count > 0);
    check_ok(rcvi_auc_find(&auc, &area));
    rcvi_auc_free(&auc);
    return area;
}

static void test_areas(void **unused) {
    (void)unused;
    static drawn d;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    for (uint64_t seed = 0; seed < 6; seed++) {
        draw(&d, 2, seed % 2, seed);
        check_close("area of two classes", area_of(context, &d, 2, 0), area_by_pairs(&d, 2, 1), 1e-12);
        draw(&d, CLASSES, seed % 2, seed);
        double sum = 0;
        for (int64_t c = 0; c < CLASSES; c++) sum += area_by_pairs(&d, CLASSES, c);
        check_close("area of several classes", area_of(context, &d, CLASSES, 0), sum / CLASSES,
                    seed % 2 ? 2e-3 : 1e-12);
    }
    /* A class that no row has is in no mean; where all rows have one class there is no area. */
    draw(&d, 2, false, 9);
    double two = 0;
    for (int64_t c = 0; c < 2; c++) {
        for (int r = 0; r < ROWS; r++) d.logits[r][2] = -30;
        two += area_by_pairs(&d, 3, c) / 2;
    }
    check_close("area without the third class", area_of(context, &d, 3, 0), two, 1e-12);
    for (int r = 0; r < ROWS; r++) d.targets[r] = 1;
    check_close("area of one class", area_of(context, &d, 2, 0), NAN, 0);
    test_context_end(&counting, context);
}

/* Probabilities that are 1 in float are still ordered; right, wrong and equal scores. */
static void test_extreme_areas(void **unused) {
    (void)unused;
    static drawn d;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    for (int r = 0; r < ROWS; r++) {
        d.targets[r] = r % 2;
        d.logits[r][0] = 0;
        d.logits[r][1] = r % 2 ? 40 : 39;
        d.logits[r][2] = -100;
    }
    assert_true(area_of(context, &d, 2, 0) == 1 && area_of(context, &d, 3, 0) == 1);
    for (int r = 0; r < ROWS; r++) d.targets[r] = !(r % 2);
    assert_true(area_of(context, &d, 2, 0) == 0 && area_of(context, &d, 3, 0) == 0);
    for (int r = 0; r < ROWS; r++) d.logits[r][1] = r % 4 < 2 ? 0.0 : -0.0;
    assert_true(area_of(context, &d, 2, 0) == 0.5);
    d.logits[7][1] = NAN;
    check_close("area of a score that is no number", area_of(context, &d, 2, 0), NAN, 0);
    test_context_end(&counting, context);
}

/* More rows than memory holds: a random sample of them, the same every time. */
static void test_sampled_areas(void **unused) {
    (void)unused;
    static drawn d;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    draw(&d, 2, false, 4);
    const double exact = area_of(context, &d, 2, 0), sampled = area_of(context, &d, 2, 200);
    assert_true(area_of(context, &d, 2, ROWS) == exact && sampled != exact);
    check_close("a sample", sampled, exact, 0.1);
    assert_true(area_of(context, &d, 2, 200) == sampled);
    test_context_end(&counting, context);
}

/* ---- learners ---- */

static rcv_learner *learner_of(const train_fixture *w, const char *settings, const rcv_data *data) {
    rcv_learner *l = NULL;
    rcv_settings *made = train_fixture_settings(w, settings);
    check_ok(rcv_learner_new(w->context, made, data, &l));
    rcv_settings_free(made);
    return l;
}

/* Examples of one feature and three lengths, as the text and as arrays of a caller. */
enum { EXAMPLES = 300, LONGEST = 9 };

static void write_examples(char *text, size_t room, rcv_data_kind kind, float *x, int64_t *lengths, double *targets) {
    size_t at = 0;
    for (int e = 0; e < EXAMPLES; e++) {
        lengths[e] = 1 + e * 7 % LONGEST;
        double sum = 0;
        at += (size_t)snprintf(text + at, room - at, "{\"x\": [");
        for (int64_t t = 0; t < LONGEST; t++) {
            x[t * EXAMPLES + e] = (float)(100 + 20 * sin(1.3 * e + 2.1 * (double)t));
            if (t < lengths[e]) sum += (double)x[t * EXAMPLES + e];
            if (t < lengths[e])
                at += (size_t)snprintf(text + at, room - at, "%s%.9g", t ? ", " : "", (double)x[t * EXAMPLES + e]);
        }
        targets[e] = kind == RCV_DATA_VALUES ? (float)(sum / (double)lengths[e] * 3) : e % 3;
        at += (size_t)snprintf(text + at, room - at, "], \"y\": %.9g}\n", targets[e]);
    }
    assert_true(at < room);
}

/* Metrics of an evaluation from what rcv_learner_predict gives, in whatever batches the evaluation reads. */
static void check_learner(rcv_data_kind kind, const char *more) {
    static char text[1 << 16], line[256];
    static float x[LONGEST * EXAMPLES];
    static double targets[EXAMPLES], out[EXAMPLES * 3];
    int64_t lengths[EXAMPLES], confusion[9];
    const bool classes = kind == RCV_DATA_CLASSES;
    train_fixture w;
    train_fixture_open(&w);
    write_examples(text, sizeof text, kind, x, lengths, targets);
    const rcv_data *data = train_fixture_data(&w, "examples", kind, text, NULL);
    snprintf(line, sizeof line, "%s cell=gru init=0.5 dtype=float64 %s", train_fixture_kind(kind), more);
    rcv_learner *l = learner_of(&w, line, data);
    rcvi_metrics m;
    rcv_evaluation want = RCV_INIT(rcv_evaluation);
    check_ok(rcvi_metrics_init(&m, w.context, kind, rcv_learner_outputs(l), NULL, true));
    const rcv_prediction p =
        RCV_INIT(rcv_prediction, .steps = LONGEST, .batch = EXAMPLES, .x = x, .lengths = lengths, .out = out,
                 .output = classes ? RCV_OUTPUT_LOGITS : RCV_OUTPUT_DEFAULT, .threads = 1);
    check_ok(rcv_learner_predict(l, &p));
    for (int e = 0; e < EXAMPLES; e++) {
        if (classes)
            check_ok(rcvi_metrics_add_class(&m, &out[e * 3], (int32_t)targets[e]));
        else
            rcvi_metrics_add_values(&m, &out[e], &targets[e], NULL);
    }
    check_ok(rcvi_metrics_finish(&m, &want));
    rcvi_metrics_free(&m);
    double loss = 0;
    for (int64_t batch = 0; batch < 70; batch = batch * 8 + 1) {
        rcv_evaluation got = RCV_INIT(rcv_evaluation);
        const rcv_evaluation_options options =
            RCV_INIT(rcv_evaluation_options, .batch = batch, .threads = 1, .confusion = classes ? confusion : NULL);
        check_ok(rcv_learner_evaluate(l, data, &options, &got));
        assert_int_equal(got.counted, EXAMPLES);
        if (batch == 0) loss = got.loss;
        check_close("loss", got.loss, loss, 1e-12 * loss);
        const double *a = &got.accuracy, *b = &want.accuracy;
        for (int i = 0; i < 10; i++) check_close("metric", a[i], b[i], 1e-6 * fmax(1, fabs(b[i])));
        int64_t rows = 0, right = 0;
        for (int i = 0; classes && i < 9; i++) rows += confusion[i];
        for (int i = 0; classes && i < 3; i++) right += confusion[4 * i];
        if (classes) assert_true(rows == EXAMPLES && fabs((double)right / EXAMPLES - got.accuracy) < 1e-15);
    }
    assert_true(classes ? want.accuracy > 0 && want.auc > 0 : want.rmse >= want.mae && want.mae > 0);
    if (!classes)
        check_fails(rcv_learner_evaluate(l, data, &RCV_INIT(rcv_evaluation_options, .confusion = confusion), &want),
                    RCV_INVALID, "has no classes to confuse");
    rcv_learner_free(l);
    train_fixture_close(&w);
}

static void test_learners(void **unused) {
    (void)unused;
    check_learner(RCV_DATA_CLASSES, "");
    check_learner(RCV_DATA_CLASSES, "normalise=true bidirectional=true");
    check_learner(RCV_DATA_VALUES, "");
    check_learner(RCV_DATA_VALUES, "normalise=true layers=2"); /* in the units of the data */
}

/* Steps whose target is missing, and steps past the end, are in no metric. */
static void test_steps(void **unused) {
    (void)unused;
    train_fixture w;
    int64_t confusion[9];
    rcv_evaluation r = RCV_INIT(rcv_evaluation);
    train_fixture_open(&w);
    const rcv_data *classes =
        train_fixture_data(&w, "classes", RCV_DATA_STEP_CLASSES, train_fixture_text(RCV_DATA_STEP_CLASSES), NULL);
    const rcv_data *values =
        train_fixture_data(&w, "values", RCV_DATA_STEP_VALUES, train_fixture_text(RCV_DATA_STEP_VALUES), NULL);
    rcv_learner *l = learner_of(&w, "kind=step-classes cell=gru", classes);
    /* The output layer's bias alone decides: always class 1, b. */
    memset(l->parameters, 0, (size_t)l->elements * rcvi_real_bytes(l));
    ((float *)l->parameters)[l->bias_offset + 1] = 1;
    check_ok(rcv_learner_evaluate(l, classes, &RCV_INIT(rcv_evaluation_options, .confusion = confusion), &r));
    assert_int_equal(r.counted, 8);
    check_close("accuracy", r.accuracy, 2. / 8, 1e-15); /* a a a b b c c c */
    check_close("recall", r.recall, 1. / 3, 1e-15);
    check_close("precision", r.precision, 2. / 8 / 3, 1e-15);
    check_close("AUC", r.auc, 0.5, 0);
    const int64_t expected[] = {0, 3, 0, 0, 2, 0, 0, 3, 0};
    assert_memory_equal(confusion, expected, sizeof expected);
    rcv_learner_free(l);
    l = learner_of(&w, "kind=step-values cell=gru", values);
    memset(l->parameters, 0, (size_t)l->elements * rcvi_real_bytes(l));
    check_ok(rcv_learner_evaluate(l, values, NULL, &r));
    assert_int_equal(r.counted, 8); /* of 12 steps */
    double sum = 0, squares = 0;
    static const double all[] = {0.5, 1, -1, 0.25, 2, -0.5, 0, 0.75, 1, 1, 0.5, 2, -1, -1, 1, 0};
    for (int i = 0; i < 16; i++) {
        sum += fabs(all[i]);
        squares += all[i] * all[i];
    }
    check_close("MAE", r.mae, sum / 16, 1e-12);
    check_close("RMSE", r.rmse, sqrt(squares / 16), 1e-12);
    check_close("loss", r.loss, squares / 16, 1e-6);
    rcv_learner_free(l);
    train_fixture_close(&w);
}

/* ---- weights of classes ---- */

static void check_weights(const train_fixture *w, const char *setting, const rcv_data *data, const double *expected) {
    char line[128];
    snprintf(line, sizeof line, "kind=classes class-weights=%s", setting);
    rcv_learner *l = learner_of(w, line, data);
    for (int i = 0; i < 3; i++) check_close("weight", (double)l->class_weights[i], expected[i], 1e-7);
    rcv_learner_free(l);
}

static void check_refused(const train_fixture *w, const char *kind, const char *setting, const rcv_data *data,
                          const char *fragment) {
    char line[128];
    rcv_learner *l = NULL;
    snprintf(line, sizeof line, "%s class-weights=%s", kind, setting);
    rcv_settings *settings = train_fixture_settings(w, line);
    check_fails(rcv_learner_new(w->context, settings, data, &l), RCV_INVALID, fragment);
    rcv_settings_free(settings);
}

static void test_weights(void **unused) {
    (void)unused;
    static const char text[] =
        "{\"x\": [1], \"y\": \"a\"}\n{\"x\": [2], \"y\": \"a\"}\n{\"x\": [3], \"y\": \"a\"}\n"
        "{\"x\": [4], \"y\": \"b=1\"}\n{\"x\": [5], \"y\": \"cherry\"}\n{\"x\": [6], \"y\": \"cherry\"}\n";
    train_fixture w;
    train_fixture_open(&w);
    const rcv_data *data = train_fixture_data(&w, "data", RCV_DATA_CLASSES, text, NULL);
    const rcv_data *values = train_fixture_data(&w, "values", RCV_DATA_VALUES, train_fixture_values, NULL);
    check_weights(&w, "balanced", data, (double[]){6 / 9., 2, 1});
    check_weights(&w, "cherry=0.5,b=1=4", data, (double[]){1, 4, 0.5});
    check_refused(&w, "kind=classes", "cherri=2", data, "did you mean 'cherry'?");
    check_refused(&w, "kind=classes", "a=0", data, "the weight of class 'a' is '0'; it must be a positive number");
    check_refused(&w, "kind=classes", "a=-1", data, "must be a positive number");
    check_refused(&w, "kind=classes", "a=inf", data, "must be a positive number");
    check_refused(&w, "kind=classes", "a=x", data, "must be a positive number");
    check_refused(&w, "kind=classes", "a=1,a=2", data, "gives the class 'a' twice");
    check_refused(&w, "kind=classes", "a", data, "balanced or NAME=X,NAME=X, not 'a'");
    check_refused(&w, "kind=values", "balanced", values, "class-weights is for data with classes");
    /* The mean is over the weights: with the bias alone, losses are -log of its softmax. A file keeps the weights. */
    rcv_learner *l = learner_of(&w, "kind=classes class-weights=b=1=4 dtype=float64", data), *loaded = NULL;
    double *parameters = l->parameters;
    rcv_evaluation r = RCV_INIT(rcv_evaluation), again = RCV_INIT(rcv_evaluation);
    memset(parameters, 0, (size_t)l->elements * sizeof *parameters);
    for (int i = 0; i < 3; i++) parameters[l->bias_offset + i] = log(1 + i); /* shares of 1, 2 and 3 sixths */
    check_ok(rcv_learner_evaluate(l, data, NULL, &r));
    check_close("loss", r.loss, (3 * log(6) + 4 * log(3) + 2 * log(2)) / 9, 1e-7);
    assert_int_equal(r.counted, 6);
    check_ok(rcv_learner_save(l, path_in("model")));
    check_ok(rcv_learner_load(w.context, path_in("model"), NULL, RCV_FLOAT64, &loaded));
    check_ok(rcv_learner_evaluate(loaded, data, NULL, &again));
    assert_true(again.loss == r.loss);
    unlink(path_in("model"));
    rcv_learner_free(loaded);
    rcv_learner_free(l);
    train_fixture_close(&w);
}

/* ---- lines of logs ---- */

static void test_printed(void **unused) {
    (void)unused;
    train_fixture w;
    char *text = NULL;
    int64_t confusion[9] = {2, 0, 1, 0, 3, 0, 0, 0, 4};
    train_fixture_open(&w);
    const rcv_data *data = train_fixture_data(&w, "data", RCV_DATA_CLASSES, train_fixture_examples, NULL);
    rcv_learner *l = learner_of(&w, "kind=classes", data);
    rcv_evaluation r = RCV_INIT(rcv_evaluation, .loss = 0.5, .counted = 10, .accuracy = 0.9, .precision = 0.8,
                                .recall = 0.7, .f1 = 0.75, .auc = NAN);
    check_ok(rcv_evaluation_print(w.context, l, &r, confusion, &text));
    assert_string_equal(
        text, "{\"event\":\"test\",\"loss\":0.5,\"counted\":10,\"metrics\":{\"accuracy\":0.9,\"precision\":0.8,"
              "\"recall\":0.7,\"f1\":0.75,\"auc\":null},\"classes\":[\"a\",\"b\",\"c\"],"
              "\"confusion\":[[2,0,1],[0,3,0],[0,0,4]]}");
    rcv_text_free(w.context, text);
    r.loss = INFINITY;
    check_ok(rcv_evaluation_print(w.context, l, &r, NULL, &text));
    json_t *object = json_loads(text, 0, NULL);
    assert_true(json_is_null(json_object_get(object, "loss")) && !json_object_get(object, "confusion"));
    json_decref(object);
    rcv_text_free(w.context, text);
    rcv_learner_free(l);
    const rcv_data *values = train_fixture_data(&w, "values", RCV_DATA_VALUES, train_fixture_values, NULL);
    l = learner_of(&w, "kind=values", values);
    r = RCV_INIT(rcv_evaluation, .loss = 4, .counted = 3, .mae = 1, .rmse = 2, .r2 = 0.5, .naive_mae = NAN);
    check_ok(rcv_evaluation_print(w.context, l, &r, NULL, &text));
    assert_string_equal(
        text, "{\"event\":\"test\",\"loss\":4.0,\"counted\":3,\"metrics\":{\"mae\":1.0,\"rmse\":2.0,\"r2\":0.5}}");
    rcv_text_free(w.context, text);
    rcv_learner_free(l);
    const rcv_data *lines = train_fixture_data(&w, "lines", RCV_DATA_LINES, train_fixture_verse, NULL);
    l = learner_of(&w, "kind=lines", lines);
    r = RCV_INIT(rcv_evaluation, .loss = 0, .counted = 3);
    check_ok(rcv_evaluation_print(w.context, l, &r, NULL, &text));
    assert_string_equal(text, "{\"event\":\"test\",\"loss\":0.0,\"perplexity\":1.0,\"counted\":3}");
    rcv_text_free(w.context, text);
    rcv_learner_free(l);
    train_fixture_close(&w);
}

/* ---- while training ---- */

typedef struct {
    double metric[8], logged[8];
    int count, lines;
    const char *name; /* of the metric in the log */
} watched;

static bool watch(void *user, const rcv_progress *progress) {
    watched *seen = user;
    if (progress->step > 0 && seen->count < 8) seen->metric[seen->count++] = progress->metric;
    return true;
}

static void read_line(void *user, const char *line) {
    watched *seen = user;
    json_t *object = json_loads(line, 0, NULL);
    assert_non_null(object);
    if (!strcmp(json_string_value(json_object_get(object, "event")), "validation"))
        seen->logged[seen->lines++] =
            json_number_value(json_object_get(json_object_get(object, "metrics"), seen->name));
    json_decref(object);
}

static void check_watched(rcv_data_kind kind, const char *name) {
    train_fixture w;
    char line[128];
    watched seen = {.name = name};
    rcv_evaluation r = RCV_INIT(rcv_evaluation);
    train_fixture_open(&w);
    const rcv_data *data = train_fixture_data(&w, "data", kind, train_fixture_text(kind), NULL);
    snprintf(line, sizeof line, "%s batch=2 steps=4 validate-every=2 cell=gru", train_fixture_kind(kind));
    rcv_trainer *t = train_fixture_trainer(&w, line, "", data, data);
    assert_true(isnan(rcv_trainer_progress(t)->metric));
    const rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .progress = watch, .log = read_line, .user = &seen);
    check_ok(rcv_trainer_run(t, &options));
    check_ok(rcv_learner_evaluate(t->learner, data, NULL, &r));
    const double last = !strcmp(name, "accuracy") ? r.accuracy : r.rmse;
    assert_true(seen.count >= 4 && isnan(seen.metric[0]) && seen.lines == 2);
    check_close("the metric", rcv_trainer_progress(t)->metric, last, 1e-6);
    check_close("the metric of the log", seen.logged[1], last, 1e-6);
    check_close("the metric after update 2", seen.metric[1], seen.logged[0], 1e-9);
    rcv_trainer_free(t);
    train_fixture_close(&w);
}

static void test_watched(void **unused) {
    (void)unused;
    check_watched(RCV_DATA_CLASSES, "accuracy");
    check_watched(RCV_DATA_STEP_CLASSES, "accuracy");
    check_watched(RCV_DATA_VALUES, "rmse");
    check_watched(RCV_DATA_STEP_VALUES, "rmse");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),       cmocka_unit_test(test_values),        cmocka_unit_test(test_areas),
        cmocka_unit_test(test_extreme_areas), cmocka_unit_test(test_sampled_areas), cmocka_unit_test(test_learners),
        cmocka_unit_test(test_steps),         cmocka_unit_test(test_weights),       cmocka_unit_test(test_printed),
        cmocka_unit_test(test_watched),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

/* Models that know how their data is read: columns by name, data without targets, forecasts beside the naive one. */
#include "scratch.h"
#include "train_fixture.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static const char *write_file(const char *name, const char *text) {
    const char *path = path_in(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static rcv_learner *learner_of(const train_fixture *w, const char *settings, const rcv_data *data) {
    rcv_learner *l = NULL;
    rcv_settings *made = train_fixture_settings(w, settings);
    check_ok(rcv_learner_new(w->context, made, data, &l));
    rcv_settings_free(made);
    return l;
}

/* Saves the learner and loads it again. */
static rcv_learner *reload(const train_fixture *w, rcv_learner *l) {
    rcv_learner *loaded = NULL;
    check_ok(rcv_learner_save(l, path_in("model")));
    check_ok(rcv_learner_load(w->context, path_in("model"), NULL, rcv_learner_dtype(l), &loaded));
    rcv_learner_free(l);
    unlink(path_in("model"));
    return loaded;
}

/* Data of a table with steps of two features, by a model that was saved and loaded. */
static void test_columns(void **unused) {
    (void)unused;
    train_fixture w;
    rcv_data *train = NULL, *data = NULL;
    rcv_evaluation first = RCV_INIT(rcv_evaluation), again = RCV_INIT(rcv_evaluation);
    float x[8];
    int64_t lengths[2];
    train_fixture_open(&w);
    write_file("text-train.csv", "id,p,q,label\n1,1,,a\n1,2,20,a\n2,3,30,b\n2,4,40,b\n3,5,50,a\n");
    const rcv_data_options options =
        RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .missing = RCV_MISSING_MEAN, .sequence = "id");
    check_ok(rcv_data_open(w.context, path_in("text-train.csv"), &options, &train));
    rcv_learner *l = learner_of(&w, "kind=classes cell=gru normalise=true missing=mean dtype=float64", train);
    check_ok(rcv_learner_evaluate(l, train, NULL, &first));
    l = reload(&w, l);
    assert_string_equal(rcv_learner_feature_names(l), "p,q");
    assert_string_equal(rcv_learner_target_names(l), "label");
    /* The same rows with other columns around them, in another order. */
    write_file("text-other.csv", "q,label,more,p,id\n,a,x,1,1\n20,a,x,2,1\n30,b,x,3,2\n40,b,x,4,2\n50,a,x,5,3\n");
    check_ok(rcv_learner_open_data(l, path_in("text-other.csv"), NULL, &data));
    check_ok(rcv_learner_evaluate(l, data, NULL, &again));
    assert_true(again.loss == first.loss && again.counted == 3 && again.accuracy == first.accuracy);
    rcv_data_free(data);
    /* Without targets: for predictions. */
    write_file("text-none.csv", "id,q,p\n1,7,6\n1,8,\n");
    check_ok(
        rcv_learner_open_data(l, path_in("text-none.csv"), &RCV_INIT(rcv_data_options, .unlabelled = true), &data));
    check_ok(rcv_data_read(data, 0, 1, lengths, x, NULL, 8));
    assert_true(lengths[0] == 2 && x[0] == 6 && x[1] == 7 && isnan(x[2]) && x[3] == 8);
    rcv_data_free(data);
    check_fails(rcv_learner_open_data(l, path_in("text-none.csv"), NULL, &data), RCV_FORMAT, "label");
    assert_null(data);
    write_file("text-few.csv", "id,p,label\n1,1,a\n");
    check_fails(rcv_learner_open_data(l, path_in("text-few.csv"), NULL, &data), RCV_FORMAT, "'q'");
    write_file("text-new.csv", "id,p,q,label\n1,1,2,zebra\n");
    check_fails(rcv_learner_open_data(l, path_in("text-new.csv"), NULL, &data), RCV_FORMAT, "zebra");
    rcv_learner_free(l);
    rcv_data_free(train);
    train_fixture_close(&w);
}

/* A text is read by the model's vocabulary; there are no names. */
static void test_texts(void **unused) {
    (void)unused;
    train_fixture w;
    rcv_data *data = NULL;
    train_fixture_open(&w);
    const rcv_data *text = train_fixture_data(&w, "train", RCV_DATA_LINES, train_fixture_verse, NULL);
    rcv_learner *l = reload(&w, learner_of(&w, "kind=lines", text));
    assert_string_equal(rcv_learner_feature_names(l), "");
    assert_string_equal(rcv_learner_target_names(l), "");
    write_file("text-more", "the cat saw a zebra\n");
    check_ok(rcv_learner_open_data(l, path_in("text-more"), NULL, &data));
    assert_true(rcv_data_outputs(data) == rcv_learner_outputs(l) && rcv_data_get_kind(data) == RCV_DATA_LINES);
    assert_int_equal(rcv_data_level(data), RCV_LEVEL_WORD);
    rcv_data_free(data);
    rcv_learner_free(l);
    train_fixture_close(&w);
}

/* ---- forecasts ---- */

enum { STEPS = 40, AHEAD = 3 };

static double level_at(int t) { return 50 + 10 * sin(0.7 * t) + t; }

static void write_series(const char *name) {
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "t,other,level\n");
    for (int t = 0; t < STEPS; t++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d,%d,%.6f\n", t, t % 4, level_at(t));
    assert_true(at < sizeof text);
    write_file(name, text);
}

static void check_forecast(const char *more) {
    char line[160];
    train_fixture w;
    rcv_data *data = NULL;
    rcv_evaluation r = RCV_INIT(rcv_evaluation);
    train_fixture_open(&w);
    write_series("text-series.csv");
    const rcv_data_options options = RCV_INIT(rcv_data_options, .kind = RCV_DATA_STEP_VALUES, .target = "level",
                                              .time = "t", .horizon = AHEAD, .piece = 16);
    check_ok(rcv_data_open(w.context, path_in("text-series.csv"), &options, &data));
    snprintf(line, sizeof line, "kind=step-values cell=gru dtype=float64 %s", more);
    rcv_learner *l = reload(&w, learner_of(&w, line, data));
    check_ok(rcv_learner_evaluate(l, data, NULL, &r));
    double absolute = 0, squares = 0;
    for (int t = 0; t + AHEAD < STEPS; t++) {
        const double error = level_at(t + AHEAD) - level_at(t);
        absolute += fabs(error) / (STEPS - AHEAD);
        squares += error * error / (STEPS - AHEAD);
    }
    assert_int_equal(r.counted, STEPS - AHEAD);
    assert_true(fabs(r.naive_mae - absolute) < 1e-4 && fabs(r.naive_rmse - sqrt(squares)) < 1e-4);
    assert_true(r.mae > 0 && r.rmse >= r.mae && isfinite(r.r2));
    rcv_learner_free(l);
    rcv_data_free(data);
    train_fixture_close(&w);
}

static void test_forecasts(void **unused) {
    (void)unused;
    check_forecast("");
    check_forecast("normalise=true");
}

/* ---- the first line of a run ---- */

static void read_start(void *user, const char *line) {
    json_t **data = user, *object = json_loads(line, 0, NULL);
    assert_non_null(object);
    if (!strcmp(json_string_value(json_object_get(object, "event")), "start"))
        *data = json_incref(json_object_get(object, "data"));
    json_decref(object);
}

static void test_start(void **unused) {
    (void)unused;
    train_fixture w;
    json_t *seen = NULL;
    train_fixture_open(&w);
    const rcv_data *data = train_fixture_data(&w, "data", RCV_DATA_CLASSES, train_fixture_examples, NULL);
    rcv_trainer *t = train_fixture_trainer(&w, "kind=classes steps=1", "", data, NULL);
    check_ok(rcv_trainer_run(t, &RCV_INIT(rcv_trainer_options, .log = read_start, .user = &seen)));
    assert_non_null(seen);
    assert_string_equal(json_string_value(json_object_get(seen, "kind")), "classes");
    assert_string_equal(json_string_value(json_object_get(seen, "description")), rcv_data_description(data));
    static const struct {
        const char *name;
        int64_t number;
    } numbers[] = {{"sequences", 6}, {"steps", 15}, {"features", 2}, {"outputs", 3}, {"classes", 3}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(json_integer_value(json_object_get(seen, numbers[i].name)), numbers[i].number);
    json_decref(seen);
    rcv_trainer_free(t);
    train_fixture_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns), cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_forecasts), cmocka_unit_test(test_start)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

/* Means and scales: what is measured, what missing features become, batches that are scaled. */
#include "test.h"

#include "data/batches/batcher.h"
#include "scratch.h"

#include <math.h>
#include <unistd.h>

typedef struct {
    test_allocator counting;
    rcv_context *context;
    rcv_data *data;
} fixture;

static void open_fixture(fixture *f, const char *text, rcv_data_kind kind, rcv_missing missing) {
    f->context = test_context(&f->counting);
    FILE *file = fopen(path_in("data"), "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    check_ok(rcv_data_open(f->context, path_in("data"), &RCV_INIT(rcv_data_options, .kind = kind, .missing = missing),
                           &f->data));
}

static void close_fixture(fixture *f) {
    rcv_data_free(f->data);
    unlink(path_in("data"));
    unlink(path_in("data.recurve-tokens"));
    test_context_end(&f->counting, f->context);
}

static void check_near(const float *got, const double *expected, int count) {
    for (int i = 0; i < count; i++)
        if (!(fabs((double)got[i] - expected[i]) <= 1e-6 * fmax(1, fabs(expected[i]))))
            fail_msg("number %d is %.9g, not %.9g", i, (double)got[i], expected[i]);
}

/* ---- measuring ---- */

/* Feature 0 is 1, 2, 3, 6; feature 1 has one number beside what is missing; feature 2 is constant, feature 3 far from 0. */
static const char mixed[] =
    "{\"x\": [[1, null, 0.1, 16777216], [2, 5, 0.1, 16777218]], \"y\": [[1, 10], null]}\n"
    "{\"x\": [[3, null, 0.1, 16777220], [6, null, 0.1, 16777222]], \"y\": [[3, 10], [5, 10]]}\n";

static void test_measured(void **unused) {
    (void)unused;
    fixture f;
    rcvi_scaling s;
    open_fixture(&f, mixed, RCV_DATA_STEP_VALUES, RCV_MISSING_MEAN);
    check_ok(rcvi_scaling_measure(f.data, true, RCV_MISSING_MEAN, &s));
    assert_true(s.features == 4 && s.outputs == 2 && s.normalises && s.missing == RCV_MISSING_MEAN);
    check_near(s.mean, (double[]){3, 5, 0.1, 16777219}, 4);
    check_near(s.scale, (double[]){1 / sqrt(3.5), 1, 1, 1 / sqrt(5)}, 4);
    check_near(s.target_mean, (double[]){3, 10}, 2);
    check_near(s.target_scale, (double[]){1 / sqrt(8 / 3.), 1}, 2);
    rcvi_scaling_free(&s);
    /* Without normalising there are means alone. */
    check_ok(rcvi_scaling_measure(f.data, false, RCV_MISSING_PREVIOUS, &s));
    check_near(s.mean, (double[]){3, 5, 0.1, 16777219}, 4);
    check_near(s.scale, (double[]){1, 1, 1, 1}, 4);
    check_near(s.target_mean, (double[]){0, 0}, 2);
    check_near(s.target_scale, (double[]){1, 1}, 2);
    rcvi_scaling_free(&s);
    close_fixture(&f);
}

/* A value a sequence; as many steps as several blocks have, with a mean that is large where the deviation is small. */
static void test_long(void **unused) {
    (void)unused;
    enum { STEPS = 2500, ROOM = 40 * STEPS };
    char *text = malloc(ROOM);
    size_t at = 0;
    double mean = 0, squares = 0;
    assert_non_null(text);
    at += (size_t)snprintf(text + at, ROOM - at, "{\"x\": [");
    for (int t = 0; t < STEPS; t++) {
        const double x = 1000 + (t * 7 % 16) / 16.;
        at += (size_t)snprintf(text + at, ROOM - at, "%s%.6f", t ? ", " : "", x);
        mean += x / STEPS;
    }
    snprintf(text + at, ROOM - at, "], \"y\": 2}\n{\"x\": [1000], \"y\": 6}\n");
    mean = (mean * STEPS + 1000) / (STEPS + 1);
    for (int t = 0; t <= STEPS; t++) {
        const double difference = (t < STEPS ? 1000 + (t * 7 % 16) / 16. : 1000) - mean;
        squares += difference * difference;
    }
    fixture f;
    rcvi_scaling s, copy;
    open_fixture(&f, text, RCV_DATA_VALUES, RCV_MISSING_ERROR);
    check_ok(rcvi_scaling_measure(f.data, true, RCV_MISSING_ERROR, &s));
    check_near(s.mean, &mean, 1);
    check_near(s.scale, (double[]){1 / sqrt(squares / (STEPS + 1))}, 1);
    check_near(s.target_mean, (double[]){4}, 1);
    check_near(s.target_scale, (double[]){0.5}, 1);
    check_ok(rcvi_scaling_copy(&s, &copy));
    assert_true(copy.mean[0] == s.mean[0] && copy.scale[0] == s.scale[0] && copy.target_scale[0] == 0.5f);
    assert_true(copy.features == 1 && copy.outputs == 1 && copy.normalises && copy.missing == RCV_MISSING_ERROR);
    rcvi_scaling_free(&copy);
    rcvi_scaling_free(&s);
    close_fixture(&f);
    free(text);
}

/* ---- applying ---- */

static void check_filled(rcv_missing missing, const double *expected) {
    fixture f;
    rcvi_scaling s;
    float x[] = {NAN, 4, NAN, 8, NAN}, again[5], raw;
    f.context = test_context(&f.counting);
    check_ok(rcvi_scaling_new(f.context, 1, 0, &s));
    s.missing = missing;
    s.normalises = true;
    s.mean[0] = 2;
    s.scale[0] = 0.5f;
    memcpy(again, x, sizeof x);
    rcvi_scaling_apply(&s, x, 5, NULL);
    check_near(x, expected, 5);
    rcvi_scaling_restore_features(&s, &x[1], &raw);
    assert_true(raw == 4);
    /* The same in two calls, the second of which knows what was before. */
    float before = NAN;
    rcvi_scaling_apply(&s, again, 2, &before);
    rcvi_scaling_apply(&s, again + 2, 3, &before);
    assert_memory_equal(again, x, sizeof x);
    rcvi_scaling_free(&s);
    test_context_end(&f.counting, f.context);
}

static void test_filled(void **unused) {
    (void)unused;
    check_filled(RCV_MISSING_PREVIOUS, (double[]){0, 1, 1, 3, 3}); /* (2 4 4 8 8 - 2) / 2 */
    check_filled(RCV_MISSING_MEAN, (double[]){0, 1, 0, 3, 0});
    check_filled(RCV_MISSING_ZERO, (double[]){-1, 1, -1, 3, -1});
}

static void test_values(void **unused) {
    (void)unused;
    fixture f;
    rcvi_scaling s;
    float values[] = {1, 10, NAN, NAN, 3, -10}, nothing[] = {5, NAN};
    double wide[] = {0.5, 2};
    f.context = test_context(&f.counting);
    check_ok(rcvi_scaling_new(f.context, 0, 2, &s));
    s.normalises = true;
    s.target_mean[0] = 2;
    s.target_scale[0] = 0.5f;
    s.target_scale[1] = 0.1f;
    rcvi_scaling_apply_targets(&s, values, 3);
    assert_true(isnan(values[2]) && isnan(values[3]));
    check_near(values, (double[]){-0.5, 1}, 2);
    check_near(values + 4, (double[]){0.5, -1}, 2);
    rcvi_scaling_restore(&s, RCV_FLOAT32, values, 3);
    check_near(values, (double[]){1, 10}, 2);
    check_near(values + 4, (double[]){3, -10}, 2);
    rcvi_scaling_restore(&s, RCV_FLOAT64, wide, 1);
    assert_true(fabs(wide[0] - 3) < 1e-6 && fabs(wide[1] - 20) < 1e-5);
    /* Without a scaling nothing changes. */
    rcvi_scaling_apply(NULL, nothing, 2, NULL);
    rcvi_scaling_apply_targets(NULL, nothing, 2);
    rcvi_scaling_restore(NULL, RCV_FLOAT32, nothing, 2);
    assert_true(nothing[0] == 5 && isnan(nothing[1]) && rcvi_scaling_find_missing(NULL, nothing, 2) == 1);
    s.missing = RCV_MISSING_ZERO;
    assert_int_equal(rcvi_scaling_find_missing(&s, nothing, 2), -1);
    rcvi_scaling_free(&s);
    test_context_end(&f.counting, f.context);
}

/* ---- batches ---- */

static void test_batches(void **unused) {
    (void)unused;
    static const char text[] = "{\"x\": [1, null, 5], \"y\": [2, null, 6]}\n{\"x\": [3], \"y\": [4]}\n";
    fixture f;
    rcvi_scaling s, other;
    rcvi_batcher *batcher = NULL;
    rcvi_batch batch;
    open_fixture(&f, text, RCV_DATA_STEP_VALUES, RCV_MISSING_PREVIOUS);
    check_ok(rcvi_scaling_measure(f.data, true, RCV_MISSING_PREVIOUS, &s));
    const double inverse = 1 / sqrt(8 / 3.); /* of features 1, 3, 5 and of values 2, 4, 6 */
    rcvi_batcher_options options = {.how = RCVI_SEQUENCES, .batch = 2, .scaling = &s};
    check_ok(rcvi_batcher_new(f.data, &options, &batcher));
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_int_equal(batch.counted, 3);
    check_near(batch.x, (double[]){-2 * inverse, 0, -2 * inverse, 0, 2 * inverse, 0}, 6);
    check_near(batch.values, (double[]){-2 * inverse, 0}, 2);
    assert_true(isnan(batch.values[2]) && isnan(batch.values[3]) && isnan(batch.values[5]));
    check_near(batch.values + 4, (double[]){2 * inverse}, 1);
    rcvi_batcher_set_scaling(batcher, NULL);
    check_fails(rcvi_batcher_next(batcher, &batch), RCV_INVALID, "feature 0 at time step 1 of sequence 0 is missing");
    rcvi_batcher_free(batcher);
    check_ok(rcvi_scaling_new(f.context, 2, 1, &other));
    options.scaling = &other;
    check_fails(rcvi_batcher_new(f.data, &options, &batcher), RCV_INVALID, "cannot be scaled as 2 features");
    rcvi_scaling_free(&other);
    rcvi_scaling_free(&s);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured), cmocka_unit_test(test_long),    cmocka_unit_test(test_filled),
        cmocka_unit_test(test_values),   cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

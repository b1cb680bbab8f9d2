/* The estimate of the time that a run still takes: numbers in, numbers out, without a clock. */
#include "test.h"

#include "train/run/report/estimate.h"

#include <math.h>

static void check_left(rcvi_time_estimate estimate, double want) {
    const double left = rcvi_estimate_left(&estimate);
    if (!(fabs(left - want) < 1e-9)) fail_msg("%.12g seconds are left, not %.12g", left, want);
}

/* 2 seconds an update. */
static void test_first_call(void **unused) {
    (void)unused;
    check_left((rcvi_time_estimate){.updates_left = 100}, -1); /* nothing was measured */
    check_left((rcvi_time_estimate){.updates = 3, .seconds = 6, .updates_left = 10}, 20);
    check_left((rcvi_time_estimate){.updates = 3, .seconds = 6, .updates_left = -1}, -1);
    check_left((rcvi_time_estimate){.updates = 3, .seconds = 6, .updates_left = 0}, 0);
    /* A validation of 30 seconds does not make updates seem slower, and those that come are added. */
    check_left((rcvi_time_estimate){.updates = 10,
                                    .seconds = 50,
                                    .validating = 30,
                                    .updates_left = 10,
                                    .validations_left = 2,
                                    .validation = 30},
               20 + 60);
    check_left(
        (rcvi_time_estimate){.updates = 10, .seconds = 50, .validating = 30, .validations_left = 1, .validation = 30},
        30); /* the validation at the end */
}

static void test_time_limit(void **unused) {
    (void)unused;
    check_left((rcvi_time_estimate){.time_limit = 60, .seconds = 15, .updates_left = -1}, 45);
    check_left((rcvi_time_estimate){.time_limit = 60, .seconds = 70, .updates_left = -1}, 0);
    check_left((rcvi_time_estimate){.time_limit = 60, .seconds = 20, .updates = 10, .updates_left = 100}, 40);
    check_left((rcvi_time_estimate){.time_limit = 60, .seconds = 20, .updates = 10, .updates_left = 5}, 10);
    check_left((rcvi_time_estimate){.time_limit = 60, .seconds = 0, .updates_left = 5}, 60);
}

/* 50 updates of 2 seconds and 3 validations of 10 before; this call's updates take 4 seconds. */
static void test_resumed(void **unused) {
    (void)unused;
    rcvi_time_estimate e = {.updates_before = 50,
                            .validations_before = 3,
                            .seconds_before = 130,
                            .validation = 10,
                            .updates_left = 20,
                            .validations_left = 1};
    check_left(e, 20 * 2 + 10); /* at once */
    e.updates = RCVI_ENOUGH_UPDATES - 1;
    e.seconds = 4 * (double)e.updates;
    check_left(e, 20 * 2 + 10);
    e.updates = RCVI_ENOUGH_UPDATES;
    e.seconds = 4 * (double)e.updates + 10;
    e.validating = 10;
    check_left(e, 20 * 4 + 10);
    /* A file of an earlier version does not say how long a validation takes. */
    e = (rcvi_time_estimate){.updates_before = 50, .validations_before = 3, .seconds_before = 130, .updates_left = 20};
    check_left(e, 20 * 130 / 50.);
}

/* As if every update were made, and counted. */
static int64_t count_one_by_one(int64_t step, int64_t length, int64_t every, int64_t batches, int64_t epoch_batches,
                                int64_t accumulate) {
    int64_t count = 0;
    bool validated = false;
    for (; step < length; step++) {
        const int64_t before = batches / epoch_batches;
        batches += accumulate;
        validated = every ? (step + 1) % every == 0 : batches / epoch_batches > before;
        count += validated;
    }
    return count + !validated;
}

static void test_validations(void **unused) {
    (void)unused;
    assert_int_equal(rcvi_count_validations(0, 100, 30, 0, 7, 1), 4);   /* 30, 60, 90, 100 */
    assert_int_equal(rcvi_count_validations(30, 100, 30, 30, 7, 1), 3); /* 60, 90, 100 */
    assert_int_equal(rcvi_count_validations(0, 90, 30, 0, 7, 1), 3);
    assert_int_equal(rcvi_count_validations(90, 90, 30, 0, 7, 1), 0);
    assert_int_equal(rcvi_count_validations(5, 0, 30, 0, 7, 1), 0); /* the length is not known */
    assert_int_equal(rcvi_count_validations(0, 21, 0, 0, 7, 1), 3);
    assert_int_equal(rcvi_count_validations(0, 22, 0, 0, 7, 1), 4);
    for (int64_t step = 0; step < 20; step++)
        for (int64_t every = 1; every < 9; every++)
            assert_int_equal(rcvi_count_validations(step, 20, every, step, 5, 1),
                             count_one_by_one(step, 20, every, step, 5, 1));
    for (int64_t step = 0; step < 20; step++)
        assert_int_equal(rcvi_count_validations(step, 20, 0, step, 6, 1), count_one_by_one(step, 20, 0, step, 6, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_call), cmocka_unit_test(test_time_limit),
                                       cmocka_unit_test(test_resumed), cmocka_unit_test(test_validations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

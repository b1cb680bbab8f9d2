/* The validation at the end of a run: it counts for the best model, and changes nothing that later updates depend on. */
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>

static const char usual[] = "batch=1 length=4 optimiser=sgd eval-batch=1 dtype=float64 validate-every=3 ";

/* Training on much a; validation on the same text, whose loss falls, or on all b, whose loss rises. */
static rcv_trainer *make(train_fixture *w, const char *more, bool rises) {
    static const char much_a[] = "a a a a a a a a a a a a a a a a a a a a a b\n", all_b[] = "b b b b b b b b\n";
    const rcv_data *train = w->count ? w->data[0] : train_fixture_data(w, "train", RCV_DATA_STREAM, much_a, NULL);
    if (w->count == 1) train_fixture_data(w, "valid", RCV_DATA_STREAM, all_b, train);
    return train_fixture_trainer(w, usual, more, train, rises ? w->data[1] : train);
}

static const char *model(void) {
    static char path[512];
    snprintf(path, sizeof path, "%s", path_in("model"));
    return path;
}

static void test_at_the_end(void **unused) {
    (void)unused;
    train_fixture w;
    recorder seen = {0};
    char *best = NULL;
    train_fixture_open(&w);
    rcv_trainer *t = make(&w, "learning-rate=0.1 steps=5", false);
    check_ok(train_fixture_run(t, model(), &seen));
    assert_int_equal(seen.validations, 2); /* after updates 3 and 5 */
    assert_true(seen.best[0] && seen.best[1] && seen.validation[1] < seen.validation[0]);
    assert_true(t->state.best_step == 5 && t->state.validated_step == 5 && t->progress.report.written == 5);
    check_ok(rcv_trainer_best_model(t, model(), &best));
    assert_non_null(best);
    rcv_text_free(w.context, best);
    rcv_trainer_free(t);
    /* The run has ended: resumed, it is not validated again; and its best model is known. */
    recorder again = {0};
    t = make(&w, "learning-rate=0.1 steps=5", false);
    check_ok(rcv_trainer_resume(t, model()));
    assert_true(t->state.validated_step == 5 && t->state.best_step == 5 && t->state.validation_seconds > 0);
    check_ok(train_fixture_run(t, model(), &again));
    assert_int_equal(again.validations, 0);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&w);
}

/* Where one was due, a run that was stopped, one of no updates and one without validation have none of their own. */
static void test_not_twice(void **unused) {
    (void)unused;
    train_fixture w;
    train_fixture_open(&w);
    recorder due = {0}, stopped = {.stop_at = 4}, none = {0};
    rcv_trainer *t = make(&w, "learning-rate=0.1 steps=6", false);
    check_ok(train_fixture_run(t, NULL, &due));
    assert_int_equal(due.validations, 2);
    rcv_trainer_free(t);
    t = make(&w, "learning-rate=0.1 steps=6", false);
    check_fails(train_fixture_run(t, NULL, &stopped), RCV_STOPPED, "4 updates");
    assert_int_equal(stopped.validations, 1);
    rcv_trainer_free(t);
    t = make(&w, "steps=0", false);
    check_ok(train_fixture_run(t, NULL, &none));
    assert_int_equal(none.validations, 0);
    rcv_trainer_free(t);
    train_fixture_close(&w);
}

/* A run of 5 updates that goes on to 11 makes the updates of one of 11: neither the plateau nor the trigger of averages counts its last validation. */
static void check_longer(const char *settings) {
    train_fixture w;
    char part[160], whole[160];
    recorder seen = {0};
    train_fixture_open(&w);
    snprintf(part, sizeof part, "%s steps=5", settings);
    snprintf(whole, sizeof whole, "%s steps=11", settings);
    rcv_trainer *t = make(&w, part, true), *longer = make(&w, whole, true), *all = make(&w, whole, true);
    check_ok(train_fixture_run(t, model(), &seen));
    assert_true(seen.validations == 2 && !seen.best[1] && t->state.bad_validations == 0 && t->state.best_step == 3);
    check_ok(rcv_trainer_resume(longer, model()));
    check_ok(train_fixture_run(longer, NULL, &seen));
    check_ok(train_fixture_run(all, NULL, &seen));
    assert_true(train_fixture_same(longer, all));
    assert_true(longer->state.bad_validations == all->state.bad_validations && all->state.bad_validations == 2);
    assert_true(longer->state.averaged_updates == all->state.averaged_updates);
    assert_true(longer->state.plateau_factor == all->state.plateau_factor);
    rcv_trainer_free(t);
    rcv_trainer_free(longer);
    rcv_trainer_free(all);
    train_fixture_remove("model");
    train_fixture_close(&w);
}

static void test_longer(void **unused) {
    (void)unused;
    check_longer("learning-rate=0.2 decay=plateau decay-patience=1 decay-factor=0.5");
    check_longer("learning-rate=0.2 optimiser=asgd nonmono=1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_the_end), cmocka_unit_test(test_not_twice),
                                       cmocka_unit_test(test_longer)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}

#include "training/test_result.h"

#include "tool.h"
#include "training/class_table.h"

#include <stdlib.h>

enum { MOST_COUNTED = 2048, MOST_LISTED = 40, MOST_IN_MATRIX = 10 }; /* classes */

static bool goes_on(void *user) {
    progress_phase(user, "testing", NAN);
    return stop_signal() == 0;
}

void test_result_free(test_result *result) {
    free(result->confusion);
    *result = (test_result){.confusion = NULL};
}

/* ---- what is printed ---- */

static void print_classes(const test_result *result, const char *const *names) {
    if (result->classes <= MOST_LISTED) {
        print_class_table(stderr, names, result->classes, result->confusion);
    }
    if (result->classes <= MOST_IN_MATRIX) {
        print_confusion(stderr, names, result->classes, result->confusion);
    }
}

static void print_metric(const char *name, double value, const char *end) {
    fprintf(stderr, "%s %s%s", name, decimals_text(value).text, end);
}

static void print_values(const rcv_evaluation *e) {
    print_metric("MAE", e->mae, ", ");
    print_metric("RMSE", e->rmse, ", ");
    print_metric("R2", e->r2, "\n");
    if (isfinite(e->naive_mae)) {
        fprintf(stderr, "the last known value as the forecast: ");
        print_metric("MAE", e->naive_mae, ", ");
        print_metric("RMSE", e->naive_rmse, "\n");
    }
}

static void print_result(const test_result *result, const rcv_learner *learner, const char *path, metric_kind metric) {
    const rcv_evaluation *e = &result->evaluation;
    size_t count;
    const char *const *names = rcv_learner_classes(learner, &count);
    char loss[96];
    describe_loss(metric, e->loss, metric == METRIC_ACCURACY ? e->accuracy : e->rmse, loss, sizeof loss);
    say_result("test of %s: %s", path, loss);
    if (is_quiet() || !isfinite(e->loss) || e->counted == 0) {
        return;
    }
    if (result->confusion != NULL && names != NULL) {
        print_classes(result, names);
    } else if (metric == METRIC_RMSE) {
        print_values(e);
    }
}

/* ---- the test ---- */

rcv_status test_model(rcv_learner *learner, const rcv_data *data, const char *path, progress *progress,
                      test_result *result) {
    *result = (test_result){.evaluation = RCV_INIT(rcv_evaluation)};
    rcv_learner_classes(learner, &result->classes);
    if (result->classes > 0 && result->classes <= MOST_COUNTED) {
        result->confusion = need(result->classes * result->classes, sizeof *result->confusion);
    }
    const rcv_evaluation_options options =
        RCV_INIT(rcv_evaluation_options, .go_on = goes_on, .user = progress, .confusion = result->confusion);
    const rcv_status status = rcv_learner_evaluate(learner, data, &options, &result->evaluation);
    progress_clear(progress);
    if (status == RCV_OK) {
        print_result(result, learner, path, progress->metric);
    }
    return status;
}

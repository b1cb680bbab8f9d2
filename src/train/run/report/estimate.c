/* The time that a run still takes: see estimate.h. */
#include "train/run/report/estimate.h"

#include <math.h>

/* Seconds of an update without validations; -1: not known. Updates of this call, once there are enough of them; before that those of all calls. */
static double seconds_of_update(const rcvi_time_estimate *e) {
    const double own = e->seconds - e->validating;
    const double before = e->seconds_before - (double)e->validations_before * e->validation;
    if (e->updates >= RCVI_ENOUGH_UPDATES || (e->updates > 0 && e->updates_before == 0))
        return fmax(own, 0) / (double)e->updates;
    return e->updates_before > 0 ? fmax(before, 0) / (double)e->updates_before : -1;
}

double rcvi_estimate_left(const rcvi_time_estimate *e) {
    const double update = seconds_of_update(e);
    double left = INFINITY;
    if (e->time_limit > 0) left = fmax(e->time_limit - e->seconds, 0);
    if (e->updates_left == 0 && e->validations_left == 0) return 0;
    if (e->updates_left >= 0 && update >= 0)
        left = fmin(left, (double)e->updates_left * update + (double)e->validations_left * e->validation);
    return isfinite(left) ? left : -1;
}

int64_t rcvi_count_validations(int64_t step, int64_t length, int64_t every, int64_t batches, int64_t epoch_batches,
                               int64_t accumulate) {
    if (length <= step) return 0;
    if (every > 0) return length / every - step / every + (length % every != 0);
    const int64_t end = batches + (length - step) * accumulate;
    return end / epoch_batches - batches / epoch_batches + (end % epoch_batches != 0);
}

/* Clocks, counts and recent losses of a call: see progress.h. */
#include "train/run/report/progress.h"

#include <math.h>

void rcvi_progress_begin(rcvi_progress *p, const rcvi_run_state *s) {
    p->started = p->last_fetch = p->last_checkpoint = rcvi_now();
    p->seconds_before = s->seconds;
    p->tokens_before = s->tokens;
    p->step_before = s->step;
    p->validations_before = s->validations;
    p->untrained = p->validating = 0;
    p->last_log = 0;
    p->updates = 0;
    p->sent_sum = 0;
}

double rcvi_progress_seconds(const rcvi_progress *p) { return p->seconds_before + rcvi_now() - p->started; }

void rcvi_progress_add_loss(rcvi_progress *p, double loss) {
    p->last_loss = loss;
    p->recent[p->recent_count++ % RCVI_RECENT_LOSSES] = loss;
}

static double recent_mean(const rcvi_progress *p) {
    int64_t count = p->recent_count < RCVI_RECENT_LOSSES ? p->recent_count : RCVI_RECENT_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += p->recent[i];
    return count ? sum / (double)count : 0;
}

/* -1: not known. */
static double seconds_left(const rcvi_progress *p, const rcvi_run_state *s, int64_t length, double limit, double passed,
                           int64_t validations) {
    const rcvi_time_estimate estimate = {.updates = s->step - p->step_before,
                                         .seconds = passed,
                                         .validating = p->validating,
                                         .time_limit = limit,
                                         .updates_before = p->step_before,
                                         .validations_before = p->validations_before,
                                         .seconds_before = p->seconds_before,
                                         .updates_left = !length            ? -1
                                                         : length > s->step ? length - s->step
                                                                            : 0,
                                         .validations_left = validations,
                                         .validation = s->validation_seconds};
    return rcvi_estimate_left(&estimate);
}

void rcvi_progress_update(rcvi_progress *p, const rcvi_run_state *s, int64_t length, int64_t epoch_batches,
                          double seconds, int64_t validations) {
    double passed = rcvi_now() - p->started, training = passed - p->untrained;
    rcv_progress *r = &p->report;
    r->step = s->step;
    r->steps = length;
    r->epoch = s->position.epoch;
    r->epochs = (double)s->position.epoch + (double)s->position.batch / (double)epoch_batches;
    r->loss = recent_mean(p);
    r->norm = p->norm;
    r->seconds = p->seconds_before + passed;
    r->tokens_per_second = training > 0 ? (double)(s->tokens - p->tokens_before) / training : 0;
    r->left = seconds_left(p, s, length, seconds, passed, validations);
    r->best = isfinite(s->best_loss) ? s->best_loss : 0;
}

/* ---- bytes ---- */

void rcvi_progress_begin_update(rcvi_progress *p, const rcvi_topology *topology) {
    if (topology) p->sent_before = rcvi_comm_get_statistics(topology->world).bytes;
}

void rcvi_progress_end_update(rcvi_progress *p, const rcvi_topology *topology) {
    if (topology) p->sent_sum += (double)(rcvi_comm_get_statistics(topology->world).bytes - p->sent_before);
}

rcv_status rcvi_progress_count_bytes(rcvi_progress *p, const rcvi_topology *topology) {
    if (!topology || !p->updates) return RCV_OK;
    p->sent_most = p->sent_all = p->sent_sum / (double)p->updates;
    RCVI_TRY(rcvi_comm_all_reduce(topology->world, RCVI_ALL_REDUCE_MAX, &p->sent_most, 1));
    return rcvi_comm_all_reduce(topology->world, RCVI_ALL_REDUCE_SUM, &p->sent_all, 1);
}

/* Outcomes of updates as progress: see report.h. */
#include "train/run/report/report.h"

#include "train/run/trainer.h"

#include <math.h>

/* Batches of one update may reach over the end of an epoch. */
int64_t rcvi_trainer_length(const rcv_trainer *t) {
    int64_t steps = t->options.steps, each = t->options.accumulate, batches;
    if (!rcvi_multiply(t->options.epochs, rcvi_batcher_count(t->batcher), &batches)) batches = 0;
    int64_t by_epochs = batches / each + (batches % each != 0);
    return steps && (!by_epochs || steps < by_epochs) ? steps : by_epochs;
}

static rcv_status not_finite(const rcvi_outputs *outputs, const rcvi_outcome *outcome, int64_t step) {
    const char *what = isfinite(outcome->loss) ? "gradient" : "loss";
    if (outputs->last_good)
        return rcvi_fail(RCV_INVALID,
                         "the %s of update %lld is not a number; the last good checkpoint is %s, of update %lld: go on "
                         "from it with a smaller learning rate or a smaller clip",
                         what, (long long)step, outputs->last_good, (long long)outputs->last_good_step);
    return rcvi_fail(RCV_INVALID,
                     "the %s of update %lld is not a number, and no checkpoint was written before: use a smaller "
                     "learning rate or a smaller clip",
                     what, (long long)step);
}

rcv_status rcvi_trainer_fetch_outcomes(rcv_trainer *t) {
    rcvi_outcome outcomes[RCVI_PENDING_OUTCOMES];
    rcvi_progress *p = &t->progress;
    int count;
    RCVI_TRY(rcvi_outcomes_fetch(&t->outcomes, t->work, outcomes, &count));
    if (count) p->last_fetch = rcvi_now();
    for (int i = 0; i < count; i++) {
        const rcvi_pending_update *update = &t->outcomes.updates[i];
        const rcvi_outcome *outcome = &outcomes[i];
        bool may_overflow = t->learner->dtype == RCV_FLOAT16; /* such an update was skipped */
        if (!isfinite(outcome->loss) || (!isfinite(outcome->norm) && !may_overflow))
            return not_finite(&t->outputs, outcome, update->step);
        if (isfinite(outcome->norm)) p->norm = outcome->norm;
        rcvi_progress_add_loss(p, update->weight > 0 ? outcome->loss / update->weight : 0);
        p->report.rate = update->rate;
    }
    return RCV_OK;
}

static int64_t validations_left(const rcv_trainer *t) {
    const rcvi_run_state *s = &t->state;
    const int64_t batches = rcvi_batcher_count(t->batcher);
    if (!t->valid) return 0;
    return rcvi_count_validations(s->step, rcvi_trainer_length(t), t->options.validate_every,
                                  s->position.epoch * batches + s->position.batch, batches, t->options.accumulate);
}

void rcvi_trainer_update_progress(rcv_trainer *t) {
    rcvi_progress_update(&t->progress, &t->state, rcvi_trainer_length(t), rcvi_batcher_count(t->batcher),
                         t->options.seconds, validations_left(t));
}

static bool call_progress(rcv_trainer *t) {
    return !t->call->progress || t->call->progress(t->call->user, &t->progress.report);
}

bool rcvi_trainer_report(rcv_trainer *t) {
    rcvi_progress *p = &t->progress;
    rcvi_trainer_update_progress(t);
    double now = rcvi_now();
    int64_t each = t->options.log_every, since = t->state.step - p->logged_step;
    if (t->log.write && (each ? since >= each : now - p->last_log >= 1)) {
        rcvi_log_progress(&t->log, p);
        p->last_log = now;
        p->logged_step = t->state.step;
    }
    return call_progress(t);
}

bool rcvi_trainer_may_go_on(void *user) {
    rcv_trainer *t = user;
    if (t->topology.world) rcvi_comm_report_progress(t->topology.world);
    return call_progress(t);
}

/* Validation of a run: see validation.h. */
#include "train/run/validation.h"

#include "train/inference/evaluate.h"
#include "train/run/files/checkpoint.h"
#include "train/run/report/report.h"
#include "train/run/trainer.h"
#include "train/step/collect.h"

#include <math.h>

/* A file of another run at the path is left as it is, with a warning. */
static rcv_status write_best(const rcv_trainer *t, const void *parameters) {
    char *path;
    rcv_status status = rcvi_outputs_best(&t->outputs, t->state.step, &path);
    if (status == RCV_IO) {
        rcvi_log_warning(&t->log, t->state.step, rcv_message());
        return RCV_OK;
    }
    if (!status) status = rcvi_checkpoint_save_model(t, parameters, path);
    rcvi_free(t->context, path);
    return status;
}

static rcv_status save_best(const rcv_trainer *t) {
    void *host = NULL;
    if (!t->outputs.path) return RCV_OK;
    RCVI_TRY(rcvi_collect_array(t->learner, rcvi_trainer_topology(t), t->work->parameters, RCVI_OF_PARAMETERS, &host));
    rcv_status status = host ? write_best(t, host) : RCV_OK;
    rcvi_free(t->context, host);
    return status;
}

static rcv_status evaluate(rcv_trainer *t, rcv_evaluation *result) {
    const size_t *windows = t->windows.numbers + t->windows.train_count;
    t->work->evaluating = t->call->validating;
    t->work->evaluating_user = t->call->user;
    RCVI_TRY(rcvi_evaluate(t->work, t->validator, windows, t->windows.valid_count, result));
    if (!isfinite(result->loss))
        result->loss = INFINITY; /* worse than any; training goes on while its own losses are finite */
    return RCV_OK;
}

/* Accuracy of classes, RMSE of values. */
static double metric_of(const rcv_learner *l, const rcv_evaluation *result) {
    return rcvi_kind_has_classes(l->shape.kind)  ? result->accuracy
           : rcvi_kind_has_values(l->shape.kind) ? result->rmse
                                                 : NAN;
}

rcv_status rcvi_validate(rcv_trainer *t, bool scheduled) {
    rcvi_run_state *s = &t->state;
    rcv_evaluation result = RCV_INIT(rcv_evaluation, .loss = INFINITY);
    double began = rcvi_now();
    RCVI_TRY(rcvi_trainer_fetch_outcomes(t));
    t->work->parameters = s->averaged_updates > 1 ? t->optimiser.average : t->learner->parameters;
    rcv_status status = evaluate(t, &result);
    const double loss = result.loss;
    bool is_best = !status && loss < s->best_loss;
    if (is_best) status = save_best(t);
    t->work->parameters = t->learner->parameters;
    RCVI_TRY(status);
    rcvi_run_state_count_validation(s, &t->options, loss, is_best, scheduled);
    t->progress.report.validation = loss;
    t->progress.report.metric = metric_of(t->learner, &result);
    s->validation_seconds = rcvi_now() - began;
    t->progress.validating += s->validation_seconds;
    t->progress.untrained += s->validation_seconds;
    rcvi_trainer_update_progress(t);
    rcvi_log_validation(&t->log, &t->progress, t->learner, &result, is_best);
    if (!scheduled) return RCV_OK;
    return rcvi_run_state_add_loss(s, t->context, t->optimiser.averages, t->options.nonmono, loss);
}

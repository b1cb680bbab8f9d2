/* The training loop.
 *
 *   until a limit is reached or the caller asks to stop:
 *       an update: for each of its batches forward, backward; then all-reduce of gradients, clip, update
 *       validation, where it is due, and after the last update
 *       checkpoint, where it is due
 *
 * What is enqueued for a batch is in step/work.c. Losses stay in the device's memory until they are fetched (outcomes.h), so that the
 * host does not wait for the device after every update. */
#include "train/learner/class_weights.h"
#include "train/run/files/checkpoint.h"
#include "train/run/rate.h"
#include "train/run/report/report.h"
#include "train/run/report/timeline.h"
#include "train/run/trainer.h"
#include "train/run/validation.h"

#include <math.h>

/* Outcomes stay in the device's memory at most so long, where fetching them means waiting for the device. */
static const double fetch_seconds = 0.05;

/* ---- an update ---- */

/* A different seed for every batch of a run. */
static uint64_t seed_of(const rcv_trainer *t, rcvi_position at) {
    uint64_t number = (uint64_t)(at.epoch * rcvi_batcher_count(t->batcher) + at.batch + 1);
    return t->options.seed + UINT64_C(0xD1B54A32D192ED03) * number;
}

/* Whether any step of a row counts, where each step has a target. */
static bool row_counts(const rcvi_batch *batch, int64_t outputs, int64_t row) {
    for (int64_t at = row; at < batch->steps * batch->batch; at += batch->batch)
        if (batch->targets ? batch->targets[at] >= 0 : !isnan(batch->values[at * outputs])) return true;
    return false;
}

/* Sequences of a batch without its empty rows. */
static int64_t count_sequences(const rcvi_batch *batch, int64_t outputs) {
    int64_t count = 0;
    for (int64_t b = 0; b < batch->batch; b++) count += row_counts(batch, outputs, b);
    return count;
}

/* The numbers that the device reads for a batch. */
static rcvi_control control_of(const rcv_trainer *t, const rcvi_batch *batch, double rate) {
    const rcvi_train_options *o = &t->options;
    const rcvi_run_state *s = &t->state;
    const rcv_learner *l = t->learner;
    bool by_sequence = o->by_sequence && rcvi_predicts_steps(l);
    double rows = by_sequence ? (double)count_sequences(batch, l->shape.outputs) : rcvi_batch_weight(l, batch),
           updates = (double)s->step + 1;
    return (rcvi_control){.seed = seed_of(t, s->position),
                          .scale = s->loss_scale,
                          .weight = rows > 0 ? s->loss_scale / rows / (double)o->accumulate : 0,
                          .clip = o->clip,
                          .clip_value = o->clip_value,
                          .rate = rate,
                          .decay = o->weight_decay,
                          .momentum = o->momentum,
                          .beta1 = o->beta1,
                          .beta2 = o->beta2,
                          .epsilon = o->epsilon,
                          .correction1 = 1 - pow(o->beta1, updates),
                          .correction2 = 1 - pow(o->beta2, updates),
                          .average = s->averaged_updates ? 1 / (double)s->averaged_updates : 0};
}

/* What rank 0 knows by its clock; all ranks act on it after the update. */
static void request_by_clock(rcv_trainer *t) {
    const rcvi_train_options *o = &t->options;
    const rcvi_progress *p = &t->progress;
    double *requests = t->flags.requests, now = rcvi_now();
    bool leads = rcvi_topology_is_leader(&t->topology);
    requests[RCVI_FLAG_END] = leads && o->seconds > 0 && now - p->started >= o->seconds;
    requests[RCVI_FLAG_SAVE] = leads && o->checkpoint_seconds > 0 && now - p->last_checkpoint >= o->checkpoint_seconds;
    requests[RCVI_FLAG_FETCH] = leads && now - p->last_fetch >= fetch_seconds;
}

/* Fetching is put off where it means waiting for the device, until it is due by time or there is no more room. */
static bool outcomes_are_due(const rcv_trainer *t) {
    bool alone = !t->topology.world;
    if (t->options.log_every == 1 || rcvi_outcomes_are_full(&t->outcomes)) return true;
    if (alone && !t->work->ops->stream(t->work->learn)) return true;
    return alone ? rcvi_now() - t->progress.last_fetch >= fetch_seconds
                 : rcvi_control_flag_is_set(&t->flags, RCVI_FLAG_FETCH);
}

static rcv_status count_update(rcv_trainer *t, int64_t tokens, double weight, double rate) {
    const rcvi_work *w = t->work;
    const rcvi_pending_update update = {.step = t->state.step + 1, .weight = weight, .rate = rate};
    RCVI_TRY(rcvi_outcomes_push(&t->outcomes, w, &update));
    t->progress.updates++;
    rcvi_run_state_count_update(&t->state, tokens);
    if (t->learner->dtype == RCV_FLOAT16) {
        rcvi_outcome outcome;
        RCVI_TRY(w->ops->fetch(w->learn, &outcome, w->outcome, sizeof outcome));
        rcvi_run_state_adapt_scale(&t->state, outcome.norm);
    }
    return outcomes_are_due(t) ? rcvi_trainer_fetch_outcomes(t) : RCV_OK;
}

/* Enqueues forward and backward of all batches of an update, with the last one the all-reduce of gradients and the update. */
static rcv_status enqueue_update(rcv_trainer *t, const rcvi_update *update, double rate, int64_t *tokens,
                                 double *weight, bool *epoch_ended) {
    int64_t batches = t->options.accumulate;
    uint64_t update_seed = seed_of(t, t->state.position);
    for (int64_t i = 0; i < batches; i++) {
        bool first = i == 0, last = i + 1 == batches;
        rcvi_batch batch;
        RCVI_TRY(rcvi_batcher_next(t->batcher, &batch));
        const rcvi_control control = control_of(t, &batch, rate);
        RCVI_TRY(rcvi_work_train(t->work, t->windows.numbers[batch.bucket], &batch, &control, update_seed, first,
                                 last ? update : NULL));
        *tokens += batch.counted;
        *weight += rcvi_batch_weight(t->learner, &batch);
        *epoch_ended |= batch.ends;
        t->state.position = rcvi_batcher_position(t->batcher);
    }
    return RCV_OK;
}

static rcv_status make_update(rcv_trainer *t, bool *epoch_ended) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    const rcvi_run_state *s = &t->state;
    double rate = rcvi_rate(&t->options, s->step, s->position.epoch, rcvi_trainer_length(t), s->plateau_factor);
    int64_t tokens = 0;
    double weight = 0;
    rcvi_update update;
    *epoch_ended = false;
    RCVI_TRY(rcvi_optimiser_update(&t->optimiser, t->work, &update));
    RCVI_TRY(rcvi_timeline_begin(t->work, t->progress.updates));
    rcvi_progress_begin_update(&t->progress, topology);
    if (topology) request_by_clock(t);
    RCVI_TRY(rcvi_control_flags_begin(&t->flags, topology));
    RCVI_TRY(enqueue_update(t, &update, rate, &tokens, &weight, epoch_ended));
    RCVI_TRY(rcvi_control_flags_end(&t->flags));
    rcvi_progress_end_update(&t->progress, topology);
    RCVI_TRY(rcvi_timeline_end(t->work, &t->log, s->step));
    return count_update(t, tokens, weight, rate);
}

/* ---- checkpoints ---- */

static rcv_status save_checkpoint(rcv_trainer *t) {
    const char *path = t->outputs.path;
    rcvi_run_state *s = &t->state;
    if (!path) return RCV_OK;
    RCVI_TRY(rcvi_trainer_fetch_outcomes(t)); /* fails where a loss is not a number: such a run is not stored */
    s->seconds = rcvi_progress_seconds(&t->progress);
    /* Where the file before cannot be kept, the new one is still written. */
    bool leads = rcvi_topology_is_leader(rcvi_trainer_topology(t));
    rcv_status kept = leads ? rcvi_outputs_rotate(&t->outputs, s->step) : RCV_OK;
    if (kept == RCV_NO_MEMORY) return kept;
    if (kept) rcvi_log_warning(&t->log, s->step, rcv_message());
    RCVI_TRY(rcvi_checkpoint_save(t, path));
    RCVI_TRY(rcvi_outputs_set_last_good(&t->outputs, path, s->step));
    t->progress.report.written = s->step;
    t->progress.last_checkpoint = rcvi_now();
    rcvi_log_checkpoint(&t->log, s->step, path);
    return RCV_OK;
}

/* ---- the loop ---- */

/* Time by this rank's clock, or, with several ranks, as all agreed with the last update. */
static bool time_is_over(const rcv_trainer *t, rcvi_control_flag flag, double since, double seconds) {
    if (!(seconds > 0)) return false;
    return t->topology.world ? rcvi_control_flag_is_set(&t->flags, flag) : rcvi_now() - since >= seconds;
}

typedef enum { GO_ON, END_EPOCHS, END_STEPS, END_SECONDS, END_PATIENCE } end_reason;
static const char *const end_reasons[] = {"", "epochs", "steps", "seconds", "patience"}; /* in the log */

static end_reason find_end(const rcv_trainer *t) {
    const rcvi_train_options *o = &t->options;
    const rcvi_run_state *s = &t->state;
    if (!o->epochs && !o->steps && !(o->seconds > 0)) return END_STEPS;
    if (o->epochs && s->position.epoch >= o->epochs) return END_EPOCHS;
    if (o->steps && s->step >= o->steps) return END_STEPS;
    if (time_is_over(t, RCVI_FLAG_END, t->progress.started, o->seconds)) return END_SECONDS;
    return o->patience && s->bad_validations >= o->patience ? END_PATIENCE : GO_ON;
}

static bool validation_is_due(const rcv_trainer *t, bool epoch_ended) {
    int64_t every = t->options.validate_every;
    return t->valid && (every ? t->state.step % every == 0 : epoch_ended);
}

static bool checkpoint_is_due(const rcv_trainer *t, bool epoch_ended, bool validated) {
    const rcvi_train_options *o = &t->options;
    int64_t every = o->checkpoint_every;
    return (every ? t->state.step % every == 0 : validated || (!t->valid && epoch_ended)) ||
           time_is_over(t, RCVI_FLAG_SAVE, t->progress.last_checkpoint, o->checkpoint_seconds);
}

/* With several ranks, one caller's request to stop ends all of them after the next update. */
static bool goes_on(rcv_trainer *t) {
    bool goes_on_here = t->outcomes.count || rcvi_trainer_report(t);
    t->flags.requests[RCVI_FLAG_STOP] = !goes_on_here;
    return t->topology.world ? !rcvi_control_flag_is_set(&t->flags, RCVI_FLAG_STOP) : goes_on_here;
}

static rcv_status train(rcv_trainer *t, end_reason *reason) {
    while (!(*reason = find_end(t))) {
        bool epoch_ended;
        RCVI_TRY(make_update(t, &epoch_ended)); /* forward, backward, all-reduce, update */
        bool is_due = validation_is_due(t, epoch_ended), validates = is_due || (t->valid && find_end(t));
        if (validates) RCVI_TRY(rcvi_validate(t, is_due));
        if (checkpoint_is_due(t, epoch_ended, validates)) {
            double began = rcvi_now();
            RCVI_TRY(save_checkpoint(t));
            t->progress.untrained += rcvi_now() - began;
        }
        if (!goes_on(t)) {
            RCVI_TRY(rcvi_trainer_fetch_outcomes(t));
            return rcvi_fail(RCV_STOPPED, "training was stopped after %lld updates", (long long)t->state.step);
        }
    }
    RCVI_TRY(rcvi_trainer_fetch_outcomes(t));
    if (!t->valid || t->state.validated_step == t->state.step) return RCV_OK;
    t->progress.report.written = -1; /* the checkpoint of this update does not know of the validation */
    return rcvi_validate(t, false);
}

/* The last report, checkpoint and line of the log; nothing after an error. */
static rcv_status conclude(rcv_trainer *t, rcv_status status, end_reason reason) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (status && status != RCV_STOPPED) return status;
    RCVI_TRY(rcvi_progress_count_bytes(&t->progress, topology));
    t->work->ops->wait(t->work->learn);
    rcvi_trainer_update_progress(t);
    bool is_written = !t->outputs.path || t->progress.report.written == t->state.step;
    rcv_status written = is_written ? RCV_OK : save_checkpoint(t);
    rcvi_log_end(&t->log, &t->progress, topology, status ? "stopped" : end_reasons[reason]);
    return written ? written : status;
}

static rcv_status run(rcv_trainer *t) {
    end_reason reason = GO_ON;
    RCVI_TRY(rcvi_trainer_prepare(t, rcvi_trainer_may_go_on, t));
    RCVI_TRY(rcvi_checkpoint_restore_position(t));
    rcvi_progress_begin(&t->progress, &t->state);
    rcvi_control_flags_clear(&t->flags);
    rcvi_log_start(t);
    rcv_status status = train(t, &reason);
    t->state.seconds = rcvi_progress_seconds(&t->progress);
    return conclude(t, status, reason);
}

rcv_status rcv_trainer_run(rcv_trainer *t, const rcv_trainer_options *options) {
    static const rcv_trainer_options none = {.size = sizeof(rcv_trainer_options)};
    RCVI_NEED(t, "trainer");
    RCVI_READ(rcv_trainer_options, options, "options");
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    t->call = options;
    t->progress.report.written = -1;
    t->log.write = t->call->log;
    t->log.user = t->call->user;
    t->outputs.path = t->call->output;
    t->outputs.overwrite = t->call->overwrite;
    t->outputs.keep = t->options.keep;
    rcv_status status = rcvi_topology_is_leader(topology) ? rcvi_outputs_claim(&t->outputs, t->state.step) : RCV_OK;
    status = rcvi_topology_agree(topology, status);
    if (!status) status = run(t);
    rcvi_outputs_release(&t->outputs);
    t->call = &none; /* the options were those of this call */
    return status;
}

rcv_status rcv_trainer_save(rcv_trainer *t, const char *path) {
    RCVI_NEED(t, "trainer");
    RCVI_NEED(path, "path");
    return rcvi_checkpoint_save(t, path);
}

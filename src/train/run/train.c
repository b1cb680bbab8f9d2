/* The run itself: updates, validations, checkpoints, until a limit or the caller ends it. */
#include "train/run/trainer.h"

#include "train/parallel/exchange.h"
#include "train/parallel/gradient_segments.h"

#include <math.h>
#include <string.h>

enum { GOOD_UPDATES = 2000 }; /* without overflow, before the loss is scaled up again */
static const double fetch_seconds =
    0.05; /* outcomes stay on the device at most so long, where fetching them means waiting */

/* ---- what an update is told ---- */

/* Updates that there will be; 0: not known. An update's batches may reach over the end of an epoch. */
static int64_t length_of_run(const rcv_trainer *t) {
    int64_t steps = t->options.steps, each = t->options.accumulate, batches;
    if (!rcvi_multiply(t->options.epochs, rcvi_batcher_count(t->batcher), &batches)) batches = 0;
    int64_t by_epochs = batches / each + (batches % each != 0);
    return steps && (!by_epochs || steps < by_epochs) ? steps : by_epochs;
}

/* Different for every batch of a run. */
static uint64_t seed_of(const rcv_trainer *t, rcvi_position at) {
    uint64_t number = (uint64_t)(at.epoch * rcvi_batcher_count(t->batcher) + at.batch + 1);
    return t->options.seed + UINT64_C(0xD1B54A32D192ED03) * number;
}

/* Sequences of a batch of tokens: rows beyond them count nowhere. */
static int64_t sequences_of(const rcvi_batch *batch) {
    int64_t count = 0;
    for (int64_t b = 0; b < batch->batch; b++) count += batch->targets[b] >= 0;
    return count;
}

static rcvi_control control_of(const rcv_trainer *t, const rcvi_batch *batch, rcvi_position at, double rate) {
    double updates = (double)t->state.step + 1;
    bool by_sequence = t->options.by_sequence && t->learner->shape.kind <= RCV_DATA_LINES;
    double rows = (double)(by_sequence ? sequences_of(batch) : batch->counted);
    rcvi_control c = {.seed = seed_of(t, at),
                      .scale = t->state.scale,
                      .weight = rows > 0 ? t->state.scale / rows / (double)t->options.accumulate : 0,
                      .clip = t->options.clip,
                      .clip_value = t->options.clip_value,
                      .rate = rate,
                      .decay = t->options.weight_decay,
                      .momentum = t->options.momentum,
                      .beta1 = t->options.beta1,
                      .beta2 = t->options.beta2,
                      .epsilon = t->options.epsilon,
                      .average = t->state.averaged ? 1 / (double)t->state.averaged : 0};
    c.correction1 = 1 - pow(c.beta1, updates);
    c.correction2 = 1 - pow(c.beta2, updates);
    return c;
}

/* Elements first .. first + count - 1 of the parameters; `at` is where their moments begin. */
static rcvi_update_part part_of(const rcv_trainer *t, int64_t first, int64_t count, int64_t at) {
    const rcv_learner *l = t->learner;
    return (rcvi_update_part){.count = count,
                              .parameters = rcvi_at(l, l->parameters, first),
                              .gradient = rcvi_gradient_at(t->work, first),
                              .first = t->first ? rcvi_element_at(l, t->first, at) : NULL,
                              .second = t->second ? rcvi_element_at(l, t->second, at) : NULL,
                              .average = t->average ? rcvi_element_at(l, t->average, at) : NULL};
}

/* This replica's shares. */
static rcv_status make_share_parts(rcv_trainer *t) {
    size_t count;
    int64_t at = 0;
    rcvi_gradient_segment *segments = rcvi_gradient_segments_new(t->learner, false, &count);
    t->parts = rcvi_new(t->context, count, sizeof *t->parts);
    for (size_t i = 0; segments && t->parts && i < count; i++) {
        int64_t start = rcvi_share_start(segments[i].count, t->topology.replica, t->topology.replica_count);
        int64_t end = rcvi_share_start(segments[i].count, t->topology.replica + 1, t->topology.replica_count);
        t->parts[t->part_count++] = part_of(t, segments[i].first + start, end - start, at);
        at += end - start;
    }
    rcv_status status = segments && t->parts ? RCV_OK : RCV_NO_MEMORY;
    rcvi_free(t->context, segments);
    return status;
}

/* One segment: all parameters that are here, but for an embedding whose gradient has rows only, or that is fixed, and for a lean output layer. */
static rcv_status make_parts(rcv_trainer *t) {
    if (t->parts) return RCV_OK;
    if (t->topology.shares_optimiser) return make_share_parts(t);
    int64_t start = rcvi_work_gradient_start(t->work);
    t->parts = rcvi_new(t->context, 1, sizeof *t->parts);
    if (!t->parts) return RCV_NO_MEMORY;
    t->parts[t->part_count++] = part_of(t, start, rcvi_work_gradient_count(t->work), start - t->learner->from);
    return RCV_OK;
}

static rcvi_update update_of(const rcv_trainer *t) {
    const rcv_learner *l = t->learner;
    const rcvi_work *w = t->work;
    rcvi_update update = {.kind = t->kind, .parts = t->parts, .part_count = t->part_count};
    bool merges = rcvi_work_merges(w);
    if (w->options.sparse && l->has_embedding)
        update.sparse = (rcvi_sparse_part){.groups = merges ? rcvi_feed_merged(w) : rcvi_feed_groups(w),
                                           .rows = w->options.rows * (merges ? t->topology.replica_count : 1),
                                           .columns = l->shape.embedding,
                                           .table = l->parameters,
                                           .gradient = merges ? rcvi_exchange_merged(w->exchange) : w->x};
    return update;
}

/* ---- what ranks tell each other ---- */

/* What this rank wants travels beside the update: all know of it when that is done. */
static rcv_status begin_flags(rcv_trainer *t) {
    memcpy(t->flags, t->requests, sizeof t->flags);
    if (!t->topology.world) return RCV_OK;
    bool leads = rcvi_topology_is_leader(&t->topology);
    double now = rcvi_now(), seconds = t->options.checkpoint_seconds;
    t->flags[RCVI_FLAG_END] = leads && t->options.seconds > 0 && now - t->started >= t->options.seconds;
    t->flags[RCVI_FLAG_SAVE] = leads && seconds > 0 && now - t->last_checkpoint >= seconds;
    t->flags[RCVI_FLAG_FETCH] = leads && now - t->fetched >= fetch_seconds;
    const rcvi_transfer_options o = {
        .kind = RCVI_MAX_ALL, .type = RCVI_TRANSFER_DOUBLE, .data = t->flags, .count = RCVI_FLAGS};
    return rcvi_comm_start(t->topology.world, &o, &t->flags_sum);
}

static rcv_status end_flags(rcv_trainer *t) {
    rcvi_transfer *sum = t->flags_sum;
    t->flags_sum = NULL;
    return rcvi_comm_finish(sum, NULL);
}

/* Losses are of the parts of the batch that ranks have; the norm is that of all. */
static rcv_status sum_losses(const rcv_trainer *t, rcvi_outcome *outcomes, int count) {
    double losses[RCVI_PENDING_OUTCOMES];
    if (!t->topology.world) return RCV_OK;
    for (int i = 0; i < count; i++) losses[i] = outcomes[i].loss;
    RCVI_TRY(rcvi_comm_combine(t->topology.world, RCVI_SUM_ALL, losses, count));
    for (int i = 0; i < count; i++) outcomes[i].loss = losses[i];
    return RCV_OK;
}

/* ---- what came of it ---- */

static rcv_status not_finite(const rcv_trainer *t, const rcvi_outcome *outcome, int64_t step) {
    const char *what = isfinite(outcome->loss) ? "gradient" : "loss";
    if (t->good)
        return rcvi_fail(RCV_INVALID,
                         "the %s of update %lld is not a number; the last good checkpoint is %s, of update %lld: go on "
                         "from it with a smaller learning rate or a smaller clip",
                         what, (long long)step, t->good, (long long)t->good_step);
    return rcvi_fail(RCV_INVALID,
                     "the %s of update %lld is not a number, and no checkpoint was written before: use a smaller "
                     "learning rate or a smaller clip",
                     what, (long long)step);
}

static void note_loss(rcv_trainer *t, double loss) { t->recent[t->recent_count++ % RCVI_RECENT_LOSSES] = loss; }

static double recent_loss(const rcv_trainer *t) {
    int64_t count = t->recent_count < RCVI_RECENT_LOSSES ? t->recent_count : RCVI_RECENT_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += t->recent[i];
    return count ? sum / (double)count : 0;
}

/* Outcomes that wait on the device. The first that is no number ends the run. */
static rcv_status fetch_outcomes(rcv_trainer *t) {
    rcvi_outcome outcomes[RCVI_PENDING_OUTCOMES];
    if (!t->waiting) return RCV_OK;
    RCVI_TRY(t->work->ops->fetch(t->work->learn, outcomes, t->outcomes, (size_t)t->waiting * sizeof *outcomes));
    RCVI_TRY(rcvi_work_wait(t->work));
    RCVI_TRY(sum_losses(t, outcomes, t->waiting));
    int count = t->waiting;
    t->waiting = 0;
    t->fetched = rcvi_now();
    for (int i = 0; i < count; i++) {
        const rcvi_expected *e = &t->expected[i];
        if (!isfinite(outcomes[i].loss) || (!isfinite(outcomes[i].norm) && t->learner->dtype != RCV_FLOAT16))
            return not_finite(t, &outcomes[i], e->step);
        if (isfinite(outcomes[i].norm)) t->norm = outcomes[i].norm;
        t->last = e->counted ? outcomes[i].loss / (double)e->counted : 0;
        note_loss(t, t->last);
        t->progress.rate = e->rate;
    }
    return RCV_OK;
}

/* float16: an update whose gradient overflowed was not made; the next one's loss is scaled less. */
static void adapt_scale(rcv_trainer *t, double norm) {
    rcvi_run_state *s = &t->state;
    if (isfinite(norm)) {
        if (++s->good < GOOD_UPDATES) return;
        s->scale *= 2;
    } else {
        s->scale = fmax(s->scale / 2, 1);
        s->step--;
        s->skipped++;
    }
    s->good = 0;
}

static rcv_status note_outcome(rcv_trainer *t, int64_t counted, double rate) {
    const rcvi_work *w = t->work;
    rcvi_run_state *s = &t->state;
    t->expected[t->waiting] = (rcvi_expected){counted, rate, s->step + 1};
    RCVI_TRY(w->ops->copy(w->learn, &t->outcomes[t->waiting++], w->outcome, sizeof *w->outcome));
    s->step++;
    s->seen += counted;
    if (s->averaged) s->averaged++;
    if (t->learner->dtype == RCV_FLOAT16) {
        rcvi_outcome outcome;
        RCVI_TRY(w->ops->fetch(w->learn, &outcome, w->outcome, sizeof outcome));
        adapt_scale(t, outcome.norm);
    }
    bool alone = !t->topology.world, lazy = t->options.log_every != 1 && t->waiting < RCVI_PENDING_OUTCOMES;
    if (alone && !w->ops->stream(w->learn)) lazy = false; /* else fetching means waiting */
    bool time = alone ? rcvi_now() - t->fetched >= fetch_seconds : t->flags[RCVI_FLAG_FETCH] > 0;
    return lazy && !time ? RCV_OK : fetch_outcomes(t);
}

/* ---- one update ---- */

static rcv_status take_update(rcv_trainer *t, bool *ends) {
    rcvi_run_state *s = &t->state;
    int64_t batches = t->options.accumulate, counted = 0;
    RCVI_TRY(make_parts(t));
    RCVI_TRY(rcvi_timeline_begin(t));
    if (t->topology.world) t->sent_before = rcvi_comm_count(t->topology.world).bytes;
    RCVI_TRY(begin_flags(t));
    const rcvi_update update = update_of(t);
    double rate = rcvi_rate(&t->options, s->step, s->at.epoch, length_of_run(t), s->factor);
    uint64_t update_seed = seed_of(t, s->at);
    *ends = false;
    for (int64_t i = 0; i < batches; i++) {
        rcvi_batch batch;
        RCVI_TRY(rcvi_batcher_next(t->batcher, &batch));
        const rcvi_control control = control_of(t, &batch, s->at, rate);
        RCVI_TRY(rcvi_work_learn(t->work, t->windows[batch.bucket], &batch, &control, update_seed, i == 0,
                                 i + 1 == batches ? &update : NULL));
        counted += batch.counted;
        *ends |= batch.ends;
        s->at = rcvi_batcher_tell(t->batcher);
    }
    RCVI_TRY(end_flags(t));
    if (t->topology.world) t->exchanged += (double)(rcvi_comm_count(t->topology.world).bytes - t->sent_before);
    RCVI_TRY(rcvi_timeline_end(t));
    t->updates++;
    return note_outcome(t, counted, rate);
}

/* ---- progress ---- */

static double seconds_left(const rcv_trainer *t, double passed) {
    const rcvi_run_state *s = &t->state;
    double limit = t->options.seconds, left = INFINITY;
    int64_t length = length_of_run(t), done = s->step - t->step_before;
    if (limit > 0) left = fmax(limit - passed, 0);
    if (length && done > 0)
        left = fmin(left, passed / (double)done * (double)(length > s->step ? length - s->step : 0));
    return isfinite(left) ? left : -1;
}

static void fill_progress(rcv_trainer *t) {
    const rcvi_run_state *s = &t->state;
    double passed = rcvi_now() - t->started;
    rcv_progress *p = &t->progress;
    p->step = s->step;
    p->steps = length_of_run(t);
    p->epoch = s->at.epoch;
    p->epochs = (double)s->at.epoch + (double)s->at.batch / (double)rcvi_batcher_count(t->batcher);
    p->loss = recent_loss(t);
    p->norm = t->norm;
    p->seconds = t->before + passed;
    double training = passed - t->aside;
    p->tokens_per_second = training > 0 ? (double)(s->seen - t->seen_before) / training : 0;
    p->left = seconds_left(t, passed);
    p->best = isfinite(s->best) ? s->best : 0;
}

/* False: the caller wants to stop. */
static bool report(rcv_trainer *t) {
    fill_progress(t);
    double now = rcvi_now();
    int64_t each = t->options.log_every, since = t->state.step - t->logged_step;
    if (t->call->log && (each ? since >= each : now - t->logged >= 1)) {
        rcvi_log_progress(t);
        t->logged = now;
        t->logged_step = t->state.step;
    }
    return !t->call->progress || t->call->progress(t->call->user, &t->progress);
}

/* ---- checkpoints and validations ---- */

static rcv_status checkpoint(rcv_trainer *t) {
    const char *path = t->call->output;
    if (!path) return RCV_OK;
    RCVI_TRY(fetch_outcomes(t)); /* what is not a number is not kept */
    t->state.seconds = t->before + rcvi_now() - t->started;
    /* Where the one before cannot be kept, the new one is still written, whole or not at all. */
    rcv_status kept = rcvi_topology_is_leader(rcvi_trainer_topology(t)) ? rcvi_outputs_rotate(t) : RCV_OK;
    if (kept == RCV_NO_MEMORY) return kept;
    if (kept) rcvi_log_warning(t, rcv_message());
    RCVI_TRY(rcvi_checkpoint_save(t, path));
    RCVI_TRY(rcvi_trainer_note_good(t, path));
    t->progress.written = t->state.step;
    t->last_checkpoint = rcvi_now();
    rcvi_log_checkpoint(t, path);
    return RCV_OK;
}

/* One that is another's is left as it is, and said. */
static rcv_status write_best(const rcv_trainer *t, const void *parameters) {
    char *path;
    rcv_status status = rcvi_outputs_best(t, &path);
    if (status == RCV_IO) {
        rcvi_log_warning(t, rcv_message());
        return RCV_OK;
    }
    if (!status) status = rcvi_checkpoint_save_best(t, parameters, path);
    rcvi_free(t->context, path);
    return status;
}

static rcv_status save_best(const rcv_trainer *t) {
    void *host = NULL;
    if (!t->call->output) return RCV_OK;
    RCVI_TRY(rcvi_ranks_collect(t, t->work->parameters, false, &host));
    rcv_status status = host ? write_best(t, host) : RCV_OK;
    rcvi_free(t->context, host);
    return status;
}

/* Averaging begins when the loss is worse than all but the last `nonmono` ones were. */
static rcv_status trigger_average(rcv_trainer *t, double loss) {
    size_t wait = (size_t)t->options.nonmono;
    if (t->asgd && !t->state.averaged && t->history_count > wait) {
        double least = INFINITY;
        for (size_t i = 0; i + wait < t->history_count; i++) least = fmin(least, t->history[i]);
        if (loss > least) t->state.averaged = 1;
    }
    if (!rcvi_grow(t->context, &t->history, &t->history_capacity, t->history_count + 1, sizeof *t->history))
        return rcvi_no_memory(sizeof *t->history);
    t->history[t->history_count++] = loss;
    return RCV_OK;
}

static rcv_status validate(rcv_trainer *t) {
    rcvi_run_state *s = &t->state;
    double loss, began = rcvi_now();
    int64_t counted;
    RCVI_TRY(fetch_outcomes(t));
    t->work->parameters = s->averaged > 1 ? t->average : t->learner->parameters;
    rcv_status status =
        rcvi_evaluate(t->work, t->validator, t->windows + t->train_windows, t->valid_windows, &loss, &counted);
    if (!status && !isfinite(loss))
        loss = INFINITY; /* worse than any; training goes on while its own losses are finite */
    bool best = !status && loss < s->best;
    if (best) status = save_best(t);
    t->work->parameters = t->learner->parameters;
    RCVI_TRY(status);
    s->validations++;
    s->bad = best ? 0 : s->bad + 1;
    s->bad_for_decay = best ? 0 : s->bad_for_decay + 1;
    if (best) {
        s->best = loss;
        s->best_step = s->step;
    }
    if (s->bad_for_decay >= t->options.decay_patience) {
        s->factor *= t->options.decay_factor; /* of plateaus alone */
        s->bad_for_decay = 0;
    }
    t->progress.validation = loss;
    t->aside += rcvi_now() - began;
    fill_progress(t);
    rcvi_log_validation(t, loss, best);
    return trigger_average(t, loss);
}

/* ---- the loop ---- */

typedef enum { GO_ON, END_EPOCHS, END_STEPS, END_SECONDS, END_PATIENCE } verdict;
static const char *const verdicts[] = {"", "epochs", "steps", "seconds", "patience"};

static verdict judge(const rcv_trainer *t) {
    int64_t epochs = t->options.epochs, steps = t->options.steps;
    int64_t patience = t->options.patience;
    double seconds = t->options.seconds;
    if (!epochs && !steps && !(seconds > 0)) return END_STEPS;
    if (epochs && t->state.at.epoch >= epochs) return END_EPOCHS;
    if (steps && t->state.step >= steps) return END_STEPS;
    bool late = t->topology.world ? t->flags[RCVI_FLAG_END] > 0 : rcvi_now() - t->started >= seconds;
    if (seconds > 0 && late) return END_SECONDS;
    return patience && t->state.bad >= patience ? END_PATIENCE : GO_ON;
}

/* What is due behind an update. */
static rcv_status look_around(rcv_trainer *t, bool ends) {
    int64_t step = t->state.step, each = t->options.validate_every;
    int64_t keep = t->options.checkpoint_every;
    double seconds = t->options.checkpoint_seconds;
    bool validates = t->valid && (each ? step % each == 0 : ends);
    if (validates) RCVI_TRY(validate(t));
    bool due = keep ? step % keep == 0 : validates || (!t->valid && ends);
    bool late = t->topology.world ? t->flags[RCVI_FLAG_SAVE] > 0 : rcvi_now() - t->last_checkpoint >= seconds;
    if (seconds > 0 && late) due = true;
    if (!due) return RCV_OK;
    double began = rcvi_now();
    RCVI_TRY(checkpoint(t));
    t->aside += rcvi_now() - began;
    return RCV_OK;
}

/* A rank's caller who wants to stop stops all of them, behind the next update. */
static bool goes_on(rcv_trainer *t) {
    bool more = t->waiting || report(t);
    t->requests[RCVI_FLAG_STOP] = !more;
    return t->topology.world ? !(t->flags[RCVI_FLAG_STOP] > 0) : more;
}

static rcv_status loop(rcv_trainer *t, verdict *why) {
    while (!(*why = judge(t))) {
        bool ends;
        RCVI_TRY(take_update(t, &ends));
        RCVI_TRY(look_around(t, ends));
        if (!goes_on(t)) {
            RCVI_TRY(fetch_outcomes(t));
            return rcvi_fail(RCV_STOPPED, "training was stopped after %lld updates", (long long)t->state.step);
        }
    }
    return fetch_outcomes(t);
}

/* What an update of this call made ranks send. */
static rcv_status count_bytes(rcv_trainer *t) {
    if (!t->topology.world || !t->updates) return RCV_OK;
    t->sent[0] = t->sent[1] = t->exchanged / (double)t->updates;
    RCVI_TRY(rcvi_comm_combine(t->topology.world, RCVI_MAX_ALL, &t->sent[0], 1));
    return rcvi_comm_combine(t->topology.world, RCVI_SUM_ALL, &t->sent[1], 1);
}

static rcv_status conclude(rcv_trainer *t, rcv_status status, verdict why) {
    if (status && status != RCV_STOPPED) return status;
    RCVI_TRY(count_bytes(t));
    t->work->ops->wait(t->work->learn);
    fill_progress(t);
    rcv_status written = t->call->output && t->progress.written != t->state.step ? checkpoint(t) : RCV_OK;
    rcvi_log_end(t, status ? "stopped" : verdicts[why]);
    return written ? written : status;
}

static bool asks(void *user) {
    rcv_trainer *t = user;
    if (t->topology.world) rcvi_comm_alive(t->topology.world);
    return !t->call->progress || t->call->progress(t->call->user, &t->progress);
}

static rcv_status run(rcv_trainer *t) {
    RCVI_TRY(rcvi_trainer_prepare(t, asks, t));
    RCVI_TRY(rcvi_trainer_place(t));
    t->started = t->fetched = t->last_checkpoint = rcvi_now();
    t->before = t->state.seconds;
    t->seen_before = t->state.seen;
    t->step_before = t->state.step;
    t->aside = 0;
    t->logged = 0;
    memset(t->requests, 0, sizeof t->requests);
    memset(t->flags, 0, sizeof t->flags);
    t->updates = 0;
    t->exchanged = 0;
    rcvi_log_start(t);
    verdict why = GO_ON;
    rcv_status status = loop(t, &why);
    t->state.seconds = t->before + rcvi_now() - t->started;
    return conclude(t, status, why);
}

rcv_status rcv_trainer_run(rcv_trainer *t, const rcv_trainer_options *options) {
    static const rcv_trainer_options none = {0};
    RCVI_NEED(t, "trainer");
    t->call = options ? options : &none;
    t->progress.written = -1;
    rcv_status status = rcvi_outputs_claim(t);
    if (t->topology.world) status = rcvi_comm_agree(t->topology.world, status);
    if (!status) status = run(t);
    rcvi_outputs_release(t);
    return status;
}

rcv_status rcv_trainer_save(rcv_trainer *t, const char *path) {
    RCVI_NEED(t, "trainer");
    RCVI_NEED(path, "path");
    return rcvi_checkpoint_save(t, path);
}

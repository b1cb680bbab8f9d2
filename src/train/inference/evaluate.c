/* The loss and the metrics of data that is read once: see evaluate.h. */
#include "train/inference/evaluate.h"

#include "train/inference/score.h"
#include "train/learner/class_weights.h"

#include <math.h>

typedef struct {
    rcvi_work *work;
    rcvi_batcher *batcher;
    const size_t *windows; /* of the batcher's buckets */
    int64_t *confusion;    /* NULL: it is not wanted */
    bool (*go_on)(void *user);
    void *user;
} evaluation;

static rcv_status run_batch(const evaluation *e, int64_t index, rcvi_scorer *scorer, double *weight, int64_t *counted) {
    rcvi_work *w = e->work;
    rcvi_batch batch;
    RCVI_TRY(rcvi_batcher_next(e->batcher, &batch));
    if (w->evaluating) w->evaluating(w->evaluating_user, (double)index / (double)rcvi_batcher_count(e->batcher));
    if (w->options.topology) rcvi_comm_report_progress(w->options.topology->world);
    RCVI_TRY(rcvi_work_evaluate(w, e->windows[batch.bucket], &batch, index == 0));
    *counted += batch.counted;
    *weight += rcvi_batch_weight(w->learner, &batch);
    if (rcvi_has_metrics(w->learner)) RCVI_TRY(rcvi_scorer_add(scorer, e->windows[batch.bucket], &batch));
    return e->go_on && !e->go_on(e->user) ? rcvi_fail(RCV_STOPPED, "evaluation was stopped") : RCV_OK;
}

static rcv_status run_batches(const evaluation *e, rcvi_scorer *scorer, rcv_evaluation *result) {
    rcvi_work *w = e->work;
    double weight = 0;
    RCVI_TRY(rcvi_batcher_seek(e->batcher, (rcvi_position){0, 0}));
    result->counted = 0;
    for (int64_t i = 0; i < rcvi_batcher_count(e->batcher); i++)
        RCVI_TRY(run_batch(e, i, scorer, &weight, &result->counted));
    rcvi_outcome outcome = {0};
    RCVI_TRY(w->ops->fetch(w->learn, &outcome, w->outcome, sizeof outcome));
    if (w->options.topology)
        RCVI_TRY(rcvi_comm_all_reduce(w->options.topology->world, RCVI_ALL_REDUCE_SUM, &outcome.loss, 1));
    result->loss = weight > 0 ? outcome.loss / weight : 0;
    rcvi_metrics_clear(result);
    return rcvi_has_metrics(w->learner) ? rcvi_scorer_finish(scorer, result) : RCV_OK;
}

static rcv_status evaluate(const evaluation *e, rcv_evaluation *result) {
    rcvi_scorer scorer = {0};
    if (rcvi_has_metrics(e->work->learner)) RCVI_TRY(rcvi_scorer_init(&scorer, e->work, e->confusion));
    rcv_status status = run_batches(e, &scorer, result);
    rcvi_scorer_free(&scorer);
    return status;
}

rcv_status rcvi_evaluate(rcvi_work *work, rcvi_batcher *batcher, const size_t *windows, size_t count,
                         rcv_evaluation *result) {
    const evaluation e = {.work = work, .batcher = batcher, .windows = windows};
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count && !status; i++) status = rcvi_work_open(work, windows[i]);
    if (!status) status = evaluate(&e, result);
    for (size_t i = 0; i < count; i++) rcvi_work_close(work, windows[i]);
    return status;
}

/* ---- rcv_learner_evaluate ---- */

/* Sequences are read in batches of similar lengths, of at most so many cells, with padding, where the caller gives no batch. */
enum { WINDOW = 128, MOST_BUCKETS = 8, BUCKET_SEQUENCES = 64, MOST_CELLS = 1 << 13, MOST_ROWS = 256 };

static rcv_status make_batcher(const rcv_learner *l, const rcv_data *data, const rcv_evaluation_options *o,
                               rcvi_batcher **batcher) {
    const bool columns = l->shape.kind == RCV_DATA_STREAM;
    int64_t bounds[MOST_BUCKETS];
    rcvi_batcher_options options = {.how = columns ? RCVI_ALL : RCVI_SEQUENCES,
                                    .batch = o->batch  ? o->batch
                                             : columns ? 1
                                                       : MOST_ROWS,
                                    .steps = WINDOW,
                                    .tokens = columns || o->batch ? 0 : MOST_CELLS,
                                    .bounds = bounds,
                                    .scaling = l->scaling};
    if (columns) return rcvi_batcher_new(data, &options, batcher);
    rcvi_bucket_options wanted = {.most = 1 + (size_t)(rcv_data_sequences(data) / BUCKET_SEQUENCES),
                                  .batch = options.batch,
                                  .tokens = options.tokens};
    if (wanted.most > MOST_BUCKETS) wanted.most = MOST_BUCKETS;
    rcvi_histogram histogram;
    RCVI_TRY(rcvi_histogram_new(data, &histogram));
    rcv_status status = rcvi_buckets_greedy(l->context, &histogram, &wanted, bounds, &options.bound_count);
    rcvi_histogram_free(l->context, &histogram);
    return status ? status : rcvi_batcher_new(data, &options, batcher);
}

/* Windows of all buckets, the longest first, whose memory the others use; they also use its plan, where they can. windows: [MOST_BUCKETS] */
static rcv_status add_windows(rcvi_work *w, const rcvi_batcher *batcher, size_t count, size_t *windows) {
    const bool columns = w->learner->shape.kind == RCV_DATA_STREAM;
    rcvi_window_options o = {.lengths = !columns, .carries = columns};
    for (size_t i = count; i > 0; i--) {
        rcvi_batcher_shape(batcher, i - 1, &o.steps, &o.batch, NULL);
        rcv_status status = rcvi_work_add_window(w, &o, &windows[i - 1]);
        if (status == RCV_UNSUPPORTED && o.schedule) {
            o.schedule = NULL;
            status = rcvi_work_add_window(w, &o, &windows[i - 1]);
        }
        RCVI_TRY(status);
        o.schedule = rcv_plan_string(w->windows[windows[i - 1]].plan);
    }
    return RCV_OK;
}

static rcv_status evaluate_all(rcv_learner *l, const rcv_evaluation_options *o, rcvi_batcher *batcher,
                               rcv_evaluation *result) {
    size_t windows[MOST_BUCKETS], count = 0;
    int64_t steps, batch;
    rcvi_work_options options = {.threads = o->threads, .effort = RCV_ESTIMATE};
    for (; rcvi_batcher_shape(batcher, count, &steps, &batch, NULL); count++)
        options.rows = steps * batch > options.rows ? steps * batch : options.rows;
    rcvi_work *work = NULL;
    rcv_status status = rcvi_work_new(l, &options, &work);
    if (!status) status = add_windows(work, batcher, count, windows);
    const evaluation e = {.work = work,
                          .batcher = batcher,
                          .windows = windows,
                          .confusion = o->confusion,
                          .go_on = o->go_on,
                          .user = o->user};
    if (!status) status = evaluate(&e, result);
    rcvi_work_free(work);
    return status;
}

rcv_status rcv_learner_evaluate(rcv_learner *l, const rcv_data *data, const rcv_evaluation_options *options,
                                rcv_evaluation *result) {
    RCVI_NEED(l, "learner");
    RCVI_NEED(data, "data");
    RCVI_NEED(result, "result");
    RCVI_READ(rcv_evaluation_options, options, "options");
    RCVI_TRY(rcvi_struct_check(__func__, "result", "rcv_evaluation", result));
    rcv_evaluation found = RCV_INIT(rcv_evaluation);
    rcvi_metrics_clear(&found);
    rcvi_struct_write(result, &found, sizeof found);
    RCVI_TRY(rcvi_learner_is_whole(l));
    RCVI_TRY(rcvi_learner_fits(l, data));
    if (options->confusion && !rcvi_kind_has_classes(l->shape.kind))
        return rcvi_fail(RCV_INVALID, "a model of the kind %s has no classes to confuse: leave options->confusion NULL",
                         rcvi_kind_name(l->shape.kind));
    rcvi_batcher *batcher = NULL;
    RCVI_TRY(make_batcher(l, data, options, &batcher));
    rcv_status status = evaluate_all(l, options, batcher, &found);
    rcvi_batcher_free(batcher);
    if (!status) rcvi_struct_write(result, &found, sizeof found);
    return status;
}

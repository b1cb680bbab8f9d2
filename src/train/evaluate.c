/* The loss of data that is read once. */
#include "train/trainer.h"

rcv_status rcvi_evaluate(rcvi_work *w, rcvi_batcher *batcher, const size_t *windows, bool (*go_on)(void *user),
                         void *user, double *loss, int64_t *counted) {
    int64_t batches = rcvi_batcher_count(batcher), count = 0;
    RCVI_TRY(rcvi_batcher_seek(batcher, (rcvi_position){0, 0}));
    for (int64_t i = 0; i < batches; i++) {
        rcvi_batch batch;
        RCVI_TRY(rcvi_batcher_next(batcher, &batch));
        RCVI_TRY(rcvi_work_loss(w, windows[batch.bucket], &batch, i == 0));
        count += batch.counted;
        if (go_on && !go_on(user)) return rcvi_fail(RCV_STOPPED, "evaluation was stopped");
    }
    rcvi_outcome outcome = {0};
    RCVI_TRY(w->ops->fetch(w->learn, &outcome, w->outcome, sizeof outcome));
    *counted = count;
    *loss = count > 0 ? outcome.loss / (double)count : 0;
    return RCV_OK;
}

enum { WINDOW = 128 };

static rcv_status evaluate(rcv_learner *l, const rcv_data *data, const rcv_evaluation_options *o, rcvi_batcher *batcher,
                           rcv_evaluation *result) {
    size_t windows[RCV_MAX_BUCKETS];
    rcvi_work_options options = {.threads = o->threads, .effort = RCV_ESTIMATE, .go_on = o->go_on, .user = o->user};
    bool columns = l->shape.kind == RCV_DATA_STREAM;
    (void)data;
    for (size_t i = 0;; i++) {
        int64_t steps, batch, batches;
        if (!rcvi_batcher_shape(batcher, i, &steps, &batch, &batches)) break;
        options.rows = steps * batch > options.rows ? steps * batch : options.rows;
    }
    rcvi_work *work = NULL;
    rcv_status status = rcvi_work_new(l, &options, &work);
    for (size_t i = 0; !status; i++) {
        int64_t steps, batch, batches;
        if (!rcvi_batcher_shape(batcher, i, &steps, &batch, &batches)) break;
        const rcvi_window_options window = {.steps = steps, .batch = batch, .lengths = !columns, .carries = columns};
        status = rcvi_work_window(work, &window, &windows[i]);
    }
    if (!status) status = rcvi_evaluate(work, batcher, windows, o->go_on, o->user, &result->loss, &result->counted);
    rcvi_work_free(work);
    return status;
}

rcv_status rcv_learner_evaluate(rcv_learner *l, const rcv_data *data, const rcv_evaluation_options *options,
                                rcv_evaluation *result) {
    if (!l || !data || !result)
        return rcvi_fail(RCV_INVALID, "rcv_learner_evaluate needs a learner, data and a place for the result");
    RCVI_TRY(rcvi_learner_fits(l, data));
    rcv_evaluation_options o = options ? *options : (rcv_evaluation_options){0};
    int64_t longest = rcv_data_longest(data);
    rcvi_batcher_options batching = {.how = l->shape.kind == RCV_DATA_STREAM ? RCVI_ALL : RCVI_SEQUENCES,
                                     .batch = o.batch ? o.batch : 1,
                                     .steps = WINDOW,
                                     .bounds = &longest,
                                     .bound_count = 1};
    rcvi_batcher *batcher = NULL;
    RCVI_TRY(rcvi_batcher_new(data, &batching, &batcher));
    *result = (rcv_evaluation){0};
    rcv_status status = evaluate(l, data, &o, batcher, result);
    rcvi_batcher_free(batcher);
    return status;
}

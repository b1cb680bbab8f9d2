/* The loss of data that is read once: see evaluate.h. */
#include "train/inference/evaluate.h"

/* Called after every batch; NULL: nothing is. */
typedef rcv_status batch_callback(void *user, rcvi_work *work, size_t window, const rcvi_batch *batch);

static rcv_status run_batches(rcvi_work *w, rcvi_batcher *batcher, const size_t *windows, batch_callback *after,
                              void *user, double *loss, int64_t *counted) {
    int64_t batches = rcvi_batcher_count(batcher), count = 0;
    RCVI_TRY(rcvi_batcher_seek(batcher, (rcvi_position){0, 0}));
    for (int64_t i = 0; i < batches; i++) {
        rcvi_batch batch;
        RCVI_TRY(rcvi_batcher_next(batcher, &batch));
        if (w->evaluating) w->evaluating(w->evaluating_user, (double)i / (double)batches);
        if (w->options.topology) rcvi_comm_report_progress(w->options.topology->world);
        RCVI_TRY(rcvi_work_evaluate(w, windows[batch.bucket], &batch, i == 0));
        count += batch.counted;
        if (after) RCVI_TRY(after(user, w, windows[batch.bucket], &batch));
    }
    rcvi_outcome outcome = {0};
    RCVI_TRY(w->ops->fetch(w->learn, &outcome, w->outcome, sizeof outcome));
    if (w->options.topology)
        RCVI_TRY(rcvi_comm_all_reduce(w->options.topology->world, RCVI_ALL_REDUCE_SUM, &outcome.loss, 1));
    *counted = count;
    *loss = count > 0 ? outcome.loss / (double)count : 0;
    return RCV_OK;
}

rcv_status rcvi_evaluate(rcvi_work *work, rcvi_batcher *batcher, const size_t *windows, size_t count, double *loss,
                         int64_t *counted) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count && !status; i++) status = rcvi_work_open(work, windows[i]);
    if (!status) status = run_batches(work, batcher, windows, NULL, NULL, loss, counted);
    for (size_t i = 0; i < count; i++) rcvi_work_close(work, windows[i]);
    return status;
}

/* ---- rcv_learner_evaluate ---- */

enum { WINDOW = 128 };

typedef struct {
    const rcv_evaluation_options *options;
    void *device_logits, *logits; /* of a batch, [batch, classes]; in the device's memory, in the host's */
    int64_t right;
} evaluation;

static double logit(const rcv_learner *l, const void *logits, int64_t at) {
    return l->real == RCV_FLOAT64 ? ((const double *)logits)[at] : (double)((const float *)logits)[at];
}

static rcv_status count_right(evaluation *e, rcvi_work *w, size_t window, const rcvi_batch *batch) {
    const rcv_learner *l = w->learner;
    int64_t classes = l->shape.outputs;
    const rcvi_head head = {.rows = batch->batch,
                            .y = w->windows[window].head_features,
                            .weight = rcvi_local_element_at(l, w->parameters, l->weight_offset),
                            .bias = rcvi_local_element_at(l, w->parameters, l->bias_offset)};
    RCVI_TRY(w->ops->logits(w->learn, &head, e->device_logits));
    RCVI_TRY(
        w->ops->fetch(w->learn, e->logits, e->device_logits, (size_t)(batch->batch * classes) * rcvi_real_bytes(l)));
    for (int64_t b = 0; b < batch->batch; b++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (logit(l, e->logits, b * classes + c) > logit(l, e->logits, b * classes + best)) best = c;
        e->right += best == batch->targets[b];
    }
    return RCV_OK;
}

static rcv_status after_batch(void *user, rcvi_work *w, size_t window, const rcvi_batch *batch) {
    evaluation *e = user;
    if (e->options->go_on && !e->options->go_on(e->options->user))
        return rcvi_fail(RCV_STOPPED, "evaluation was stopped");
    return e->device_logits ? count_right(e, w, window, batch) : RCV_OK;
}

static rcv_status evaluate(rcv_learner *l, const rcv_evaluation_options *o, rcvi_batcher *batcher,
                           rcv_evaluation *result) {
    bool columns = l->shape.kind == RCV_DATA_STREAM;
    int64_t steps = 0, batch = 0, batches;
    rcvi_batcher_shape(batcher, 0, &steps, &batch, &batches);
    const rcvi_work_options options = {.threads = o->threads, .effort = RCV_ESTIMATE, .rows = steps * batch};
    const rcvi_window_options window = {.steps = steps, .batch = batch, .lengths = !columns, .carries = columns};
    evaluation e = {.options = o};
    size_t only = 0;
    rcvi_work *work = NULL;
    rcv_status status = rcvi_work_new(l, &options, &work);
    if (!status) status = rcvi_work_add_window(work, &window, &only);
    if (!status && l->shape.kind == RCV_DATA_CLASSES) {
        status = rcvi_device_new(l, batch * l->shape.outputs, rcvi_real_bytes(l), &e.device_logits);
        e.logits = rcvi_new(l->context, (size_t)(batch * l->shape.outputs), rcvi_real_bytes(l));
        if (!e.logits) status = RCV_NO_MEMORY;
    }
    if (!status) status = run_batches(work, batcher, &only, after_batch, &e, &result->loss, &result->counted);
    if (!status && result->counted > 0) result->accuracy = (double)e.right / (double)result->counted;
    rcvi_device_free(l, e.device_logits);
    rcvi_free(l->context, e.logits);
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
    rcvi_struct_write(result, &found, sizeof found);
    RCVI_TRY(rcvi_learner_is_whole(l));
    RCVI_TRY(rcvi_learner_fits(l, data));
    int64_t longest = rcv_data_longest(data);
    const rcvi_batcher_options batching = {.how = l->shape.kind == RCV_DATA_STREAM ? RCVI_ALL : RCVI_SEQUENCES,
                                           .batch = options->batch ? options->batch : 1,
                                           .steps = WINDOW,
                                           .bounds = &longest,
                                           .bound_count = 1,
                                           .scaling = l->scaling};
    rcvi_batcher *batcher = NULL;
    RCVI_TRY(rcvi_batcher_new(data, &batching, &batcher));
    rcv_status status = evaluate(l, options, batcher, &found);
    rcvi_batcher_free(batcher);
    if (!status) rcvi_struct_write(result, &found, sizeof found);
    return status;
}

/* What the output layer gives, as metrics: see score.h. */
#include "train/inference/score.h"

#include <math.h>
#include <string.h>

enum { MOST_OUTPUTS = 1 << 18 }; /* elements of outputs in memory at once, unless one row has more */

/* ---- making and freeing ---- */

static rcv_status make_arrays(rcvi_scorer *s) {
    const rcv_learner *l = s->work->learner;
    const size_t outputs = (size_t)l->shape.outputs, real = rcvi_real_bytes(l);
    rcv_context *context = l->context;
    s->room = MOST_OUTPUTS / l->shape.outputs;
    if (s->room > s->work->options.rows) s->room = s->work->options.rows;
    if (s->room < 1) s->room = 1;
    s->outputs = rcvi_new(context, (size_t)s->room * outputs, real);
    s->predicted = rcvi_new(context, outputs, sizeof *s->predicted);
    s->wanted = rcvi_new(context, outputs, sizeof *s->wanted);
    s->values = rcvi_new(context, outputs, sizeof *s->values);
    s->raw = rcvi_new(context, (size_t)l->shape.features, sizeof *s->raw);
    if (!s->outputs || !s->predicted || !s->wanted || !s->values || !s->raw) return RCV_NO_MEMORY;
    return rcvi_device_new(l, s->room * l->shape.outputs, real, &s->device_outputs);
}

/* The feature that has output `output` at the present step; -1: none has it, or none is known. */
static int64_t find_present(const rcv_learner *l, int64_t output) {
    const rcvi_schema *s = l->schema;
    if (s->feature_count == 0)
        return l->shape.features == l->shape.outputs ? output : -1; /* arrays forecast themselves */
    const bool named = (int64_t)s->feature_count == l->shape.features && (int64_t)s->target_count == l->shape.outputs;
    for (int64_t f = 0; named && f < l->shape.features; f++)
        if (strcmp(s->features[f], s->targets[output]) == 0) return f;
    return -1;
}

static rcv_status find_naive_features(rcvi_scorer *s) {
    const rcv_learner *l = s->work->learner;
    const size_t outputs = (size_t)l->shape.outputs;
    if (l->shape.kind != RCV_DATA_STEP_VALUES || !l->schema || !(l->schema->horizon > 0)) return RCV_OK;
    s->naive = rcvi_new(l->context, outputs, sizeof *s->naive);
    s->present = rcvi_new(l->context, outputs, sizeof *s->present);
    if (!s->naive || !s->present) return RCV_NO_MEMORY;
    for (int64_t i = 0; i < l->shape.outputs; i++) s->present[i] = find_present(l, i);
    return RCV_OK;
}

rcv_status rcvi_scorer_init(rcvi_scorer *s, rcvi_work *work, int64_t *confusion) {
    const rcv_learner *l = work->learner;
    *s = (rcvi_scorer){.work = work};
    rcv_status status =
        rcvi_metrics_init(&s->metrics, l->context, l->shape.kind, l->shape.outputs, confusion, !work->options.topology);
    if (!status && l->has_head) status = make_arrays(s);
    if (!status) status = find_naive_features(s);
    if (status) rcvi_scorer_free(s);
    return status;
}

void rcvi_scorer_free(rcvi_scorer *s) {
    if (!s->work) return;
    rcv_learner *l = s->work->learner;
    void *const blocks[] = {s->outputs, s->predicted, s->wanted, s->naive, s->present, s->raw, s->values};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(l->context, blocks[i]);
    rcvi_device_free(l, s->device_outputs);
    rcvi_metrics_free(&s->metrics);
    *s = (rcvi_scorer){0};
}

/* ---- rows ---- */

static double output_at(const rcv_learner *l, const void *outputs, int64_t at) {
    return l->real == RCV_FLOAT64 ? ((const double *)outputs)[at] : (double)((const float *)outputs)[at];
}

static void copy_outputs(rcvi_scorer *s, int64_t row) {
    const rcv_learner *l = s->work->learner;
    for (int64_t i = 0; i < l->shape.outputs; i++)
        s->predicted[i] = output_at(l, s->outputs, row * l->shape.outputs + i);
}

static void add_values(rcvi_scorer *s, int64_t row, const float *values) {
    const rcv_learner *l = s->work->learner;
    const int64_t outputs = l->shape.outputs;
    if (isnan(values[0])) return;
    copy_outputs(s, row);
    memcpy(s->values, values, (size_t)outputs * sizeof *values);
    rcvi_scaling_restore(l->scaling, RCV_FLOAT64, s->predicted, 1);
    rcvi_scaling_restore(l->scaling, RCV_FLOAT32, s->values, 1);
    for (int64_t i = 0; i < outputs; i++) s->wanted[i] = (double)s->values[i];
    rcvi_metrics_add_values(&s->metrics, s->predicted, s->wanted, s->naive);
}

/* The naive forecast of a row is the present value of what is forecast, which is one of the row's features. */
static void find_naive(rcvi_scorer *s, const float *x) {
    const rcv_learner *l = s->work->learner;
    if (!s->naive) return;
    memcpy(s->raw, x, (size_t)l->shape.features * sizeof *x);
    if (l->scaling) rcvi_scaling_restore_features(l->scaling, x, s->raw);
    for (int64_t i = 0; i < l->shape.outputs; i++)
        s->naive[i] = s->present[i] < 0 ? NAN : (double)s->raw[s->present[i]];
}

/* Row `row` of those in memory is row `at` of the batch's targets or values. */
static rcv_status add_row(rcvi_scorer *s, const rcvi_batch *batch, int64_t row, int64_t at) {
    const rcv_learner *l = s->work->learner;
    if (batch->values) {
        if (batch->x && rcvi_predicts_steps(l)) find_naive(s, batch->x + at * l->shape.features);
        add_values(s, row, batch->values + at * l->shape.outputs);
        return RCV_OK;
    }
    if (batch->targets[at] < 0) return RCV_OK;
    copy_outputs(s, row);
    return rcvi_metrics_add_class(&s->metrics, s->predicted, batch->targets[at]);
}

/* Outputs of rows first .. first + count - 1 of the window. */
static rcv_status fetch(rcvi_scorer *s, const rcvi_window *v, int64_t first, int64_t count) {
    rcvi_work *w = s->work;
    const rcv_learner *l = w->learner;
    const rcvi_head head = {.rows = count,
                            .y = rcvi_element_at(l, v->head_features, first * l->width),
                            .weight = rcvi_local_element_at(l, w->parameters, l->weight_offset),
                            .bias = rcvi_local_element_at(l, w->parameters, l->bias_offset)};
    RCVI_TRY(w->ops->logits(w->learn, &head, s->device_outputs));
    return w->ops->fetch(w->learn, s->outputs, s->device_outputs,
                         (size_t)(count * l->shape.outputs) * rcvi_real_bytes(l));
}

rcv_status rcvi_scorer_add(rcvi_scorer *s, size_t window, const rcvi_batch *batch) {
    const rcvi_window *v = &s->work->windows[window];
    const int64_t rows = rcvi_predicts_steps(s->work->learner) ? v->steps * v->batch : v->batch;
    if (!s->work->learner->has_head) return RCV_OK;
    for (int64_t first = 0, count; first < rows; first += count) {
        count = rows - first < s->room ? rows - first : s->room;
        RCVI_TRY(fetch(s, v, first, count));
        for (int64_t r = 0; r < count; r++) {
            const int64_t time = (first + r) / v->batch, sequence = v->first + (first + r) % v->batch;
            if (sequence < batch->batch) RCVI_TRY(add_row(s, batch, r, time * batch->batch + sequence));
        }
    }
    return RCV_OK;
}

rcv_status rcvi_scorer_finish(rcvi_scorer *s, rcv_evaluation *result) {
    const rcvi_topology *topology = s->work->options.topology;
    if (topology) RCVI_TRY(rcvi_metrics_reduce(&s->metrics, topology->world));
    return rcvi_metrics_finish(&s->metrics, result);
}

/* Seconds of one stage of a pipeline: its layers as a learner of their own, on a batch of the data. */
#include "train/forecast/costs.h"

#include "net/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 1, LEAST = 3, MOST = 100 };
static const double enough = 0.2; /* seconds of timing */

/* ---- a stage as a learner of its own ---- */

typedef struct {
    const rcvi_workload *workload;
    const rcvi_cost_problem *problem;
    rcv_learner *learner;
    rcvi_work *work;
    size_t window;
    rcvi_batch batch;
    rcvi_optimiser optimiser;
    double samples[RCVI_SECONDS][MOST];
    int count;
} trial;

static void close_trial(trial *a) {
    rcvi_work_free(a->work);
    if (a->learner) rcvi_optimiser_free(&a->optimiser, a->learner);
    rcv_learner_free(a->learner);
}

static rcv_status make_learner(trial *a) {
    const rcvi_workload *w = a->workload;
    RCVI_TRY(rcvi_learner_make(w->context, w->settings, w->data, &a->learner));
    RCVI_TRY(rcvi_learner_take_slice(a->learner, a->problem->first, a->problem->count));
    RCVI_TRY(rcvi_learner_set_first_values(a->learner, w->settings));
    a->optimiser = (rcvi_optimiser){.kind = w->optimiser.kind};
    return rcvi_optimiser_allocate(&a->optimiser, a->learner, a->learner->end_element - a->learner->first_element);
}

/* The first batch of the bucket. The trainer seeks its position again before it runs. */
static rcv_status find_batch(trial *a) {
    rcvi_batcher *batcher = a->workload->batcher;
    RCVI_TRY(rcvi_batcher_seek(batcher, (rcvi_position){0, 0}));
    for (int64_t i = rcvi_batcher_count(batcher); i > 0; i--) {
        RCVI_TRY(rcvi_batcher_next(batcher, &a->batch));
        if (a->batch.bucket == a->problem->bucket) break;
    }
    return RCV_OK;
}

static rcv_status open_trial(trial *a) {
    const rcvi_cost_problem *p = a->problem;
    bool columns = a->workload->learner->shape.kind == RCV_DATA_STREAM;
    RCVI_TRY(make_learner(a));
    RCVI_TRY(find_batch(a));
    rcvi_work_options options = a->workload->work;
    options.lean = false;
    options.peers = p->peers;
    const rcvi_window_options window = {.steps = p->steps,
                                        .batch = p->batch,
                                        .micro = p->micro,
                                        .chunks = p->chunks,
                                        .whole = a->batch.batch,
                                        .training = true,
                                        .lengths = !columns,
                                        .carries = columns,
                                        .signals = true,
                                        .schedule = rcvi_settings_text(a->workload->settings, "schedule")};
    options.rows = rcvi_window_options_rows(&window);
    options.units = p->micro * p->chunks;
    RCVI_TRY(rcvi_work_new(a->learner, &options, &a->work));
    return rcvi_work_add_window(a->work, &window, &a->window);
}

/* ---- timing ---- */

/* Adds the time since *at to one of the seconds, which an update has `times` of, and sets *at to now. */
static rcv_status lap(trial *a, size_t which, int64_t times, double *at) {
    RCVI_TRY(a->work->ops->wait(a->work->learn));
    double now = rcvi_now();
    if (a->count < MOST) a->samples[which][a->count] += (now - *at) / (double)times;
    *at = rcvi_now();
    return RCV_OK;
}

#define LAP(part, times) lap(a, offsetof(rcvi_stage_seconds, part) / sizeof(double), times, at)

static rcv_status update(trial *a) {
    rcvi_work *w = a->work;
    rcvi_update all;
    RCVI_TRY(rcvi_optimiser_update(&a->optimiser, w, &all));
    return w->ops->update(w->learn, &all, rcvi_feed_control(w), w->outcome);
}

/* All units of the batch in the order of a pipeline of one stage. */
static rcv_status run_units(trial *a, double *at) {
    rcvi_work *w = a->work;
    const rcvi_window *v = &w->windows[a->window];
    int64_t units = rcvi_window_units(v);
    for (int64_t i = 0, forwards = 0, backwards = 0; i < 2 * units; i++) {
        const rcvi_unit u = rcvi_unit_of(v, v->tasks[i].unit);
        if (v->tasks[i].backward) {
            RCVI_TRY(rcvi_unit_backward(w, v, &u, !backwards++));
            RCVI_TRY(LAP(backward, units));
            continue;
        }
        RCVI_TRY(rcvi_unit_forward(w, v, &u, 1, !forwards));
        RCVI_TRY(LAP(forward, units));
        if (a->learner->has_head) RCVI_TRY(rcvi_unit_train_head(w, v, &u, !forwards));
        RCVI_TRY(LAP(head, units));
        forwards++;
    }
    return RCV_OK;
}

/* A whole update, with a learning rate of 0 so that parameters stay finite. */
static rcv_status step(trial *a) {
    rcvi_work *w = a->work;
    const rcvi_window *v = &w->windows[a->window];
    const rcvi_control control = {.seed = 1,
                                  .scale = 1,
                                  .weight = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .epsilon = 1e-8,
                                  .correction1 = 1,
                                  .correction2 = 1};
    double now = rcvi_now(), *at = &now;
    for (int i = 0; i < RCVI_SECONDS && a->count < MOST; i++) a->samples[i][a->count] = 0;
    RCVI_TRY(rcvi_feed_send(w, v, &a->batch, &control, 0));
    RCVI_TRY(LAP(begin, 1));
    RCVI_TRY(rcvi_unit_prepare_parameters(w, v));
    RCVI_TRY(run_units(a, at));
    RCVI_TRY(rcvi_unit_embedding_gradient(w, v, true));
    RCVI_TRY(LAP(inputs, 1));
    RCVI_TRY(update(a));
    return LAP(update, 1);
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double rcvi_quantile(double *samples, int count, double fraction) {
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    return samples[(int)(fraction * count)];
}

static rcv_status time_steps(trial *a, rcvi_stage_seconds *seconds) {
    double out[RCVI_SECONDS];
    for (int i = 0; i < WARM; i++) RCVI_TRY(step(a));
    double began = rcvi_now();
    for (a->count = 0; a->count < LEAST || (a->count < MOST && rcvi_now() - began < enough); a->count++)
        RCVI_TRY(step(a));
    for (int i = 0; i < RCVI_SECONDS; i++)
        out[i] = rcvi_quantile(a->samples[i], a->count, 0.25); /* other work on the machine only ever adds */
    memcpy(seconds, out, sizeof out);
    return RCV_OK;
}

/* ---- when gradients are complete ---- */

/* For devices without a trace: layers complete from the last to the first, each after a time proportional to its parameters. */
static void guess_ready(const rcv_net *part, double *ready) {
    for (int64_t l = 0; l < part->options.layers; l++)
        ready[l + 1] =
            1 - (double)rcvi_layer_start(part, l) / (double)(part->parameter_elements ? part->parameter_elements : 1);
    ready[0] = ready[1];
}

/* The first layer has two events: first that of its lead, then that of the rest. */
static void note_ready(const rcv_event *event, double at, double *ready) {
    int place = event->layer + 1;
    if (event->layer == 0 && ready[0] < 0) place = 0;
    ready[place] = at;
}

static rcv_status find_ready(trial *a, double *ready) {
    enum { EVENTS = 1 << 16 };
    rcv_run *run = a->work->windows[a->window].runs[0];
    rcv_event *events = rcvi_new(a->learner->context, EVENTS, sizeof *events);
    if (!events) return RCV_NO_MEMORY;
    rcv_status status = rcv_run_trace(run, events, EVENTS);
    if (!status) status = step(a);
    size_t count = rcv_run_trace_count(run);
    double end = 0;
    guess_ready(a->learner->slice, ready);
    if (count) ready[0] = -1;
    for (size_t i = 0; i < count && i < EVENTS; i++)
        if (events[i].backward && events[i].end > end) end = events[i].end;
    for (size_t i = 0; i < count && i < EVENTS; i++)
        if (!strcmp(events[i].what, "communicate") && end > 0) note_ready(&events[i], events[i].begin / end, ready);
    rcv_run_trace(run, NULL, 0);
    rcvi_free(a->learner->context, events);
    return status;
}

static rcv_status copy_plan(const trial *a, char **plan) {
    const char *string = rcv_plan_string(a->work->windows[a->window].plan);
    *plan = rcvi_copy_text(a->workload->context, string, strlen(string));
    return *plan ? RCV_OK : RCV_NO_MEMORY;
}

/* One rank after the other, while the others wait; fails on all ranks where one has failed before. */
static rcv_status time_alone(trial *a, rcv_status before, rcvi_stage_seconds *alone) {
    rcvi_comm *together = a->problem->together;
    RCVI_TRY(rcvi_comm_agree(together, before));
    for (int i = 0; i < rcvi_comm_size(together); i++)
        RCVI_TRY(rcvi_comm_agree(together, i == rcvi_comm_rank(together) ? time_steps(a, alone) : RCV_OK));
    return RCV_OK;
}

rcv_status rcvi_costs_measure(const rcvi_workload *w, const rcvi_cost_problem *problem, rcvi_stage_seconds *seconds,
                              rcvi_stage_seconds *alone, double *ready, char **plan) {
    trial *a = rcvi_new(w->context, 1, sizeof *a);
    if (!a) return RCV_NO_MEMORY;
    a->workload = w;
    a->problem = problem;
    rcv_status status = open_trial(a);
    if (problem->together) status = rcvi_comm_agree(problem->together, status);
    if (!status) status = time_steps(a, seconds);
    if (alone) status = time_alone(a, status, alone);
    if (!status && ready) status = find_ready(a, ready);
    if (!status && plan) status = copy_plan(a, plan);
    close_trial(a);
    rcvi_free(w->context, a);
    return status;
}

size_t rcvi_heaviest_bucket(const rcvi_batcher *batcher) {
    size_t found = 0;
    double most = -1;
    int64_t steps, batch, batches;
    for (size_t i = 0; rcvi_batcher_shape(batcher, i, &steps, &batch, &batches); i++) {
        double work = (double)steps * (double)batch * (double)batches;
        if (work >= most) found = i;
        if (work > most) most = work;
    }
    return found;
}

/* Plans and arrays for every shape of batches: see windows.h. */
#include "train/run/windows.h"

#include "train/config/train_options.h"
#include "train/run/trainer.h"

#include <stdio.h>
#include <string.h>

void rcvi_windows_free(rcvi_windows *w, rcv_context *context) {
    rcvi_free(context, w->numbers);
    rcvi_free(context, w->agreed);
    *w = (rcvi_windows){0};
}

/* ---- options of the work ---- */

/* The gradient of the embedding as the rows that were read. */
static bool is_sparse(const rcv_trainer *t) {
    const rcvi_shape *shape = &t->learner->shape;
    return rcvi_optimiser_is_plain(&t->optimiser) && shape->tokens && !shape->tied && !shape->fixed &&
           rcvi_settings_real(t->settings, "weight-decay") == 0 &&
           rcvi_settings_integer(t->settings, "accumulate") == 1;
}

/* Why the gradient of the output layer must be stored in this run; NULL: it need not be. */
static const char *why_not_lean(const rcv_trainer *t) {
    return rcvi_trainer_topology(t) ? "one rank must do it alone" : rcvi_settings_why_not_lean(t->settings);
}

rcv_status rcvi_trainer_check_lean(const rcv_trainer *t) {
    const char *why = why_not_lean(t);
    if (!why || !rcvi_settings_is(t->settings, "lean", "yes")) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "lean cannot be yes here: %s", why);
}

static bool is_lean(const rcv_trainer *t) {
    enum { LEAN_BYTES = 64 << 20 }; /* of an output layer: below these its gradient is not worth computing twice */
    const rcv_learner *l = t->learner;
    if (rcvi_settings_is(t->settings, "lean", "yes")) return true;
    bool large = l->shape.outputs * l->width * (int64_t)sizeof(float) >= LEAN_BYTES;
    return rcvi_settings_is(t->settings, "lean", "auto") && large && !why_not_lean(t);
}

rcvi_work_options rcvi_trainer_work_options(const rcv_trainer *t) {
    const rcv_settings *s = t->settings;
    return (rcvi_work_options){.training = true,
                               .drops = {.embedding = rcvi_settings_real(s, "dropout-embedding"),
                                         .input = rcvi_settings_real(s, "dropout-input"),
                                         .output = rcvi_settings_real(s, "dropout-output"),
                                         .weight = rcvi_settings_real(s, "weight-drop"),
                                         .variational = rcvi_settings_flag(s, "variational")},
                               .sparse = is_sparse(t),
                               .lean = is_lean(t),
                               .threads = rcvi_topology_threads(rcvi_trainer_topology(t), t->context, s),
                               .chunk = rcvi_settings_integer(s, "chunk"),
                               .effort = (rcv_effort)rcvi_settings_choice(s, "effort")};
}

rcvi_workload rcvi_trainer_workload(const rcv_trainer *t) {
    return (rcvi_workload){.context = t->context,
                           .settings = t->settings,
                           .data = t->train,
                           .batcher = t->batcher,
                           .learner = t->learner,
                           .topology = rcvi_trainer_topology(t),
                           .optimiser = {.kind = t->optimiser.kind, .averages = t->optimiser.averages},
                           .work = rcvi_trainer_work_options(t)};
}

/* ---- units of a pipeline ---- */

static rcv_status set_integer(rcv_settings *settings, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return rcv_settings_set(settings, name, text);
}

/* The choice becomes the run's settings, so that a resumed run has it too. */
static rcv_status keep_units(rcv_settings *settings, const rcvi_arrangement *a) {
    if (a->stages < 2) return RCV_OK;
    RCVI_TRY(set_integer(settings, "micro-batches", a->micro));
    return rcvi_units_cut_time(settings) ? set_integer(settings, "time-chunks", a->chunks) : RCV_OK;
}

/* [stages] layers of each stage of this run. */
static rcv_status count_layers(const rcv_trainer *t, int *counts) {
    int layers = (int)rcv_net_get_options(t->learner->net)->layers, stages = t->topology.stage_count;
    const char *split = rcvi_settings_text(t->settings, "split");
    counts[0] = layers;
    return stages > 1 && split ? rcvi_read_split(split, layers, stages, counts) : RCV_OK;
}

/* Numbers of units that settings leave open, and the plan of units, by forecasts of all ranks together. */
static rcv_status choose_units(rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int64_t layers = rcv_net_get_options(t->learner->net)->layers;
    char *plan = NULL;
    if (!topology || rcvi_settings_is(t->settings, "effort", "estimate")) return RCV_OK;
    int *counts = rcvi_new(t->context, (size_t)layers, sizeof *counts);
    rcv_status status = rcvi_comm_agree(topology->world, counts ? count_layers(t, counts) : RCV_NO_MEMORY);
    rcvi_arrangement a = {.replicas = topology->replica_count, .stages = topology->stage_count, .counts = counts};
    const rcvi_workload workload = rcvi_trainer_workload(t);
    if (!status) status = rcvi_measure_links(t->learner, topology, &a.links);
    if (!status) status = rcvi_units_find(&workload, &a, &t->windows.forecast, &plan);
    if (!status) status = keep_units(t->settings, &a);
    rcvi_free(t->context, counts);
    bool pinned = t->state.plans || rcvi_settings_text(t->settings, "schedule");
    rcvi_free(t->context, status || pinned ? plan : t->windows.agreed);
    if (!status && !pinned) t->windows.agreed = plan;
    return status;
}

/* ---- windows ---- */

/* The line of a plan that a checkpoint pins; NULL where there is none, or settings say another. For rcvi_free. */
static rcv_status find_pinned(const rcv_trainer *t, size_t index, char **plan) {
    const char *line = rcvi_settings_text(t->settings, "schedule") ? NULL : t->state.plans;
    *plan = NULL;
    for (; line && index; index--) line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    if (!line || !*line) return RCV_OK;
    *plan = rcvi_copy_text(t->context, line, strcspn(line, "\n"));
    return *plan ? RCV_OK : RCV_NO_MEMORY;
}

/* Of this replica's part of a batch. Where a batch does not divide among replicas, the last ones have empty rows. */
static rcvi_window_options window_options(const rcv_trainer *t, const rcvi_batcher *batcher, size_t bucket,
                                          bool training) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    const rcv_settings *s = t->settings;
    bool columns = t->learner->shape.kind == RCV_DATA_STREAM;
    int stages = rcvi_topology_stages(topology);
    int64_t steps, whole, replicas = rcvi_topology_replicas(topology);
    rcvi_batcher_shape(batcher, bucket, &steps, &whole, NULL);
    int64_t batch = (whole + replicas - 1) / replicas;
    return (rcvi_window_options){.steps = steps,
                                 .batch = batch,
                                 .first = topology ? topology->replica * batch : 0,
                                 .whole = whole,
                                 .micro = training ? rcvi_units_micro(s, stages, batch) : 1,
                                 .chunks = training ? rcvi_units_chunks(s, stages, steps) : 1,
                                 .training = training,
                                 .lengths = !columns,
                                 .carries = columns,
                                 .schedule = rcvi_settings_text(s, "schedule")};
}

/* `like`: a plan to use where neither settings nor a checkpoint name one; NULL: the planner chooses. */
static rcv_status add_window(rcv_trainer *t, const rcvi_batcher *batcher, size_t bucket, bool training, size_t index,
                             const char *like) {
    rcvi_window_options o = window_options(t, batcher, bucket, training);
    const char *given = o.schedule;
    char *string;
    RCVI_TRY(find_pinned(t, index, &string));
    if (like && !given) o.schedule = like;
    if (string) o.schedule = string;
    rcv_status status = rcvi_work_add_window(t->work, &o, &t->windows.numbers[index]);
    bool unusable = status == RCV_UNSUPPORTED || status == RCV_NO_MEMORY;
    if (unusable && !string && like && !given) {
        o.schedule = NULL;
        status = rcvi_work_add_window(t->work, &o, &t->windows.numbers[index]);
    }
    if (status == RCV_UNSUPPORTED && string) { /* the checkpoint is from another machine */
        rcvi_log(t->context,
                 "the plan %s of the checkpoint does not run here: another one is chosen, whose sums may be "
                 "rounded otherwise",
                 string);
        o.schedule = given;
        status = rcvi_work_add_window(t->work, &o, &t->windows.numbers[index]);
    }
    rcvi_free(t->context, string);
    return status;
}

/* The planner chooses for the bucket with the most work, and all buckets use its plan. The longest bucket comes first: the others
 * share its runs' memory. Windows of validation are closed until a validation opens them. */
static rcv_status add_windows(rcv_trainer *t, const rcvi_batcher *batcher, bool training, size_t first, size_t count) {
    rcv_plan *like = NULL;
    rcv_status status = RCV_OK;
    const char *agreed = training ? t->windows.agreed : NULL;
    if (count > 1 && !agreed && !t->state.plans && !rcvi_settings_text(t->settings, "schedule")) {
        rcvi_window_options o = window_options(t, batcher, rcvi_heaviest_bucket(batcher), training);
        status = rcvi_window_plan(t->work, &o, &like);
    }
    for (size_t i = count; i > 0 && !status; i--) {
        status = add_window(t, batcher, i - 1, training, first + i - 1, like ? rcv_plan_string(like) : agreed);
        if (!status && !training) rcvi_work_close(t->work, t->windows.numbers[first + i - 1]);
    }
    rcv_plan_free(like);
    return status;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Also the most rows and units of any window. */
static size_t count_shapes(const rcv_trainer *t, const rcvi_batcher *batcher, bool training, rcvi_work_options *work) {
    size_t count = 0;
    while (batcher && rcvi_batcher_shape(batcher, count, NULL, NULL, NULL)) {
        rcvi_window_options o = window_options(t, batcher, count++, training);
        work->rows = larger(work->rows, rcvi_window_options_rows(&o));
        work->units = larger(work->units, o.micro * o.chunks);
    }
    return count;
}

/* Where the device cannot do without the stored gradient and settings do not demand it, it is stored. */
static rcv_status make_work(rcv_trainer *t, rcvi_work_options *o) {
    rcv_status status = rcvi_work_new(t->learner, o, &t->work);
    if (status != RCV_UNSUPPORTED || !o->lean || !rcvi_settings_is(t->settings, "lean", "auto")) return status;
    o->lean = false;
    return rcvi_work_new(t->learner, o, &t->work);
}

rcv_status rcvi_trainer_prepare(rcv_trainer *t, bool (*go_on)(void *user), void *user) {
    rcvi_windows *w = &t->windows;
    if (t->work) return RCV_OK;
    rcvi_work_options o = rcvi_trainer_work_options(t);
    RCVI_TRY(choose_units(t));
    o.topology = rcvi_trainer_topology(t);
    o.peers = t->topology.replicas;
    o.go_on = go_on;
    o.user = user;
    w->train_count = count_shapes(t, t->batcher, true, &o);
    w->valid_count = count_shapes(t, t->validator, false, &o);
    rcvi_free(t->context, w->numbers);
    w->numbers = rcvi_new(t->context, w->train_count + w->valid_count, sizeof *w->numbers);
    if (!w->numbers) return RCV_NO_MEMORY;
    rcv_status status = make_work(t, &o);
    if (!status) status = add_windows(t, t->batcher, true, 0, w->train_count);
    if (!status) status = add_windows(t, t->validator, false, w->train_count, w->valid_count);
    if (status) {
        rcvi_work_free(t->work);
        t->work = NULL;
    }
    return status;
}

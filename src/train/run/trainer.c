/* A training run as an object: its batches, its plans, its arrays. */
#include "train/parallel/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- batches ---- */

static rcv_status make_batcher(rcv_trainer *t, const rcv_data *data, bool training, rcvi_batcher **batcher) {
    const rcv_settings *s = t->settings;
    bool columns = t->learner->shape.kind == RCV_DATA_STREAM;
    int64_t bounds[RCV_MOST_BUCKETS];
    rcvi_batcher_options o = {.how = !columns   ? RCVI_SEQUENCES
                                     : training ? RCVI_COLUMNS
                                                : RCVI_ALL,
                              .batch = rcvi_settings_integer(s, training || !columns ? "batch" : "eval-batch"),
                              .steps = rcvi_settings_integer(s, "length"),
                              .tokens = rcvi_settings_integer(s, "tokens"),
                              .bounds = bounds,
                              .shuffle = training && rcvi_settings_flag(s, "shuffle"),
                              .seed = (uint64_t)rcvi_settings_integer(s, "seed")};
    if (columns)
        o.tokens = 0;
    else
        RCVI_TRY(rcvi_choose_bounds(t, data, training, bounds, &o.bound_count));
    return rcvi_batcher_new(data, &o, batcher);
}

/* ---- life ---- */

void rcvi_train_options_read(rcvi_train_options *r, const rcv_settings *s) {
    r->accumulate = rcvi_settings_integer(s, "accumulate");
    r->log_every = rcvi_settings_integer(s, "log-every");
    r->epochs = rcvi_settings_integer(s, "epochs");
    r->steps = rcvi_settings_integer(s, "steps");
    r->validate_every = rcvi_settings_integer(s, "validate-every");
    r->patience = rcvi_settings_integer(s, "patience");
    r->checkpoint_every = rcvi_settings_integer(s, "checkpoint-every");
    r->keep = rcvi_settings_integer(s, "keep");
    r->nonmono = rcvi_settings_integer(s, "nonmono");
    r->warmup = rcvi_settings_integer(s, "warmup");
    r->decay_after = rcvi_settings_integer(s, "decay-after");
    r->decay_every = rcvi_settings_integer(s, "decay-every");
    r->decay_patience = rcvi_settings_integer(s, "decay-patience");
    r->seconds = rcvi_settings_real(s, "seconds");
    r->checkpoint_seconds = rcvi_settings_real(s, "checkpoint-seconds");
    r->clip = rcvi_settings_real(s, "clip");
    r->clip_value = rcvi_settings_real(s, "clip-value");
    r->learning_rate = rcvi_settings_real(s, "learning-rate");
    r->weight_decay = rcvi_settings_real(s, "weight-decay");
    r->momentum = rcvi_settings_real(s, "momentum");
    r->beta1 = rcvi_settings_real(s, "beta1");
    r->beta2 = rcvi_settings_real(s, "beta2");
    r->epsilon = rcvi_settings_real(s, "epsilon");
    r->decay_factor = rcvi_settings_real(s, "decay-factor");
    r->final_rate = rcvi_settings_real(s, "final-rate");
    r->decay = rcvi_settings_choice(s, "decay");
    r->by_sequence = rcvi_settings_is(s, "loss", "sequence");
    r->seed = (uint64_t)rcvi_settings_integer(s, "seed");
}

/* Why the output layer's gradient must be stored, whatever the data, the device and the ranks are; NULL: it need not. */
static const char *why_never_lean(const rcv_settings *s) {
    if (!rcvi_settings_is(s, "optimiser", "sgd")) return "the optimiser must be sgd";
    if (rcvi_settings_real(s, "weight-decay") != 0) return "weight-decay must be 0";
    if (rcvi_settings_integer(s, "accumulate") != 1) return "accumulate must be 1";
    if (rcvi_settings_flag(s, "tied")) return "the output layer must not be tied to the embedding";
    if (rcvi_settings_choice(s, "kind") > RCV_DATA_LINES) return "the kind must be stream or lines";
    return NULL;
}

rcv_status rcv_settings_check(const rcv_settings *s) {
    RCVI_NEED(s, "settings");
    if (rcvi_settings_is(s, "decay", "cosine") && !rcvi_settings_integer(s, "epochs") &&
        !rcvi_settings_integer(s, "steps"))
        return rcvi_fail(RCV_INVALID, "a cosine needs to know where it ends: set epochs or steps");
    const char *why = why_never_lean(s);
    if (why && rcvi_settings_is(s, "lean", "yes")) return rcvi_fail(RCV_INVALID, "lean cannot be yes here: %s", why);
    return RCV_OK;
}

static rcv_status check_settings(const rcv_settings *s, const rcv_data *train) {
    if (rcv_data_get_kind(train) != (rcv_data_kind)rcvi_settings_choice(s, "kind"))
        return rcvi_fail(RCV_INVALID, "the settings and the data do not agree on what kind of data it is");
    return rcv_settings_check(s);
}

static bool is_sparse(const rcv_trainer *t) {
    const rcvi_shape *shape = &t->learner->shape;
    return t->kind == RCVI_SGD && !t->asgd && shape->tokens && !shape->tied && !shape->fixed &&
           rcvi_settings_real(t->settings, "weight-decay") == 0 &&
           rcvi_settings_integer(t->settings, "accumulate") == 1;
}

/* The same of this run. */
static const char *why_not_lean(const rcv_trainer *t) {
    return t->topology.world ? "one rank must do it alone" : why_never_lean(t->settings);
}

enum { LEAN_BYTES = 64 << 20 }; /* of an output layer: below these its gradient is not worth computing twice */

static rcv_status check_lean(const rcv_trainer *t) {
    const char *why = why_not_lean(t);
    if (!why || !rcvi_settings_is(t->settings, "lean", "yes")) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "lean cannot be yes here: %s", why);
}

/* What replicas share must divide among them. */
static rcv_status check_shares(const rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (!topology) return RCV_OK;
    if (topology->shares_optimiser && (t->kind == RCVI_SGD || t->asgd))
        return rcvi_fail(RCV_INVALID,
                         "share-optimiser is for momentum, adam and adamw: there is nothing to share of %s",
                         rcv_settings_get(t->settings, "optimiser"));
    return rcvi_units_check(t, topology->replica_count, topology->stage_count);
}

static bool wants_lean(const rcv_trainer *t) {
    const rcv_learner *l = t->learner;
    if (rcvi_settings_is(t->settings, "lean", "yes")) return true;
    bool large = l->shape.outputs * l->width * (int64_t)sizeof(float) >= LEAN_BYTES;
    return rcvi_settings_is(t->settings, "lean", "auto") && large && !why_not_lean(t);
}

/* In the order of the setting's choices; the last is SGD whose average is kept. */
static const rcvi_update_kind kinds[] = {RCVI_SGD, RCVI_MOMENTUM, RCVI_ADAM, RCVI_ADAMW, RCVI_SGD};

static rcv_status make_moments(rcv_trainer *t) {
    const rcv_learner *l = t->learner;
    size_t real = rcvi_real_bytes(l);
    int64_t elements = rcvi_ranks_share(t);
    if (elements < 0) return RCV_NO_MEMORY;
    if (t->kind != RCVI_SGD) RCVI_TRY(rcvi_device_new(l, elements, real, &t->first));
    if (t->kind == RCVI_ADAM || t->kind == RCVI_ADAMW) RCVI_TRY(rcvi_device_new(l, elements, real, &t->second));
    if (t->asgd) RCVI_TRY(rcvi_device_new(l, elements, real, &t->average));
    void *outcomes;
    RCVI_TRY(rcvi_device_new(l, RCVI_PENDING_OUTCOMES, sizeof *t->outcomes, &outcomes));
    t->outcomes = outcomes;
    return RCV_OK;
}

/* No updates at all, said so, is a limit too. */
static bool is_limited(const rcv_settings *s) {
    return rcvi_settings_integer(s, "epochs") || rcvi_settings_real(s, "seconds") > 0 || rcv_settings_given(s, "steps");
}

/* All but what lies in the device's memory. */
static rcv_status describe_run(rcv_trainer *t) {
    if (!is_limited(t->settings)) RCVI_TRY(rcv_settings_set(t->settings, "epochs", "1"));
    rcvi_train_options_read(&t->options, t->settings);
    RCVI_TRY(rcvi_learner_make(t->context, t->settings, t->train, &t->learner));
    if (t->valid) RCVI_TRY(rcvi_learner_fits(t->learner, t->valid));
    int optimiser = rcvi_settings_choice(t->settings, "optimiser");
    t->kind = kinds[optimiser];
    t->asgd = rcvi_settings_is(t->settings, "optimiser", "asgd");
    RCVI_TRY(check_lean(t));
    RCVI_TRY(check_shares(t));
    RCVI_TRY(make_batcher(t, t->train, true, &t->batcher));
    if (t->valid) RCVI_TRY(make_batcher(t, t->valid, false, &t->validator));
    double scale = rcvi_settings_real(t->settings, "loss-scale");
    bool scaled = t->learner->dtype == RCV_FLOAT16;
    uint64_t identity;
    RCVI_TRY(rcvi_data_identity(t->train, &identity));
    t->state = (rcvi_run_state){.data_hash = identity,
                                .factor = 1,
                                .best = INFINITY,
                                .scale = !scaled     ? 1
                                         : scale > 0 ? scale
                                                     : 65536};
    return RCV_OK;
}

static rcv_status fill_run(rcv_trainer *t, int64_t first, int64_t count) {
    RCVI_TRY(rcvi_learner_take_part(t->learner, first, count));
    RCVI_TRY(rcvi_learner_begin(t->learner, t->settings));
    return make_moments(t);
}

/* Every rank fails where one does, before any waits for what will not come. */
static rcv_status agree(const rcv_trainer *t, rcv_status status) {
    return t->topology.world ? rcvi_comm_agree(t->topology.world, status) : status;
}

static rcv_status fill_trainer(rcv_trainer *t, rcv_world *world) {
    int64_t first, count;
    if (world) RCVI_TRY(rcvi_topology_open(rcvi_world_comm(world), t->settings, &t->topology));
    RCVI_TRY(agree(t, check_settings(t->settings, t->train)));
    RCVI_TRY(agree(t, describe_run(t)));
    RCVI_TRY(rcvi_ranks_agree(t));
    if (world) RCVI_TRY(agree(t, rcvi_comm_set_device(t->topology.world, t->learner->device, t->learner->ordinal)));
    RCVI_TRY(agree(t, rcvi_ranks_split(t, &first, &count)));
    return agree(t, fill_run(t, first, count));
}

rcv_status rcv_trainer_new(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                           const rcv_data *valid, rcv_trainer **out) {
    if (out) *out = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(settings, "settings");
    RCVI_NEED(train, "train");
    RCVI_NEED(out, "trainer");
    return rcv_trainer_join(context, settings, train, valid, NULL, out);
}

rcv_status rcv_trainer_join(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                            const rcv_data *valid, rcv_world *world, rcv_trainer **out) {
    if (out) *out = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(settings, "settings");
    RCVI_NEED(train, "train");
    RCVI_NEED(out, "trainer");
    if (!world && rcvi_settings_text(settings, "parallel"))
        return rcvi_fail(RCV_INVALID, "parallel '%s' needs a world of ranks: start them with mpirun -n N",
                         rcvi_settings_text(settings, "parallel"));
    rcv_trainer *t = rcvi_new(context, 1, sizeof *t);
    if (!t) return RCV_NO_MEMORY;
    t->context = context;
    t->train = train;
    t->valid = valid;
    t->lock.file = -1;
    rcvi_run_id_new(t->run);
    rcv_status status = rcv_settings_copy(settings, &t->settings);
    if (!status) status = fill_trainer(t, world);
    if (status) {
        rcv_trainer_free(t);
        return status;
    }
    *out = t;
    return RCV_OK;
}

void rcv_trainer_free(rcv_trainer *t) {
    if (!t) return;
    rcvi_work_free(t->work);
    if (t->learner) {
        rcvi_trainer_drop_pending_states(t);
        rcvi_device_free(t->learner, t->first);
        rcvi_device_free(t->learner, t->second);
        rcvi_device_free(t->learner, t->average);
        rcvi_device_free(t->learner, t->outcomes);
    }
    rcvi_comm_finish(t->flags_sum, NULL);
    rcvi_free(t->context, t->parts);
    rcvi_free(t->context, t->windows);
    rcvi_free(t->context, t->plans);
    rcvi_free(t->context, t->agreed);
    rcvi_free(t->context, t->history);
    rcvi_free(t->context, t->good);
    rcvi_batcher_free(t->batcher);
    rcvi_batcher_free(t->validator);
    rcv_learner_free(t->learner);
    rcvi_topology_close(&t->topology);
    rcv_settings_free(t->settings);
    rcvi_free(t->context, t);
}

rcv_learner *rcv_trainer_learner(rcv_trainer *trainer) { return trainer->learner; }
const rcv_progress *rcv_trainer_progress(const rcv_trainer *trainer) { return &trainer->progress; }

rcv_status rcvi_trainer_note_good(rcv_trainer *t, const char *path) {
    char *copy = rcvi_copy_text(t->context, path, strlen(path));
    if (!copy) return RCV_NO_MEMORY;
    rcvi_free(t->context, t->good);
    t->good = copy;
    t->good_step = t->state.step;
    return RCV_OK;
}

size_t rcv_trainer_bytes(const rcv_trainer *t) {
    if (!t->work) return 0;
    size_t real = rcvi_real_bytes(t->learner), array = (size_t)(t->learner->to - t->learner->from) * real;
    int64_t share = rcvi_ranks_share(t);
    size_t moments = (size_t)(share > 0 ? share : 0) * real;
    return rcvi_work_bytes(t->work) + array +
           moments * (size_t)((t->first != NULL) + (t->second != NULL) + (t->average != NULL));
}

/* ---- plans ---- */

/* The line of a pinned plan; NULL where there is none, or the settings say another. Free with rcvi_free. */
static rcv_status find_pinned(const rcv_trainer *t, size_t index, char **plan) {
    const char *line = rcvi_settings_text(t->settings, "schedule") ? NULL : t->plans;
    *plan = NULL;
    for (; line && index; index--) line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    if (!line || !*line) return RCV_OK;
    *plan = rcvi_copy_text(t->context, line, strcspn(line, "\n"));
    return *plan ? RCV_OK : RCV_NO_MEMORY;
}

/* Of a batch the part that is this replica's; where that does not come out even, the last ones have empty rows. */
static rcvi_window_options window_options(const rcv_trainer *t, const rcvi_batcher *batcher, size_t bucket,
                                          bool training) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    bool columns = t->learner->shape.kind == RCV_DATA_STREAM;
    int64_t steps, whole, replicas = topology ? topology->replica_count : 1;
    rcvi_batcher_shape(batcher, bucket, &steps, &whole, NULL);
    int64_t batch = (whole + replicas - 1) / replicas;
    return (rcvi_window_options){.steps = steps,
                                 .batch = batch,
                                 .first = topology ? topology->replica * batch : 0,
                                 .whole = whole,
                                 .micro = training ? rcvi_units_micro(t, batch) : 1,
                                 .chunks = training ? rcvi_units_chunks(t, steps) : 1,
                                 .training = training,
                                 .lengths = !columns,
                                 .carries = columns,
                                 .schedule = rcvi_settings_text(t->settings, "schedule")};
}

/* `like`: a plan that will do where the settings and the checkpoint say none; NULL: the planner chooses. */
static rcv_status add_window(rcv_trainer *t, const rcvi_batcher *batcher, size_t bucket, bool training, size_t index,
                             const char *like) {
    rcvi_window_options o = window_options(t, batcher, bucket, training);
    const char *said = o.schedule;
    char *string;
    RCVI_TRY(find_pinned(t, index, &string));
    if (like && !said) o.schedule = like;
    if (string) o.schedule = string;
    rcv_status status = rcvi_work_window(t->work, &o, &t->windows[index]);
    bool spare = status == RCV_UNSUPPORTED || status == RCV_NO_MEMORY;
    if (spare && !string && like && !said) {
        o.schedule = NULL;
        status = rcvi_work_window(t->work, &o, &t->windows[index]);
    }
    if (status == RCV_UNSUPPORTED && string) { /* of another machine */
        rcvi_log(t->context,
                 "the plan %s of the checkpoint does not run here: another one is chosen, whose sums may be "
                 "rounded otherwise",
                 string);
        o.schedule = said;
        status = rcvi_work_window(t->work, &o, &t->windows[index]);
    }
    rcvi_free(t->context, string);
    return status;
}

/* The plan of the bucket with the most work is chosen, and taken for the others. The longest comes first: the others have their runs in its
 * memory. Those of validation are closed until there is one. */
static rcv_status add_windows(rcv_trainer *t, const rcvi_batcher *batcher, bool training, size_t first, size_t count) {
    rcv_plan *like = NULL;
    rcv_status status = RCV_OK;
    const char *agreed = training ? t->agreed : NULL;
    if (count > 1 && !agreed && !t->plans && !rcvi_settings_text(t->settings, "schedule")) {
        rcvi_window_options o = window_options(t, batcher, rcvi_heaviest_bucket(batcher), training);
        status = rcvi_window_plan(t->work, &o, &like);
    }
    for (size_t i = count; i > 0 && !status; i--) {
        status = add_window(t, batcher, i - 1, training, first + i - 1, like ? rcv_plan_string(like) : agreed);
        if (!status && !training) rcvi_work_close(t->work, t->windows[first + i - 1]);
    }
    rcv_plan_free(like);
    return status;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static size_t count_shapes(const rcv_trainer *t, const rcvi_batcher *batcher, bool training, rcvi_work_options *work) {
    size_t count = 0;
    while (batcher && rcvi_batcher_shape(batcher, count, NULL, NULL, NULL)) {
        rcvi_window_options o = window_options(t, batcher, count++, training);
        work->rows = larger(work->rows, rcvi_window_options_rows(&o));
        work->units = larger(work->units, o.micro * o.chunks);
    }
    return count;
}

/* What a device does not do is left where nobody asked for it. */
static rcv_status make_work(rcv_trainer *t, rcvi_work_options *o) {
    rcv_status status = rcvi_work_new(t->learner, o, &t->work);
    if (status != RCV_UNSUPPORTED || !o->lean || !rcvi_settings_is(t->settings, "lean", "auto")) return status;
    o->lean = false;
    return rcvi_work_new(t->learner, o, &t->work);
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
                               .lean = wants_lean(t),
                               .threads = rcvi_ranks_threads(t),
                               .chunk = rcvi_settings_integer(s, "chunk"),
                               .effort = (rcv_effort)rcvi_settings_choice(s, "effort")};
}

rcv_status rcvi_trainer_prepare(rcv_trainer *t, bool (*go_on)(void *user), void *user) {
    if (t->work) return RCV_OK;
    rcvi_work_options o = rcvi_trainer_work_options(t);
    RCVI_TRY(rcvi_units_choose(t));
    o.topology = rcvi_trainer_topology(t);
    o.peers = t->topology.replicas;
    o.go_on = go_on;
    o.user = user;
    t->train_windows = count_shapes(t, t->batcher, true, &o);
    t->valid_windows = count_shapes(t, t->validator, false, &o);
    rcvi_free(t->context, t->windows);
    t->windows = rcvi_new(t->context, t->train_windows + t->valid_windows, sizeof *t->windows);
    if (!t->windows) return RCV_NO_MEMORY;
    rcv_status status = make_work(t, &o);
    if (!status) status = add_windows(t, t->batcher, true, 0, t->train_windows);
    if (!status) status = add_windows(t, t->validator, false, t->train_windows, t->valid_windows);
    if (status) {
        rcvi_work_free(t->work);
        t->work = NULL;
    }
    return status;
}

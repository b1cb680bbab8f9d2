/* A training run as an object: making and freeing it. */
#include "train/run/trainer.h"

#include "train/learner/learner_data.h"
#include "train/run/agreement.h"
#include "train/run/buckets.h"
#include "train/run/files/identity.h"
#include "train/run/report/evaluation_json.h"
#include "train/step/collect.h"

#include <math.h>
#include <string.h>

/* ---- batches ---- */

static rcv_status make_batcher(rcv_trainer *t, const rcv_data *data, bool training, rcvi_batcher **batcher) {
    const rcv_settings *s = t->settings;
    bool columns = t->learner->shape.kind == RCV_DATA_STREAM;
    int64_t lengths[RCV_MOST_BUCKETS];
    rcvi_batcher_options o = {.how = !columns   ? RCVI_SEQUENCES
                                     : training ? RCVI_COLUMNS
                                                : RCVI_ALL,
                              .batch = rcvi_settings_integer(s, training || !columns ? "batch" : "eval-batch"),
                              .steps = rcvi_settings_integer(s, "length"),
                              .tokens = rcvi_settings_integer(s, "tokens"),
                              .bounds = lengths,
                              .shuffle = training && rcvi_settings_flag(s, "shuffle"),
                              .seed = (uint64_t)rcvi_settings_integer(s, "seed"),
                              .scaling = t->learner->scaling};
    if (columns) {
        o.tokens = 0;
    } else {
        RCVI_TRY(rcvi_choose_buckets(s, t->learner, rcvi_trainer_topology(t), data, lengths, &o.bound_count));
        if (training) RCVI_TRY(rcvi_keep_buckets(t->settings, lengths, o.bound_count));
    }
    return rcvi_batcher_new(data, &o, batcher);
}

/* ---- making ---- */

static rcv_status check_settings(const rcv_settings *s, const rcv_data *train) {
    if (!rcvi_settings_is(s, "kind", "auto") &&
        rcv_data_get_kind(train) != (rcv_data_kind)rcvi_settings_choice(s, "kind"))
        return rcvi_fail(RCV_INVALID, "the settings and the data do not agree on what kind of data it is");
    return rcv_settings_check(s);
}

/* The optimiser and the batch must divide among replicas and stages. */
static rcv_status check_topology(const rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (!topology) return RCV_OK;
    if (topology->shares_optimiser && t->optimiser.kind == RCVI_SGD)
        return rcvi_fail(RCV_INVALID,
                         "share-optimiser is for momentum, adam and adamw: there is nothing to share of %s",
                         rcv_settings_get(t->settings, "optimiser"));
    return rcvi_units_check(t->settings, topology->replica_count, topology->stage_count);
}

/* An explicit `steps` of 0 is a limit, too. */
static bool is_limited(const rcv_settings *s) {
    return rcvi_settings_integer(s, "epochs") || rcvi_settings_real(s, "seconds") > 0 || rcv_settings_given(s, "steps");
}

/* float16 alone scales its loss. */
static double first_loss_scale(const rcv_settings *s, rcv_dtype dtype) {
    double scale = rcvi_settings_real(s, "loss-scale");
    if (dtype != RCV_FLOAT16) return 1;
    return scale > 0 ? scale : 65536;
}

/* A kind that is open becomes that of the data, so that a resumed run has it, too. */
static rcv_status keep_kind(rcv_settings *settings, const rcv_data *train) {
    if (!rcvi_settings_is(settings, "kind", "auto")) return RCV_OK;
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        if (strcmp(setting->name, "kind") == 0)
            return rcv_settings_set(settings, "kind", setting->choices[rcv_data_get_kind(train)]);
    }
    return RCV_OK;
}

/* All that needs no memory of the device. */
static rcv_status describe_run(rcv_trainer *t) {
    RCVI_TRY(keep_kind(t->settings, t->train));
    if (!is_limited(t->settings)) RCVI_TRY(rcv_settings_set(t->settings, "epochs", "1"));
    rcvi_train_options_read(&t->options, t->settings);
    RCVI_TRY(rcvi_learner_make(t->context, t->settings, t->train, &t->learner));
    RCVI_TRY(rcvi_learner_measure(t->learner, t->settings, t->train));
    if (t->valid) RCVI_TRY(rcvi_learner_fits(t->learner, t->valid));
    t->optimiser = rcvi_optimiser_of(t->settings);
    t->log = (rcvi_run_log){.context = t->context, .form = rcvi_loss_form_of(t->learner)};
    RCVI_TRY(rcvi_trainer_check_lean(t));
    RCVI_TRY(check_topology(t));
    RCVI_TRY(make_batcher(t, t->train, true, &t->batcher));
    if (t->valid) RCVI_TRY(make_batcher(t, t->valid, false, &t->validator));
    uint64_t identity;
    RCVI_TRY(rcvi_data_identity(t->train, &identity));
    rcvi_run_state_init(&t->state, identity, first_loss_scale(t->settings, t->learner->dtype));
    return RCV_OK;
}

/* The split becomes the run's setting, so that a resumed run has it too. */
static rcv_status keep_split(rcv_settings *settings, const int *counts, int stages) {
    rcv_context *context = rcvi_settings_context(settings);
    rcvi_text text;
    char *split = NULL;
    rcvi_text_init(&text, context);
    for (int s = 0; s < stages; s++) rcvi_text_add(&text, "%s%d", s ? "," : "", counts[s]);
    RCVI_TRY(rcvi_text_take(&text, &split));
    rcv_status status = rcv_settings_set(settings, "split", split);
    rcvi_free(context, split);
    return status;
}

static rcv_status choose_split(rcv_trainer *t, int stages, int *counts) {
    const rcvi_workload workload = rcvi_trainer_workload(t);
    RCVI_TRY(rcvi_costs_split(&workload, t->topology.replica_count, stages, counts));
    return keep_split(t->settings, counts, stages);
}

/* The first layer of this rank's stage, and how many it has. */
static rcv_status find_layers(rcv_trainer *t, int64_t *first, int64_t *count) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int layers = (int)rcv_net_get_options(t->learner->net)->layers, stages = rcvi_topology_stages(topology);
    *first = 0;
    *count = layers;
    if (stages == 1) return RCV_OK;
    RCVI_TRY(rcvi_check_stages(layers, stages));
    const char *asked = rcvi_settings_text(t->settings, "split");
    int *counts = rcvi_new(t->context, (size_t)stages, sizeof *counts);
    rcv_status status = !counts ? RCV_NO_MEMORY
                        : asked ? rcvi_read_split(asked, layers, stages, counts)
                                : choose_split(t, stages, counts);
    for (int s = 0; !status && s < topology->stage; s++) *first += counts[s];
    if (!status) *count = counts[topology->stage];
    rcvi_free(t->context, counts);
    return status;
}

/* Parameters with their first values, moments, room for outcomes. */
static rcv_status allocate_arrays(rcv_trainer *t, int64_t first, int64_t count) {
    RCVI_TRY(rcvi_learner_take_slice(t->learner, first, count));
    RCVI_TRY(rcvi_learner_set_first_values(t->learner, t->settings));
    int64_t elements = rcvi_share_elements(t->learner, rcvi_trainer_topology(t));
    if (elements < 0) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_optimiser_allocate(&t->optimiser, t->learner, elements));
    return rcvi_outcomes_allocate(&t->outcomes, t->learner);
}

static rcv_status fill_trainer(rcv_trainer *t, rcv_world *world) {
    int64_t first, count;
    if (world) RCVI_TRY(rcvi_topology_open(rcvi_world_comm(world), t->settings, &t->topology));
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    RCVI_TRY(rcvi_topology_agree(topology, check_settings(t->settings, t->train)));
    RCVI_TRY(rcvi_topology_agree(topology, describe_run(t)));
    RCVI_TRY(rcvi_check_agreement(t));
    if (topology)
        RCVI_TRY(rcvi_topology_agree(topology,
                                     rcvi_comm_set_device(topology->world, t->learner->device, t->learner->ordinal)));
    RCVI_TRY(rcvi_topology_agree(topology, find_layers(t, &first, &count)));
    return rcvi_topology_agree(topology, allocate_arrays(t, first, count));
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
    t->progress.report.metric = NAN;
    rcvi_outputs_init(&t->outputs, context);
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
        rcvi_optimiser_free(&t->optimiser, t->learner);
        rcvi_outcomes_free(&t->outcomes, t->learner);
    }
    rcvi_control_flags_end(&t->flags);
    rcvi_windows_free(&t->windows, t->context);
    rcvi_run_state_free(&t->state, t->context);
    rcvi_outputs_free(&t->outputs);
    rcvi_batcher_free(t->batcher);
    rcvi_batcher_free(t->validator);
    rcv_learner_free(t->learner);
    rcvi_topology_close(&t->topology);
    rcv_settings_free(t->settings);
    rcvi_free(t->context, t);
}

rcv_learner *rcv_trainer_learner(rcv_trainer *trainer) { return trainer->learner; }
const rcv_progress *rcv_trainer_progress(const rcv_trainer *trainer) { return &trainer->progress.report; }

size_t rcv_trainer_bytes(const rcv_trainer *t) {
    if (!t->work) return 0;
    size_t real = rcvi_real_bytes(t->learner),
           parameters = (size_t)(t->learner->end_element - t->learner->first_element) * real;
    int64_t elements = rcvi_share_elements(t->learner, rcvi_trainer_topology(t));
    size_t moments = (size_t)(elements > 0 ? elements : 0) * real;
    return rcvi_work_bytes(t->work) + parameters + moments * rcvi_optimiser_array_count(&t->optimiser);
}

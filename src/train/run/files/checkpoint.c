/* A run as a file: the model as learner_file.c writes it, and in addition
 *   recurve.settings   every setting, JSON
 *   recurve.training   the run's state (state.c), how the data is cut into batches, and the topology, JSON
 *   recurve.plans      plan strings, one line per window
 *   recurve.run        the id of the run (outputs.c), JSON
 *   first.*, second.*  moments of the optimiser, where it has them
 *   average.*          average of the parameters, once averaging has begun
 *   state.NAME         carried states of the training columns */
#include "train/run/files/checkpoint.h"

#include "train/run/trainer.h"

#include "model/model.h"
#include "train/learner/learner_data.h"
#include "train/run/files/identity.h"
#include "train/step/collect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_KEY "recurve.settings"
#define TRAINING_KEY "recurve.training"
#define PLANS_KEY "recurve.plans"
enum { NAME_BYTES = 192 };

/* Arrays of a run, by the prefix of their tensors' names in the file. */
static const char *const prefixes[] = {"", "first.", "second.", RCVI_AVERAGE_PREFIX};
enum { ARRAYS = sizeof prefixes / sizeof *prefixes };

/* NULL where the run has none. An average counts from its first update on. */
static void *array_of(const rcv_trainer *t, const rcvi_run_state *state, int index) {
    const rcvi_optimiser *o = &t->optimiser;
    return (void *[]){t->learner->parameters, o->first, o->second,
                      state->averaged_updates > 1 ? o->average : NULL}[index];
}

static rcvi_array_kind kind_of(int index) { return index > 0 ? RCVI_OF_SHARES : RCVI_OF_PARAMETERS; }

/* ---- the state as JSON ---- */

/* How the data is cut into batches: a position in it has the same meaning only where this is equal. NULL without memory. */
static json_t *batching_json(const rcv_trainer *t) {
    bool shuffles = t->learner->shape.kind != RCV_DATA_STREAM && rcvi_settings_flag(t->settings, "shuffle");
    json_t *array = json_array();
    bool good = !json_array_append_new(array, shuffles ? json_integer((json_int_t)t->options.seed) : json_null());
    int64_t steps, batch, batches;
    for (size_t i = 0; good && rcvi_batcher_shape(t->batcher, i, &steps, &batch, &batches); i++)
        good = !json_array_append_new(
            array, json_pack("[I, I, I]", (json_int_t)steps, (json_int_t)batch, (json_int_t)batches));
    return rcvi_json_if(good, array);
}

/* Replicas and stages. */
static json_t *ranks_json(const rcvi_topology *topology) {
    return json_pack("[i, i]", rcvi_topology_replicas(topology), rcvi_topology_stages(topology));
}

/* What a file contains, until all of it has been checked. */
typedef struct {
    void *arrays[ARRAYS]; /* [elements] of the host; NULL: there is none */
    rcvi_run_state state;
    rcvi_scaling *scaling; /* NULL: there is none */
    bool same_batches, same_ranks;
} restored;

static rcv_status read_state(const rcv_trainer *t, const char *text, const char *file, restored *r) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    json_t *object = rcvi_json_read(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
    rcv_status status = rcvi_run_state_from_json(t->context, object, file, &r->state);
    json_t *batching = batching_json(t), *ranks = ranks_json(topology);
    const json_t *ranks_then = json_object_get(object, "ranks");
    if (!status && (!batching || !ranks)) status = rcvi_no_memory(1); /* else they would seem to differ */
    r->same_batches = json_equal(json_object_get(object, "batching"), batching);
    r->same_ranks = ranks_then ? json_equal(ranks_then, ranks) : !topology;
    json_decref(ranks);
    json_decref(batching);
    json_decref(object);
    return status;
}

/* ---- writing ---- */

static rcv_status add_state(const rcv_trainer *t, size_t index, const void *host, size_t elements,
                            rcv_tensors *tensors) {
    const rcv_learner *l = t->learner;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "state.%s", rcv_net_state(l->net, index)->name);
    const rcv_tensor tensor = {.name = name,
                               .dtype = l->real,
                               .dims = 1,
                               .shape = {(int64_t)elements},
                               .data = host,
                               .bytes = elements * rcvi_real_bytes(l)};
    return rcv_tensors_add(tensors, &tensor);
}

/* From the window that carries them, or, before there is one, as they were read from a checkpoint. */
static rcv_status add_states(const rcv_trainer *t, rcv_tensors *tensors) {
    const rcv_learner *l = t->learner;
    const rcvi_window *v = t->work ? rcvi_trainer_window(t, 0) : NULL;
    void **carried = t->state.carried;
    int64_t batch = rcvi_settings_integer(t->settings, "batch");
    for (size_t s = 0; (carried || (v && v->carries)) && s < rcv_net_state_count(l->net); s++) {
        size_t elements = (size_t)(rcv_net_state(l->net, s)->total * batch);
        void *host = NULL;
        rcv_status status = carried ? RCV_OK : rcvi_collect_state(t->work, v, s, &host);
        if (!status && (host || carried)) status = add_state(t, s, host ? host : carried[s], elements, tensors);
        rcvi_free(t->context, host);
        RCVI_TRY(status);
    }
    return RCV_OK;
}

static rcv_status add_array(const rcv_trainer *t, int index, rcv_tensors *tensors) {
    const void *array = array_of(t, &t->state, index);
    void *host = NULL;
    if (!array) return RCV_OK;
    RCVI_TRY(rcvi_collect_array(t->learner, rcvi_trainer_topology(t), array, kind_of(index), &host));
    rcv_status status = host ? rcvi_array_to_tensors(t->learner, prefixes[index], host, tensors) : RCV_OK;
    rcvi_free(t->context, host);
    return status;
}

static rcv_status add_plans(const rcv_trainer *t, rcv_tensors *tensors) {
    if (!t->work) return t->state.plans ? rcv_tensors_set_metadata(tensors, PLANS_KEY, t->state.plans) : RCV_OK;
    rcvi_text text;
    rcvi_text_init(&text, t->context);
    for (size_t i = 0; i < t->windows.train_count + t->windows.valid_count; i++)
        rcvi_text_add(&text, "%s\n", rcv_plan_string(rcvi_trainer_window(t, i)->plan));
    char *own = NULL, *plans = NULL;
    RCVI_TRY(rcvi_text_take(&text, &own));
    rcv_status status = rcvi_collect_text(t->context, rcvi_trainer_topology(t), own, &plans);
    if (!status && plans) status = rcv_tensors_set_metadata(tensors, PLANS_KEY, plans);
    rcvi_free(t->context, plans);
    rcvi_free(t->context, own);
    return status;
}

/* The plans of this rank's stage among those of all stages, which have as many lines each. */
static char *own_plans(const rcv_trainer *t, const char *plans) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int stages = rcvi_topology_stages(topology), stage = rcvi_topology_stage(topology), lines = 0;
    for (const char *at = plans; *at; at++) lines += *at == '\n';
    for (int skip = lines / stages * stage; skip > 0; skip--) plans = strchr(plans, '\n') + 1;
    const char *end = plans;
    for (int keep = lines / stages; keep > 0; keep--) end = strchr(end, '\n') + 1;
    return rcvi_copy_text(t->context, plans, (size_t)(end - plans));
}

static rcv_status add_metadata(const rcv_trainer *t, rcv_tensors *tensors) {
    char *settings = NULL;
    RCVI_TRY(rcv_settings_print(t->settings, &settings));
    rcv_status status = rcv_tensors_set_metadata(tensors, SETTINGS_KEY, settings);
    rcv_text_free(t->context, settings);
    RCVI_TRY(status);
    json_t *object = rcvi_run_state_to_json(&t->state, batching_json(t), ranks_json(rcvi_trainer_topology(t)));
    char *text = NULL;
    status = rcvi_json_print(t->context, object, JSON_COMPACT | JSON_REAL_PRECISION(17), &text);
    if (!status) status = rcv_tensors_set_metadata(tensors, TRAINING_KEY, text);
    rcvi_free(t->context, text);
    json_decref(object);
    if (!status) status = rcvi_run_id_to_tensors(&t->outputs, t->state.step, tensors);
    return status ? status : add_plans(t, tensors);
}

rcv_status rcvi_checkpoint_save(rcv_trainer *t, const char *path) {
    rcv_tensors *tensors;
    if (t->work) RCVI_TRY(t->work->ops->wait(t->work->learn));
    RCVI_TRY(rcv_tensors_new(t->context, &tensors));
    rcv_status status = rcvi_learner_describe(t->learner, tensors);
    if (!status) status = add_metadata(t, tensors);
    for (int i = 0; i < ARRAYS && !status; i++) status = add_array(t, i, tensors);
    if (!status) status = add_states(t, tensors);
    if (!status && rcvi_topology_is_leader(rcvi_trainer_topology(t))) status = rcv_tensors_save(tensors, path);
    rcv_tensors_free(tensors);
    return status;
}

rcv_status rcvi_checkpoint_save_model(const rcv_trainer *t, const void *parameters, const char *path) {
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_new(t->context, &tensors));
    rcv_status status = rcvi_learner_describe(t->learner, tensors);
    if (!status) status = rcvi_run_id_to_tensors(&t->outputs, t->state.step, tensors);
    if (!status) status = rcvi_array_to_tensors(t->learner, "", parameters, tensors);
    if (!status) status = rcv_tensors_save(tensors, path);
    rcv_tensors_free(tensors);
    return status;
}

/* ---- reading ---- */

static rcv_status read_carried(const rcv_trainer *t, const rcv_tensors *tensors, const char *file, rcvi_run_state *to) {
    const rcv_learner *l = t->learner;
    int64_t batch = rcvi_settings_integer(t->settings, "batch");
    to->carried_count = rcv_net_state_count(l->net);
    to->carried = rcvi_new(t->context, to->carried_count, sizeof *to->carried);
    if (!to->carried) return RCV_NO_MEMORY;
    for (size_t s = 0; s < to->carried_count; s++) {
        const rcv_state *state = rcv_net_state(l->net, s);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "state.%s", state->name);
        const rcv_tensor *tensor = rcv_tensors_find(tensors, name);
        size_t elements = (size_t)(state->total * batch);
        if (!tensor || tensor->dims != 1 || tensor->shape[0] != (int64_t)elements)
            return rcvi_fail(RCV_FORMAT,
                             "%s: there is no tensor %s of %zu elements, so training cannot be resumed from it", file,
                             name, elements);
        to->carried[s] = rcvi_new(t->context, elements, rcvi_real_bytes(l));
        if (!to->carried[s]) return RCV_NO_MEMORY;
        RCVI_TRY(rcv_tensor_convert(tensor, l->real, elements, to->carried[s]));
    }
    return RCV_OK;
}

static void swap_scaling(const rcv_trainer *t, restored *r) {
    rcvi_scaling *own = t->learner->scaling;
    t->learner->scaling = r->scaling;
    r->scaling = own;
}

/* A run goes on with the means and scales that it began with, also with other data. */
static rcv_status read_scaling(const rcv_trainer *t, const rcv_tensors *tensors, const char *file, restored *r) {
    RCVI_TRY(rcvi_learner_read_scaling(t->learner, tensors, file, &r->scaling));
    swap_scaling(t, r);
    rcv_status status = rcvi_learner_fits(t->learner, t->train);
    if (!status && t->valid) status = rcvi_learner_fits(t->learner, t->valid);
    swap_scaling(t, r);
    return status;
}

static rcv_status read_run(const rcv_trainer *t, const rcv_tensors *tensors, const char *file, restored *r) {
    const char *text = rcv_tensors_metadata(tensors, TRAINING_KEY), *plans = rcv_tensors_metadata(tensors, PLANS_KEY);
    if (!text)
        return rcvi_fail(RCV_FORMAT, "%s is a model without a training run, so training cannot be resumed from it",
                         file);
    RCVI_TRY(rcvi_learner_check_same(t->learner, tensors, file));
    RCVI_TRY(read_state(t, text, file, r));
    RCVI_TRY(read_scaling(t, tensors, file, r));
    for (int i = 0; i < ARRAYS; i++)
        if (array_of(t, &r->state, i))
            RCVI_TRY(rcvi_array_from_tensors(t->learner, prefixes[i], tensors, file, &r->arrays[i]));
    if (plans && r->same_ranks && !(r->state.plans = own_plans(t, plans))) return RCV_NO_MEMORY;
    uint64_t hash;
    RCVI_TRY(rcvi_data_identity(t->train, &hash));
    if (!r->same_batches) r->state.position.batch = 0; /* the epoch begins again */
    if (r->state.data_hash != hash) {                  /* other data: from its beginning */
        r->state.data_hash = hash;
        r->state.position = (rcvi_position){0, 0};
    }
    if (r->state.position.batch > rcvi_batcher_count(t->batcher))
        return rcvi_fail(RCV_FORMAT, "%s is at batch %lld of an epoch, but an epoch has %lld batches", file,
                         (long long)r->state.position.batch, (long long)rcvi_batcher_count(t->batcher));
    bool carries = t->learner->shape.kind == RCV_DATA_STREAM && r->state.position.batch > 0;
    return carries ? read_carried(t, tensors, file, &r->state) : RCV_OK;
}

/* Replaces arrays and state. A failure of a later array leaves earlier ones replaced; the first one fails before anything is changed. */
static rcv_status apply(rcv_trainer *t, restored *r) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    for (int i = 0; i < ARRAYS; i++)
        if (r->arrays[i])
            RCVI_TRY(rcvi_distribute_array(t->learner, topology, r->arrays[i], kind_of(i), array_of(t, &r->state, i)));
    swap_scaling(t, r);
    rcvi_batcher_set_scaling(t->batcher, t->learner->scaling);
    if (t->validator) rcvi_batcher_set_scaling(t->validator, t->learner->scaling);
    rcvi_run_state_free(&t->state, t->context);
    t->state = r->state;
    r->state = (rcvi_run_state){0};
    return RCV_OK;
}

static void free_restored(const rcv_trainer *t, restored *r) {
    for (int i = 0; i < ARRAYS; i++) rcvi_free(t->context, r->arrays[i]);
    rcvi_run_state_free(&r->state, t->context);
    rcvi_scaling_delete(r->scaling);
}

rcv_status rcv_trainer_resume(rcv_trainer *t, const char *path) {
    RCVI_NEED(t, "trainer");
    RCVI_NEED(path, "path");
    if (t->work) return rcvi_fail(RCV_INVALID, "a trainer resumes before it has run");
    rcv_tensors *tensors;
    restored r = {0};
    RCVI_TRY(rcv_tensors_load(t->context, path, &tensors));
    rcv_status status = read_run(t, tensors, path, &r);
    if (!status) status = apply(t, &r);
    if (!status) rcvi_run_id_from_tensors(&t->outputs, tensors);
    if (!status) status = rcvi_outputs_set_last_good(&t->outputs, path, t->state.step);
    rcv_tensors_free(tensors);
    free_restored(t, &r);
    return status;
}

rcv_status rcvi_checkpoint_restore_position(rcv_trainer *t) {
    RCVI_TRY(rcvi_batcher_seek(t->batcher, t->state.position));
    rcv_status status = RCV_OK;
    for (size_t s = 0; s < t->state.carried_count && !status; s++)
        status = rcvi_distribute_state(t->work, rcvi_trainer_window(t, 0), s, t->state.carried[s]);
    rcvi_run_state_drop_carried(&t->state, t->context);
    return status;
}

rcv_status rcv_checkpoint_settings(rcv_context *context, const char *path, rcv_settings **settings) {
    if (settings) *settings = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(settings, "settings");
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_load(context, path, &tensors));
    const char *text = rcv_tensors_metadata(tensors, SETTINGS_KEY);
    rcv_settings *made = NULL;
    rcv_status status =
        text ? rcv_settings_new(context, &made) : rcvi_fail(RCV_FORMAT, "%s holds no settings of a training run", path);
    if (!status && text) status = rcv_settings_parse(made, text, strlen(text), path);
    if (!status) rcvi_settings_drop_outputs(made); /* a file does not choose what this machine writes */
    rcv_tensors_free(tensors);
    if (status) {
        rcv_settings_free(made);
        return status;
    }
    *settings = made;
    return RCV_OK;
}

/* A run as a file: the model as learner_file.c writes it, and beside it
 *   recurve.settings   every setting, JSON
 *   recurve.training   where the run stands, JSON
 *   recurve.plans      plan strings, a line a window
 *   recurve.run        whose file it is, JSON (outputs.c)
 *   first.*, second.*  of the optimiser, as it needs them
 *   average.*          of the parameters, once there is one
 *   state.NAME         carried states of the training columns */
#include "train/run/trainer.h"

#include "base/json.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_KEY "recurve.settings"
#define TRAINING_KEY "recurve.training"
#define PLANS_KEY "recurve.plans"
enum { NAME_BYTES = 192 };

/* Arrays of a run in its file, by what stands before the names of their tensors. */
static const char *const prefixes[] = {"", "first.", "second.", RCVI_AVERAGE_PREFIX};
enum { ARRAYS = sizeof prefixes / sizeof *prefixes };

/* NULL where the run has none; an average counts from its first update on. */
static void *array_of(const rcv_trainer *t, const rcvi_run_state *state, int index) {
    return (void *[]){t->learner->parameters, t->first, t->second, state->averaged > 1 ? t->average : NULL}[index];
}

/* ---- where it stands ---- */

typedef enum { WHOLE, REAL } field_kind;

typedef struct {
    const char *name;
    field_kind kind;
    size_t offset;
} field;

#define FIELD(name, kind)                                                                                              \
    { #name, kind, offsetof(rcvi_run_state, name) }
static const field fields[] = {
    FIELD(step, WHOLE),   FIELD(at.epoch, WHOLE),      FIELD(at.batch, WHOLE),    FIELD(seen, WHOLE),
    FIELD(seconds, REAL), FIELD(factor, REAL),         FIELD(best, REAL),         FIELD(best_step, WHOLE),
    FIELD(bad, WHOLE),    FIELD(bad_for_decay, WHOLE), FIELD(validations, WHOLE), FIELD(averaged, WHOLE),
    FIELD(scale, REAL),   FIELD(good, WHOLE),          FIELD(skipped, WHOLE),
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* How the data is cut into batches: a place in it means the same only where this is the same. NULL: there is no memory for it. */
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
static json_t *ranks_json(const rcv_trainer *t) {
    return json_pack("[i, i]", t->topology.world ? t->topology.replica_count : 1,
                     t->topology.world ? t->topology.stage_count : 1);
}

static json_t *history_json(const rcv_trainer *t) {
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; i < t->history_count && good; i++)
        good = !json_array_append_new(array, rcvi_json_number(t->history[i]));
    return rcvi_json_if(good, array);
}

static json_t *field_json(const field *f, const rcvi_run_state *state) {
    const char *at = (const char *)state + f->offset;
    double real = 0;
    int64_t whole = 0;
    memcpy(f->kind == REAL ? (void *)&real : (void *)&whole, at, sizeof real);
    return f->kind == WHOLE ? json_integer(whole) : rcvi_json_number(real);
}

/* Whole, or NULL: there is no memory for it. */
static json_t *state_json(const rcv_trainer *t) {
    json_t *object = json_object();
    bool good = object != NULL;
    for (size_t i = 0; i < FIELDS && good; i++)
        good = !json_object_set_new(object, fields[i].name, field_json(&fields[i], &t->state));
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->state.data_hash);
    good = good && !json_object_set_new(object, "data", json_string(hash));
    good = good && !json_object_set_new(object, "batching", batching_json(t));
    good = good && !json_object_set_new(object, "ranks", ranks_json(t));
    good = good && !json_object_set_new(object, "validations_losses", history_json(t));
    return rcvi_json_if(good, object);
}

/* null is infinite. */
static bool read_real(const json_t *value, double *real) {
    *real = json_is_null(value) ? INFINITY : json_number_value(value);
    return json_is_null(value) || json_is_number(value);
}

static bool read_field(const json_t *object, const field *f, rcvi_run_state *state) {
    const json_t *value = json_object_get(object, f->name);
    char *at = (char *)state + f->offset;
    if (f->kind == WHOLE) {
        int64_t whole = json_integer_value(value);
        memcpy(at, &whole, sizeof whole);
        return json_is_integer(value) && whole >= 0 && whole < INT64_MAX / 4;
    }
    double real;
    bool good = read_real(value, &real);
    memcpy(at, &real, sizeof real);
    return good;
}

/* What a file says of a run, before any of it is believed. */
typedef struct {
    void *arrays[ARRAYS]; /* [elements] of the host; NULL: there is none */
    rcvi_run_state state;
    double *history;
    size_t history_count;
    bool same_batches, same_ranks;
    char *plans;
    void **pending_states;
} restored;

static rcv_status no_position(const char *file) {
    return rcvi_fail(RCV_FORMAT, "%s: %s does not say where a run stands, so it cannot go on from there", file,
                     TRAINING_KEY);
}

static rcv_status read_history(const rcv_trainer *t, const json_t *history, const char *file, restored *r) {
    r->history_count = json_array_size(history);
    r->history = rcvi_new(t->context, r->history_count + 1, sizeof *r->history);
    if (!r->history) return RCV_NO_MEMORY;
    for (size_t i = 0; i < r->history_count; i++) {
        if (!read_real(json_array_get(history, i), &r->history[i])) return no_position(file);
    }
    return RCV_OK;
}

static bool is_sound(const rcvi_run_state *s) {
    return s->factor >= 0 && s->factor <= 1 && s->scale > 0 && isfinite(s->scale) && s->seconds >= 0 &&
           isfinite(s->seconds);
}

static rcv_status read_state(const rcv_trainer *t, const char *text, const char *file, restored *r) {
    json_t *object = text ? rcvi_json_read(text, strlen(text), JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *history = json_object_get(object, "validations_losses");
    const char *hash = json_string_value(json_object_get(object, "data"));
    bool good = json_is_object(object) && json_is_array(history) && hash && strlen(hash) == 16;
    for (size_t i = 0; i < FIELDS && good; i++) good = read_field(object, &fields[i], &r->state);
    rcv_status status = good && is_sound(&r->state) ? read_history(t, history, file, r) : no_position(file);
    json_t *own = batching_json(t), *ranks = ranks_json(t);
    const json_t *then = json_object_get(object, "ranks");
    if (!status && (!own || !ranks)) status = rcvi_no_memory(1); /* else other batches would be seen */
    r->same_batches = json_equal(json_object_get(object, "batching"), own);
    r->same_ranks = then ? json_equal(then, ranks) : !t->topology.world;
    json_decref(ranks);
    if (!status) r->state.data_hash = strtoull(hash, NULL, 16);
    json_decref(own);
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

/* From the windows that carry them, or, before there are any, as they came from a checkpoint. */
static rcv_status add_states(const rcv_trainer *t, rcv_tensors *tensors) {
    const rcv_learner *l = t->learner;
    const rcvi_window *v = t->work ? &t->work->windows[t->windows[0]] : NULL;
    int64_t batch = rcvi_settings_integer(t->settings, "batch");
    for (size_t s = 0; (t->pending_states || (v && v->carries)) && s < rcv_net_state_count(l->net); s++) {
        size_t elements = (size_t)(rcv_net_state(l->net, s)->total * batch);
        void *host = NULL;
        rcv_status status = t->pending_states ? RCV_OK : rcvi_ranks_collect_state(t, s, &host);
        if (!status && (host || t->pending_states))
            status = add_state(t, s, host ? host : t->pending_states[s], elements, tensors);
        rcvi_free(t->context, host);
        RCVI_TRY(status);
    }
    return RCV_OK;
}

static rcv_status add_array(const rcv_trainer *t, int index, rcv_tensors *tensors) {
    const void *array = array_of(t, &t->state, index);
    void *host = NULL;
    if (!array) return RCV_OK;
    RCVI_TRY(rcvi_ranks_collect(t, array, index > 0, &host));
    rcv_status status = host ? rcvi_array_to_tensors(t->learner, prefixes[index], host, tensors) : RCV_OK;
    rcvi_free(t->context, host);
    return status;
}

static rcv_status add_plans(const rcv_trainer *t, rcv_tensors *tensors) {
    if (!t->work) return t->plans ? rcv_tensors_set_metadata(tensors, PLANS_KEY, t->plans) : RCV_OK;
    rcvi_text text;
    rcvi_text_init(&text, t->context);
    for (size_t i = 0; i < t->train_windows + t->valid_windows; i++)
        rcvi_text_add(&text, "%s\n", rcv_plan_string(t->work->windows[t->windows[i]].plan));
    char *own = NULL, *plans = NULL;
    RCVI_TRY(rcvi_text_take(&text, &own));
    rcv_status status = rcvi_ranks_collect_text(t, own, &plans);
    if (!status && plans) status = rcv_tensors_set_metadata(tensors, PLANS_KEY, plans);
    rcvi_free(t->context, plans);
    rcvi_free(t->context, own);
    return status;
}

/* The plans of this rank's stage among those of all, which have as many lines each. */
static char *own_plans(const rcv_trainer *t, const char *plans) {
    int stages = t->topology.world ? t->topology.stage_count : 1, stage = t->topology.world ? t->topology.stage : 0,
        lines = 0;
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
    json_t *object = state_json(t);
    char *text = NULL;
    status = rcvi_json_print(t->context, object, JSON_COMPACT | JSON_REAL_PRECISION(17), &text);
    if (!status) status = rcv_tensors_set_metadata(tensors, TRAINING_KEY, text);
    rcvi_free(t->context, text);
    json_decref(object);
    if (!status) status = rcvi_run_to_tensors(t, t->state.step, tensors);
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

rcv_status rcvi_checkpoint_save_best(const rcv_trainer *t, const void *parameters, const char *path) {
    rcv_tensors *tensors;
    RCVI_TRY(rcv_tensors_new(t->context, &tensors));
    rcv_status status = rcvi_learner_describe(t->learner, tensors);
    if (!status) status = rcvi_run_to_tensors(t, t->state.step, tensors);
    if (!status) status = rcvi_array_to_tensors(t->learner, "", parameters, tensors);
    if (!status) status = rcv_tensors_save(tensors, path);
    rcv_tensors_free(tensors);
    return status;
}

/* ---- reading ---- */

static rcv_status read_states(const rcv_trainer *t, const rcv_tensors *tensors, const char *file, restored *r) {
    const rcv_learner *l = t->learner;
    size_t count = rcv_net_state_count(l->net);
    int64_t batch = rcvi_settings_integer(t->settings, "batch");
    r->pending_states = rcvi_new(t->context, count, sizeof *r->pending_states);
    if (!r->pending_states) return RCV_NO_MEMORY;
    for (size_t s = 0; s < count; s++) {
        const rcv_state *state = rcv_net_state(l->net, s);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "state.%s", state->name);
        const rcv_tensor *tensor = rcv_tensors_find(tensors, name);
        size_t elements = (size_t)(state->total * batch);
        if (!tensor || tensor->dims != 1 || tensor->shape[0] != (int64_t)elements)
            return rcvi_fail(RCV_FORMAT, "%s: there is no tensor %s of %zu elements to go on from", file, name,
                             elements);
        r->pending_states[s] = rcvi_new(t->context, elements, rcvi_real_bytes(l));
        if (!r->pending_states[s]) return RCV_NO_MEMORY;
        RCVI_TRY(rcv_tensor_convert(tensor, l->real, elements, r->pending_states[s]));
    }
    return RCV_OK;
}

static void drop_states(const rcv_trainer *t, void **states) {
    for (size_t s = 0; states && s < rcv_net_state_count(t->learner->net); s++) rcvi_free(t->context, states[s]);
    rcvi_free(t->context, states);
}

void rcvi_trainer_drop_pending_states(rcv_trainer *t) {
    drop_states(t, t->pending_states);
    t->pending_states = NULL;
}

static rcv_status read_run(const rcv_trainer *t, const rcv_tensors *tensors, const char *file, restored *r) {
    const char *text = rcv_tensors_metadata(tensors, TRAINING_KEY), *plans = rcv_tensors_metadata(tensors, PLANS_KEY);
    if (!text) return rcvi_fail(RCV_FORMAT, "%s holds a model but no training run to go on with", file);
    RCVI_TRY(rcvi_learner_check_same(t->learner, tensors, file));
    RCVI_TRY(read_state(t, text, file, r));
    for (int i = 0; i < ARRAYS; i++)
        if (array_of(t, &r->state, i))
            RCVI_TRY(rcvi_array_from_tensors(t->learner, prefixes[i], tensors, file, &r->arrays[i]));
    if (plans && r->same_ranks && !(r->plans = own_plans(t, plans))) return RCV_NO_MEMORY;
    uint64_t hash;
    RCVI_TRY(rcvi_data_identity(t->train, &hash));
    if (!r->same_batches) r->state.at.batch = 0; /* the epoch begins again */
    if (r->state.data_hash != hash) {            /* other data: from its beginning */
        r->state.data_hash = hash;
        r->state.at = (rcvi_position){0, 0};
    }
    if (r->state.at.batch > rcvi_batcher_count(t->batcher))
        return rcvi_fail(RCV_FORMAT, "%s stands at batch %lld, where an epoch has %lld", file,
                         (long long)r->state.at.batch, (long long)rcvi_batcher_count(t->batcher));
    bool carries = t->learner->shape.kind == RCV_DATA_STREAM && r->state.at.batch > 0;
    return carries ? read_states(t, tensors, file, r) : RCV_OK;
}

/* All of it, or, where even the first array cannot be written, nothing. */
static rcv_status take_over(rcv_trainer *t, restored *r) {
    for (int i = 0; i < ARRAYS; i++)
        if (r->arrays[i]) RCVI_TRY(rcvi_ranks_take(t, r->arrays[i], i > 0, array_of(t, &r->state, i)));
    t->state = r->state;
    rcvi_free(t->context, t->history);
    t->history = r->history;
    t->history_count = r->history_count;
    t->history_capacity = r->history_count + 1;
    rcvi_free(t->context, t->plans);
    t->plans = r->plans;
    rcvi_trainer_drop_pending_states(t);
    t->pending_states = r->pending_states;
    r->history = NULL;
    r->plans = NULL;
    r->pending_states = NULL;
    return RCV_OK;
}

static void drop_restored(const rcv_trainer *t, restored *r) {
    for (int i = 0; i < ARRAYS; i++) rcvi_free(t->context, r->arrays[i]);
    rcvi_free(t->context, r->history);
    rcvi_free(t->context, r->plans);
    drop_states(t, r->pending_states);
}

rcv_status rcv_trainer_resume(rcv_trainer *t, const char *path) {
    RCVI_NEED(t, "trainer");
    RCVI_NEED(path, "path");
    if (t->work) return rcvi_fail(RCV_INVALID, "a trainer resumes before it has run");
    rcv_tensors *tensors;
    restored r = {0};
    RCVI_TRY(rcv_tensors_load(t->context, path, &tensors));
    rcv_status status = read_run(t, tensors, path, &r);
    if (!status) status = take_over(t, &r);
    if (!status) rcvi_run_from_tensors(t, tensors);
    if (!status) status = rcvi_trainer_note_good(t, path);
    rcv_tensors_free(tensors);
    drop_restored(t, &r);
    return status;
}

rcv_status rcvi_trainer_place(rcv_trainer *t) {
    RCVI_TRY(rcvi_batcher_seek(t->batcher, t->state.at));
    rcv_status status = RCV_OK;
    for (size_t s = 0; t->pending_states && s < rcv_net_state_count(t->learner->net) && !status; s++)
        status = rcvi_ranks_take_state(t, s, t->pending_states[s]);
    rcvi_trainer_drop_pending_states(t);
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
    if (!status) rcvi_settings_drop_outputs(made); /* a file from elsewhere does not choose what is written */
    rcv_tensors_free(tensors);
    if (status) {
        rcv_settings_free(made);
        return status;
    }
    *settings = made;
    return RCV_OK;
}

/* The state of a run: see state.h. */
#include "train/run/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rcvi_run_state_init(rcvi_run_state *s, uint64_t data_hash, double loss_scale) {
    *s = (rcvi_run_state){.data_hash = data_hash, .plateau_factor = 1, .best_loss = INFINITY, .loss_scale = loss_scale};
}

void rcvi_run_state_drop_carried(rcvi_run_state *s, rcv_context *context) {
    for (size_t i = 0; s->carried && i < s->carried_count; i++) rcvi_free(context, s->carried[i]);
    rcvi_free(context, s->carried);
    s->carried = NULL;
    s->carried_count = 0;
}

void rcvi_run_state_free(rcvi_run_state *s, rcv_context *context) {
    rcvi_run_state_drop_carried(s, context);
    rcvi_free(context, s->plans);
    rcvi_free(context, s->validation_losses);
    *s = (rcvi_run_state){0};
}

/* ---- JSON ---- */

typedef enum { WHOLE, REAL } field_kind;

typedef struct {
    const char *key; /* in the file: these are not renamed */
    field_kind kind;
    size_t offset;
} field;

#define FIELD(key, member, kind)                                                                                       \
    { key, kind, offsetof(rcvi_run_state, member) }
static const field fields[] = {
    FIELD("step", step, WHOLE),
    FIELD("at.epoch", position.epoch, WHOLE),
    FIELD("at.batch", position.batch, WHOLE),
    FIELD("seen", tokens, WHOLE),
    FIELD("seconds", seconds, REAL),
    FIELD("factor", plateau_factor, REAL),
    FIELD("best", best_loss, REAL),
    FIELD("best_step", best_step, WHOLE),
    FIELD("bad", bad_validations, WHOLE),
    FIELD("bad_for_decay", bad_since_decay, WHOLE),
    FIELD("validations", validations, WHOLE),
    FIELD("averaged", averaged_updates, WHOLE),
    FIELD("scale", loss_scale, REAL),
    FIELD("good", clean_updates, WHOLE),
    FIELD("skipped", skipped_updates, WHOLE),
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Files of earlier versions do not have them. */
static const field later_fields[] = {
    FIELD("validated", validated_step, WHOLE),
    FIELD("validation_seconds", validation_seconds, REAL),
};
enum { LATER_FIELDS = sizeof later_fields / sizeof *later_fields };

#define DATA_KEY "data"
#define LOSSES_KEY "validations_losses"

static json_t *losses_to_json(const rcvi_run_state *s) {
    json_t *array = json_array();
    bool good = array != NULL;
    for (size_t i = 0; i < s->loss_count && good; i++)
        good = !json_array_append_new(array, rcvi_json_number(s->validation_losses[i]));
    return rcvi_json_if(good, array);
}

static json_t *field_to_json(const field *f, const rcvi_run_state *s) {
    const char *at = (const char *)s + f->offset;
    double real = 0;
    int64_t whole = 0;
    memcpy(f->kind == REAL ? (void *)&real : (void *)&whole, at, sizeof real);
    return f->kind == WHOLE ? json_integer(whole) : rcvi_json_number(real);
}

json_t *rcvi_run_state_to_json(const rcvi_run_state *s, json_t *batching, json_t *ranks) {
    json_t *object = json_object();
    bool good = object != NULL;
    for (size_t i = 0; i < FIELDS && good; i++)
        good = !json_object_set_new(object, fields[i].key, field_to_json(&fields[i], s));
    for (size_t i = 0; i < LATER_FIELDS && good; i++)
        good = !json_object_set_new(object, later_fields[i].key, field_to_json(&later_fields[i], s));
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->data_hash);
    good = good && !json_object_set_new(object, DATA_KEY, json_string(hash));
    good = !json_object_set_new(object, "batching", batching) && good; /* both are released where they are not taken */
    good = !json_object_set_new(object, "ranks", ranks) && good;
    good = good && !json_object_set_new(object, LOSSES_KEY, losses_to_json(s));
    return rcvi_json_if(good, object);
}

/* null is infinite. */
static bool read_real(const json_t *value, double *real) {
    *real = json_is_null(value) ? INFINITY : json_number_value(value);
    return json_is_null(value) || json_is_number(value);
}

static bool read_field(const json_t *object, const field *f, rcvi_run_state *s) {
    const json_t *value = json_object_get(object, f->key);
    char *at = (char *)s + f->offset;
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

static bool is_sound(const rcvi_run_state *s) {
    return s->plateau_factor >= 0 && s->plateau_factor <= 1 && s->loss_scale > 0 && isfinite(s->loss_scale) &&
           s->seconds >= 0 && isfinite(s->seconds) && s->validation_seconds >= 0 && isfinite(s->validation_seconds);
}

static rcv_status not_a_state(const char *file) {
    return rcvi_fail(RCV_FORMAT,
                     "%s: recurve.training is not the state of a run, so training cannot be resumed from it", file);
}

static rcv_status read_losses(rcv_context *context, const json_t *losses, const char *file, rcvi_run_state *s) {
    s->loss_count = json_array_size(losses);
    s->loss_capacity = s->loss_count + 1;
    s->validation_losses = rcvi_new(context, s->loss_capacity, sizeof *s->validation_losses);
    if (!s->validation_losses) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->loss_count; i++)
        if (!read_real(json_array_get(losses, i), &s->validation_losses[i])) return not_a_state(file);
    return RCV_OK;
}

rcv_status rcvi_run_state_from_json(rcv_context *context, const json_t *object, const char *file, rcvi_run_state *s) {
    const json_t *losses = json_object_get(object, LOSSES_KEY);
    const char *hash = json_string_value(json_object_get(object, DATA_KEY));
    bool good = json_is_object(object) && json_is_array(losses) && hash && strlen(hash) == 16;
    for (size_t i = 0; i < FIELDS && good; i++) good = read_field(object, &fields[i], s);
    s->validated_step = s->step; /* where a file does not say: a run at its end is not validated again */
    s->validation_seconds = 0;
    for (size_t i = 0; i < LATER_FIELDS && good; i++)
        if (json_object_get(object, later_fields[i].key)) good = read_field(object, &later_fields[i], s);
    if (!good || !is_sound(s)) return not_a_state(file);
    s->data_hash = strtoull(hash, NULL, 16);
    return read_losses(context, losses, file, s);
}

/* ---- updates and validations ---- */

void rcvi_run_state_count_update(rcvi_run_state *s, int64_t tokens) {
    s->step++;
    s->tokens += tokens;
    if (s->averaged_updates) s->averaged_updates++;
}

void rcvi_run_state_adapt_scale(rcvi_run_state *s, double norm) {
    enum { CLEAN_UPDATES = 2000 }; /* before the scale is doubled */
    if (isfinite(norm)) {
        if (++s->clean_updates < CLEAN_UPDATES) return;
        s->loss_scale *= 2;
    } else {
        s->loss_scale = fmax(s->loss_scale / 2, 1);
        s->step--;
        s->skipped_updates++;
    }
    s->clean_updates = 0;
}

void rcvi_run_state_count_validation(rcvi_run_state *s, const rcvi_train_options *options, double loss, bool is_best,
                                     bool scheduled) {
    s->validations++;
    s->validated_step = s->step;
    if (is_best) {
        s->best_loss = loss;
        s->best_step = s->step;
    }
    if (!scheduled) return;
    s->bad_validations = is_best ? 0 : s->bad_validations + 1;
    s->bad_since_decay = is_best ? 0 : s->bad_since_decay + 1;
    if (s->bad_since_decay >= options->decay_patience) {
        s->plateau_factor *= options->decay_factor; /* read by the schedule `plateau` alone */
        s->bad_since_decay = 0;
    }
}

rcv_status rcvi_run_state_add_loss(rcvi_run_state *s, rcv_context *context, bool averages, int64_t nonmono,
                                   double loss) {
    size_t wait = (size_t)nonmono;
    if (averages && !s->averaged_updates && s->loss_count > wait) {
        double least = INFINITY;
        for (size_t i = 0; i + wait < s->loss_count; i++) least = fmin(least, s->validation_losses[i]);
        if (loss > least) s->averaged_updates = 1;
    }
    if (!rcvi_grow(context, &s->validation_losses, &s->loss_capacity, s->loss_count + 1, sizeof *s->validation_losses))
        return rcvi_no_memory(sizeof *s->validation_losses);
    s->validation_losses[s->loss_count++] = loss;
    return RCV_OK;
}

/* Losses and metrics as JSON: see evaluation_json.h. */
#include "train/run/report/evaluation_json.h"

#include <math.h>
#include <string.h>

/* ---- losses ---- */

rcvi_loss_form rcvi_loss_form_of(const rcv_learner *l) {
    if (!rcvi_kind_is_text(l->shape.kind)) return RCVI_LOSS_ALONE;
    bool bytes = l->vocabulary && rcv_vocabulary_level(l->vocabulary) == RCV_LEVEL_BYTE;
    return bytes ? RCVI_LOSS_AND_BITS_PER_BYTE : RCVI_LOSS_AND_PERPLEXITY;
}

static bool add_perplexity(json_t *object, double loss) {
    double perplexity = loss < 700 || !isfinite(loss) ? exp(loss) : 1e300;
    return !json_object_set_new(object, "perplexity", rcvi_json_number(perplexity));
}

bool rcvi_json_add_loss(json_t *object, rcvi_loss_form form, double loss) {
    if (json_object_set_new(object, "loss", rcvi_json_number(loss))) return false;
    if (form == RCVI_LOSS_ALONE) return true;
    if (form == RCVI_LOSS_AND_PERPLEXITY) return add_perplexity(object, loss);
    return !json_object_set_new(object, "bits_per_byte", rcvi_json_number(loss / log(2)));
}

/* ---- metrics ---- */

typedef struct {
    const char *name;
    size_t offset; /* in rcv_evaluation */
} metric;

#define METRIC(member)                                                                                                 \
    { #member, offsetof(rcv_evaluation, member) }
static const metric of_classes[] = {METRIC(accuracy), METRIC(precision), METRIC(recall), METRIC(f1), METRIC(auc)};
static const metric of_values[] = {METRIC(mae), METRIC(rmse), METRIC(r2), METRIC(naive_mae), METRIC(naive_rmse)};

/* Of values without a forecast that has a naive one beside it the last two are left out. */
static size_t count_metrics(rcv_data_kind kind, const rcv_evaluation *r) {
    if (rcvi_kind_has_classes(kind)) return sizeof of_classes / sizeof *of_classes;
    return sizeof of_values / sizeof *of_values - (isnan(r->naive_mae) ? 2 : 0);
}

bool rcvi_json_add_metrics(json_t *object, rcv_data_kind kind, const rcv_evaluation *r) {
    if (rcvi_kind_is_text(kind)) return true;
    const metric *metrics = rcvi_kind_has_classes(kind) ? of_classes : of_values;
    json_t *members = json_object();
    bool good = members != NULL;
    for (size_t i = 0; i < count_metrics(kind, r) && good; i++) {
        double value;
        memcpy(&value, (const char *)r + metrics[i].offset, sizeof value);
        good = !json_object_set_new(members, metrics[i].name, rcvi_json_number(value));
    }
    return !json_object_set_new(object, "metrics", rcvi_json_if(good, members));
}

/* ---- a test ---- */

enum { MOST_CONFUSION = 50 }; /* classes whose confusion is written */

static bool add_names(json_t *object, const rcv_learner *l) {
    json_t *names = json_array();
    bool good = names != NULL;
    for (int64_t i = 0; i < l->shape.outputs && good; i++)
        good = !json_array_append_new(names, json_string(l->class_names[i]));
    return !json_object_set_new(object, "classes", rcvi_json_if(good, names));
}

static bool add_confusion(json_t *object, const int64_t *confusion, int64_t classes) {
    json_t *rows = json_array();
    bool good = rows != NULL;
    for (int64_t r = 0; r < classes && good; r++) {
        json_t *row = json_array();
        good = row != NULL;
        for (int64_t c = 0; c < classes && good; c++)
            good = !json_array_append_new(row, json_integer((json_int_t)confusion[r * classes + c]));
        good = !json_array_append_new(rows, rcvi_json_if(good, row));
    }
    return !json_object_set_new(object, "confusion", rcvi_json_if(good, rows));
}

/* The line also has the perplexity of bytes, as test lines always had. */
static json_t *describe_test(const rcv_learner *l, const rcv_evaluation *r, const int64_t *confusion) {
    const rcvi_loss_form form = rcvi_loss_form_of(l);
    const bool classes = rcvi_kind_has_classes(l->shape.kind) && l->class_names && l->shape.outputs <= MOST_CONFUSION;
    json_t *object = json_pack("{s:s}", "event", "test");
    bool good = object && rcvi_json_add_loss(object, form, r->loss);
    if (good && form == RCVI_LOSS_AND_BITS_PER_BYTE) good = add_perplexity(object, r->loss);
    good = good && !json_object_set_new(object, "counted", json_integer((json_int_t)r->counted));
    good = good && rcvi_json_add_metrics(object, l->shape.kind, r);
    if (good && classes) good = add_names(object, l);
    if (good && classes && confusion) good = add_confusion(object, confusion, l->shape.outputs);
    return rcvi_json_if(good, object);
}

rcv_status rcv_evaluation_print(rcv_context *context, const rcv_learner *learner, const rcv_evaluation *evaluation,
                                const int64_t *confusion, char **json) {
    RCVI_NEED(json, "json");
    *json = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(learner, "learner");
    RCVI_NEED(evaluation, "evaluation");
    RCVI_READ(rcv_evaluation, evaluation, "evaluation");
    json_t *object = describe_test(learner, evaluation, confusion);
    rcv_status status = rcvi_json_print(context, object, JSON_COMPACT | JSON_REAL_PRECISION(12), json);
    json_decref(object);
    return status;
}

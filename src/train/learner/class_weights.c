/* Weights of classes in the loss: see class_weights.h. */
#include "train/learner/class_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the arrays ---- */

void rcvi_class_weights_drop(rcv_learner *l) {
    if (l->device_weights) rcvi_device_free(l, l->device_weights);
    rcvi_free(l->context, l->class_weights);
    l->class_weights = NULL;
    l->device_weights = NULL;
}

static rcv_status copy_to_device(rcv_learner *l) {
    const size_t count = (size_t)l->shape.outputs, real = rcvi_real_bytes(l);
    RCVI_TRY(rcvi_device_new(l, l->shape.outputs, real, &l->device_weights));
    double *wide = rcvi_new(l->context, count, sizeof *wide);
    if (!wide) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) wide[i] = (double)l->class_weights[i];
    const void *from = l->real == RCV_FLOAT64 ? (const void *)wide : l->class_weights;
    rcv_status status = rcvi_device_write(l, l->device_weights, from, count * real);
    rcvi_free(l->context, wide);
    return status;
}

rcv_status rcvi_class_weights_set(rcv_learner *l, const float *weights) {
    rcvi_class_weights_drop(l);
    l->class_weights = rcvi_new(l->context, (size_t)l->shape.outputs, sizeof *l->class_weights);
    if (!l->class_weights) return RCV_NO_MEMORY;
    memcpy(l->class_weights, weights, (size_t)l->shape.outputs * sizeof *weights);
    rcv_status status = copy_to_device(l);
    if (status) rcvi_class_weights_drop(l);
    return status;
}

double rcvi_batch_weight(const rcv_learner *l, const rcvi_batch *batch) {
    const int64_t rows = rcvi_predicts_steps(l) ? batch->steps * batch->batch : batch->batch;
    double sum = 0;
    if (!l->class_weights) return (double)batch->counted;
    for (int64_t i = 0; i < rows; i++)
        if (batch->targets[i] >= 0) sum += (double)l->class_weights[batch->targets[i]];
    return sum;
}

/* ---- the setting ---- */

static rcv_status balance(const rcv_learner *l, const rcv_data *data, float *weights) {
    const int64_t classes = l->shape.outputs;
    int64_t *counts = rcvi_new(l->context, (size_t)classes, sizeof *counts);
    if (!counts) return RCV_NO_MEMORY;
    rcv_status status = rcvi_data_count_classes(data, counts);
    int64_t all = 0, present = 0;
    for (int64_t i = 0; i < classes; i++) {
        all += counts[i];
        present += counts[i] > 0;
    }
    for (int64_t i = 0; i < classes && !status; i++)
        if (counts[i] > 0) weights[i] = (float)((double)all / ((double)present * (double)counts[i]));
    rcvi_free(l->context, counts);
    return status;
}

static rcv_status fail_unknown(const rcv_learner *l, const char *name, size_t length) {
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", (int)(length < 60 ? length : 60), name);
    const char *nearest = rcvi_nearest_name(shown, (const char *const *)l->class_names, (size_t)l->shape.outputs);
    return rcvi_fail(RCV_INVALID, "class-weights names the class '%s', which the data does not have%s%s%s", shown,
                     nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static rcv_status find_class(const rcv_learner *l, const char *name, size_t length, int64_t *class) {
    for (*class = 0; *class < l->shape.outputs; (*class)++) {
        const char *own = l->class_names[*class];
        if (strlen(own) == length && !memcmp(own, name, length)) return RCV_OK;
    }
    return fail_unknown(l, name, length);
}

/* NAME=X; the last = separates them. */
static rcv_status read_weight(const rcv_learner *l, const char *at, size_t length, float *weights) {
    char digits[64];
    size_t split = length;
    double weight = 0;
    int64_t class;
    while (split > 0 && at[split - 1] != '=') split--;
    const size_t name = split > 0 ? split - 1 : 0, rest = length - split;
    if (name == 0)
        return rcvi_fail(RCV_INVALID, "class-weights is balanced or NAME=X,NAME=X, not '%.*s'",
                         (int)(length < 60 ? length : 60), at);
    snprintf(digits, sizeof digits, "%.*s", (int)(rest < 60 ? rest : 60), at + split);
    RCVI_TRY(find_class(l, at, name, &class));
    if (!rcvi_read_number(digits, &weight) || !((float)weight > 0) || !isfinite((float)weight))
        return rcvi_fail(RCV_INVALID, "the weight of class '%s' is '%s'; it must be a positive number",
                         l->class_names[class], digits);
    if (weights[class] < 0) {
        weights[class] = (float)weight;
        return RCV_OK;
    }
    return rcvi_fail(RCV_INVALID, "class-weights gives the class '%s' twice", l->class_names[class]);
}

static rcv_status read_weights(const rcv_learner *l, const char *text, float *weights) {
    for (int64_t i = 0; i < l->shape.outputs; i++) weights[i] = -1; /* not given yet */
    while (*text) {
        const size_t length = strcspn(text, ",");
        RCVI_TRY(read_weight(l, text, length, weights));
        text += length + (text[length] == ',');
    }
    for (int64_t i = 0; i < l->shape.outputs; i++)
        if (weights[i] < 0) weights[i] = 1;
    return RCV_OK;
}

rcv_status rcvi_class_weights_measure(rcv_learner *l, const char *text, const rcv_data *data) {
    if (!text) return RCV_OK;
    if (!rcvi_kind_has_classes(l->shape.kind))
        return rcvi_fail(RCV_INVALID, "class-weights is for data with classes, and this data has %s",
                         rcvi_kind_has_values(l->shape.kind) ? "values" : "tokens");
    float *weights = rcvi_new(l->context, (size_t)l->shape.outputs, sizeof *weights);
    if (!weights) return RCV_NO_MEMORY;
    for (int64_t i = 0; i < l->shape.outputs; i++) weights[i] = 1;
    const bool balanced = !strcmp(text, "balanced");
    rcv_status status = balanced ? balance(l, data, weights) : read_weights(l, text, weights);
    if (!status) status = rcvi_class_weights_set(l, weights);
    rcvi_free(l->context, weights);
    return status;
}

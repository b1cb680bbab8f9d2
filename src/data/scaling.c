/* Means and scales of features and values: see scaling.h. */
#include "data/scaling.h"

#include "data/internal.h"

#include <math.h>
#include <string.h>

enum { STEPS_AT_ONCE = 1024 };

/* ---- making and freeing ---- */

static float *new_array(rcv_context *context, int64_t count, float value) {
    float *array = rcvi_new(context, (size_t)count + 1, sizeof *array);
    for (int64_t i = 0; array && i < count; i++) array[i] = value;
    return array;
}

rcv_status rcvi_scaling_new(rcv_context *context, int64_t features, int64_t outputs, rcvi_scaling *s) {
    *s = (rcvi_scaling){.context = context, .features = features, .outputs = outputs};
    s->mean = new_array(context, features, 0);
    s->scale = new_array(context, features, 1);
    s->target_mean = new_array(context, outputs, 0);
    s->target_scale = new_array(context, outputs, 1);
    if (s->mean && s->scale && s->target_mean && s->target_scale) return RCV_OK;
    rcvi_scaling_free(s);
    return RCV_NO_MEMORY;
}

void rcvi_scaling_free(rcvi_scaling *s) {
    float *const arrays[] = {s->mean, s->scale, s->target_mean, s->target_scale};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_free(s->context, arrays[i]);
    *s = (rcvi_scaling){0};
}

void rcvi_scaling_delete(rcvi_scaling *s) {
    if (!s) return;
    rcv_context *context = s->context;
    rcvi_scaling_free(s);
    rcvi_free(context, s);
}

rcv_status rcvi_scaling_copy(const rcvi_scaling *from, rcvi_scaling *to) {
    RCVI_TRY(rcvi_scaling_new(from->context, from->features, from->outputs, to));
    to->missing = from->missing;
    to->normalises = from->normalises;
    const size_t features = (size_t)from->features * sizeof(float), outputs = (size_t)from->outputs * sizeof(float);
    memcpy(to->mean, from->mean, features);
    memcpy(to->scale, from->scale, features);
    memcpy(to->target_mean, from->target_mean, outputs);
    memcpy(to->target_scale, from->target_scale, outputs);
    return RCV_OK;
}

/* ---- measuring ---- */

/* Of one column: the mean, the sum of squares of the differences from it, and whether any number differs from the first. */
typedef struct {
    double count, mean, squares;
    float first;
    bool varies;
} moments;

/* Two passes over a block, whose moments are then merged with those so far: nothing is cancelled, wherever the mean lies. */
static void add_block(moments *m, const float *numbers, int64_t rows, int64_t columns) {
    double count = 0, sum = 0, squares = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double x = (double)numbers[r * columns];
        if (isnan(x)) continue;
        if (m->count + count == 0) m->first = numbers[r * columns];
        m->varies |= numbers[r * columns] != m->first;
        sum += x;
        count++;
    }
    if (count == 0) return;
    const double mean = sum / count;
    for (int64_t r = 0; r < rows; r++) {
        const double difference = (double)numbers[r * columns] - mean;
        if (!isnan(difference)) squares += difference * difference;
    }
    const double all = m->count + count, between = mean - m->mean;
    m->squares += squares + between * between * m->count * count / all;
    m->mean += between * count / all;
    m->count = all;
}

static void add_rows(moments *m, const float *numbers, int64_t rows, int64_t columns) {
    for (int64_t c = 0; c < columns; c++) add_block(&m[c], numbers + c, rows, columns);
}

typedef struct {
    const rcv_data *data;
    int64_t features, outputs; /* that are measured; 0: none */
    moments *x, *y;            /* [features], [outputs] */
    float *block;              /* [STEPS_AT_ONCE, features or outputs] */
    int64_t filled;            /* rows of targets, of which sequences have one */
} measurement;

static rcv_status measure_steps(measurement *m, rcvi_span span, bool own_targets) {
    for (int64_t at = 0; at < span.length; at += STEPS_AT_ONCE) {
        const int64_t left = span.length - at, count = left < STEPS_AT_ONCE ? left : STEPS_AT_ONCE;
        const rcvi_span part = {span.start + at, count};
        if (m->features) RCVI_TRY(rcvi_data_read_numbers(m->data, part, m->block));
        add_rows(m->x, m->block, count, m->features);
        if (!own_targets) continue;
        RCVI_TRY(rcvi_data_read_labels(m->data, part, m->block));
        add_rows(m->y, m->block, count, m->outputs);
    }
    return RCV_OK;
}

static rcv_status measure_sequence(measurement *m, int64_t sequence) {
    const bool steps = rcvi_kind_has_steps(m->data->kind);
    rcvi_span span;
    RCVI_TRY(rcvi_data_read_spans(m->data, sequence, 1, &span));
    if (m->features || steps) RCVI_TRY(measure_steps(m, span, steps && m->outputs));
    if (steps || !m->outputs) return RCV_OK;
    RCVI_TRY(rcvi_data_read_label(m->data, sequence, m->block));
    add_rows(m->y, m->block, 1, m->outputs);
    return RCV_OK;
}

static void set_numbers(const moments *m, int64_t count, bool normalises, float *mean, float *scale) {
    for (int64_t i = 0; i < count; i++) {
        const double deviation = m[i].varies ? sqrt(m[i].squares / m[i].count) : 1;
        const float inverse = (float)(1 / deviation);
        mean[i] = (float)m[i].mean;
        scale[i] = normalises && isfinite(inverse) && inverse > 0 ? inverse : 1;
    }
}

static rcv_status measure(measurement *m, bool normalises, rcvi_scaling *s) {
    const int64_t widest = m->features > m->outputs ? m->features : m->outputs;
    m->x = rcvi_new(s->context, (size_t)m->features + 1, sizeof *m->x);
    m->y = rcvi_new(s->context, (size_t)m->outputs + 1, sizeof *m->y);
    m->block = rcvi_new(s->context, STEPS_AT_ONCE * (size_t)(widest + 1), sizeof *m->block);
    if (!m->x || !m->y || !m->block) return RCV_NO_MEMORY;
    for (int64_t i = 0; i < m->data->totals.sequences; i++) RCVI_TRY(measure_sequence(m, i));
    set_numbers(m->x, m->features, normalises, s->mean, s->scale);
    if (normalises) set_numbers(m->y, m->outputs, true, s->target_mean, s->target_scale);
    return RCV_OK;
}

rcv_status rcvi_scaling_measure(const rcv_data *data, bool normalises, rcv_missing missing, rcvi_scaling *s) {
    const int64_t outputs = rcvi_kind_has_values(data->kind) ? data->totals.outputs : 0;
    RCVI_TRY(rcvi_scaling_new(data->context, data->totals.features, outputs, s));
    s->normalises = normalises;
    s->missing = missing;
    const bool reads_features = normalises || s->missing == RCV_MISSING_MEAN || s->missing == RCV_MISSING_PREVIOUS;
    measurement m = {
        .data = data, .features = reads_features ? s->features : 0, .outputs = normalises ? s->outputs : 0};
    rcv_status status = m.features || m.outputs ? measure(&m, normalises, s) : RCV_OK;
    rcvi_free(data->context, m.x);
    rcvi_free(data->context, m.y);
    rcvi_free(data->context, m.block);
    if (status) rcvi_scaling_free(s);
    return status;
}

/* ---- applying ---- */

/* What a missing feature becomes; `previous` is NaN where there is none. */
static float fill_in(const rcvi_scaling *s, int64_t feature, float previous) {
    const bool has_previous = s->missing == RCV_MISSING_PREVIOUS && !isnan(previous);
    return s->missing == RCV_MISSING_ERROR  ? NAN
           : s->missing == RCV_MISSING_ZERO ? 0
           : has_previous                   ? previous
                                            : s->mean[feature];
}

void rcvi_scaling_apply(const rcvi_scaling *s, float *x, int64_t steps, float *before) {
    for (int64_t f = 0; s && f < s->features; f++) {
        const double mean = (double)s->mean[f], scale = (double)s->scale[f];
        float previous = before ? before[f] : NAN;
        for (int64_t t = 0; t < steps; t++) {
            float *at = &x[t * s->features + f];
            previous = isnan(*at) ? fill_in(s, f, previous) : *at;
            *at = s->normalises ? (float)(((double)previous - mean) * scale) : previous;
        }
        if (before) before[f] = previous;
    }
}

void rcvi_scaling_restore_features(const rcvi_scaling *s, const float *x, float *raw) {
    for (int64_t f = 0; f < s->features; f++)
        raw[f] = s->normalises ? (float)((double)x[f] / (double)s->scale[f] + (double)s->mean[f]) : x[f];
}

void rcvi_scaling_apply_targets(const rcvi_scaling *s, float *values, int64_t rows) {
    if (!s || !s->normalises) return;
    for (int64_t i = 0; i < rows * s->outputs; i++) {
        const int64_t o = i % s->outputs;
        values[i] = (float)(((double)values[i] - (double)s->target_mean[o]) * (double)s->target_scale[o]);
    }
}

void rcvi_scaling_restore(const rcvi_scaling *s, rcv_dtype real, void *values, int64_t rows) {
    if (!s || !s->normalises) return;
    float *narrow = values;
    double *wide = values;
    for (int64_t i = 0; i < rows * s->outputs; i++) {
        const double mean = (double)s->target_mean[i % s->outputs], scale = (double)s->target_scale[i % s->outputs];
        if (real == RCV_FLOAT64)
            wide[i] = wide[i] / scale + mean;
        else
            narrow[i] = (float)((double)narrow[i] / scale + mean);
    }
}

int64_t rcvi_scaling_find_missing(const rcvi_scaling *s, const float *x, int64_t count) {
    if (s && s->missing != RCV_MISSING_ERROR) return -1;
    for (int64_t i = 0; i < count; i++)
        if (isnan(x[i])) return i;
    return -1;
}

/* Predictions for sequences without targets.
 *
 * Sequences are processed in groups of at most MOST_ROWS rows. A network in one direction reads a group window by window with its states carried, so
 * that memory does not grow with the length; a bidirectional one reads whole sequences. A window, with its plan and its run, is made once for
 * a shape and kept in the learner. So that there are few shapes, rows are rounded up to powers of two, and steps to SHAPES_A_DOUBLING shapes
 * from each power of two to the next; for a few sequences, steps to powers of two. */
#include "train/inference/output.h"
#include "train/step/work.h"

#include <math.h>
#include <string.h>

enum {
    MOST_ROWS = 256,        /* sequences of a group */
    MANY_ROWS = 64,         /* so many sequences are worth a window without padded steps */
    MOST_STEPS = 128,       /* of a window whose states are carried */
    MOST_CELLS = 1 << 15,   /* rows times steps of a window of whole sequences, unless one sequence has more */
    MOST_LOGITS = 1 << 22,  /* elements of logits in memory at once, unless one step has more */
    SHAPES_A_DOUBLING = 16, /* padding is less than a 16th */
    MOST_WINDOWS = 128      /* kept */
};

typedef struct {
    rcv_learner *learner;
    rcvi_work *work;
    int64_t threads;
    int64_t rows;        /* steps times batch of the largest window so far */
    int64_t batch;       /* of the window with most */
    int64_t logit_rows;  /* rows of logits in memory at once */
    int32_t *ids;        /* [rows] on the host: tokens; or, at last steps, rows of y */
    float *x;            /* [rows, features] on the host; NULL: inputs are tokens */
    float *before;       /* [batch, features]: raw features of the step before the window; NaN: there is none */
    int64_t *lengths;    /* [batch] of a group */
    void *device_ids;    /* [batch] */
    void *features;      /* [batch, width] of last steps */
    void *device_logits; /* [logit_rows, outputs] */
    void *logits;        /* the same on the host */
} predictor;

/* A group of sequences, and the window in which it is read. */
typedef struct {
    const rcv_prediction *data;
    rcv_output form;
    size_t window;
    int64_t steps, batch; /* of the window */
    int64_t first, count; /* sequences of the group */
    int64_t shortest, longest;
    int64_t time; /* first step of the window */
    bool fresh;   /* no window was read before it in this call */
} group;

static bool is_stepwise(const rcv_learner *l, const rcv_prediction *d) { return rcvi_predicts_steps(l) && !d->last; }
static bool is_bidirectional(const rcv_learner *l) { return rcv_net_get_options(l->net)->bidirectional; }

/* ---- plans and memory ---- */

static void free_predictor(void *memory) {
    predictor *p = memory;
    rcv_learner *l = p->learner;
    rcvi_work_free(p->work);
    void *const arrays[] = {p->device_ids, p->features, p->device_logits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_device_free(l, arrays[i]);
    void *const blocks[] = {p->ids, p->x, p->before, p->lengths, p->logits, p};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(l->context, blocks[i]);
}

static rcv_status fill_predictor(predictor *p) {
    rcv_learner *l = p->learner;
    size_t real = rcvi_real_bytes(l), rows = (size_t)p->rows;
    const rcvi_work_options options = {.threads = p->threads, .effort = RCV_ESTIMATE, .rows = p->rows};
    RCVI_TRY(rcvi_work_new(l, &options, &p->work));
    p->logit_rows = MOST_LOGITS / l->shape.outputs;
    if (p->logit_rows < p->batch) p->logit_rows = p->batch;
    if (p->logit_rows > p->rows) p->logit_rows = p->rows;
    p->ids = rcvi_new(l->context, rows, sizeof *p->ids);
    if (!l->shape.tokens) p->x = rcvi_new(l->context, rows * (size_t)l->shape.features, sizeof *p->x);
    p->before = rcvi_new(l->context, (size_t)(p->batch * l->shape.features), sizeof *p->before);
    p->lengths = rcvi_new(l->context, (size_t)p->batch, sizeof *p->lengths);
    p->logits = rcvi_new(l->context, (size_t)(p->logit_rows * l->shape.outputs), real);
    if (!p->ids || (!l->shape.tokens && !p->x) || !p->before || !p->lengths || !p->logits) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_device_new(l, p->batch, sizeof *p->ids, &p->device_ids));
    RCVI_TRY(rcvi_device_new(l, p->batch * l->width, real, &p->features));
    return rcvi_device_new(l, p->logit_rows * l->shape.outputs, real, &p->device_logits);
}

/* The learner's predictor, if it has room for these windows; else a new one takes its place. */
static rcv_status find_predictor(rcv_learner *l, int64_t threads, int64_t steps, int64_t batch, predictor **out) {
    predictor *old = l->predictor;
    *out = old;
    if (old && old->threads == threads && old->rows >= steps * batch && old->batch >= batch &&
        old->work->window_count < MOST_WINDOWS)
        return RCV_OK;
    predictor *p = rcvi_new(l->context, 1, sizeof *p);
    if (!p) return RCV_NO_MEMORY;
    *p = (predictor){.learner = l, .threads = threads, .rows = steps * batch, .batch = batch};
    if (old && old->threads == threads && old->rows > p->rows) p->rows = old->rows;
    if (old && old->threads == threads && old->batch > p->batch) p->batch = old->batch;
    rcv_status status = fill_predictor(p);
    if (status) {
        free_predictor(p);
        return status;
    }
    if (old) free_predictor(old);
    l->predictor = *out = p;
    l->free_predictor = free_predictor;
    return RCV_OK;
}

static rcv_status find_window(predictor *p, int64_t steps, int64_t batch, size_t *window) {
    bool whole = is_bidirectional(p->learner);
    for (*window = 0; *window < p->work->window_count; (*window)++) {
        const rcvi_window *v = &p->work->windows[*window];
        if (v->steps == steps && v->batch == batch) return RCV_OK;
    }
    const rcvi_window_options options = {.steps = steps, .batch = batch, .lengths = whole, .carries = !whole};
    return rcvi_work_add_window(p->work, &options, window);
}

static int64_t round_up(int64_t count, int64_t most) {
    int64_t power = 1;
    while (power < count && power < most) power *= 2;
    return power;
}

/* Steps of a window for `steps` steps of many sequences: at most `most`, with little padding. */
static int64_t fit_steps(int64_t steps, int64_t most) {
    int64_t windows = (steps + most - 1) / most, each = (steps + windows - 1) / windows;
    int64_t grain = round_up(each, most) / 2 / SHAPES_A_DOUBLING;
    return grain > 1 ? (each + grain - 1) / grain * grain : each;
}

/* The window in which these sequences are read. */
static rcv_status choose_window(const rcv_learner *l, const rcv_prediction *d, int64_t *steps, int64_t *batch) {
    bool whole = is_bidirectional(l);
    if (whole && d->steps > INT32_MAX / MOST_ROWS)
        return rcvi_fail(RCV_INVALID,
                         "a bidirectional network reads whole sequences, and %lld steps are more than the %d allowed",
                         (long long)d->steps, INT32_MAX / MOST_ROWS);
    int64_t most = whole ? INT32_MAX : MOST_STEPS;
    *steps = d->batch < MANY_ROWS ? round_up(d->steps, most) : fit_steps(d->steps, most);
    *batch = round_up(d->batch, MOST_ROWS);
    while (whole && *batch > 1 && *steps * *batch > MOST_CELLS) *batch /= 2;
    return RCV_OK;
}

/* ---- inputs of a window ---- */

static int64_t length_of(const rcv_prediction *d, int64_t sequence) {
    return d->lengths ? d->lengths[sequence] : d->steps;
}

/* Features of a time step of sequence `b` of the group. */
static void put_numbers(predictor *p, int64_t b, const float *from, float *to) {
    const int64_t features = p->learner->shape.features;
    memcpy(to, from, (size_t)features * sizeof *to);
    rcvi_scaling_apply(p->learner->scaling, to, 1, p->before + b * features);
}

/* The inputs of a time step, of all sequences; zeros where there is no sequence, or where it has ended. */
static void put_step(predictor *p, const group *g, int64_t t) {
    const rcv_prediction *d = g->data;
    int64_t time = g->time + t, features = p->learner->shape.features;
    int64_t from = time * d->batch + g->first, to = t * g->batch;
    if (p->x && time < g->shortest && !p->learner->scaling) {
        memcpy(p->x + to * features, d->x + from * features, (size_t)(g->count * features) * sizeof *p->x);
        return;
    }
    for (int64_t b = 0; b < g->count; b++) {
        if (time >= length_of(d, g->first + b)) continue;
        if (p->x)
            put_numbers(p, b, d->x + (from + b) * features, p->x + (to + b) * features);
        else
            p->ids[to + b] = (int32_t)d->tokens[from + b];
    }
}

static void put_inputs(predictor *p, const group *g) {
    size_t rows = (size_t)(g->steps * g->batch);
    memset(p->ids, 0, rows * sizeof *p->ids);
    if (p->x) memset(p->x, 0, rows * (size_t)p->learner->shape.features * sizeof *p->x);
    for (int64_t t = 0; t < g->steps && g->time + t < g->longest; t++) put_step(p, g, t);
}

static rcv_status read_window(predictor *p, const group *g) {
    put_inputs(p, g);
    const rcvi_batch batch = {.steps = g->steps,
                              .batch = g->batch,
                              .carries = g->time > 0,
                              .inputs = p->x ? NULL : p->ids,
                              .x = p->x,
                              .lengths = p->lengths};
    return rcvi_work_predict(p->work, g->window, &batch, g->fresh);
}

/* ---- outputs of a window ---- */

/* Logits of rows of features in the device's memory, to the host. */
static rcv_status fetch_logits(predictor *p, int64_t rows, const void *features) {
    const rcv_learner *l = p->learner;
    const rcvi_head head = rcvi_output_head(l, rows, features);
    RCVI_TRY(p->work->ops->logits(p->work->learn, &head, p->device_logits));
    return p->work->ops->fetch(p->work->learn, p->logits, p->device_logits,
                               (size_t)(rows * l->shape.outputs) * rcvi_real_bytes(l));
}

/* Row `from` of the logits becomes row `to` of the caller's output. */
static void put_output(const predictor *p, const group *g, int64_t from, int64_t to) {
    const rcv_learner *l = p->learner;
    int64_t outputs = l->shape.outputs;
    void *out = rcvi_element_at(l, g->data->out, to * outputs);
    memcpy(out, rcvi_element_at(l, p->logits, from * outputs), (size_t)outputs * rcvi_real_bytes(l));
    rcvi_output_convert(l, g->form, 1, out);
}

static rcv_status write_steps(predictor *p, const group *g) {
    const rcv_prediction *d = g->data;
    int64_t left = g->longest - g->time, steps = left < g->steps ? left : g->steps, at_once = p->logit_rows / g->batch;
    for (int64_t begin = 0; begin < steps; begin += at_once) {
        int64_t count = steps - begin < at_once ? steps - begin : at_once;
        const void *y = rcvi_element_at(p->learner, p->work->y, begin * g->batch * p->learner->width);
        RCVI_TRY(fetch_logits(p, count * g->batch, y));
        for (int64_t row = 0; row < count * g->batch; row++) {
            int64_t time = g->time + begin + row / g->batch, b = row % g->batch;
            if (b < g->count && time < length_of(d, g->first + b))
                put_output(p, g, row, time * d->batch + g->first + b);
        }
    }
    return RCV_OK;
}

/* Of the sequences that end in this window. */
static rcv_status write_last(predictor *p, const group *g) {
    const rcvi_learn_table *ops = p->work->ops;
    bool any = false;
    for (int64_t b = 0; b < g->batch; b++) {
        int64_t last = b < g->count ? length_of(g->data, g->first + b) - 1 - g->time : -1;
        bool ends = last >= 0 && last < g->steps;
        p->ids[b] = ends ? (int32_t)(last * g->batch + b) : -1;
        any |= ends;
    }
    if (!any) return RCV_OK;
    RCVI_TRY(ops->send(p->work->learn, p->device_ids, p->ids, (size_t)g->batch * sizeof *p->ids));
    RCVI_TRY(ops->gather(p->work->learn, g->batch, p->learner->width, p->device_ids, p->work->y, p->features));
    RCVI_TRY(fetch_logits(p, g->batch, p->features));
    for (int64_t b = 0; b < g->count; b++)
        if (p->ids[b] >= 0) put_output(p, g, b, g->first + b);
    return RCV_OK;
}

/* ---- groups ---- */

static rcv_status predict_group(predictor *p, group *g) {
    const rcv_prediction *d = g->data;
    g->longest = 0;
    g->shortest = d->steps;
    for (int64_t i = 0; i < g->batch * p->learner->shape.features; i++) p->before[i] = NAN;
    for (int64_t b = 0; b < g->batch; b++) {
        p->lengths[b] = b < g->count ? length_of(d, g->first + b) : 1;
        if (b < g->count && p->lengths[b] > g->longest) g->longest = p->lengths[b];
        if (b < g->count && p->lengths[b] < g->shortest) g->shortest = p->lengths[b];
    }
    for (g->time = 0; g->time < g->longest; g->time += g->steps) {
        RCVI_TRY(read_window(p, g));
        RCVI_TRY(is_stepwise(p->learner, d) ? write_steps(p, g) : write_last(p, g));
        g->fresh = false;
        if (d->go_on && !d->go_on(d->user)) return rcvi_fail(RCV_STOPPED, "prediction was stopped");
    }
    return RCV_OK;
}

static rcv_status predict(rcv_learner *l, const rcv_prediction *d, rcv_output form) {
    predictor *p;
    group g = {.data = d, .form = form, .fresh = true};
    RCVI_TRY(choose_window(l, d, &g.steps, &g.batch));
    RCVI_TRY(find_predictor(l, d->threads, g.steps, g.batch, &p));
    RCVI_TRY(find_window(p, g.steps, g.batch, &g.window));
    if (is_stepwise(l, d)) memset(d->out, 0, (size_t)(d->steps * d->batch * l->shape.outputs) * rcvi_real_bytes(l));
    for (g.first = 0; g.first < d->batch; g.first += g.batch) {
        g.count = d->batch - g.first < g.batch ? d->batch - g.first : g.batch;
        RCVI_TRY(predict_group(p, &g));
    }
    return RCV_OK;
}

/* ---- the call ---- */

static rcv_status check_lengths(const rcv_prediction *d) {
    for (int64_t b = 0; d->lengths && b < d->batch; b++) {
        if (d->lengths[b] < 1 || d->lengths[b] > d->steps)
            return rcvi_fail(RCV_INVALID, "length %lld of sequence %lld is not in 1 to %lld", (long long)d->lengths[b],
                             (long long)b, (long long)d->steps);
    }
    return RCV_OK;
}

static rcv_status check_inputs(const rcv_learner *l, const rcv_prediction *d) {
    if (l->shape.tokens && d->x)
        return rcvi_fail(RCV_INVALID, "the inputs of this model are tokens: give data->tokens, and leave data->x NULL");
    if (!l->shape.tokens && d->tokens)
        return rcvi_fail(RCV_INVALID,
                         "the inputs of this model are %lld numbers a step: give data->x, and leave "
                         "data->tokens NULL",
                         (long long)l->shape.features);
    if (l->shape.tokens && !d->tokens) return rcvi_fail_null("rcv_learner_predict", "data->tokens");
    if (!l->shape.tokens && !d->x) return rcvi_fail_null("rcv_learner_predict", "data->x");
    if (!d->out) return rcvi_fail_null("rcv_learner_predict", "data->out");
    if (d->features && d->features != l->shape.features)
        return rcvi_fail(RCV_INVALID, "the sequences have %lld features a time step, the model reads %lld",
                         (long long)d->features, (long long)l->shape.features);
    RCVI_TRY(check_lengths(d));
    for (int64_t t = 0; d->x && t < d->steps; t++) {
        for (int64_t b = 0; b < d->batch; b++)
            if (t < length_of(d, b))
                RCVI_TRY(rcvi_check_numbers(l, d->x + (t * d->batch + b) * l->shape.features, t, b));
    }
    for (int64_t t = 0; d->tokens && t < d->steps; t++) {
        for (int64_t b = 0; b < d->batch; b++)
            if (t < length_of(d, b)) RCVI_TRY(rcvi_check_token(l, d->tokens[t * d->batch + b], t, b));
    }
    return RCV_OK;
}

static rcv_status check_arrays(const rcv_learner *l, const rcv_prediction *d) {
    int64_t rows, numbers, outputs, bytes;
    if (!rcvi_multiply(d->steps, d->batch, &rows) || !rcvi_multiply(rows, l->shape.features + 8, &numbers) ||
        !rcvi_multiply(rows, l->shape.outputs, &outputs) || !rcvi_multiply(outputs, 8, &bytes) ||
        !rcvi_multiply(numbers, 8, &bytes))
        return rcvi_fail(RCV_INVALID, "%lld sequences of %lld steps are more than memory can address",
                         (long long)d->batch, (long long)d->steps);
    size_t written = (size_t)(is_stepwise(l, d) ? outputs : d->batch * l->shape.outputs) * rcvi_real_bytes(l);
    const rcvi_range ranges[] = {
        {.begin = d->x, .bytes = (size_t)(rows * l->shape.features) * sizeof *d->x, .name = "x"},
        {.begin = d->tokens, .bytes = (size_t)rows * sizeof *d->tokens, .name = "tokens"},
        {.begin = d->lengths, .bytes = (size_t)d->batch * sizeof *d->lengths, .name = "lengths"},
        {.begin = d->out, .bytes = written, .name = "out", .written = true}};
    return rcvi_check_overlap("rcv_learner_predict", ranges, sizeof ranges / sizeof *ranges);
}

rcv_status rcv_learner_predict(rcv_learner *l, const rcv_prediction *data) {
    RCVI_NEED(l, "learner");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_prediction, data, "data");
    rcv_output form = RCV_OUTPUT_DEFAULT;
    RCVI_TRY(rcvi_learner_is_whole(l));
    RCVI_TRY(rcvi_output_form(l, data->output, &form));
    if (data->steps < 1 || data->batch < 0)
        return rcvi_fail(RCV_INVALID, "%lld sequences of %lld steps: sequences have at least 1 step",
                         (long long)data->batch, (long long)data->steps);
    if (data->batch == 0) return RCV_OK;
    RCVI_TRY(check_arrays(l, data));
    RCVI_TRY(check_inputs(l, data));
    return predict(l, data, form);
}

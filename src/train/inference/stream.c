/* A learner's stream: tokens or numbers, the network's stream, and the output layer. */
#include "model/stream.h"
#include "train/inference/output.h"

#include <math.h>
#include <string.h>

typedef struct {
    rcv_learner *learner;
    const rcvi_learn_table *ops;
    rcvi_learn *learn;
    rcv_stream *stream; /* the network's, which owns this */
    int64_t batch;
    rcv_output form;
    int32_t *ids;     /* [most, batch] on the host, of tokens; NULL: inputs are numbers */
    double *numbers;  /* [most, batch, features] on the host, of a learner in float64; NULL: not needed */
    float *scaled;    /* [most, batch, features] on the host, as the network reads them; NULL: inputs are tokens */
    float *before;    /* [batch, features] raw features of the frame before; NaN: there is none */
    void *device_ids; /* the ids */
    void *x;          /* [most, batch, embedding] */
    void *logits;     /* [most, batch, outputs] where the device's memory is not the host's; else NULL */
} ends;

static bool is_on_host(const ends *e) { return !e->learner->device->memory; }

/* ---- frames ---- */

static rcv_status put_tokens(ends *e, const int64_t *tokens, int64_t steps) {
    const rcv_learner *l = e->learner;
    int64_t rows = steps * e->batch;
    for (int64_t i = 0; i < rows; i++) {
        RCVI_TRY(rcvi_check_token(l, tokens[i], i / e->batch, i % e->batch));
        e->ids[i] = (int32_t)tokens[i];
    }
    RCVI_TRY(e->ops->send(e->learn, e->device_ids, e->ids, (size_t)rows * sizeof *e->ids));
    return e->ops->gather(e->learn, rows, l->shape.embedding, e->device_ids, l->parameters, e->x);
}

/* The frames as the network reads them; checked before any of them is counted as read. */
static rcv_status scale(ends *e, const float *numbers, int64_t steps, const float **scaled) {
    const rcv_learner *l = e->learner;
    const int64_t rows = steps * e->batch, features = l->shape.features;
    *scaled = numbers;
    for (int64_t i = 0; i < rows; i++)
        RCVI_TRY(rcvi_check_numbers(l, numbers + i * features, i / e->batch, i % e->batch));
    if (!l->scaling) return RCV_OK;
    memcpy(e->scaled, numbers, (size_t)(rows * features) * sizeof *numbers);
    for (int64_t i = 0; i < rows; i++)
        rcvi_scaling_apply(l->scaling, e->scaled + i * features, 1, e->before + i % e->batch * features);
    *scaled = e->scaled;
    return RCV_OK;
}

static void forget(void *user, int64_t first, int64_t end) {
    ends *e = user;
    const int64_t features = e->learner->shape.features;
    for (int64_t i = first * features; i < end * features; i++) e->before[i] = NAN;
}

/* Gives the address of the network's input. */
static rcv_status put_numbers(ends *e, const float *given, int64_t steps, const void **x) {
    int64_t count = steps * e->batch * e->learner->shape.features;
    const float *numbers;
    RCVI_TRY(scale(e, given, steps, &numbers));
    const void *from = numbers;
    for (int64_t i = 0; i < count && e->numbers; i++) e->numbers[i] = (double)numbers[i];
    if (e->numbers) from = e->numbers;
    *x = is_on_host(e) ? from : e->x;
    return is_on_host(e) ? RCV_OK : e->ops->send(e->learn, e->x, from, (size_t)count * rcvi_real_bytes(e->learner));
}

/* ---- the calls of the network's stream ---- */

/* logits: [rows, outputs]. A GPU computes those of a step at a time, as its libraries order sums by the number of rows. */
static rcv_status apply_output_layer(ends *e, int64_t rows, void *logits) {
    const rcv_learner *l = e->learner;
    int64_t at_once = is_on_host(e) ? rows : e->batch;
    for (int64_t row = 0; row < rows; row += at_once) {
        const void *y = rcvi_element_at(l, rcvi_stream_output(e->stream), row * l->width);
        const rcvi_head head = rcvi_output_head(l, at_once, y);
        RCVI_TRY(e->ops->logits(e->learn, &head, rcvi_element_at(l, logits, row * l->shape.outputs)));
    }
    return RCV_OK;
}

static rcv_status step(void *user, const void *frames, int64_t steps, void *out) {
    ends *e = user;
    const rcv_learner *l = e->learner;
    int64_t rows = steps * e->batch;
    const void *x = e->x;
    RCVI_TRY(e->ids ? put_tokens(e, frames, steps) : put_numbers(e, frames, steps, &x));
    RCVI_TRY(rcvi_stream_forward(e->stream, x, steps, NULL));
    if (!out) return e->ops->wait(e->learn);
    RCVI_TRY(apply_output_layer(e, rows, e->logits ? e->logits : out));
    if (e->logits)
        RCVI_TRY(e->ops->fetch(e->learn, out, e->logits, (size_t)(rows * l->shape.outputs) * rcvi_real_bytes(l)));
    rcvi_output_convert(l, e->form, rows, out);
    return RCV_OK;
}

static size_t frame_bytes(const void *user) {
    const ends *e = user;
    size_t rows = (size_t)e->batch;
    return e->ids ? rows * sizeof(int64_t) : rows * (size_t)e->learner->shape.features * sizeof(float);
}

static size_t out_bytes(const void *user) {
    const ends *e = user;
    return (size_t)(e->batch * e->learner->shape.outputs) * rcvi_real_bytes(e->learner);
}

static void free_ends(void *user) {
    ends *e = user;
    const rcv_learner *l = e->learner;
    if (e->learn) e->ops->wait(e->learn);
    void *const arrays[] = {e->device_ids, e->x, e->logits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) rcvi_device_free(l, arrays[i]);
    rcvi_free(l->context, e->ids);
    rcvi_free(l->context, e->numbers);
    rcvi_free(l->context, e->scaled);
    rcvi_free(l->context, e->before);
    if (e->learn) e->ops->close(e->learn);
    rcvi_free(l->context, e);
}

/* ---- opening ---- */

static rcv_status make_arrays(ends *e, int64_t rows) {
    const rcv_learner *l = e->learner;
    size_t real = rcvi_real_bytes(l), count = (size_t)rows;
    bool numbers = !l->shape.tokens;
    if (!numbers) {
        e->ids = rcvi_new(l->context, count, sizeof *e->ids);
        if (!e->ids) return RCV_NO_MEMORY;
        RCVI_TRY(rcvi_device_new(l, rows, sizeof *e->ids, &e->device_ids));
    }
    const size_t features = (size_t)l->shape.features;
    if (numbers) e->scaled = rcvi_new(l->context, count * features, sizeof *e->scaled);
    e->before = rcvi_new(l->context, (size_t)e->batch * features, sizeof *e->before);
    if ((numbers && !e->scaled) || !e->before) return RCV_NO_MEMORY;
    forget(e, 0, e->batch);
    if (numbers && l->real == RCV_FLOAT64) {
        e->numbers = rcvi_new(l->context, count * (size_t)l->shape.features, sizeof *e->numbers);
        if (!e->numbers) return RCV_NO_MEMORY;
    }
    if (!numbers || !is_on_host(e)) RCVI_TRY(rcvi_device_new(l, rows * l->shape.embedding, real, &e->x));
    return is_on_host(e) ? RCV_OK : rcvi_device_new(l, rows * l->shape.outputs, real, &e->logits);
}

static rcv_status fill(ends *e, const rcv_stream_options *o) {
    const rcv_learner *l = e->learner;
    int64_t rows = o->most * o->batch;
    const rcvi_learn_shape shape = {
        .dtype = l->dtype, .threads = o->threads, .rows = rows, .features = l->width, .classes = l->shape.outputs};
    RCVI_TRY(e->ops->open(l->context, l->ordinal, &shape, &e->learn));
    RCVI_TRY(make_arrays(e, rows));
    void *queue = e->ops->stream(e->learn);
    if (queue) RCVI_TRY(rcvi_stream_set_queue(e->stream, queue));
    if (is_on_host(e)) return RCV_OK;
    RCVI_TRY(apply_output_layer(e, e->batch, e->logits)); /* once: the first call prepares the product */
    return e->ops->wait(e->learn);
}

static rcv_status add_ends(rcv_stream *stream, rcv_learner *l, const rcv_stream_options *o, rcv_output form) {
    ends *e = rcvi_new(l->context, 1, sizeof *e);
    if (!e) return RCV_NO_MEMORY;
    *e = (ends){.learner = l, .ops = l->device->learn, .stream = stream, .batch = o->batch, .form = form};
    const rcvi_stream_ends own = {.step = step,
                                  .frame_bytes = frame_bytes,
                                  .out_bytes = out_bytes,
                                  .forget = forget,
                                  .free = free_ends,
                                  .user = e};
    rcvi_stream_set_ends(stream, &own);
    return fill(e, o);
}

/* Elements of every array can be counted. */
static rcv_status check_sizes(const rcv_learner *l, const rcv_stream_options *o) {
    int64_t rows, elements, widest = l->shape.outputs;
    if (l->width > widest) widest = l->width;
    if (l->shape.embedding > widest) widest = l->shape.embedding;
    if (rcvi_multiply(o->most, o->batch, &rows) && rcvi_multiply(rows, widest, &elements) && rows <= INT32_MAX)
        return RCV_OK;
    return rcvi_fail(RCV_INVALID, "a stream of %lld rows and %lld steps a call is more than memory can address",
                     (long long)o->batch, (long long)o->most);
}

static rcv_status check(const rcv_learner *l, const rcv_stream_options *o) {
    RCVI_TRY(rcvi_learner_is_whole(l));
    if (o->device && strcmp(o->device, l->device_name) != 0)
        return rcvi_fail(RCV_INVALID,
                         "the learner is on device %s: load it on another one to stream there, and leave "
                         "options->device NULL",
                         l->device_name);
    if (o->dtype && o->dtype != l->dtype)
        return rcvi_fail(RCV_INVALID, "the learner is of type %s; leave options->dtype 0", rcv_dtype_name(l->dtype));
    if (o->on_device || o->cuda_stream)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a learner's frames and outputs lie on the host: leave options->on_device and "
                         "options->cuda_stream 0");
    return RCV_OK;
}

rcv_status rcv_stream_new_learner(rcv_learner *l, const rcv_stream_options *options, rcv_stream **stream) {
    RCVI_NEED(stream, "stream");
    *stream = NULL;
    RCVI_NEED(l, "learner");
    RCVI_READ(rcv_stream_options, options, "options");
    rcv_output form = RCV_OUTPUT_DEFAULT;
    RCVI_TRY(check(l, options));
    RCVI_TRY(rcvi_output_form(l, options->output, &form));
    rcvi_stream_setup setup = {.context = l->context,
                               .net = l->net,
                               .parameters = rcvi_local_element_at(l, l->parameters, l->net_offset),
                               .dtype = l->dtype,
                               .real = l->real,
                               .options = *options};
    RCVI_TRY(rcvi_stream_set_sizes(&setup.options));
    RCVI_TRY(check_sizes(l, &setup.options));
    setup.options.device = l->device_name;
    setup.options.on_device = true; /* the arrays of rcvi_stream_forward are the device's */
    rcv_stream *made;
    RCVI_TRY(rcvi_stream_new(&setup, &made));
    rcv_status status = add_ends(made, l, &setup.options, form);
    if (status) {
        rcv_stream_free(made);
        return status;
    }
    *stream = made;
    return RCV_OK;
}

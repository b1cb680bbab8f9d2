/* Streams: steps of a network whose states stay between calls.
 *
 * The states of all rows lie in one block per side; a step reads the states of one side and writes those of the other, since initial and
 * final states of a call may not overlap. The block of a side holds the state tensors of rcv_forward one after the other; a piece is what one
 * layer has of one state, [batch, size]. A row's states, as callers copy them, are the pieces of that row in the same order. */
#include "model/stream.h"

#include "model/model.h"
#include "net/net.h"

#include <string.h>

enum { SIDES = 2, ALIGNED_ELEMENTS = 64 }; /* state tensors begin at multiples of so many elements, for vector loads */

typedef struct {
    int64_t at;     /* first element of row 0 within a side */
    int64_t in_row; /* first element within the states of a row */
    int64_t size;
} piece;

struct rcv_stream {
    rcv_context *context;
    const rcv_net *net;
    const rcvi_device *device;
    int ordinal;
    size_t real_bytes;
    int64_t batch, most;
    bool on_device; /* frames and outputs are in the device's memory, which is not the host's */
    rcv_plan *plan;
    rcv_run *run;
    const void *source;     /* the model's parameters, on the host; NULL: they are in the device's memory */
    const void *parameters; /* that steps read */
    void *parameter_copy;   /* the same where they were copied to the device, else NULL */
    bool packed;            /* a step has packed these parameters */
    piece *pieces;          /* [piece_count] */
    size_t piece_count;     /* states * layers */
    int64_t row_elements;   /* of the states of a row */
    int64_t side_elements;  /* of a side, with what lies between state tensors */
    void *sides[SIDES];     /* [side_elements] in the device's memory */
    void **states[SIDES];   /* [state count] tensors within the sides */
    int side;               /* that holds the current states */
    char *host_side;        /* [side_elements] on the host; NULL where the device's memory is the host's */
    void *x, *y;            /* [most, batch, input] for frames from the host; [most, batch, output] */
    rcvi_stream_ends ends;
};

/* ---- the device's memory ---- */

static bool is_on_host(const rcv_stream *s) { return !s->device->memory; }

static rcv_status new_elements(const rcv_stream *s, int64_t count, void **memory) {
    int64_t bytes;
    if (!rcvi_multiply(count, (int64_t)s->real_bytes, &bytes))
        return rcvi_fail(RCV_INVALID, "a stream of %lld rows and %lld steps a call is more than memory can address",
                         (long long)s->batch, (long long)s->most);
    if (!is_on_host(s)) return s->device->memory->allocate(s->ordinal, (size_t)bytes, memory);
    *memory = rcvi_new(s->context, (size_t)bytes, 1);
    return *memory ? RCV_OK : RCV_NO_MEMORY;
}

static void free_elements(const rcv_stream *s, void *memory) {
    if (memory && !is_on_host(s)) s->device->memory->release(s->ordinal, memory);
    if (is_on_host(s)) rcvi_free(s->context, memory);
}

static rcv_status new_frames(const rcv_stream *s, int64_t features, void **memory) {
    int64_t rows, count;
    if (!rcvi_multiply(s->most, s->batch, &rows) || !rcvi_multiply(rows, features, &count)) count = INT64_MAX;
    return new_elements(s, count, memory);
}

static int64_t input_of(const rcv_stream *s) { return s->net->options.input; }

static size_t frame_bytes(const rcv_stream *s) {
    return s->ends.step ? s->ends.frame_bytes(s->ends.user) : (size_t)(s->batch * input_of(s)) * s->real_bytes;
}

static size_t out_bytes(const rcv_stream *s) {
    return s->ends.step ? s->ends.out_bytes(s->ends.user) : (size_t)(s->batch * rcv_net_output(s->net)) * s->real_bytes;
}

/* ---- states ---- */

/* Places state tensors in a side, and lists their pieces. */
static rcv_status lay_out_states(rcv_stream *s) {
    size_t states = s->net->state_count;
    int64_t layers = s->net->options.layers;
    s->pieces = rcvi_new(s->context, states * (size_t)layers, sizeof *s->pieces);
    if (!s->pieces) return RCV_NO_MEMORY;
    for (size_t i = 0; i < states; i++) {
        int64_t count, end, start = s->side_elements;
        if (!rcvi_multiply(s->net->states[i].total, s->batch, &count) ||
            !rcvi_add(start, count + ALIGNED_ELEMENTS - 1, &end))
            return rcvi_fail(RCV_INVALID, "a batch of %lld is too large for this network's states",
                             (long long)s->batch);
        for (int64_t layer = 0; layer < layers; layer++) {
            piece *p = &s->pieces[s->piece_count++];
            p->at = start + rcvi_state_offset(s->net, i, layer, 0) * s->batch;
            p->in_row = s->row_elements;
            p->size = rcv_net_state_size(s->net, i, layer, false);
            s->row_elements += p->size;
        }
        s->side_elements = end / ALIGNED_ELEMENTS * ALIGNED_ELEMENTS;
    }
    return RCV_OK;
}

static rcv_status make_side(rcv_stream *s, int side) {
    size_t piece = 0;
    s->states[side] = rcvi_new(s->context, s->net->state_count, sizeof *s->states[side]);
    if (!s->states[side]) return RCV_NO_MEMORY;
    RCVI_TRY(new_elements(s, s->side_elements, &s->sides[side]));
    for (size_t i = 0; i < s->net->state_count; i++, piece += (size_t)s->net->options.layers)
        s->states[side][i] = (char *)s->sides[side] + (size_t)s->pieces[piece].at * s->real_bytes;
    return RCV_OK;
}

static rcv_status make_states(rcv_stream *s) {
    RCVI_TRY(lay_out_states(s));
    for (int side = 0; side < SIDES; side++) RCVI_TRY(make_side(s, side));
    if (is_on_host(s)) return RCV_OK;
    s->host_side = rcvi_new(s->context, (size_t)s->side_elements, s->real_bytes);
    return s->host_side ? RCV_OK : RCV_NO_MEMORY;
}

static size_t side_bytes(const rcv_stream *s) { return (size_t)s->side_elements * s->real_bytes; }

/* The current states where the host can read and write them, after all enqueued steps. */
static rcv_status open_states(rcv_stream *s, char **states) {
    *states = is_on_host(s) ? s->sides[s->side] : s->host_side;
    RCVI_TRY(rcv_run_wait(s->run));
    if (is_on_host(s) || !side_bytes(s)) return RCV_OK;
    return s->device->memory->read(s->ordinal, s->host_side, s->sides[s->side], side_bytes(s));
}

/* After the host has written them. */
static rcv_status send_states(rcv_stream *s) {
    if (is_on_host(s) || !side_bytes(s)) return RCV_OK;
    return s->device->memory->write(s->ordinal, s->sides[s->side], s->host_side, side_bytes(s));
}

static char *piece_at(const rcv_stream *s, char *states, const piece *p, int64_t row) {
    return states + (size_t)(p->at + row * p->size) * s->real_bytes;
}

/* ---- making and freeing ---- */

static rcv_status make_plan(rcv_stream *s, const rcvi_stream_setup *setup) {
    const rcv_stream_options *o = &setup->options;
    if (o->effort == RCV_BACKGROUND)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "steps of a stream allocate nothing, so its plan is not replaced while it is used: "
                         "plan it with RCV_ESTIMATE or RCV_MEASURE");
    const rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = s->most, .batch = s->batch, .dtype = setup->dtype, .schedule = o->schedule,
                 .effort = o->effort, .threads = o->threads, .device = o->device);
    RCVI_TRY(rcv_plan_new(s->net, &options, &s->plan));
    return rcv_run_new(s->plan, &s->run);
}

static size_t parameter_bytes(const rcv_stream *s) { return (size_t)s->net->parameter_elements * s->real_bytes; }

static rcv_status make_parameters(rcv_stream *s, const rcvi_stream_setup *setup) {
    s->parameters = setup->parameters;
    if (is_on_host(s) || !setup->parameters_on_host) return RCV_OK;
    s->source = setup->parameters;
    RCVI_TRY(new_elements(s, s->net->parameter_elements, &s->parameter_copy));
    s->parameters = s->parameter_copy;
    return RCV_OK;
}

static rcv_status fill(rcv_stream *s, const rcvi_stream_setup *setup) {
    RCVI_TRY(make_plan(s, setup));
    RCVI_TRY(make_parameters(s, setup));
    RCVI_TRY(make_states(s));
    if (!is_on_host(s) && !s->on_device) RCVI_TRY(new_frames(s, input_of(s), &s->x));
    RCVI_TRY(new_frames(s, rcv_net_output(s->net), &s->y));
    RCVI_TRY(rcv_stream_reload(s));
    return rcv_stream_reset(s, NULL);
}

rcv_status rcvi_stream_set_sizes(rcv_stream_options *o) {
    if (o->batch < 0 || o->most < 0)
        return rcvi_fail(RCV_INVALID, "a stream has at least 1 row and 1 step a call, not %lld and %lld",
                         (long long)o->batch, (long long)o->most);
    o->batch = o->batch ? o->batch : 1;
    o->most = o->most ? o->most : 1;
    return RCV_OK;
}

rcv_status rcvi_stream_new(const rcvi_stream_setup *setup, rcv_stream **out) {
    const rcv_stream_options *o = &setup->options;
    *out = NULL;
    if (setup->net->options.bidirectional || setup->net->options.reverse)
        return rcvi_fail(RCV_UNSUPPORTED, "a stream runs from the first frame on, but the reverse direction of this "
                                          "network begins at the last: run whole sequences");
    rcv_stream *s = rcvi_new(setup->context, 1, sizeof *s);
    if (!s) return RCV_NO_MEMORY;
    s->context = setup->context;
    s->net = setup->net;
    s->real_bytes = rcv_dtype_bytes(setup->real);
    s->batch = o->batch;
    s->most = o->most;
    rcv_status status = rcvi_device_find(o->device, &s->device, &s->ordinal);
    if (!status) {
        s->on_device = o->on_device && !is_on_host(s);
        status = fill(s, setup);
    }
    if (status) {
        rcv_stream_free(s);
        return status;
    }
    *out = s;
    return RCV_OK;
}

void rcvi_stream_set_ends(rcv_stream *s, const rcvi_stream_ends *ends) { s->ends = *ends; }
rcv_status rcvi_stream_set_queue(rcv_stream *s, void *queue) { return rcv_run_set_stream(s->run, queue); }

void rcv_stream_free(rcv_stream *s) {
    if (!s) return;
    rcv_run_free(s->run); /* before the CUDA stream of the ends, on which it runs */
    rcv_plan_free(s->plan);
    if (s->ends.free) s->ends.free(s->ends.user);
    if (s->device) {
        void *const arrays[] = {s->parameter_copy, s->sides[0], s->sides[1], s->x, s->y};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free_elements(s, arrays[i]);
    }
    for (int side = 0; side < SIDES; side++) rcvi_free(s->context, s->states[side]);
    rcvi_free(s->context, s->host_side);
    rcvi_free(s->context, s->pieces);
    rcvi_free(s->context, s);
}

rcv_status rcv_stream_new_model(const rcv_model *model, const rcv_stream_options *options, rcv_stream **stream) {
    RCVI_NEED(stream, "stream");
    *stream = NULL;
    RCVI_NEED(model, "model");
    RCVI_READ(rcv_stream_options, options, "options");
    if (options->output)
        return rcvi_fail(RCV_INVALID, "options->output is of a learner's output layer, which a model does not have");
    if (options->cuda_stream && !options->on_device)
        return rcvi_fail(RCV_INVALID, "options->cuda_stream is used with options->on_device only");
    rcv_dtype dtype = options->dtype ? options->dtype : model->dtype;
    rcvi_stream_setup setup = {.context = model->context,
                               .net = model->net,
                               .parameters = model->parameters,
                               .parameters_on_host = true,
                               .dtype = dtype,
                               .real = model->dtype,
                               .options = *options};
    RCVI_TRY(rcvi_stream_set_sizes(&setup.options));
    if ((dtype == RCV_FLOAT64) != (model->dtype == RCV_FLOAT64))
        return rcvi_fail(RCV_INVALID, "the model's parameters are %s, so its stream cannot be %s",
                         rcv_dtype_name(model->dtype), rcv_dtype_name(dtype));
    RCVI_TRY(rcvi_stream_new(&setup, stream));
    rcv_status status = options->cuda_stream && *stream ? rcvi_stream_set_queue(*stream, options->cuda_stream) : RCV_OK;
    if (status) {
        rcv_stream_free(*stream);
        *stream = NULL;
    }
    return status;
}

/* ---- steps ---- */

rcv_status rcvi_stream_forward(rcv_stream *s, const void *x, int64_t steps, void *y) {
    const rcv_forward forward = RCV_INIT(rcv_forward, .parameters = s->parameters, .x = x, .y = y ? y : s->y,
                                         .initial = (const void *const *)s->states[s->side],
                                         .final = s->states[1 - s->side], .same_parameters = s->packed, .steps = steps);
    RCVI_TRY(rcv_run_forward(s->run, &forward));
    s->packed = true;
    s->side = 1 - s->side;
    return RCV_OK;
}

void *rcvi_stream_output(const rcv_stream *s) { return s->y; }

/* Frames and outputs on the host, the network on a device with memory of its own. */
static rcv_status step_copied(rcv_stream *s, const void *frames, int64_t steps, void *out) {
    const rcvi_memory *memory = s->device->memory;
    RCVI_TRY(memory->write(s->ordinal, s->x, frames, (size_t)steps * frame_bytes(s)));
    RCVI_TRY(rcvi_stream_forward(s, s->x, steps, NULL));
    RCVI_TRY(rcv_run_wait(s->run));
    return out ? memory->read(s->ordinal, out, s->y, (size_t)steps * out_bytes(s)) : RCV_OK;
}

rcv_status rcv_stream_step(rcv_stream *stream, const void *frames, int64_t steps, void *out) {
    RCVI_NEED(stream, "stream");
    RCVI_NEED(frames, "frames");
    if (steps < 1 || steps > stream->most)
        return rcvi_fail(RCV_INVALID, "a call has %lld steps, but this stream takes 1 to %lld (options->most)",
                         (long long)steps, (long long)stream->most);
    const rcvi_range ranges[] = {
        {.begin = frames, .bytes = (size_t)steps * frame_bytes(stream), .name = "frames"},
        {.begin = out, .bytes = (size_t)steps * out_bytes(stream), .name = "out", .written = true}};
    RCVI_TRY(rcvi_check_overlap(__func__, ranges, sizeof ranges / sizeof *ranges));
    if (stream->ends.step) return stream->ends.step(stream->ends.user, frames, steps, out);
    if (is_on_host(stream) || stream->on_device) return rcvi_stream_forward(stream, frames, steps, out);
    return step_copied(stream, frames, steps, out);
}

static void forget_frames(const rcv_stream *stream, int64_t first, int64_t end) {
    if (stream->ends.forget) stream->ends.forget(stream->ends.user, first, end);
}

rcv_status rcv_stream_reset(rcv_stream *stream, const uint8_t *rows) {
    RCVI_NEED(stream, "stream");
    char *states;
    RCVI_TRY(open_states(stream, &states));
    if (!rows) memset(states, 0, side_bytes(stream));
    for (int64_t row = 0; row < stream->batch; row++)
        if (!rows || rows[row]) forget_frames(stream, row, row + 1);
    for (int64_t row = 0; rows && row < stream->batch; row++) {
        for (size_t i = 0; rows[row] && i < stream->piece_count; i++) {
            const piece *p = &stream->pieces[i];
            memset(piece_at(stream, states, p, row), 0, (size_t)p->size * stream->real_bytes);
        }
    }
    return send_states(stream);
}

int64_t rcv_stream_state_elements(const rcv_stream *stream) { return stream->row_elements; }

static rcv_status check_row(const rcv_stream *s, int64_t row) {
    if (row >= -1 && row < s->batch) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "row %lld is not in 0 to %lld, the rows of the stream, nor -1 for all",
                     (long long)row, (long long)s->batch - 1);
}

rcv_status rcv_stream_get_states(rcv_stream *stream, int64_t row, void *states) {
    RCVI_NEED(stream, "stream");
    RCVI_NEED(states, "states");
    RCVI_TRY(check_row(stream, row));
    char *from, *to = states;
    RCVI_TRY(open_states(stream, &from));
    int64_t first = row < 0 ? 0 : row, end = row < 0 ? stream->batch : row + 1;
    for (int64_t r = first; r < end; r++, to += (size_t)stream->row_elements * stream->real_bytes) {
        for (size_t i = 0; i < stream->piece_count; i++) {
            const piece *p = &stream->pieces[i];
            memcpy(to + (size_t)p->in_row * stream->real_bytes, piece_at(stream, from, p, r),
                   (size_t)p->size * stream->real_bytes);
        }
    }
    return RCV_OK;
}

rcv_status rcv_stream_set_states(rcv_stream *stream, int64_t row, const void *states) {
    RCVI_NEED(stream, "stream");
    RCVI_NEED(states, "states");
    RCVI_TRY(check_row(stream, row));
    const char *from = states;
    char *to;
    RCVI_TRY(open_states(stream, &to));
    int64_t first = row < 0 ? 0 : row, end = row < 0 ? stream->batch : row + 1;
    for (int64_t r = first; r < end; r++, from += (size_t)stream->row_elements * stream->real_bytes) {
        for (size_t i = 0; i < stream->piece_count; i++) {
            const piece *p = &stream->pieces[i];
            memcpy(piece_at(stream, to, p, r), from + (size_t)p->in_row * stream->real_bytes,
                   (size_t)p->size * stream->real_bytes);
        }
    }
    forget_frames(stream, first, end);
    return send_states(stream);
}

rcv_status rcv_stream_reload(rcv_stream *stream) {
    RCVI_NEED(stream, "stream");
    stream->packed = false;
    if (!stream->parameter_copy || !parameter_bytes(stream)) return RCV_OK;
    RCVI_TRY(rcv_run_wait(stream->run));
    return stream->device->memory->write(stream->ordinal, stream->parameter_copy, stream->source,
                                         parameter_bytes(stream));
}

rcv_status rcv_stream_wait(rcv_stream *stream) {
    RCVI_NEED(stream, "stream");
    return rcv_run_wait(stream->run);
}

const rcv_plan *rcv_stream_plan(const rcv_stream *stream) { return stream->plan; }

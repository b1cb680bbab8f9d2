/* A stream: a plan of as many steps as a call has at most, its run, and the states of its rows. Learners add an embedding before it and an output layer after it. */
#ifndef RCVI_STREAM_H
#define RCVI_STREAM_H

#include "device/device.h"

/* What a learner adds; a model's stream has none. */
typedef struct {
    /* The arguments of rcv_stream_step, checked: frames and out are not the same memory, `out` may be NULL. */
    rcv_status (*step)(void *user, const void *frames, int64_t steps, void *out);
    size_t (*frame_bytes)(const void *user); /* of the frames of one step */
    size_t (*out_bytes)(const void *user);   /* of the outputs of one step */
    /* Rows first .. end - 1 have other states: what is known of the frames before them is forgotten. NULL: nothing is known. */
    void (*forget)(void *user, int64_t first, int64_t end);
    void (*free)(void *user);
    void *user;
} rcvi_stream_ends;

/* How a stream is made. */
typedef struct {
    rcv_context *context;
    const rcv_net *net;
    const void *parameters;     /* [rcv_net_parameter_elements] of `real` */
    bool parameters_on_host;    /* else they are in the device's memory */
    rcv_dtype dtype, real;      /* of products; of arrays: float32 or float64 */
    rcv_stream_options options; /* with rows and steps set */
} rcvi_stream_setup;

/* Sets rows and steps that are 0 to 1. RCV_INVALID where they are negative. */
rcv_status rcvi_stream_set_sizes(rcv_stream_options *options);

rcv_status rcvi_stream_new(const rcvi_stream_setup *setup, rcv_stream **stream);
/* The stream owns `ends->user` from here on. */
void rcvi_stream_set_ends(rcv_stream *stream, const rcvi_stream_ends *ends);
/* The CUDA stream that steps are enqueued on. */
rcv_status rcvi_stream_set_queue(rcv_stream *stream, void *queue);
/* Enqueues steps. x: [steps, batch, input], y: [steps, batch, output], in the device's memory; y NULL: into rcvi_stream_output. */
rcv_status rcvi_stream_forward(rcv_stream *stream, const void *x, int64_t steps, void *y);
void *rcvi_stream_output(const rcv_stream *stream); /* [most, batch, output] in the device's memory */

#endif

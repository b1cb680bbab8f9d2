/* Wavefront: layers in a skewed order.
 *
 * It applies to stacked layers of one direction, forwards or in reverse, without dropout between them, in chunks shorter than the sequence. All layers are one
 * set with common loops. In a round of the outer loop each layer computes the chunk (or step) that the layer below computed in the round
 * before, so that layers depend on nothing of the same round and may run side by side. Forwards layer l starts l rounds late; backwards
 * the top layer is first. The loops have as many more rounds as the last layer is late; steps whose time is outside of the sequence are
 * left out. */
#include "schedule/stepwise/stepwise.h"

static rcv_status refuse(const char *sentence) { return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence); }

rcv_status rcvi_wavefront_applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs) {
    if (rungs->forward_wave && !options->training)
        return refuse("forward of wavefront is for the forward pass of training; this is inference: write wavefront");
    if (net->options.layers < 2) return refuse("a wavefront needs two layers at least");
    if (net->directions > 1)
        return refuse("a wavefront needs one direction: a layer above a bidirectional one waits for its last step");
    if (options->training && net->options.dropout > 0)
        return refuse("a wavefront does not go through dropout between layers");
    if (rcvi_forward_chunk_of(rungs, options->steps) == options->steps ||
        (!rungs->forward_wave && rcvi_chunk_of(rungs, options->steps) == options->steps))
        return rcvi_fail(RCV_UNSUPPORTED, "a wavefront needs chunks shorter than the sequence of %lld steps",
                         (long long)options->steps);
    return RCV_OK;
}

void rcvi_wavefront_write_forward(rcvi_stepwise *w) {
    int64_t layers = w->frame.net->options.layers;
    for (int64_t layer = 0; layer < layers; layer++) w->tracks[layer].delay = layer;
    rcvi_forward_write_set(w, w->tracks, layers);
}

/* A layer is one round after the one above; two where a retimed layer computes dx of a step one step later. */
void rcvi_wavefront_write_backward(rcvi_stepwise *w, int dy) {
    int64_t layers = w->frame.net->options.layers, distance = 1;
    int *buffers = rcvi_pool_new(&w->frame.program->pool, (size_t)layers + 1, sizeof *buffers);
    if (!buffers) {
        w->frame.program->failed = true;
        return;
    }
    for (int64_t layer = 0; layer < layers; layer++) {
        rcvi_track_retime(w, &w->tracks[layer]);
        if (rcvi_track_is_dx_late(&w->tracks[layer])) distance = 2;
    }
    for (int64_t layer = 0; layer < layers; layer++) {
        buffers[layer] = rcvi_backward_new_dx(w, layer);
        w->tracks[layer].delay = distance * (layers - 1 - layer);
    }
    buffers[layers] = dy;
    rcvi_backward_write_set(w, w->tracks, layers, buffers + 1, buffers);
    rcvi_backward_write_dx(w, 0, buffers[0]);
    rcvi_frame_write_dx(&w->frame, buffers[0]);
}

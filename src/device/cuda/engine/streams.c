/* Streams that wait for each other only where launches touch the same bytes. */
#include "device/cuda/engine/streams.h"

#include <string.h>

enum { FEW_TOUCHES = 64 }; /* fewer are not swept */

rcv_status rcvi_streams_open(rcv_context *context, int count, rcvi_streams *streams) {
    *streams = (rcvi_streams){.count = count};
    if (count < 2) return RCV_OK;
    streams->touches = rcvi_new(context, RCVI_MAX_TOUCHES, sizeof *streams->touches);
    if (!streams->touches) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        RCVI_CUDA_TRY(cudaEventCreateWithFlags(&streams->events[i], cudaEventDisableTiming), "creating an event");
        if (i > 0)
            RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&streams->own[i], cudaStreamNonBlocking), "creating a stream");
    }
    return RCV_OK;
}

void rcvi_streams_close(rcv_context *context, rcvi_streams *streams) {
    for (int i = 0; i < streams->count; i++) {
        if (streams->events[i]) cudaEventDestroy(streams->events[i]);
        if (streams->own[i]) cudaStreamDestroy(streams->own[i]);
    }
    rcvi_free(context, streams->touches);
    *streams = (rcvi_streams){0};
}

/* The stream waits for all launches on the other one so far. */
static rcv_status wait_for(rcvi_streams *streams, int stream, int other) {
    RCVI_CUDA_TRY(cudaEventRecord(streams->events[other], streams->handles[other]), "recording an event");
    RCVI_CUDA_TRY(cudaStreamWaitEvent(streams->handles[stream], streams->events[other], 0), "waiting for a stream");
    for (int i = 0; i < streams->count; i++) { /* and so for all that the other one waited for */
        if (i != stream && streams->known[other][i] > streams->known[stream][i])
            streams->known[stream][i] = streams->known[other][i];
    }
    streams->known[stream][other] = streams->launches[other];
    return RCV_OK;
}

/* Every stream waits for all launches so far. */
static rcv_status join_all(rcvi_streams *streams) {
    for (int i = 1; i < streams->count; i++) RCVI_TRY(wait_for(streams, 0, i));
    for (int i = 1; i < streams->count; i++) RCVI_TRY(wait_for(streams, i, 0));
    streams->touch_count = 0;
    return RCV_OK;
}

rcv_status rcvi_streams_begin(rcvi_streams *streams, cudaStream_t caller) {
    streams->handles[0] = caller;
    if (streams->count < 2) return RCV_OK;
    streams->touch_count = 0;
    streams->sweep_at = FEW_TOUCHES;
    memset(streams->launches, 0, sizeof streams->launches);
    memset(streams->known, 0, sizeof streams->known);
    for (int i = 1; i < streams->count; i++) {
        streams->handles[i] = streams->own[i];
        RCVI_TRY(wait_for(streams, i, 0));
    }
    return RCV_OK;
}

rcv_status rcvi_streams_end(rcvi_streams *streams) {
    for (int i = 1; i < streams->count; i++) RCVI_TRY(wait_for(streams, 0, i));
    return RCV_OK;
}

static bool overlap(const rcvi_touch *a, const rcvi_touch *b) { return a->low < b->high && b->low < a->high; }

bool rcvi_touches_conflict(const rcvi_touch *a, size_t a_count, const rcvi_touch *b, size_t b_count) {
    for (size_t i = 0; i < a_count; i++) {
        for (size_t k = 0; k < b_count; k++) {
            if ((a[i].written || b[k].written) && overlap(&a[i], &b[k])) return true;
        }
    }
    return false;
}

rcv_status rcvi_streams_beside(rcvi_streams *streams, int stream, cudaEvent_t event) {
    RCVI_CUDA_TRY(cudaStreamWaitEvent(streams->handles[stream], event, 0), "waiting for a stream");
    for (int i = 1; i < streams->count; i++) {
        if (i != stream && streams->known[0][i] > streams->known[stream][i])
            streams->known[stream][i] = streams->known[0][i];
    }
    if (streams->launches[0] - 1 > streams->known[stream][0]) streams->known[stream][0] = streams->launches[0] - 1;
    return RCV_OK;
}

/* Whether every stream has waited for the launch with this touch. */
static bool is_waited_for(const rcvi_streams *streams, const rcvi_touch *touch) {
    for (int i = 0; i < streams->count; i++) {
        if (i != touch->stream && streams->known[i][touch->stream] < touch->launch) return false;
    }
    return true;
}

/* Removes the touches that no launch has to wait for. */
static void sweep_touches(rcvi_streams *streams) {
    size_t left = 0;
    for (size_t i = 0; i < streams->touch_count; i++) {
        if (!is_waited_for(streams, &streams->touches[i])) streams->touches[left++] = streams->touches[i];
    }
    streams->touch_count = left;
}

/* Removes the touches whose bytes are all written by this one: a later launch on these bytes waits for this one. */
static void remove_covered(rcvi_streams *streams, const rcvi_touch *by) {
    size_t left = 0;
    for (size_t i = 0; i < streams->touch_count; i++) {
        const rcvi_touch *old = &streams->touches[i];
        bool covered = by->written && old->low >= by->low && old->high <= by->high;
        if (!covered) streams->touches[left++] = *old;
    }
    streams->touch_count = left;
}

rcv_status rcvi_streams_enter(rcvi_streams *streams, int stream, const rcvi_touch *touches, size_t count) {
    if (streams->count < 2) return RCV_OK;
    int64_t needed[RCVI_MAX_STREAMS] = {0};
    for (size_t i = 0; i < streams->touch_count; i++) {
        const rcvi_touch *old = &streams->touches[i];
        if (old->stream == stream || old->launch <= streams->known[stream][old->stream] ||
            old->launch <= needed[old->stream])
            continue;
        if (rcvi_touches_conflict(old, 1, touches, count)) needed[old->stream] = old->launch;
    }
    for (int other = 0; other < streams->count; other++) {
        if (needed[other] > streams->known[stream][other]) RCVI_TRY(wait_for(streams, stream, other));
    }
    if (streams->touch_count + count > streams->sweep_at) {
        sweep_touches(streams);
        streams->sweep_at = 2 * streams->touch_count + FEW_TOUCHES;
    }
    if (streams->touch_count + count > RCVI_MAX_TOUCHES) RCVI_TRY(join_all(streams));
    int64_t launch = ++streams->launches[stream];
    for (size_t k = 0; k < count; k++) {
        remove_covered(streams, &touches[k]);
        rcvi_touch touch = touches[k];
        touch.stream = stream;
        touch.launch = launch;
        streams->touches[streams->touch_count++] = touch;
    }
    return RCV_OK;
}

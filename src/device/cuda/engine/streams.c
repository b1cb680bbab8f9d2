#include "device/cuda/engine/streams.h"

#include <string.h>

enum { FEW = 64 }; /* touches that are not worth looking through */

rcv_status rcvi_lanes_open(rcv_context *context, int count, rcvi_lanes *lanes) {
    *lanes = (rcvi_lanes){.count = count};
    if (count < 2) return RCV_OK;
    lanes->touches = rcvi_new(context, RCVI_MAX_TOUCHES, sizeof *lanes->touches);
    if (!lanes->touches) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        RCVI_CUDA_TRY(cudaEventCreateWithFlags(&lanes->events[i], cudaEventDisableTiming), "making an event");
        if (i > 0) RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&lanes->own[i], cudaStreamNonBlocking), "making a stream");
    }
    return RCV_OK;
}

void rcvi_lanes_close(rcv_context *context, rcvi_lanes *lanes) {
    for (int i = 0; i < lanes->count; i++) {
        if (lanes->events[i]) cudaEventDestroy(lanes->events[i]);
        if (lanes->own[i]) cudaStreamDestroy(lanes->own[i]);
    }
    rcvi_free(context, lanes->touches);
    *lanes = (rcvi_lanes){0};
}

/* The lane waits for all that was launched on the other one so far. */
static rcv_status wait_for(rcvi_lanes *lanes, int lane, int other) {
    RCVI_CUDA_TRY(cudaEventRecord(lanes->events[other], lanes->streams[other]), "marking a stream");
    RCVI_CUDA_TRY(cudaStreamWaitEvent(lanes->streams[lane], lanes->events[other], 0), "waiting for a stream");
    for (int i = 0; i < lanes->count; i++) { /* what that one had waited for is waited for too */
        if (i != lane && lanes->known[other][i] > lanes->known[lane][i]) lanes->known[lane][i] = lanes->known[other][i];
    }
    lanes->known[lane][other] = lanes->turns[other];
    return RCV_OK;
}

static rcv_status meet(rcvi_lanes *lanes) {
    for (int i = 1; i < lanes->count; i++) RCVI_TRY(wait_for(lanes, 0, i));
    for (int i = 1; i < lanes->count; i++) RCVI_TRY(wait_for(lanes, i, 0));
    lanes->touch_count = 0;
    return RCV_OK;
}

rcv_status rcvi_lanes_begin(rcvi_lanes *lanes, cudaStream_t stream) {
    lanes->streams[0] = stream;
    if (lanes->count < 2) return RCV_OK;
    lanes->touch_count = 0;
    lanes->crowd = FEW;
    memset(lanes->turns, 0, sizeof lanes->turns);
    memset(lanes->known, 0, sizeof lanes->known);
    for (int i = 1; i < lanes->count; i++) {
        lanes->streams[i] = lanes->own[i];
        RCVI_TRY(wait_for(lanes, i, 0));
    }
    return RCV_OK;
}

rcv_status rcvi_lanes_end(rcvi_lanes *lanes) {
    for (int i = 1; i < lanes->count; i++) RCVI_TRY(wait_for(lanes, 0, i));
    return RCV_OK;
}

static bool overlap(const rcvi_touch *a, const rcvi_touch *b) { return a->low < b->high && b->low < a->high; }

bool rcvi_touches_meet(const rcvi_touch *a, size_t a_count, const rcvi_touch *b, size_t b_count) {
    for (size_t i = 0; i < a_count; i++) {
        for (size_t k = 0; k < b_count; k++) {
            if ((a[i].written || b[k].written) && overlap(&a[i], &b[k])) return true;
        }
    }
    return false;
}

rcv_status rcvi_lanes_beside(rcvi_lanes *lanes, int lane, cudaEvent_t event) {
    RCVI_CUDA_TRY(cudaStreamWaitEvent(lanes->streams[lane], event, 0), "waiting for a stream");
    for (int i = 1; i < lanes->count; i++) {
        if (i != lane && lanes->known[0][i] > lanes->known[lane][i]) lanes->known[lane][i] = lanes->known[0][i];
    }
    if (lanes->turns[0] - 1 > lanes->known[lane][0]) lanes->known[lane][0] = lanes->turns[0] - 1;
    return RCV_OK;
}

/* Has every lane waited for it? */
static bool is_past(const rcvi_lanes *lanes, const rcvi_touch *touch) {
    for (int i = 0; i < lanes->count; i++) {
        if (i != touch->lane && lanes->known[i][touch->lane] < touch->turn) return false;
    }
    return true;
}

static void forget(rcvi_lanes *lanes) {
    size_t left = 0;
    for (size_t i = 0; i < lanes->touch_count; i++) {
        if (!is_past(lanes, &lanes->touches[i])) lanes->touches[left++] = lanes->touches[i];
    }
    lanes->touch_count = left;
}

/* What lies inside of what is written now need not be remembered: who comes later waits for this one. */
static void cover(rcvi_lanes *lanes, const rcvi_touch *by) {
    size_t left = 0;
    for (size_t i = 0; i < lanes->touch_count; i++) {
        const rcvi_touch *old = &lanes->touches[i];
        bool covered = by->written && old->low >= by->low && old->high <= by->high;
        if (!covered) lanes->touches[left++] = *old;
    }
    lanes->touch_count = left;
}

rcv_status rcvi_lanes_enter(rcvi_lanes *lanes, int lane, const rcvi_touch *touches, size_t count) {
    if (lanes->count < 2) return RCV_OK;
    int64_t needed[RCVI_MAX_STREAMS] = {0};
    for (size_t i = 0; i < lanes->touch_count; i++) {
        const rcvi_touch *old = &lanes->touches[i];
        if (old->lane == lane || old->turn <= lanes->known[lane][old->lane] || old->turn <= needed[old->lane]) continue;
        if (rcvi_touches_meet(old, 1, touches, count)) needed[old->lane] = old->turn;
    }
    for (int other = 0; other < lanes->count; other++) {
        if (needed[other] > lanes->known[lane][other]) RCVI_TRY(wait_for(lanes, lane, other));
    }
    if (lanes->touch_count + count > lanes->crowd) {
        forget(lanes);
        lanes->crowd = 2 * lanes->touch_count + FEW;
    }
    if (lanes->touch_count + count > RCVI_MAX_TOUCHES) RCVI_TRY(meet(lanes));
    int64_t turn = ++lanes->turns[lane];
    for (size_t k = 0; k < count; k++) {
        cover(lanes, &touches[k]);
        rcvi_touch touch = touches[k];
        touch.lane = lane;
        touch.turn = turn;
        lanes->touches[lanes->touch_count++] = touch;
    }
    return RCV_OK;
}

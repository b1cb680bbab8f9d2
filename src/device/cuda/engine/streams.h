/* Streams side by side. Every launch says which bytes it reads and writes; it waits for launches on other streams that it
 * meets there, and for nothing else. A lane is a stream; its turns count the launches on it. Lane 0 is where a pass begins
 * and ends, the others join it at both. */
#ifndef RCVI_CUDA_LANES_H
#define RCVI_CUDA_LANES_H

#include "device/cuda/engine/engine.h"

enum { RCVI_MAX_TOUCHES = 1024 };

typedef struct {
    uintptr_t low, high; /* first byte, and the one behind the last */
    int64_t turn;
    int lane;
    bool written;
} rcvi_touch;

typedef struct {
    int count;
    cudaStream_t own[RCVI_MAX_STREAMS];     /* [1 ..]: ours */
    cudaEvent_t events[RCVI_MAX_STREAMS];   /* a mark on every lane */
    cudaStream_t streams[RCVI_MAX_STREAMS]; /* of this pass */
    int64_t turns[RCVI_MAX_STREAMS];
    int64_t known[RCVI_MAX_STREAMS][RCVI_MAX_STREAMS]; /* turns of another lane that a lane has waited for */
    rcvi_touch *touches;                               /* [RCVI_MAX_TOUCHES] that a launch may still have to wait for */
    size_t touch_count;
    size_t crowd; /* touches from which on those that are past are looked for */
} rcvi_lanes;

rcv_status rcvi_lanes_open(rcv_context *context, int count, rcvi_lanes *lanes);
void rcvi_lanes_close(rcv_context *context, rcvi_lanes *lanes);

rcv_status rcvi_lanes_begin(rcvi_lanes *lanes, cudaStream_t stream);
/* Before a launch on this lane that touches these bytes. */
rcv_status rcvi_lanes_enter(rcvi_lanes *lanes, int lane, const rcvi_touch *touches, size_t count);
/* Before the first launch on this lane that is to go beside the last one on lane 0. The event lies there before that one, and behind all
 * that it waited for. */
rcv_status rcvi_lanes_beside(rcvi_lanes *lanes, int lane, cudaEvent_t event);
/* Do they meet in bytes that one of them writes? */
bool rcvi_touches_meet(const rcvi_touch *a, size_t a_count, const rcvi_touch *b, size_t b_count);
rcv_status rcvi_lanes_end(rcvi_lanes *lanes);

#endif

/* The CUDA streams of a run, and which launch waits for which.
 *
 * Every launch names the byte ranges that it reads and writes (its touches). It waits for those earlier launches on other streams that
 * touch the same bytes where one of the two writes, and for nothing else. Launches of a stream are numbered from 1 in every pass.
 * Stream 0 is the caller's: a pass begins and ends there. The other streams wait for it at the beginning, and it waits for them at the
 * end. With one stream nothing is tracked. */
#ifndef RCVI_CUDA_STREAMS_H
#define RCVI_CUDA_STREAMS_H

#include "device/cuda/engine/engine.h"

enum { RCVI_MAX_TOUCHES = 1024 };

typedef struct {
    uintptr_t low, high; /* first byte, and the one after the last */
    int64_t launch;      /* number of the launch on its stream */
    int stream;
    bool written;
} rcvi_touch;

/* Streams and events live as long as the run; the rest is reset by rcvi_streams_begin. */
typedef struct {
    int count;
    cudaStream_t own[RCVI_MAX_STREAMS];     /* [1 .. count - 1] created and destroyed here */
    cudaEvent_t events[RCVI_MAX_STREAMS];   /* recorded on a stream for others to wait for */
    cudaStream_t handles[RCVI_MAX_STREAMS]; /* of this pass: the caller's stream, then our own */
    int64_t launches[RCVI_MAX_STREAMS];     /* number of the last launch */
    int64_t known[RCVI_MAX_STREAMS]
                 [RCVI_MAX_STREAMS]; /* [s][o]: the last launch of stream o that stream s waited for */
    rcvi_touch *touches;             /* [RCVI_MAX_TOUCHES] that a launch may still have to wait for */
    size_t touch_count;
    size_t sweep_at; /* number of touches from which on those that no launch has to wait for are removed */
} rcvi_streams;

rcv_status rcvi_streams_open(rcv_context *context, int count, rcvi_streams *streams);
void rcvi_streams_close(rcv_context *context, rcvi_streams *streams);

/* Before the first launch of a pass. */
rcv_status rcvi_streams_begin(rcvi_streams *streams, cudaStream_t caller);
/* Before a launch on this stream that touches these bytes. */
rcv_status rcvi_streams_enter(rcvi_streams *streams, int stream, const rcvi_touch *touches, size_t count);
/* Before the first launch on this stream that is to run beside the last launch on stream 0. The event was recorded on stream 0 before
 * that launch, and after all waits for it. */
rcv_status rcvi_streams_beside(rcvi_streams *streams, int stream, cudaEvent_t event);
/* Whether some byte is touched by both, and written by one of them. */
bool rcvi_touches_conflict(const rcvi_touch *a, size_t a_count, const rcvi_touch *b, size_t b_count);
/* After the last launch of a pass. */
rcv_status rcvi_streams_end(rcvi_streams *streams);

#endif

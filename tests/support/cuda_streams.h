/* Fake streams and events that only track which launches are over when, for tests of waits without a GPU. Include it before the files whose
 * calls of the runtime it replaces. */
#ifndef RECURVE_CUDA_STREAMS_H
#define RECURVE_CUDA_STREAMS_H

#include "device/cuda/engine/streams.h"
#include "probe.h"

enum { MOST_HANDLES = 64 };

/* How many launches of every stream are over when the next one on this stream begins, or when this event has come. */
typedef struct {
    int64_t seen[RCVI_MAX_STREAMS + 1];
} history;

static struct {
    char handles[MOST_HANDLES];
    history of[MOST_HANDLES];
    int open, created; /* streams and events */
    int waits;         /* of streams for events */
    int fail_at;       /* the call, from 1; 0: none */
} fake;

static inline cudaError_t may_fail(void) {
    return fake.fail_at && --fake.fail_at == 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}

static inline history *history_of(const void *handle) {
    ptrdiff_t index = (const char *)handle - fake.handles;
    assert_true(index >= 0 && index < MOST_HANDLES);
    return &fake.of[index];
}

static inline void *fake_handle(void) {
    assert_true(fake.created < MOST_HANDLES);
    fake.open++;
    return &fake.handles[fake.created++];
}

static inline cudaError_t fake_stream(cudaStream_t *stream, unsigned flags) {
    cudaError_t error = may_fail();
    assert_int_equal(flags, cudaStreamNonBlocking);
    if (!error) *stream = fake_handle();
    return error;
}

static inline cudaError_t fake_event(cudaEvent_t *event, unsigned flags) {
    cudaError_t error = may_fail();
    assert_int_equal(flags, cudaEventDisableTiming);
    if (!error) *event = fake_handle();
    return error;
}

static inline cudaError_t fake_close(void *handle) {
    history_of(handle);
    fake.open--;
    return cudaSuccess;
}

static inline cudaError_t fake_record(cudaEvent_t event, cudaStream_t stream) {
    *history_of(event) = *history_of(stream);
    return may_fail();
}

static inline cudaError_t fake_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    history *own = history_of(stream), *other = history_of(event);
    assert_int_equal(flags, 0);
    fake.waits++;
    for (int i = 0; i <= RCVI_MAX_STREAMS; i++) {
        if (other->seen[i] > own->seen[i]) own->seen[i] = other->seen[i];
    }
    return may_fail();
}

#define cudaStreamCreateWithFlags fake_stream
#define cudaStreamDestroy fake_close
#define cudaEventCreateWithFlags fake_event
#define cudaEventDestroy fake_close
#define cudaEventRecord fake_record
#define cudaStreamWaitEvent fake_wait

#endif

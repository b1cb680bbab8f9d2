/* Learning on a GPU: opening, copies, and calls of one or a few kernels. */
#include "device/cuda/learn/learn.h"

#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/state.h"
#include "device/cuda/learn/tuning.h"

#include <string.h>

enum { HALF = RCVI_TUNED_RING_HALF, SENT_ALIGNMENT = 16 }; /* bytes */

/* Returns `WORK`, called with the learner's device as the current one. */
#define ON_DEVICE(LEARN, WORK)                                                                                         \
    int before = 0;                                                                                                    \
    RCVI_TRY(rcvi_cuda_enter((LEARN)->ordinal, &before));                                                              \
    rcv_status status = (WORK);                                                                                        \
    rcvi_cuda_leave(before);                                                                                           \
    return status

/* ---- opening ---- */

static rcv_status close_on(rcvi_learn *l) {
    rcvi_cuda_drop_records(l);
    if (l->stream) cudaStreamSynchronize(l->stream);
    rcvi_cuda_head_close(l);
    if (l->memory) rcvi_device_cuda.memory->release(l->ordinal, l->memory);
    for (int i = 0; i < 2; i++) {
        if (l->left[i]) cudaEventDestroy(l->left[i]);
    }
    if (l->ring) cudaFreeHost(l->ring);
    if (l->forked) cudaEventDestroy(l->forked);
    if (l->joined) cudaEventDestroy(l->joined);
    if (l->side) cudaStreamDestroy(l->side);
    if (l->stream) cudaStreamDestroy(l->stream);
    return RCV_OK;
}

static rcv_status close_all(rcvi_learn *l) { ON_DEVICE(l, close_on(l)); }

static void close_learn(rcvi_learn *l) {
    if (!l) return;
    (void)close_all(l);
    rcvi_free(l->context, l);
}

static void find_types(rcvi_learn *l) {
    l->real = l->shape.dtype == RCV_FLOAT64 ? RCVI_F64 : RCVI_F32;
    l->narrow = l->shape.dtype == RCV_BFLOAT16 ? RCVI_BF16 : l->shape.dtype == RCV_FLOAT16 ? RCVI_F16 : l->real;
    l->tensor = l->shape.dtype == RCV_TFLOAT32;
}

static rcv_status create_resources(rcvi_learn *l) {
    size_t at = 0;
    void *memory = NULL;
    RCVI_CUDA_TRY(cudaDeviceGetAttribute(&l->processors, cudaDevAttrMultiProcessorCount, l->ordinal),
                  "reading the number of multiprocessors");
    RCVI_TRY(rcvi_cuda_new_stream(&l->stream));
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&l->side, cudaStreamNonBlocking), "creating a stream");
    RCVI_CUDA_TRY(cudaEventCreateWithFlags(&l->forked, cudaEventDisableTiming), "creating an event");
    RCVI_CUDA_TRY(cudaEventCreateWithFlags(&l->joined, cudaEventDisableTiming), "creating an event");
    for (int i = 0; i < 2; i++)
        RCVI_CUDA_TRY(cudaEventCreateWithFlags(&l->left[i], cudaEventDisableTiming), "creating an event");
    RCVI_CUDA_TRY(cudaHostAlloc((void **)&l->ring, 2 * HALF, cudaHostAllocDefault), "allocating memory");
    l->norm = rcvi_learn_reserve(&at, (RCVI_NORM_SUMS + 1) * sizeof(double));
    RCVI_TRY(rcvi_cuda_head_open(l, &at));
    RCVI_TRY(rcvi_device_cuda.memory->allocate(l->ordinal, at, &memory));
    l->memory = memory;
    l->bytes = at;
    /* padding stays zero */
    return rcvi_cuda_check(cudaMemsetAsync(l->memory, 0, at, l->stream), "clearing memory");
}

static rcv_status open_learn(rcv_context *context, int ordinal, const rcvi_learn_shape *shape, rcvi_learn **out) {
    rcvi_machine machine;
    int before = 0;
    *out = NULL;
    RCVI_TRY(rcvi_device_cuda.describe(context, ordinal, shape->dtype, 0, &machine));
    rcvi_learn *l = rcvi_new(context, 1, sizeof *l);
    if (!l) return RCV_NO_MEMORY;
    l->context = context;
    l->ordinal = ordinal;
    l->shape = *shape;
    find_types(l);
    rcv_status status = rcvi_cuda_enter(ordinal, &before);
    if (!status) {
        status = create_resources(l);
        rcvi_cuda_leave(before);
    }
    if (status) {
        close_learn(l);
        return status;
    }
    *out = l;
    return RCV_OK;
}

static size_t bytes_of(const rcvi_learn *l) { return l->bytes; }
static size_t head_bytes_of(const rcvi_learn *l) { return l->head_bytes; }
static void *stream_of(const rcvi_learn *l) { return l->stream; }

/* ---- copies ---- */

static rcv_status check_not_recording(const rcvi_learn *l) {
    if (!l->recording) return RCV_OK;
    return rcvi_fail(RCV_INVALID,
                     "while calls are captured, data cannot be sent or fetched, and nothing can be waited for");
}

static rcv_status wait_on(rcvi_learn *l) {
    RCVI_TRY(check_not_recording(l));
    return rcvi_cuda_check(cudaStreamSynchronize(l->stream), "learning");
}

/* Switches to the other half of the ring, after the last copy out of it. */
static rcv_status switch_half(rcvi_learn *l) {
    RCVI_CUDA_TRY(cudaEventRecord(l->left[l->half], l->stream), "recording an event");
    l->was_left[l->half] = true;
    l->half = !l->half;
    l->filled = 0;
    return l->was_left[l->half] ? rcvi_cuda_check(cudaEventSynchronize(l->left[l->half]), "waiting for a copy")
                                : RCV_OK;
}

static rcv_status send_on(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    RCVI_TRY(check_not_recording(l));
    if (bytes == 0) return RCV_OK;
    if (bytes > HALF) {
        RCVI_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, l->stream), "sending");
        return wait_on(l); /* the caller may reuse its memory */
    }
    if (l->filled + bytes > HALF) RCVI_TRY(switch_half(l));
    char *place = l->ring + (size_t)l->half * HALF + l->filled;
    memcpy(place, from, bytes);
    l->filled += (bytes + SENT_ALIGNMENT - 1) / SENT_ALIGNMENT * SENT_ALIGNMENT;
    return rcvi_cuda_check(cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, l->stream), "sending");
}

static rcv_status fetch_on(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    RCVI_TRY(check_not_recording(l));
    if (bytes) RCVI_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, l->stream), "fetching");
    return wait_on(l);
}

static cudaError_t copy_on(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    return bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, l->stream) : cudaSuccess;
}

static cudaError_t clear_on(rcvi_learn *l, void *to, size_t bytes) {
    return bytes ? cudaMemsetAsync(to, 0, bytes, l->stream) : cudaSuccess;
}

static rcv_status send_bytes(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    ON_DEVICE(l, send_on(l, to, from, bytes));
}
static rcv_status fetch_bytes(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    ON_DEVICE(l, fetch_on(l, to, from, bytes));
}
static rcv_status copy_bytes(rcvi_learn *l, void *to, const void *from, size_t bytes) {
    ON_DEVICE(l, rcvi_cuda_check(copy_on(l, to, from, bytes), "copying"));
}
static rcv_status clear_bytes(rcvi_learn *l, void *to, size_t bytes) {
    ON_DEVICE(l, rcvi_cuda_check(clear_on(l, to, bytes), "clearing"));
}
static rcv_status wait_for_all(rcvi_learn *l) { ON_DEVICE(l, wait_on(l)); }

/* ---- two streams ---- */

rcv_status rcvi_cuda_begin_side(rcvi_learn *l, cudaEvent_t event, cudaStream_t *main) {
    *main = l->stream;
    if (!event) return RCV_OK;
    RCVI_CUDA_TRY(cudaStreamWaitEvent(l->side, event, 0), "waiting for a stream");
    l->stream = l->side;
    return RCV_OK;
}

rcv_status rcvi_cuda_end_side(rcvi_learn *l, cudaStream_t main) {
    cudaStream_t side = l->stream;
    l->stream = main;
    if (side == main) return RCV_OK;
    RCVI_CUDA_TRY(cudaEventRecord(l->joined, side), "recording an event");
    return rcvi_cuda_check(cudaStreamWaitEvent(main, l->joined, 0), "waiting for a stream");
}

/* ---- calls ---- */

static rcv_status gather(rcvi_learn *l, int64_t rows, int64_t columns, const int32_t *ids, const void *table,
                         void *out) {
    ON_DEVICE(l, rcvi_cuda_check(rcvi_cuda_gather(l->stream, l->real, rows, columns, ids, table, out), "a gather"));
}

static rcv_status scatter(rcvi_learn *l, int64_t rows, int64_t columns, const rcvi_groups *groups, bool by_id,
                          const void *from, void *out) {
    ON_DEVICE(l, rcvi_cuda_check(rcvi_cuda_scatter(l->stream, l->real, rows, columns, groups, by_id, from, out),
                                 "a scatter"));
}

static rcv_status mask(rcvi_learn *l, int64_t rows, int64_t columns, const rcvi_mask *mask, const rcvi_control *control,
                       const void *from, void *out) {
    ON_DEVICE(l,
              rcvi_cuda_check(rcvi_cuda_mask(l->stream, l->real, rows, columns, mask, control, from, out), "a mask"));
}

static rcv_status head(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome) {
    ON_DEVICE(l, rcvi_cuda_head(l, head, control, outcome));
}

static rcv_status head_weight(rcvi_learn *l, const rcvi_head *head, void *beside) {
    ON_DEVICE(l, rcvi_cuda_head_weight(l, head, beside));
}

static rcv_status head_rest(rcvi_learn *l, const rcvi_head *head, void *beside) {
    ON_DEVICE(l, rcvi_cuda_head_rest(l, head, beside));
}

static rcv_status logits(rcvi_learn *l, const rcvi_head *head, void *out) {
    ON_DEVICE(l, rcvi_cuda_logits(l, head, out));
}

static rcv_status update_on(rcvi_learn *l, rcvi_cuda_half half, const rcvi_update *update, const rcvi_control *control,
                            rcvi_outcome *outcome) {
    double *sums = (double *)(void *)(l->memory + l->norm);
    RCVI_TRY(rcvi_cuda_check(rcvi_cuda_update(l->stream, l->real, l->processors, half, update, control, outcome, sums),
                             "an update"));
    return update->head ? rcvi_cuda_lean_update(l, update->head, control) : RCV_OK;
}

static rcv_status make_update(rcvi_learn *l, rcvi_cuda_half half, const rcvi_update *update,
                              const rcvi_control *control, rcvi_outcome *outcome) {
    if (update->part_count > RCVI_MAX_UPDATE_PARTS)
        return rcvi_fail(RCV_INVALID, "%d parts are more than an update takes (%d)", update->part_count,
                         RCVI_MAX_UPDATE_PARTS);
    if (update->sparse.gradient && update->kind != RCVI_SGD)
        return rcvi_fail(RCV_INVALID, "rows alone are updated by sgd and nothing else");
    if (update->head) RCVI_TRY(rcvi_cuda_lean_check(l, update));
    if (update->head && half != RCVI_HALF_BOTH)
        return rcvi_fail(RCV_INVALID, "an update that changes a head itself is not made in halves");
    ON_DEVICE(l, update_on(l, half, update, control, outcome));
}

static rcv_status update(rcvi_learn *l, const rcvi_update *update, const rcvi_control *control, rcvi_outcome *outcome) {
    return make_update(l, RCVI_HALF_BOTH, update, control, outcome);
}

static rcv_status squares(rcvi_learn *l, const rcvi_update *update, const rcvi_control *control,
                          rcvi_outcome *outcome) {
    return make_update(l, RCVI_HALF_SQUARES, update, control, outcome);
}

static rcv_status apply(rcvi_learn *l, const rcvi_update *update, const rcvi_control *control, rcvi_outcome *outcome) {
    return make_update(l, RCVI_HALF_APPLY, update, control, outcome);
}

static rcv_status signal_on(rcvi_learn *l, uint64_t *to, const uint64_t *value) {
    return rcvi_cuda_check(cudaMemcpyAsync(to, value, sizeof *to, cudaMemcpyDeviceToHost, l->stream), "a signal");
}

static rcv_status signal_done(rcvi_learn *l, uint64_t *to, const uint64_t *value) {
    ON_DEVICE(l, signal_on(l, to, value));
}

static rcv_status replay(rcvi_learn *l, uint64_t key, bool *done) { ON_DEVICE(l, rcvi_cuda_replay(l, key, done)); }
static rcv_status recorded(rcvi_learn *l, uint64_t key) { ON_DEVICE(l, rcvi_cuda_recorded(l, key)); }

static void abandon(rcvi_learn *l, uint64_t key) {
    int before = 0;
    if (rcvi_cuda_enter(l->ordinal, &before)) return;
    rcvi_cuda_abandon(l, key);
    rcvi_cuda_leave(before);
}

const rcvi_learn_table rcvi_cuda_learn = {.open = open_learn,
                                          .close = close_learn,
                                          .bytes = bytes_of,
                                          .head_bytes = head_bytes_of,
                                          .stream = stream_of,
                                          .send = send_bytes,
                                          .fetch = fetch_bytes,
                                          .copy = copy_bytes,
                                          .clear = clear_bytes,
                                          .wait = wait_for_all,
                                          .gather = gather,
                                          .scatter = scatter,
                                          .mask = mask,
                                          .head = head,
                                          .prepare_head = head_weight,
                                          .head_gradients = head_rest,
                                          .logits = logits,
                                          .update = update,
                                          .sum_squares = squares,
                                          .apply = apply,
                                          .signal = signal_done,
                                          .replay = replay,
                                          .end_recording = recorded,
                                          .cancel_recording = abandon};

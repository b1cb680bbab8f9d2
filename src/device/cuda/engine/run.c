/* Calls of a run: buffers bound to the caller's arrays, seeds and lengths sent, launches, waiting. */
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"

enum { CALLER_ALIGNMENT = 16 }; /* bytes */

/* ---- the caller's arrays ---- */

/* Whether the caller's array for this buffer overlaps another array of the call. */
static bool is_shared(const rcvi_worker *w, const rcvi_program *program, int buffer) {
    const rcvi_buffer *buffers = program->buffers;
    uintptr_t low = (uintptr_t)w->buffers[buffer];
    uintptr_t high = low + (uintptr_t)buffers[buffer].count * rcvi_element_bytes(program, buffers[buffer].element);
    for (size_t i = 0; i < program->external_count; i++) {
        int other = program->externals[i];
        uintptr_t at = (uintptr_t)w->buffers[other];
        uintptr_t end = at + (uintptr_t)buffers[other].count * rcvi_element_bytes(program, buffers[other].element);
        if (other != buffer && at && at < high && low < end) return true;
    }
    return false;
}

/* Uses the caller's dy and dx in place of their copies. */
static void bind_stand_ins(rcvi_worker *w, const rcvi_program *program) {
    const rcvi_engine *e = w->engine;
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        int theirs = e->stand_ins[b];
        if (theirs != RCVI_NONE && w->buffers[theirs] && !is_shared(w, program, theirs))
            w->buffers[b] = w->buffers[theirs];
    }
}

/* The views of maps in the program of the run, which is the same in all of its calls. */
static void find_views(rcvi_worker *w, const rcvi_program *program) {
    const rcvi_view **at = w->view_table;
    if (w->program == program) return;
    w->program = program;
    for (size_t i = 0; i < program->step_count; i++) {
        w->views[i] = at;
        if (program->steps[i].kind == RCVI_STEP_MAP && w->engine->ready[i].view_count)
            at += rcvi_map_views(program->steps[i].map, at);
    }
}

static rcv_status bind(rcvi_worker *w, const rcvi_binding *binding) {
    w->kept = binding->kept;
    const rcvi_program *program = w->engine->program;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool vectors = buffer->role != RCVI_ARENA && buffer->element != RCVI_BYTE && buffer->element != RCVI_INDEX;
        w->buffers[b] = binding->buffers[b];
        if (buffer->role == RCVI_LENGTHS) w->buffers[b] = w->kept + w->engine->lengths;
        if (vectors && (uintptr_t)w->buffers[b] % CALLER_ALIGNMENT)
            return rcvi_fail(RCV_INVALID, "%s does not lie at a multiple of %d bytes, as data on a GPU must",
                             buffer->name, CALLER_ALIGNMENT);
    }
    bind_stand_ins(w, binding->program);
    find_views(w, binding->program);
    rcvi_cuda_resize_loops(w, binding->program->sizes);
    return RCV_OK;
}

/* ---- seeds and lengths ---- */

static rcv_status send_numbers(const int64_t *from, int64_t count, char *to, cudaStream_t stream) {
    return rcvi_cuda_check(rcvi_cuda_send_values(stream, from, count, (int64_t *)(void *)to), "sending the lengths");
}

/* Numbers of 8 bytes, from device memory to device memory. */
static cudaError_t copy_numbers(const void *from, int64_t count, char *to, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, (size_t)count * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream);
}

/* The seed is in what is kept, where captured kernels and the backward pass read it; so are the lengths. */
static rcv_status send_seed(rcvi_worker *w, const rcvi_binding *binding, cudaStream_t stream) {
    int64_t seed = (int64_t)binding->seed;
    if (!rcvi_net_is_random(w->engine->program->net)) return RCV_OK;
    return rcvi_cuda_check(
        binding->seed_at ? copy_numbers(binding->seed_at, 1, w->kept + w->engine->seed, stream)
                         : rcvi_cuda_send_values(stream, &seed, 1, (int64_t *)(void *)(w->kept + w->engine->seed)),
        "sending the seed");
}

static int64_t *kept_numbers(const rcvi_worker *w, size_t offset) { return (int64_t *)(void *)(w->kept + offset); }

/* Lengths in the device's memory: the host knows neither them nor the order. */
static rcv_status sort_lengths(const rcvi_worker *w, rcvi_sizes sizes, const int64_t *lengths, cudaStream_t stream) {
    const rcvi_engine *e = w->engine;
    const rcvi_sorting sorting = {.steps = sizes.steps,
                                  .batch = sizes.batch,
                                  .given = lengths,
                                  .lengths = kept_numbers(w, e->lengths),
                                  .order = e->sorts ? kept_numbers(w, e->rows_order) : NULL,
                                  .alive = e->has_alive ? kept_numbers(w, e->alive) : NULL};
    return rcvi_cuda_check(rcvi_cuda_sort_lengths(stream, &sorting), "sorting sequences by length");
}

static rcv_status send_lengths(rcvi_worker *w, const rcvi_binding *binding, cudaStream_t stream) {
    const rcvi_program *program = binding->program;
    const rcvi_sizes sizes = program->sizes;
    for (size_t i = 0; i < program->external_count; i++) {
        int b = program->externals[i];
        const int64_t *lengths = binding->buffers[b];
        if (program->buffers[b].role != RCVI_LENGTHS) continue;
        if (program->options.device_lengths) return sort_lengths(w, sizes, lengths, stream);
        if (w->engine->sorts) {
            rcvi_cuda_rows_sort(&w->rows, sizes, lengths);
            lengths = w->rows.lengths;
            RCVI_TRY(send_numbers(w->rows.order, sizes.batch, w->kept + w->engine->rows_order, stream));
            if (w->engine->has_alive)
                RCVI_TRY(send_numbers(w->rows.alive, sizes.steps, w->kept + w->engine->alive, stream));
        }
        RCVI_TRY(send_numbers(lengths, sizes.batch, w->kept + w->engine->lengths, stream));
    }
    return RCV_OK;
}

/* A backward pass need not follow its forward pass: the order of its sequences is found again. Kernels read it from what is kept; the host
 * needs it where it counts rows. */
static void sort_again(rcvi_worker *w, const rcvi_binding *binding) {
    const rcvi_program *program = binding->program;
    for (size_t i = 0; w->engine->sorts && !w->engine->counts && i < program->external_count; i++) {
        int b = program->externals[i];
        if (program->buffers[b].role == RCVI_LENGTHS)
            rcvi_cuda_rows_sort(&w->rows, program->sizes, binding->buffers[b]);
    }
}

/* ---- calls that the caller captures ---- */

/* Whether the caller captures the stream. The stream NULL cannot be captured. */
static rcv_status is_captured(cudaStream_t stream, bool *captured) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    *captured = false;
    if (!stream) return RCV_OK;
    RCVI_CUDA_TRY(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
    *captured =
        status != cudaStreamCaptureStatusNone; /* also where the capture is invalid: the next launch reports it */
    return RCV_OK;
}

bool rcvi_cuda_is_captured(void *stream) {
    bool captured = false;
    return is_captured(stream, &captured) || captured; /* a stream that cannot be asked is left alone */
}

/* Whether the run's last call is done. Also while a stream is captured, when the runtime refuses the question otherwise. */
static bool has_finished(const rcvi_worker *w) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (cudaThreadExchangeStreamCaptureMode(&mode)) return false;
    bool done = cudaEventQuery(w->done) == cudaSuccess;
    if (!done) (void)cudaGetLastError(); /* "not ready" is no error */
    return !cudaThreadExchangeStreamCaptureMode(&mode) && done;
}

static rcv_status check_called_before(const rcvi_worker *w, cudaStream_t stream) {
    if (w->called && (w->last == stream || has_finished(w))) return RCV_OK;
    return rcvi_fail(RCV_INVALID, w->called ? "the run's last call, on another stream, is not done: a captured call "
                                              "cannot wait for it; wait before the capture"
                                            : "a run's first call cannot be captured: call it once before");
}

/* Fails where a call cannot be captured: what the host decides in a call would be repeated unchanged, and what only a run's first call
 * does must have been done. */
static rcv_status check_capture(const rcvi_worker *w, const rcvi_binding *binding, cudaStream_t stream) {
    const rcvi_program *program = w->engine->program;
    RCVI_TRY(check_called_before(w, stream));
    if (rcvi_net_is_random(program->net) && !binding->seed_at)
        return rcvi_fail(RCV_UNSUPPORTED, "a captured call with dropout or zoneout would repeat its mask: give its "
                                          "seed in the GPU's memory, as seed_at");
    if (program->options.lengths && !program->options.device_lengths && !w->lengths_sent)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a captured call would repeat its lengths: give them in the GPU's memory, with "
                         "plan option device_lengths");
    if (w->engine->sorts && !w->engine->counts)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a call whose launches depend on the lengths cannot be captured: plan with graph");
    return RCV_OK;
}

/* Launches into the caller's capture, without a graph of our own. */
static rcv_status run_captured(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                               cudaStream_t stream) {
    RCVI_TRY(check_capture(w, binding, stream));
    bool begins = first == 0 && !binding->only_prepares;
    if (begins) RCVI_TRY(send_seed(w, binding, stream));
    if (begins && w->engine->program->options.device_lengths) RCVI_TRY(send_lengths(w, binding, stream));
    w->captured = true;
    return rcvi_cuda_launch(w, first, end, binding, scratch, stream);
}

/* ---- calls ---- */

/* Reports a fault that a persistent kernel of an earlier call has set. */
static rcv_status check_fault(rcvi_worker *w) {
    if (!w->fault || !*(volatile unsigned *)w->fault) return RCV_OK;
    *w->fault = 0;
    return rcvi_fail(RCV_UNSUPPORTED, "a block of a persistent kernel waited too long for another one: the results are "
                                      "not valid; plan without persistent where the GPU is shared");
}

/* Makes the stream wait for the call before, where that was on another stream. */
static rcv_status wait_for_last_call(const rcvi_worker *w, cudaStream_t stream) {
    if (!w->called || w->last == stream) return RCV_OK;
    if (w->captured) return rcvi_cuda_check(rcvi_cuda_finish(w), "waiting for calls before");
    return rcvi_cuda_check(cudaStreamWaitEvent(stream, w->done, 0), "waiting for the call before");
}

/* Clears the memory whose contents pass from call to call. */
static rcv_status clear_exchange(const rcvi_worker *w, char *scratch, cudaStream_t stream) {
    const rcvi_engine *e = w->engine;
    if (e->exchange_bytes) /* its padding stays zero */
        RCVI_CUDA_TRY(cudaMemsetAsync(scratch + e->exchange, 0, e->exchange_bytes, stream),
                      "clearing what blocks pass to each other");
    if (e->scans_bytes) /* its marks grow from call to call */
        RCVI_CUDA_TRY(cudaMemsetAsync(scratch + e->scans, 0, e->scans_bytes, stream),
                      "clearing what tiles of scans pass to each other");
    return RCV_OK;
}

/* Orders work that is about to be enqueued on the stream after the run's call before. */
static rcv_status begin_call(rcvi_worker *w, char *scratch, cudaStream_t stream) {
    RCVI_TRY(wait_for_last_call(w, stream));
    return w->called ? RCV_OK : clear_exchange(w, scratch, stream);
}

/* Orders the run's next call after what was enqueued on the stream. */
static rcv_status end_call(rcvi_worker *w, cudaStream_t stream) {
    RCVI_CUDA_TRY(cudaEventRecord(w->done, stream), "recording the end of a call");
    w->called = true;
    w->last = stream;
    return RCV_OK;
}

/* Kernels that a vendor's library compiles for other sizes replace those before, which captured graphs may use: graphs of ours are dropped, and
 * where the caller has captured some, the call fails. */
static rcv_status prepare_vendor(rcvi_worker *w, rcvi_sizes sizes, bool captured) {
    if (!w->vendor || !rcvi_cudnn_must_compile(w->vendor, sizes)) return RCV_OK;
    if (captured)
        return rcvi_fail(
            RCV_INVALID,
            "cuDNN compiles kernels for a batch of %lld, which cannot be captured: make such a call before",
            (long long)sizes.batch);
    if (w->captured)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a captured call of this run uses kernels of cuDNN that a batch of %lld would replace: use "
                         "another run",
                         (long long)sizes.batch);
    if (w->called) RCVI_CUDA_TRY(rcvi_cuda_finish(w), "waiting for calls before");
    rcvi_cuda_drop_graphs(w);
    return rcvi_cudnn_resize(w->vendor, sizes);
}

static rcv_status run_on(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch) {
    cudaStream_t stream = binding->stream;
    bool captured = false;
    RCVI_TRY(check_fault(w));
    RCVI_TRY(bind(w, binding));
    RCVI_TRY(is_captured(stream, &captured));
    RCVI_TRY(prepare_vendor(w, binding->program->sizes, captured));
    if (captured) return run_captured(w, first, end, binding, scratch, stream);
    RCVI_TRY(begin_call(w, scratch, stream));
    bool begins = first == 0 && !binding->only_prepares;
    if (begins) RCVI_TRY(send_seed(w, binding, stream));
    if (begins) RCVI_TRY(send_lengths(w, binding, stream));
    if (first > 0) sort_again(w, binding);
    bool graph = w->engine->program->rungs.graph && !binding->only_prepares;
    RCVI_TRY(graph ? rcvi_cuda_launch_graph(w, first, end, binding, scratch, stream)
                   : rcvi_cuda_launch(w, first, end, binding, scratch, stream));
    return end_call(w, stream);
}

rcv_status rcvi_cuda_run(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = run_on(w, first, end, binding, scratch);
    rcvi_cuda_leave(before);
    return status;
}

/* Clears the caller's memory in the order of the run's calls. */
static rcv_status clear_on(rcvi_worker *w, void *to, size_t bytes, char *scratch, cudaStream_t stream) {
    bool captured = false;
    RCVI_TRY(is_captured(stream, &captured));
    RCVI_TRY(captured ? check_called_before(w, stream) : begin_call(w, scratch, stream));
    RCVI_CUDA_TRY(cudaMemsetAsync(to, 0, bytes, stream), "clearing memory");
    w->captured |= captured;
    return captured ? RCV_OK : end_call(w, stream);
}

rcv_status rcvi_cuda_clear(rcvi_worker *w, void *to, size_t bytes, void *scratch, void *stream) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = clear_on(w, to, bytes, scratch, stream);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status reset_scratch_on(rcvi_worker *w, char *scratch, cudaStream_t stream) {
    if (!w->called) return RCV_OK; /* the first call clears it */
    RCVI_TRY(wait_for_last_call(w, stream));
    return clear_exchange(w, scratch, stream);
}

rcv_status rcvi_cuda_reset_scratch(rcvi_worker *w, void *scratch, void *stream) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = reset_scratch_on(w, scratch, stream);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status send_lengths_on(rcvi_worker *w, const rcvi_binding *binding) {
    w->kept = binding->kept;
    RCVI_TRY(wait_for_last_call(w, binding->stream));
    RCVI_TRY(send_lengths(w, binding, binding->stream));
    w->lengths_sent = true;
    return RCV_OK;
}

rcv_status rcvi_cuda_send_lengths(rcvi_worker *w, const rcvi_binding *binding) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = send_lengths_on(w, binding);
    rcvi_cuda_leave(before);
    return status;
}

void *rcvi_cuda_loop_event(const rcvi_worker *w, bool last) {
    return w->begun_count ? w->begun[last && w->begun_count > 1] : NULL;
}

rcv_status rcvi_cuda_wait(rcvi_worker *w) {
    if (!w->called) return RCV_OK;
    RCVI_CUDA_TRY(rcvi_cuda_finish(w), "running a pass");
    return check_fault(w);
}

/* The device: what GPUs there are, their memory, and runs on them. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/staging.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/learn/learn.h"
#include "device/cuda/measure.h"
#include "device/cuda/nccl/nccl.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"
#include "device/cuda/recurrence/scan.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 16, NAME_BYTES = 320, LEAST_MAJOR = 8, LONGEST_GRAPH = 200000, CALLER_ALIGNMENT = 16 };
enum { LEAST_ALONE = 1 << 28 }; /* multiply-adds: some microseconds by the library */

/* ---- what there is ---- */

/* Filled once a device, when first asked for; they never change while the program runs. */
typedef struct {
    bool known;
    char processor[NAME_BYTES], architecture[16];
    struct cudaDeviceProp properties;
    int driver, runtime;
} facts;

static facts devices[MOST_DEVICES];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static rcv_status count_devices(int *count) {
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "the NVIDIA driver is too old for CUDA %d.%d, or there is none: install a newer one",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || (!error && *count == 0))
        return rcvi_fail(RCV_UNSUPPORTED, "there is no NVIDIA GPU on this machine: use the device cpu");
    return rcvi_cuda_check(error, "looking for GPUs");
}

static rcv_status learn(int ordinal, facts *f) {
    RCVI_CUDA_TRY(cudaGetDeviceProperties(&f->properties, ordinal), "asking for the device's properties");
    RCVI_CUDA_TRY(cudaDriverGetVersion(&f->driver), "asking for the driver's version");
    RCVI_CUDA_TRY(cudaRuntimeGetVersion(&f->runtime), "asking for the runtime's version");
    char name[sizeof f->properties.name];
    memcpy(name, f->properties.name, sizeof name);
    snprintf(f->processor, sizeof f->processor, "%.200s driver %d.%d runtime %d.%d", name, f->driver / 1000,
             f->driver % 1000 / 10, f->runtime / 1000, f->runtime % 1000 / 10);
    snprintf(f->architecture, sizeof f->architecture, "sm_%d%d", f->properties.major, f->properties.minor);
    f->known = true;
    return RCV_OK;
}

static rcv_status find_facts(int ordinal, const facts **out) {
    int count = 0;
    *out = &devices[0];
    RCVI_TRY(count_devices(&count));
    if (ordinal >= count || ordinal >= MOST_DEVICES)
        return rcvi_fail(RCV_INVALID, "there is no device cuda:%d: this machine has %d GPU%s", ordinal, count,
                         count == 1 ? "" : "s");
    facts *f = &devices[ordinal];
    *out = f;
    pthread_mutex_lock(&devices_lock);
    rcv_status status = f->known ? RCV_OK : learn(ordinal, f);
    pthread_mutex_unlock(&devices_lock);
    if (!status && f->properties.major < LEAST_MAJOR)
        return rcvi_fail(RCV_UNSUPPORTED, "%s has compute capability %d.%d; %d.0 is the least that can be used",
                         f->properties.name, f->properties.major, f->properties.minor, LEAST_MAJOR);
    return status;
}

static rcv_status describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine) {
    (void)context;
    (void)dtype;
    (void)threads;
    const facts *f = NULL;
    RCVI_TRY(find_facts(ordinal, &f));
    *machine = (rcvi_machine){.threads = 1,
                              .cache = f->properties.l2CacheSize,
                              .panel = 1,
                              .grain = 1,
                              .group = 8,
                              .vendor = rcvi_cudnn_name(),
                              .kernels = f->architecture,
                              .processor = f->processor,
                              .gpu = true,
                              .max_sum_columns = 1024,
                              .min_library_product = LEAST_ALONE,
                              .library_rounds = true,
                              .ordinal = ordinal};
    if (!machine->vendor) machine->no_vendor = rcvi_cudnn_absence();
    return RCV_OK;
}

static rcv_status print_info(rcv_context *context, int ordinal, rcvi_text *text) {
    (void)context;
    const facts *f = NULL;
    RCVI_TRY(find_facts(ordinal, &f));
    rcvi_text_add(text,
                  "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d, runtime %d.%d",
                  f->properties.name, f->properties.major, f->properties.minor, f->properties.multiProcessorCount,
                  (double)f->properties.totalGlobalMem / (1 << 30), f->driver / 1000, f->driver % 1000 / 10,
                  f->runtime / 1000, f->runtime % 1000 / 10);
    const char *libraries[] = {rcvi_cuda_blas_name(), rcvi_jit_name(), rcvi_cudnn_name()};
    const char *missing[] = {"no cuBLASLt", "no NVRTC", "no cuDNN 9"};
    for (int i = 0; i < 3; i++) rcvi_text_add(text, ", %s", libraries[i] ? libraries[i] : missing[i]);
    return RCV_OK;
}

/* ---- memory ---- */

static rcv_status allocate(int ordinal, size_t bytes, void **memory) {
    int before = 0;
    *memory = NULL;
    const facts *f = NULL;
    RCVI_TRY(find_facts(ordinal, &f));
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    cudaError_t error = cudaMalloc(memory, bytes ? bytes : 1);
    rcv_status status = RCV_OK;
    if (error == cudaErrorMemoryAllocation) {
        size_t free = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&free, &total);
        *memory = NULL;
        status = rcvi_fail(RCV_NO_MEMORY, "%zu bytes are needed on the GPU, but %zu of its %zu are free", bytes, free,
                           total);
    } else {
        status = rcvi_cuda_check(error, "allocating memory");
    }
    rcvi_cuda_leave(before);
    return status;
}

static void release(int ordinal, void *memory) {
    int before = 0;
    if (rcvi_cuda_enter(ordinal, &before)) return;
    cudaFree(memory);
    rcvi_cuda_leave(before);
}

static rcv_status copy(int ordinal, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status = rcvi_cuda_check(cudaMemcpy(to, from, bytes, kind), "copying memory");
    /* a small copy returns before it is done, and the caller's streams would not wait for it */
    if (!status) status = rcvi_cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "copying memory");
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status write_memory(int ordinal, void *to, const void *from, size_t bytes) {
    return copy(ordinal, to, from, bytes, cudaMemcpyHostToDevice);
}

static rcv_status read_memory(int ordinal, void *to, const void *from, size_t bytes) {
    return copy(ordinal, to, from, bytes, cudaMemcpyDeviceToHost);
}

static const rcvi_memory memory = {
    .allocate = allocate, .release = release, .write = write_memory, .read = read_memory};

/* ---- runs ---- */

static rcv_status prepare(const rcvi_program *program, rcvi_engine **engine) {
    RCVI_TRY(rcvi_cuda_engine_new(program, engine));
    if (!program->rungs.graph || (*engine)->launches <= LONGEST_GRAPH) return RCV_OK;
    int64_t launches = (*engine)->launches;
    rcvi_cuda_engine_free(*engine);
    *engine = NULL;
    return rcvi_fail(RCV_UNSUPPORTED, "a graph of %lld launches is too long (%d at most): leave graph out",
                     (long long)launches, LONGEST_GRAPH);
}

static void explain(const rcvi_engine *e, rcvi_text *text) {
    for (size_t i = 0; i < e->program->step_count; i++) {
        if (e->persistent[i]) rcvi_persistent_tell(e, e->persistent[i], text);
        if (e->recurrences[i]) rcvi_cuda_recurrences_tell(e->recurrences[i], text);
    }
    if (e->not_scanned)
        rcvi_text_add(text, "no recurrence of elements, so launched step by step: %s\n", e->not_scanned);
    if (e->not_clustered) rcvi_text_add(text, "through memory and not in clusters: %s\n", e->not_clustered);
    if (e->not_persistent) rcvi_text_add(text, "launched step by step: %s\n", e->not_persistent);
}

static size_t scratch(const rcvi_engine *engine) { return engine->scratch; }

static size_t outside(const rcvi_engine *engine) { return sizeof(rcvi_worker) + engine->vendor_bytes; }

/* All calls, those too that the caller has repeated by himself. */
static cudaError_t finish(const rcvi_worker *w) {
    return w->recorded ? cudaDeviceSynchronize() : cudaEventSynchronize(w->done);
}

static void close_worker(rcvi_worker *w) {
    int before = 0;
    if (!w) return;
    bool entered = !rcvi_cuda_enter(w->engine->ordinal, &before);
    if (w->called) finish(w);
    rcvi_cuda_drop_graphs(w);
    if (w->vendor) {
        rcvi_cudnn_release(w->vendor);
        rcvi_cudnn_free(atomic_exchange(w->engine->vendor, w->vendor));
    }
    rcvi_cuda_rows_close(w->context, &w->rows);
    rcvi_streams_close(w->context, &w->streams);
    if (w->capturing) cudaStreamDestroy(w->capturing);
    if (w->done) cudaEventDestroy(w->done);
    for (int i = 0; i < 2; i++) {
        if (w->begun[i]) cudaEventDestroy(w->begun[i]);
    }
    if (w->fault) cudaFreeHost(w->fault);
    if (entered) rcvi_cuda_leave(before);
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) rcvi_free(w->context, w->graphs[i].key);
    rcvi_free(w->context, w->buffers);
    rcvi_free(w->context, w->key);
    rcvi_free(w->context, w->wanted);
    rcvi_free(w->context, w->idle);
    rcvi_free(w->context, w);
}

static rcv_status fill_worker(rcvi_worker *w) {
    const rcvi_engine *e = w->engine;
    const rcvi_program *program = e->program;
    w->key_count = program->external_count + 2 + sizeof(rcvi_shard) / sizeof(void *);
    w->buffers = rcvi_new(w->context, program->buffer_count, sizeof *w->buffers);
    w->key = rcvi_new(w->context, w->key_count, sizeof *w->key);
    w->wanted = rcvi_new(w->context, program->buffer_count, sizeof *w->wanted);
    w->idle = rcvi_new(w->context, program->step_count, sizeof *w->idle);
    bool failed = !w->buffers || !w->key || !w->wanted || !w->idle;
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        w->graphs[i].key = rcvi_new(w->context, w->key_count, sizeof *w->key);
        failed |= !w->graphs[i].key;
    }
    if (failed) return RCV_NO_MEMORY;
    RCVI_CUDA_TRY(cudaEventCreateWithFlags(&w->done, cudaEventDisableTiming), "making an event");
    for (int i = 0; i < 2; i++)
        RCVI_CUDA_TRY(cudaEventCreateWithFlags(&w->begun[i], cudaEventDisableTiming), "making an event");
    RCVI_TRY(rcvi_cuda_first_stream(&w->capturing));
    RCVI_TRY(rcvi_streams_open(w->context, e->streams, &w->streams));
    if (program->rungs.persistent) {
        RCVI_CUDA_TRY(cudaHostAlloc((void **)&w->fault, sizeof *w->fault, cudaHostAllocMapped), "allocating memory");
        *w->fault = 0;
    }
    if (e->sorts) RCVI_TRY(rcvi_cuda_rows_open(w->context, program, &w->rows));
    if (!e->vendor) return RCV_OK;
    w->vendor = atomic_exchange(e->vendor, NULL);
    if (!w->vendor) RCVI_TRY(rcvi_cudnn_new(program, &w->vendor));
    return rcvi_cudnn_allocate(w->vendor);
}

static rcv_status open_worker(const rcvi_engine *engine, rcvi_worker **out) {
    rcvi_worker *w = rcvi_new(engine->context, 1, sizeof *w);
    int before = 0;
    *out = NULL;
    if (!w) return RCV_NO_MEMORY;
    w->engine = engine;
    w->context = engine->context;
    rcv_status status = rcvi_cuda_enter(engine->ordinal, &before);
    if (!status) {
        status = fill_worker(w);
        rcvi_cuda_leave(before);
    }
    if (status) {
        close_worker(w);
        return status;
    }
    *out = w;
    return RCV_OK;
}

/* Does what the caller gave for this buffer share bytes with anything else of the call's? */
static bool is_shared(const rcvi_worker *w, int buffer) {
    const rcvi_program *program = w->engine->program;
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

/* The caller's dy and dx in place of their copies. */
static void bind_stand_ins(rcvi_worker *w) {
    const rcvi_engine *e = w->engine;
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        int theirs = e->stand_ins[b];
        if (theirs != RCVI_NONE && w->buffers[theirs] && !is_shared(w, theirs)) w->buffers[b] = w->buffers[theirs];
    }
}

static rcv_status bind(rcvi_worker *w, const rcvi_binding *binding, char *scratch) {
    const rcvi_program *program = w->engine->program;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool vectors = buffer->role != RCVI_ARENA && buffer->element == RCVI_REAL;
        w->buffers[b] = binding->buffers[b];
        if (buffer->role == RCVI_LENGTHS) w->buffers[b] = scratch + w->engine->lengths;
        if (vectors && (uintptr_t)w->buffers[b] % CALLER_ALIGNMENT)
            return rcvi_fail(RCV_INVALID, "%s does not lie at a multiple of %d bytes, as data on a GPU must",
                             buffer->name, CALLER_ALIGNMENT);
    }
    bind_stand_ins(w);
    return RCV_OK;
}

static rcv_status send_numbers(const int64_t *from, int64_t count, char *to, cudaStream_t stream) {
    return rcvi_cuda_check(rcvi_cuda_put(stream, from, count, (int64_t *)(void *)to), "sending the lengths");
}

/* Of 8 bytes each, within the device's memory. */
static cudaError_t copy_numbers(const void *from, int64_t count, char *to, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, (size_t)count * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream);
}

/* What changes from call to call travels to where kernels find it. */
static rcv_status send_seed(rcvi_worker *w, const rcvi_binding *binding, char *scratch, cudaStream_t stream) {
    int64_t seed = (int64_t)binding->seed;
    if (!rcvi_net_is_random(w->engine->program->net)) return RCV_OK;
    return rcvi_cuda_check(binding->seed_at
                               ? copy_numbers(binding->seed_at, 1, scratch + w->engine->seed, stream)
                               : rcvi_cuda_put(stream, &seed, 1, (int64_t *)(void *)(scratch + w->engine->seed)),
                           "sending the seed");
}

static rcv_status send_lengths(rcvi_worker *w, const rcvi_binding *binding, char *scratch, cudaStream_t stream) {
    const rcvi_program *program = w->engine->program;
    for (size_t i = 0; i < program->external_count; i++) {
        int b = program->externals[i];
        const int64_t *lengths = binding->buffers[b];
        if (program->buffers[b].role != RCVI_LENGTHS) continue;
        if (w->engine->sorts) {
            rcvi_cuda_rows_sort(&w->rows, lengths);
            lengths = w->rows.lengths;
            RCVI_TRY(send_numbers(w->rows.order, program->options.batch, scratch + w->engine->rows_order, stream));
            if (w->engine->has_alive)
                RCVI_TRY(send_numbers(w->rows.alive, program->options.steps, scratch + w->engine->alive, stream));
        }
        RCVI_TRY(send_numbers(lengths, program->options.batch, scratch + w->engine->lengths, stream));
    }
    return RCV_OK;
}

/* What was found in an earlier call. */
static rcv_status check_fault(rcvi_worker *w) {
    if (!w->fault || !*(volatile unsigned *)w->fault) return RCV_OK;
    *w->fault = 0;
    return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel waited in vain for another of its blocks: its results are "
                                      "not valid; plan without persistent where the GPU is shared");
}

/* Does the caller record what is enqueued here? Nobody can record the stream NULL. */
static rcv_status is_recording(cudaStream_t stream, bool *recording) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    *recording = false;
    if (!stream) return RCV_OK;
    RCVI_CUDA_TRY(cudaStreamIsCapturing(stream, &status), "asking whether a stream is recorded");
    *recording = status != cudaStreamCaptureStatusNone; /* one that has failed too: launches there say so */
    return RCV_OK;
}

/* Why a call cannot be recorded: what the host decides at a call would be repeated as it is, and what is done once must have been. */
static rcv_status check_recording(const rcvi_worker *w, const rcvi_binding *binding, cudaStream_t stream) {
    const rcvi_program *program = w->engine->program;
    if (!w->called || w->last != stream)
        return rcvi_fail(RCV_INVALID, "a run's call can be recorded behind one that was not, on the same stream");
    if (rcvi_net_is_random(program->net) && !binding->seed_at)
        return rcvi_fail(
            RCV_UNSUPPORTED,
            "a recorded call with dropout or zoneout would repeat its mask: its seed must be in the GPU's memory");
    if (program->options.lengths && !w->announced)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a recorded call would repeat its lengths: they must be announced before every call");
    if (w->engine->sorts && !w->engine->counts)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a call whose launches depend on the lengths cannot be recorded: plan with graph");
    return RCV_OK;
}

/* The same launches without a graph of their own, in the caller's. */
static rcv_status record(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                         cudaStream_t stream) {
    RCVI_TRY(check_recording(w, binding, stream));
    if (first == 0) RCVI_TRY(send_seed(w, binding, scratch, stream));
    w->recorded = true;
    return rcvi_cuda_launch(w, first, end, binding, scratch, stream);
}

/* Calls of a run follow one another, also from stream to stream. */
static rcv_status follow(const rcvi_worker *w, cudaStream_t stream) {
    if (!w->called || w->last == stream) return RCV_OK;
    if (w->recorded) return rcvi_cuda_check(finish(w), "waiting for calls before");
    return rcvi_cuda_check(cudaStreamWaitEvent(stream, w->done, 0), "waiting for the call before");
}

/* What calls rely on having been left by those before. */
static rcv_status clear_kept(const rcvi_worker *w, char *scratch, cudaStream_t stream) {
    const rcvi_engine *e = w->engine;
    if (e->exchange_bytes) /* padding there stays zero */
        RCVI_CUDA_TRY(cudaMemsetAsync(scratch + e->exchange, 0, e->exchange_bytes, stream),
                      "clearing what blocks pass to each other");
    if (e->scans_bytes) /* marks there count on from call to call */
        RCVI_CUDA_TRY(cudaMemsetAsync(scratch + e->scans, 0, e->scans_bytes, stream),
                      "clearing what tiles of scans pass to each other");
    return RCV_OK;
}

static rcv_status run_on(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch) {
    cudaStream_t stream = binding->stream;
    bool recording = false;
    RCVI_TRY(check_fault(w));
    RCVI_TRY(bind(w, binding, scratch));
    RCVI_TRY(is_recording(stream, &recording));
    if (recording) return record(w, first, end, binding, scratch, stream);
    RCVI_TRY(follow(w, stream));
    if (first == 0) RCVI_TRY(send_seed(w, binding, scratch, stream));
    if (first == 0) RCVI_TRY(send_lengths(w, binding, scratch, stream));
    if (!w->called) RCVI_TRY(clear_kept(w, scratch, stream));
    bool graph = w->engine->program->rungs.graph;
    RCVI_TRY(graph ? rcvi_cuda_launch_graph(w, first, end, binding, scratch, stream)
                   : rcvi_cuda_launch(w, first, end, binding, scratch, stream));
    RCVI_CUDA_TRY(cudaEventRecord(w->done, stream), "marking the end of a call");
    w->called = true;
    w->last = stream;
    return RCV_OK;
}

static rcv_status run(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = run_on(w, first, end, binding, scratch);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status reset_scratch_on(rcvi_worker *w, char *scratch, cudaStream_t stream) {
    if (!w->called) return RCV_OK; /* the first call does */
    RCVI_TRY(follow(w, stream));
    return clear_kept(w, scratch, stream);
}

static rcv_status reset_scratch(rcvi_worker *w, void *scratch, void *stream) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = reset_scratch_on(w, scratch, stream);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status announce_on(rcvi_worker *w, const rcvi_binding *binding, char *scratch) {
    RCVI_TRY(follow(w, binding->stream));
    RCVI_TRY(send_lengths(w, binding, scratch, binding->stream));
    w->announced = true;
    return RCV_OK;
}

static rcv_status announce(rcvi_worker *w, const rcvi_binding *binding, void *scratch) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(w->engine->ordinal, &before));
    rcv_status status = announce_on(w, binding, scratch);
    rcvi_cuda_leave(before);
    return status;
}

static void *beside(const rcvi_worker *w, bool last) {
    return w->begun_count ? w->begun[last && w->begun_count > 1] : NULL;
}

static rcv_status wait(rcvi_worker *w) {
    if (!w->called) return RCV_OK;
    RCVI_CUDA_TRY(finish(w), "running a pass");
    return check_fault(w);
}

const rcvi_device rcvi_device_cuda = {.name = "cuda",
                                      .describe = describe,
                                      .print_info = print_info,
                                      .prepare = prepare,
                                      .load = rcvi_cuda_engine_load,
                                      .release = rcvi_cuda_engine_free,
                                      .explain = explain,
                                      .scratch_bytes = scratch,
                                      .extra_bytes = outside,
                                      .open = open_worker,
                                      .close = close_worker,
                                      .run = run,
                                      .reset_scratch = reset_scratch,
                                      .send_lengths = announce,
                                      .loop_event = beside,
                                      .wait = wait,
                                      .measure_peak = rcvi_cuda_peak,
                                      .scan = &rcvi_cuda_scan,
                                      .learn = &rcvi_cuda_learn,
                                      .staging = &rcvi_cuda_staging,
                                      .collectives = &rcvi_cuda_collectives,
                                      .measure_bandwidth = rcvi_cuda_bandwidth,
                                      .memory = &memory};

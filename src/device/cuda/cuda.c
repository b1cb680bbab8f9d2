/* The device table of `cuda`, and plans: preparing and explaining them. */
#include "device/cuda/engine/staging.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/learn/learn.h"
#include "device/cuda/measure.h"
#include "device/cuda/nccl/nccl.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"
#include "device/cuda/recurrence/scan.h"

enum { LONGEST_GRAPH = 200000 }; /* launches */

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
        if (e->persistent[i]) rcvi_persistent_describe(e, e->persistent[i], text);
        if (e->recurrences[i]) rcvi_cuda_recurrences_tell(e->recurrences[i], text);
    }
    if (e->not_scanned)
        rcvi_text_add(text, "no recurrence of elements, so launched step by step: %s\n", e->not_scanned);
    if (e->not_clustered) rcvi_text_add(text, "through memory and not in clusters: %s\n", e->not_clustered);
    if (e->not_persistent) rcvi_text_add(text, "launched step by step: %s\n", e->not_persistent);
}

static size_t scratch_bytes(const rcvi_engine *engine) { return engine->scratch; }

static size_t kept_bytes(const rcvi_engine *engine) { return engine->kept; }
static size_t extra_bytes(const rcvi_engine *engine) { return sizeof(rcvi_worker) + engine->vendor_bytes; }

const rcvi_device rcvi_device_cuda = {.name = "cuda",
                                      .describe = rcvi_cuda_describe,
                                      .describe_libraries = rcvi_cuda_describe_libraries,
                                      .find_library = rcvi_cuda_find_library,
                                      .print_info = rcvi_cuda_print_info,
                                      .prepare = prepare,
                                      .load = rcvi_cuda_engine_load,
                                      .compile = rcvi_cuda_engines_compile,
                                      .is_compiled = rcvi_cuda_engine_is_compiled,
                                      .begin_search = rcvi_cuda_begin_search,
                                      .is_captured = rcvi_cuda_is_captured,
                                      .release = rcvi_cuda_engine_free,
                                      .explain = explain,
                                      .scratch_bytes = scratch_bytes,
                                      .serve_sizes = rcvi_cuda_serve_sizes,
                                      .kept_bytes = kept_bytes,
                                      .extra_bytes = extra_bytes,
                                      .open = rcvi_cuda_worker_open,
                                      .close = rcvi_cuda_worker_close,
                                      .run = rcvi_cuda_run,
                                      .clear = rcvi_cuda_clear,
                                      .reset_scratch = rcvi_cuda_reset_scratch,
                                      .send_lengths = rcvi_cuda_send_lengths,
                                      .loop_event = rcvi_cuda_loop_event,
                                      .wait = rcvi_cuda_wait,
                                      .measure_peak = rcvi_cuda_peak,
                                      .scan = &rcvi_cuda_scan,
                                      .learn = &rcvi_cuda_learn,
                                      .staging = &rcvi_cuda_staging,
                                      .collectives = &rcvi_cuda_collectives,
                                      .measure_bandwidth = rcvi_cuda_bandwidth,
                                      .memory = &rcvi_cuda_memory};

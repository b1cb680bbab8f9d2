/* An engine: all that a program needs on a GPU, made once and shared by its runs. */
#include "device/cuda/engine/engine.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

/* ---- steps ---- */

static rcv_status prepare_vendor(rcvi_engine *e) {
    rcvi_cudnn *vendor = NULL;
    e->vendor = rcvi_pool_new(&e->pool, 1, sizeof *e->vendor);
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_cudnn_new(e->program, &vendor));
    atomic_store(e->vendor, vendor);
    e->vendor_bytes = rcvi_cudnn_bytes(vendor);
    return e->program->rungs.algorithm ? rcvi_cudnn_try(vendor) : RCV_OK;
}

/* A loop that cannot be one kernel is launched step by step, with the reason kept; check_persistent fails where that is all of them. */
static rcv_status try_persistent(rcvi_engine *e, size_t loop) {
    rcv_status status = rcvi_persistent_new(e, loop, &e->persistent[loop]);
    if (status != RCV_UNSUPPORTED) return status;
    if (!e->not_persistent) e->not_persistent = rcvi_pool_format(&e->pool, "%s", rcv_message());
    return e->pool.failed ? RCV_NO_MEMORY : RCV_OK;
}

/* The kernels of a loop of maps; it is launched step by step where there are none, with the reason kept. */
static rcv_status try_recurrences(rcvi_engine *e, size_t loop) {
    rcv_status status = rcvi_cuda_recurrences_new(e, loop, &e->recurrences[loop]);
    if (status == RCV_UNSUPPORTED) {
        if (!e->not_scanned) e->not_scanned = rcvi_pool_format(&e->pool, "%s", rcv_message());
        return e->pool.failed ? RCV_NO_MEMORY : RCV_OK;
    }
    for (int i = 0; !status && i < e->recurrences[loop]->count; i++) {
        const rcvi_cuda_recurrence *one = &e->recurrences[loop]->all[i];
        if (one->states > e->scans_bytes) e->scans_bytes = one->states;
        if (one->sums > e->scan_sums_bytes) e->scan_sums_bytes = one->sums;
    }
    return status;
}

static rcv_status check_persistent(const rcvi_engine *e) {
    bool some = false;
    bool clustered = false;
    for (size_t i = 0; i < e->program->step_count; i++) {
        some |= e->persistent[i] != NULL;
        clustered |= e->persistent[i] && e->persistent[i]->cluster;
    }
    if (e->program->rungs.cluster && some && !clustered) return rcvi_fail(RCV_UNSUPPORTED, "%s", e->not_clustered);
    if (!e->program->rungs.persistent || some) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s",
                     e->not_persistent ? e->not_persistent : "a persistent kernel needs a time loop with products");
}

static rcv_status prepare_steps(rcvi_engine *e) {
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        if (rcvi_program_is_persistent(e->program, i)) RCVI_TRY(try_persistent(e, i));
        if (e->persistent[i]) {
            e->persistent[i]->exchange_offset = e->exchange_bytes;
            e->exchange_bytes += rcvi_cuda_align(e->persistent[i]->exchange);
            size_t counters = (size_t)e->persistent[i]->counters * 4;
            if (counters > e->counters_bytes) e->counters_bytes = counters;
            i += (size_t)step->loop.body;
            continue;
        }
        if (rcvi_program_is_scan(e->program, i)) RCVI_TRY(try_recurrences(e, i));
        if (e->recurrences[i]) {
            i += (size_t)step->loop.body;
            continue;
        }
        if (step->kind == RCVI_STEP_MAP) RCVI_TRY(rcvi_cuda_prepare_map(e, step, &e->ready[i]));
        if (step->kind == RCVI_STEP_GEMM) RCVI_TRY(rcvi_cuda_prepare_gemm(e, i));
        if (step->kind == RCVI_STEP_VENDOR && !e->vendor) RCVI_TRY(prepare_vendor(e));
    }
    return check_persistent(e);
}

/* ---- the engine ---- */

static rcv_status read_attributes(rcvi_engine *e) {
    const struct {
        enum cudaDeviceAttr which;
        int *to;
    } facts[] = {{cudaDevAttrComputeCapabilityMajor, &e->major},
                 {cudaDevAttrComputeCapabilityMinor, &e->minor},
                 {cudaDevAttrMultiProcessorCount, &e->processors},
                 {cudaDevAttrMaxSharedMemoryPerBlockOptin, &e->shared}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        RCVI_CUDA_TRY(cudaDeviceGetAttribute(facts[i].to, facts[i].which, e->ordinal),
                      "reading the device's attributes");
    return RCV_OK;
}

static rcv_status build(rcvi_engine *e) {
    RCVI_TRY(rcvi_cuda_find_layout(e));
    RCVI_TRY(read_attributes(e));
    RCVI_TRY(prepare_steps(e));
    rcvi_cuda_drop_rounded(e);
    RCVI_TRY(rcvi_cuda_order(e));
    rcvi_cuda_lay_out_scratch(e);
    return RCV_OK;
}

rcv_status rcvi_cuda_engine_new(const rcvi_program *program, rcvi_engine **out) {
    rcv_context *context = program->pool.context;
    rcvi_engine *e = rcvi_new(context, 1, sizeof *e);
    *out = NULL;
    if (!e) return RCV_NO_MEMORY;
    e->program = program;
    e->context = context;
    rcvi_pool_init(&e->pool, context);
    int before = 0;
    rcv_status status = rcvi_cuda_enter(program->machine.ordinal, &before);
    if (!status) {
        status = build(e);
        rcvi_cuda_leave(before);
    }
    if (status) {
        rcvi_cuda_engine_free(e);
        return status;
    }
    *out = e;
    return RCV_OK;
}

void rcvi_cuda_engine_free(rcvi_engine *e) {
    int before = 0;
    if (!e) return;
    bool entered = !rcvi_cuda_enter(e->ordinal, &before);
    for (size_t k = 0; k < e->kernel_count; k++) {
        if (e->kernels[k].code) cudaLibraryUnload(e->kernels[k].code);
        rcvi_free(e->context, e->kernels[k].source);
        rcvi_free(e->context, e->kernels[k].table.table);
    }
    if (e->tables) cudaFree(e->tables);
    for (size_t i = 0; e->persistent && i < e->program->step_count; i++)
        rcvi_persistent_free(e->context, e->persistent[i]);
    for (size_t i = 0; e->recurrences && i < e->program->step_count; i++)
        rcvi_cuda_recurrences_free(e->context, e->recurrences[i]);
    for (size_t i = 0; e->ready && i < e->program->step_count; i++) {
        for (int k = 0; k < RCVI_LENGTH_CLASSES; k++) {
            if (e->ready[i].owns_gemm[k]) rcvi_cuda_gemm_free(e->ready[i].gemms[k]);
        }
        if (e->ready[i].owns_split) rcvi_split_gemm_free(e->ready[i].split);
    }
    if (e->vendor) rcvi_cudnn_free(atomic_load(e->vendor));
    rcvi_cuda_blas_free(e->blas);
    if (entered) rcvi_cuda_leave(before);
    rcvi_cuda_engine_drop_compiled(e);
    rcvi_free(e->context, e->kernels);
    rcvi_free(e->context, e->groups);
    rcvi_pool_free(&e->pool);
    rcvi_free(e->context, e);
}

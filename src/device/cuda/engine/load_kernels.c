/* Kernels compiled, and loaded into the GPU: those of maps, of persistent loops and of recurrences. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/engine.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

static rcv_status load_kernel(rcvi_cuda_kernel *kernel, const void *code) {
    kernel->shared = kernel->shape.map->product_count ? rcvi_tile_shared(&kernel->shape) : 0;
    return rcvi_jit_load(code, "map_kernel", kernel->shared, &kernel->code, &kernel->kernel);
}

static rcv_status load_persistent(const rcvi_engine *e, rcvi_persistent *p, const void *code) {
    int blocks = 0;
    RCVI_TRY(rcvi_jit_load(code, "persistent_kernel", p->shared_bytes, &p->code, &p->kernel));
    if (p->cluster) return rcvi_cluster_check(p);
    RCVI_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)p->kernel,
                                                                RCVI_PERSISTENT_THREADS, p->shared_bytes),
                  "asking how many blocks fit");
    if ((int64_t)blocks * e->processors >= p->blocks) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel of this loop has %d blocks, but the GPU takes %lld at once",
                     p->blocks, (long long)blocks * e->processors);
}

/* Sources of the kernels of maps, then of loops. Returns how many there are. */
static size_t find_units(const rcvi_engine *e, rcvi_jit_unit *units) {
    size_t count = 0;
    for (size_t k = 0; k < e->kernel_count; k++) units[count++].source = e->kernels[k].source;
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) units[count++].source = e->persistent[i]->source;
        for (int n = 0; list && n < list->count; n++) units[count++].source = list->all[n].source;
    }
    return count;
}

static rcv_status load_units(rcvi_engine *e, const rcvi_jit_unit *units) {
    for (size_t k = 0; k < e->kernel_count; k++) RCVI_TRY(load_kernel(&e->kernels[k], (units++)->code));
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) RCVI_TRY(load_persistent(e, e->persistent[i], (units++)->code));
        for (int n = 0; list && n < list->count; n++)
            RCVI_TRY(rcvi_cuda_recurrence_load(&list->all[n], (units++)->code));
    }
    return RCV_OK;
}

static rcv_status load_kernels(rcvi_engine *e) {
    size_t most = e->kernel_count + e->program->step_count; /* there are no more recurrences than steps */
    rcvi_jit_unit *units = rcvi_new(e->context, most, sizeof *units);
    if (!units) return RCV_NO_MEMORY;
    size_t count = find_units(e, units);
    rcv_status status = rcvi_jit_compile(e->context, units, count, e->major, e->minor);
    if (!status) status = load_units(e, units);
    for (size_t k = 0; k < count; k++) rcvi_free(e->context, units[k].code);
    rcvi_free(e->context, units);
    return status;
}

rcv_status rcvi_cuda_engine_load(rcvi_engine *e) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(e->ordinal, &before));
    rcv_status status = load_kernels(e);
    rcvi_cuda_leave(before);
    return status;
}

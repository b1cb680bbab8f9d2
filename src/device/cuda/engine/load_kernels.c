/* Kernels compiled, and loaded into the GPU: those of maps, of persistent loops and of recurrences; tables of interpreted maps. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/engine.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

#include <string.h>

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
    for (size_t k = 0; k < e->kernel_count; k++) {
        if (e->kernels[k].source) units[count++].source = e->kernels[k].source;
    }
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) units[count++].source = e->persistent[i]->source;
        for (int n = 0; list && n < list->count; n++) units[count++].source = list->all[n].source;
    }
    return count;
}

static rcv_status load_units(rcvi_engine *e, const rcvi_jit_unit *units) {
    for (size_t k = 0; k < e->kernel_count; k++) {
        if (e->kernels[k].source) RCVI_TRY(load_kernel(&e->kernels[k], (units++)->code));
    }
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) RCVI_TRY(load_persistent(e, e->persistent[i], (units++)->code));
        for (int n = 0; list && n < list->count; n++)
            RCVI_TRY(rcvi_cuda_recurrence_load(&list->all[n], (units++)->code));
    }
    return RCV_OK;
}

/* At least as many units as find_units finds: there are no more recurrences than steps. */
static size_t most_units(const rcvi_engine *e) { return e->kernel_count + e->program->step_count; }

/* Gives the engine its own array of these units; without memory their code is freed, and `load` compiles again. */
static void keep_compiled(rcvi_engine *e, const rcvi_jit_unit *units, size_t count) {
    rcvi_cuda_engine_drop_compiled(e);
    e->compiled = rcvi_new(e->context, count, sizeof *units);
    for (size_t i = 0; i < count; i++) {
        if (e->compiled)
            e->compiled[i] = units[i];
        else
            rcvi_free(e->context, units[i].code);
    }
    e->compiled_count = e->compiled ? count : 0;
}

void rcvi_cuda_engine_drop_compiled(rcvi_engine *e) {
    for (size_t i = 0; i < e->compiled_count; i++) rcvi_free(e->context, e->compiled[i].code);
    rcvi_free(e->context, e->compiled);
    e->compiled = NULL;
    e->compiled_count = 0;
}

bool rcvi_cuda_engines_compile(rcvi_engine *const *engines, size_t count, bool (*go_on)(void *user), void *user) {
    if (count == 0) return true;
    rcv_context *context = engines[0]->context;
    size_t most = 0, at = 0;
    for (size_t i = 0; i < count; i++) most += most_units(engines[i]);
    rcvi_jit_unit *units = rcvi_new(context, most, sizeof *units);
    if (!units) return true;
    for (size_t i = 0; i < count; i++) at += find_units(engines[i], units + at);
    if (at == 0) { /* all of them are interpreted: NVRTC is not opened */
        rcvi_free(context, units);
        return true;
    }
    rcv_status status = rcvi_jit_compile_while(context, units, at, engines[0]->major, engines[0]->minor, go_on, user);
    at = 0;
    for (size_t i = 0; i < count && !status; i++) {
        size_t own = find_units(engines[i], units + at); /* writes the same sources again, and leaves the code */
        keep_compiled(engines[i], units + at, own);
        at += own;
    }
    rcvi_free(context, units);
    return status != RCV_STOPPED;
}

bool rcvi_cuda_engine_is_compiled(const rcvi_engine *e) {
    rcvi_jit_unit *units = rcvi_new(e->context, most_units(e), sizeof *units);
    if (!units) return false;
    bool compiled = rcvi_jit_is_compiled(e->context, units, find_units(e, units), e->major, e->minor);
    rcvi_free(e->context, units);
    return compiled;
}

/* ---- tables of interpreted maps ---- */

static size_t align_table(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* Copies from the host by a stream of its own: another thread may be capturing, which the default stream would disturb. */
static rcv_status send(void *to, const void *from, size_t bytes) {
    cudaStream_t stream = NULL;
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return rcvi_cuda_check(error, "writing the tables of maps");
}

static rcv_status load_tables(rcvi_engine *e) {
    size_t bytes = 0, at = 0;
    for (size_t k = 0; k < e->kernel_count; k++) bytes += align_table(e->kernels[k].table.bytes);
    if (bytes == 0 || e->tables) return RCV_OK;
    char *all = rcvi_new(e->context, bytes, 1);
    if (!all) return RCV_NO_MEMORY;
    rcv_status status = rcvi_cuda_check(cudaMalloc(&e->tables, bytes), "allocating the tables of maps");
    for (size_t k = 0; k < e->kernel_count && !status; k++) {
        rcvi_map_table *table = &e->kernels[k].table;
        if (!table->table) continue;
        memcpy(all + at, table->table, table->bytes);
        table->head.table = (char *)e->tables + at;
        at += align_table(table->bytes);
    }
    if (!status) status = send(e->tables, all, bytes);
    if (status && e->tables) cudaFree(e->tables);
    if (status) e->tables = NULL;
    rcvi_free(e->context, all);
    return status;
}

/* ---- loading ---- */

static rcv_status load_kernels(rcvi_engine *e) {
    RCVI_TRY(load_tables(e));
    if (!e->compiled) {
        rcvi_jit_unit *units = rcvi_new(e->context, most_units(e), sizeof *units);
        if (!units) return RCV_NO_MEMORY;
        size_t count = find_units(e, units);
        rcv_status status = count == 0 ? RCV_OK : rcvi_jit_compile(e->context, units, count, e->major, e->minor);
        if (status) rcvi_free(e->context, units);
        RCVI_TRY(status);
        e->compiled = units;
        e->compiled_count = count;
    }
    rcv_status status = load_units(e, e->compiled);
    rcvi_cuda_engine_drop_compiled(e);
    return status;
}

rcv_status rcvi_cuda_engine_load(rcvi_engine *e) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(e->ordinal, &before));
    rcv_status status = load_kernels(e);
    rcvi_cuda_leave(before);
    return status;
}

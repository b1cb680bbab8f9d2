/* A run's worker: created and destroyed. */
#include "device/cuda/engine/worker.h"

cudaError_t rcvi_cuda_finish(const rcvi_worker *w) {
    return w->captured ? cudaDeviceSynchronize() : cudaEventSynchronize(w->done);
}

void rcvi_cuda_worker_close(rcvi_worker *w) {
    int before = 0;
    if (!w) return;
    bool entered = !rcvi_cuda_enter(w->engine->ordinal, &before);
    if (w->called) rcvi_cuda_finish(w);
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
    rcvi_pool_free(&w->pool);
    rcvi_free(w->context, w->view_table);
    rcvi_free(w->context, w->views);
    rcvi_free(w->context, w->key);
    rcvi_free(w->context, w->needed);
    for (int i = 0; i < 2; i++) rcvi_free(w->context, w->dead[i]);
    for (int i = 0; i < 2; i++) rcvi_free(w->context, w->absent[i].externals);
    rcvi_free(w->context, w);
}

static rcv_status create(rcvi_worker *w) {
    const rcvi_engine *e = w->engine;
    const rcvi_program *program = e->program;
    size_t views = 0;
    for (size_t i = 0; i < program->step_count; i++) views += (size_t)e->ready[i].view_count;
    w->view_table = rcvi_new(w->context, views + 1, sizeof *w->view_table);
    w->views = rcvi_new(w->context, program->step_count, sizeof *w->views);
    w->key_count = rcvi_cuda_key_count(program);
    w->buffers = rcvi_new(w->context, program->buffer_count, sizeof *w->buffers);
    w->key = rcvi_new(w->context, w->key_count, sizeof *w->key);
    w->needed = rcvi_new(w->context, program->buffer_count, sizeof *w->needed);
    bool failed = !w->buffers || !w->key || !w->needed || !w->view_table || !w->views;
    for (int i = 0; i < 2; i++) {
        w->dead[i] = rcvi_new(w->context, program->step_count, sizeof *w->dead[i]);
        w->absent[i].externals = rcvi_new(w->context, program->external_count, sizeof *w->absent[i].externals);
        failed |= !w->dead[i] || !w->absent[i].externals;
    }
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        w->graphs[i].key = rcvi_new(w->context, w->key_count, sizeof *w->key);
        failed |= !w->graphs[i].key;
    }
    if (failed) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_cuda_open_loops(w));
    RCVI_CUDA_TRY(cudaEventCreateWithFlags(&w->done, cudaEventDisableTiming), "creating an event");
    for (int i = 0; i < 2; i++)
        RCVI_CUDA_TRY(cudaEventCreateWithFlags(&w->begun[i], cudaEventDisableTiming), "creating an event");
    RCVI_TRY(rcvi_cuda_new_stream(&w->capturing));
    RCVI_TRY(rcvi_streams_open(w->context, e->streams, &w->streams));
    if (program->rungs.persistent) {
        RCVI_CUDA_TRY(cudaHostAlloc((void **)&w->fault, sizeof *w->fault, cudaHostAllocMapped), "allocating memory");
        *w->fault = 0;
    }
    if (e->sorts && !program->options.device_lengths) RCVI_TRY(rcvi_cuda_rows_open(w->context, program, &w->rows));
    if (!e->vendor) return RCV_OK;
    w->vendor = atomic_exchange(e->vendor, NULL);
    if (!w->vendor) RCVI_TRY(rcvi_cudnn_new(program, &w->vendor));
    return rcvi_cudnn_allocate(w->vendor);
}

rcv_status rcvi_cuda_worker_open(const rcvi_engine *engine, rcvi_worker **out) {
    rcvi_worker *w = rcvi_new(engine->context, 1, sizeof *w);
    int before = 0;
    *out = NULL;
    if (!w) return RCV_NO_MEMORY;
    w->engine = engine;
    w->context = engine->context;
    rcvi_pool_init(&w->pool, w->context);
    rcv_status status = rcvi_cuda_enter(engine->ordinal, &before);
    if (!status) {
        status = create(w);
        rcvi_cuda_leave(before);
    }
    if (status) {
        rcvi_cuda_worker_close(w);
        return status;
    }
    *out = w;
    return RCV_OK;
}

/* Memory of a GPU for the caller: allocated, released, written and read from the host. */
#include "device/cuda/cuda.h"

static rcv_status allocate(int ordinal, size_t bytes, void **memory) {
    int before = 0;
    *memory = NULL;
    RCVI_TRY(rcvi_cuda_check_device(ordinal));
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
    /* cudaMemcpy of a small block may return before the copy is done, and the caller's streams do not wait for it */
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

/* A stream of the lowest priority, without the default stream's implicit waits. */
static rcv_status new_stream(int ordinal, void **out) {
    int before = 0, least = 0, greatest = 0;
    cudaStream_t stream = NULL;
    *out = NULL;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status =
        rcvi_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading the priorities of streams");
    if (!status)
        status =
            rcvi_cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, least), "creating a stream");
    rcvi_cuda_leave(before);
    *out = stream;
    return status;
}

static void free_stream(int ordinal, void *stream) {
    int before = 0;
    if (rcvi_cuda_enter(ordinal, &before)) return;
    cudaStreamDestroy(stream);
    rcvi_cuda_leave(before);
}

static rcv_status write_on(int ordinal, void *to, const void *from, size_t bytes, void *stream) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status =
        rcvi_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "copying memory");
    if (!status) status = rcvi_cuda_check(cudaStreamSynchronize(stream), "copying memory");
    rcvi_cuda_leave(before);
    return status;
}

static size_t count_free(int ordinal) {
    int before = 0;
    size_t free = 0, total = 0;
    if (rcvi_cuda_enter(ordinal, &before)) return 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
    rcvi_cuda_leave(before);
    return free;
}

const rcvi_memory rcvi_cuda_memory = {.allocate = allocate,
                                      .release = release,
                                      .write = write_memory,
                                      .read = read_memory,
                                      .new_stream = new_stream,
                                      .free_stream = free_stream,
                                      .write_on = write_on,
                                      .count_free = count_free};

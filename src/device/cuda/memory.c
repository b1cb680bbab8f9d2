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

const rcvi_memory rcvi_cuda_memory = {
    .allocate = allocate, .release = release, .write = write_memory, .read = read_memory};

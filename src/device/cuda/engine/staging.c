/* Copies on a stream of their own, through memory that the GPU reads and writes by itself. */
#include "device/cuda/engine/staging.h"
#include "device/cuda/engine/engine.h"

#include <cudaTypedefs.h>
#include <stdio.h>
#include <unistd.h>

struct rcvi_ferry {
    rcv_context *context;
    int ordinal;
    void *block; /* pinned */
    cudaStream_t stream;
    cudaEvent_t done;
};

static void release(rcvi_ferry *f) {
    if (f->stream) cudaStreamSynchronize(f->stream);
    if (f->done) cudaEventDestroy(f->done);
    if (f->stream) cudaStreamDestroy(f->stream);
    if (f->block) cudaFreeHost(f->block);
}

static rcv_status fill(rcvi_ferry *f, size_t bytes) {
    RCVI_CUDA_TRY(cudaHostAlloc(&f->block, bytes ? bytes : 1, cudaHostAllocPortable), "allocating the host's memory");
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking), "making a stream");
    return rcvi_cuda_check(cudaEventCreateWithFlags(&f->done, cudaEventDisableTiming), "making an event");
}

static void close_ferry(rcvi_ferry *f) {
    if (!f) return;
    int before = 0;
    bool entered = !rcvi_cuda_enter(f->ordinal, &before);
    release(f);
    if (entered) rcvi_cuda_leave(before);
    rcvi_free(f->context, f);
}

static rcv_status open_ferry(rcv_context *context, int ordinal, size_t bytes, rcvi_ferry **ferry) {
    int before = 0;
    *ferry = NULL;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcvi_ferry *f = rcvi_new(context, 1, sizeof *f);
    rcv_status status = RCV_NO_MEMORY;
    if (f) {
        f->context = context;
        f->ordinal = ordinal;
        status = fill(f, bytes);
    }
    rcvi_cuda_leave(before);
    if (status) {
        close_ferry(f);
        return status;
    }
    *ferry = f;
    return RCV_OK;
}

static void *block(const rcvi_ferry *f) { return f->block; }

static rcv_status copy(rcvi_ferry *f, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(f->ordinal, &before));
    rcv_status status = rcvi_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, f->stream), "copying memory");
    if (!status) status = rcvi_cuda_check(cudaEventRecord(f->done, f->stream), "recording an event");
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status fetch(rcvi_ferry *f, size_t at, const void *from, size_t bytes) {
    return copy(f, (char *)f->block + at, from, bytes, cudaMemcpyDeviceToHost);
}

static rcv_status deliver(rcvi_ferry *f, void *to, size_t at, size_t bytes) {
    return copy(f, to, (const char *)f->block + at, bytes, cudaMemcpyHostToDevice);
}

static rcv_status test(rcvi_ferry *f, bool *done) {
    cudaError_t error = cudaEventQuery(f->done);
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady) return rcvi_cuda_check(error, "copying memory");
    (void)cudaGetLastError(); /* not an error */
    return RCV_OK;
}

static rcv_status attend(int ordinal) { return rcvi_cuda_check(cudaSetDevice(ordinal), "choosing the GPU"); }

static rcv_status place(int ordinal, char text[RCVI_PLACE]) {
    char host[64] = "", bus[32] = "";
    gethostname(host, sizeof host - 1);
    RCVI_CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal), "asking where the GPU is");
    snprintf(text, RCVI_PLACE, "%s %s", host, bus);
    return RCV_OK;
}

/* Only the driver tells: a process without CUDA's Multi-Process Service has the GPU to itself, for a slice of time. */
static bool takes_turns(int ordinal) {
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    CUdevice device;
    int enabled = 0;
    const int since = 2000;
    cudaGetDriverEntryPointByVersion("cuDeviceGet", &found, since, cudaEnableDefault, &result);
    if (!found || ((PFN_cuDeviceGet_v2000)(uintptr_t)found)(&device, ordinal) != CUDA_SUCCESS) return true;
    cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &found, since, cudaEnableDefault, &result);
    if (found) ((PFN_cuDeviceGetAttribute_v2000)(uintptr_t)found)(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
    return !enabled;
}

const rcvi_ferries rcvi_cuda_ferries = {.open = open_ferry,
                                        .close = close_ferry,
                                        .block = block,
                                        .fetch = fetch,
                                        .deliver = deliver,
                                        .test = test,
                                        .attend = attend,
                                        .place = place,
                                        .takes_turns = takes_turns};

/* Asynchronous copies through pinned host memory, on a stream of their own: rcvi_staging_table of device/device.h. */
#include "device/cuda/engine/staging.h"
#include "device/cuda/engine/engine.h"

#include <cudaTypedefs.h>
#include <stdio.h>
#include <unistd.h>

struct rcvi_staging {
    rcv_context *context;
    int ordinal;
    void *memory; /* pinned, of the host */
    cudaStream_t stream;
    cudaEvent_t done;
};

static void free_resources(rcvi_staging *s) {
    if (s->stream) cudaStreamSynchronize(s->stream);
    if (s->done) cudaEventDestroy(s->done);
    if (s->stream) cudaStreamDestroy(s->stream);
    if (s->memory) cudaFreeHost(s->memory);
}

static rcv_status allocate_resources(rcvi_staging *s, size_t bytes) {
    RCVI_CUDA_TRY(cudaHostAlloc(&s->memory, bytes ? bytes : 1, cudaHostAllocPortable), "allocating the host's memory");
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "making a stream");
    return rcvi_cuda_check(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming), "making an event");
}

static void close_staging(rcvi_staging *s) {
    if (!s) return;
    int before = 0;
    bool entered = !rcvi_cuda_enter(s->ordinal, &before);
    free_resources(s);
    if (entered) rcvi_cuda_leave(before);
    rcvi_free(s->context, s);
}

static rcv_status open_staging(rcv_context *context, int ordinal, size_t bytes, rcvi_staging **staging) {
    int before = 0;
    *staging = NULL;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcvi_staging *s = rcvi_new(context, 1, sizeof *s);
    rcv_status status = RCV_NO_MEMORY;
    if (s) {
        s->context = context;
        s->ordinal = ordinal;
        status = allocate_resources(s, bytes);
    }
    rcvi_cuda_leave(before);
    if (status) {
        close_staging(s);
        return status;
    }
    *staging = s;
    return RCV_OK;
}

static void *host_memory(const rcvi_staging *s) { return s->memory; }

static rcv_status copy(rcvi_staging *s, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(s->ordinal, &before));
    rcv_status status = rcvi_cuda_check(cudaMemcpyAsync(to, from, bytes, kind, s->stream), "copying memory");
    if (!status) status = rcvi_cuda_check(cudaEventRecord(s->done, s->stream), "recording an event");
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status copy_to_host(rcvi_staging *s, size_t offset, const void *from, size_t bytes) {
    return copy(s, (char *)s->memory + offset, from, bytes, cudaMemcpyDeviceToHost);
}

static rcv_status copy_to_device(rcvi_staging *s, void *to, size_t offset, size_t bytes) {
    return copy(s, to, (const char *)s->memory + offset, bytes, cudaMemcpyHostToDevice);
}

static rcv_status test(rcvi_staging *s, bool *done) {
    cudaError_t error = cudaEventQuery(s->done);
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady) return rcvi_cuda_check(error, "copying memory");
    (void)cudaGetLastError(); /* not an error */
    return RCV_OK;
}

static rcv_status set_current(int ordinal) { return rcvi_cuda_check(cudaSetDevice(ordinal), "choosing the GPU"); }

static rcv_status identify(int ordinal, char id[RCVI_DEVICE_ID]) {
    char host[64] = "", bus[32] = "";
    gethostname(host, sizeof host - 1);
    RCVI_CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal), "asking where the GPU is");
    snprintf(id, RCVI_DEVICE_ID, "%s %s", host, bus);
    return RCV_OK;
}

/* Without CUDA's Multi-Process Service (MPS) processes use the GPU in time slices. Only the driver API says whether MPS runs. */
static bool is_time_sliced(int ordinal) {
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

const rcvi_staging_table rcvi_cuda_staging = {.open = open_staging,
                                              .close = close_staging,
                                              .host_memory = host_memory,
                                              .copy_to_host = copy_to_host,
                                              .copy_to_device = copy_to_device,
                                              .test = test,
                                              .set_current = set_current,
                                              .identify = identify,
                                              .is_time_sliced = is_time_sliced};

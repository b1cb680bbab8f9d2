/* CUDA errors as statuses, element sizes, the current device, launches. */
#include "device/cuda/cuda.h"

#include <sys/resource.h>

rcv_status rcvi_cuda_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return RCV_OK;
    (void)cudaGetLastError(); /* so that the next call does not report it again */
    if (error == cudaErrorInitializationError && rcvi_is_forked())
        return rcvi_fail(RCV_UNSUPPORTED,
                         "%s failed: this process is a child of fork(), which CUDA does not survive; "
                         "use the GPU only after fork(), or start the child with exec",
                         what);
    rcv_status status = error == cudaErrorMemoryAllocation ? RCV_NO_MEMORY : RCV_UNSUPPORTED;
    return rcvi_fail(status, "%s failed on the GPU: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

size_t rcvi_cuda_bytes(rcvi_cuda_type type) {
    static const unsigned char bytes[] = {
        [RCVI_F32] = 4, [RCVI_F64] = 8, [RCVI_BF16] = 2, [RCVI_F16] = 2, [RCVI_U8] = 1, [RCVI_I64] = 8,
    };
    return bytes[type];
}

rcv_status rcvi_cuda_launch_cooperative(cudaKernel_t kernel, int64_t blocks, int threads, size_t shared_bytes,
                                        void **arguments, cudaStream_t stream, const char *what) {
    cudaLaunchAttribute together = {.id = cudaLaunchAttributeCooperative, .val = {.cooperative = 1}};
    cudaLaunchConfig_t launch = {.gridDim = {(unsigned)blocks, 1, 1},
                                 .blockDim = {(unsigned)threads, 1, 1},
                                 .dynamicSmemBytes = shared_bytes,
                                 .stream = stream,
                                 .attrs = &together,
                                 .numAttrs = 1};
    return rcvi_cuda_check(cudaLaunchKernelExC(&launch, (const void *)kernel, arguments), what);
}

rcv_status rcvi_cuda_new_stream(cudaStream_t *stream) {
    int last, first;
    RCVI_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&last, &first), "reading the priorities of streams");
    return rcvi_cuda_check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, first), "creating a stream");
}

static _Thread_local bool searching;

bool rcvi_cuda_is_searching(void) { return searching; }

void rcvi_cuda_begin_search(void) {
    enum { NICE = 10 };
    searching = true;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
#ifdef __linux__
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux of the calling thread alone */
#endif
}

rcv_status rcvi_cuda_enter(int ordinal, int *before) {
    RCVI_CUDA_TRY(cudaGetDevice(before), "reading the current device");
    return *before == ordinal ? RCV_OK : rcvi_cuda_check(cudaSetDevice(ordinal), "setting the device");
}

void rcvi_cuda_leave(int before) { cudaSetDevice(before); }

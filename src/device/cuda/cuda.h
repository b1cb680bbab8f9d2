/* What the files of this folder share: CUDA errors as statuses, element types.
 *
 * Only the runtime is linked (statically), so a build with CUDA also runs where there is no GPU. cuBLASLt, NVRTC and cuDNN are opened
 * at run time; where one is missing, what needs it fails with a sentence. */
#ifndef RCVI_CUDA_H
#define RCVI_CUDA_H

#include "device/cuda/kernels/types.h"
#include "device/device.h"

#include <cuda_runtime_api.h>

/* RCV_OK, or the error as a status: RCV_NO_MEMORY for memory, else RCV_UNSUPPORTED, with a sentence "WHAT failed on the
 * GPU: ..."; clears the runtime's last error where that can be cleared. */
rcv_status rcvi_cuda_check(cudaError_t error, const char *what);
#define RCVI_CUDA_TRY(CALL, WHAT) RCVI_TRY(rcvi_cuda_check((CALL), (WHAT)))

size_t rcvi_cuda_bytes(rcvi_cuda_type type);

/* properties.c: fails with a sentence where there is no such GPU, or where it is too old. */
rcv_status rcvi_cuda_check_device(int ordinal);
/* As rcvi_device has them. */
rcv_status rcvi_cuda_describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads,
                              rcvi_machine *machine);
void rcvi_cuda_describe_libraries(int ordinal, rcvi_machine *machine); /* after it; opens them */
const char *rcvi_cuda_find_library(const char *name, const char **reason);
rcv_status rcvi_cuda_print_info(rcv_context *context, int ordinal, rcvi_text *text);
extern const rcvi_memory rcvi_cuda_memory; /* memory.c */

/* Makes the device the current one; `before` is for rcvi_cuda_leave. */
rcv_status rcvi_cuda_enter(int ordinal, int *before);
void rcvi_cuda_leave(int before);

/* A cooperative launch: all blocks are on the GPU at once, so they may wait for each other. */
rcv_status rcvi_cuda_launch_cooperative(cudaKernel_t kernel, int64_t blocks, int threads, size_t shared_bytes,
                                        void **arguments, cudaStream_t stream, const char *what);

/* A stream of the highest priority. */
rcv_status rcvi_cuda_new_stream(cudaStream_t *stream);
/* For the thread of a search beside the caller's threads: allocations do not break captures of other threads, and the thread and those that it
 * starts have a low priority. */
void rcvi_cuda_begin_search(void);
bool rcvi_cuda_is_searching(void); /* is the calling thread such a thread? */

#endif

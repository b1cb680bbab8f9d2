/* Whole networks by cuDNN's recurrent functions, loaded at run time. */
#ifndef RCVI_CUDA_VENDOR_H
#define RCVI_CUDA_VENDOR_H

#include "device/cuda/cuda.h"

typedef struct rcvi_cudnn rcvi_cudnn; /* of one run: descriptors, weights in cuDNN's layout, workspace */

const char *
rcvi_cudnn_name(void); /* with its version, such as "cuDNN 9.14.0"; NULL, with a sentence, where it is missing or of
                                      another major version */

/* Why it is missing: a sentence that stays; NULL where it is not missing. */
const char *rcvi_cudnn_absence(void);

/* All but its memory, on the current device. cuDNN may compile kernels for it, so a finished run passes it to the next one.
 * RCV_UNSUPPORTED, with cuDNN's reason, where it cannot run the program. */
rcv_status rcvi_cudnn_new(const rcvi_program *program, rcvi_cudnn **vendor);
void rcvi_cudnn_free(rcvi_cudnn *vendor);
/* Runs it once: some algorithms refuse a shape only when they are called. */
rcv_status rcvi_cudnn_try(rcvi_cudnn *vendor);

/* Its device memory; the release waits for what still uses it. */
size_t rcvi_cudnn_bytes(const rcvi_cudnn *vendor);
rcv_status rcvi_cudnn_allocate(rcvi_cudnn *vendor);
void rcvi_cudnn_release(rcvi_cudnn *vendor);

/* Sets the sizes of the calls that follow. */
rcv_status rcvi_cudnn_resize(rcvi_cudnn *vendor, rcvi_sizes sizes);
/* Does cuDNN compile kernels for these sizes? It then frees those of the sizes before. */
bool rcvi_cudnn_must_compile(const rcvi_cudnn *vendor, rcvi_sizes sizes);

/* Enqueues one pass on the stream; can be captured in a graph; allocates nothing, waits for nothing. The binding's
 * buffers are device memory. Where binding->same_parameters, weights are used as laid out before. */
rcv_status rcvi_cudnn_run(rcvi_cudnn *vendor, bool backward, const rcvi_binding *binding, cudaStream_t stream);

#endif

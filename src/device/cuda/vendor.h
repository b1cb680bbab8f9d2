/* Whole networks by cuDNN's recurrent functions, loaded at run time. */
#ifndef RCVI_CUDA_VENDOR_H
#define RCVI_CUDA_VENDOR_H

#include "device/cuda/cuda.h"

typedef struct rcvi_cudnn rcvi_cudnn; /* what one run needs: descriptors, weights as cuDNN likes them, workspace */

const char *
rcvi_cudnn_name(void); /* with its version, such as "cuDNN 9.14.0"; NULL, with a sentence, where it is missing or of
                                      another major version */

/* Why it is missing: a sentence that stays; NULL where it is not missing. */
const char *rcvi_cudnn_absence(void);

/* Device memory that rcvi_cudnn_new allocates on the current device for this program, or RCV_UNSUPPORTED with cuDNN's
 * reason where it cannot run it (an algorithm that does not do this shape, say). */
rcv_status rcvi_cudnn_bytes(const rcvi_program *program, size_t *bytes);
rcv_status rcvi_cudnn_new(const rcvi_program *program, rcvi_cudnn **vendor);
void rcvi_cudnn_free(rcvi_cudnn *vendor);

/* Enqueues one pass on the stream; can be captured in a graph; allocates nothing, waits for nothing. The binding's
 * buffers are device memory. Where binding->same_parameters, weights are used as laid out before. */
rcv_status rcvi_cudnn_run(rcvi_cudnn *vendor, bool backward, const rcvi_binding *binding, cudaStream_t stream);

#endif

/* CUDA source to machine code: by NVRTC for the device at hand, kept on disk under the hash of source, compiler and
 * architecture. A damaged file is built again and replaced; where no folder can be written, nothing is kept. */
#ifndef RCVI_CUDA_JIT_H
#define RCVI_CUDA_JIT_H

#include "device/cuda/cuda.h"

typedef struct {
    const char *source;
    void *code; /* what it becomes; freed with rcvi_free */
    size_t bytes;
} rcvi_jit_unit;

/* Machine code of every source for compute capability major.minor (sm_90a for 9.0). What is not kept is compiled on several
 * of the machine's cores. A GPU is not needed. Where it fails, no unit has code. */
rcv_status rcvi_jit_compile(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor);

/* Loads code into the current device and finds its kernel. */
rcv_status rcvi_jit_load(const void *code, const char *name, size_t shared_bytes, cudaLibrary_t *library,
                         cudaKernel_t *kernel);

/* Name and version of NVRTC, or NULL with a sentence that says why there is none. */
const char *rcvi_jit_name(void);

#endif

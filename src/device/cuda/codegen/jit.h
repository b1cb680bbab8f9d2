/* CUDA source to machine code by NVRTC, cached on disk under the hash of source, compiler, options and architecture. A damaged file is
 * replaced; where the folder cannot be written, nothing is cached. */
#ifndef RCVI_CUDA_JIT_H
#define RCVI_CUDA_JIT_H

#include "device/cuda/cuda.h"

typedef struct rcvi_jit_unit {
    const char *source;
    void *code; /* its machine code; freed with rcvi_free */
    size_t bytes;
} rcvi_jit_unit;

/* Compiles every source for compute capability major.minor (sm_90a for 9.0). What is not cached is compiled on several cores, a text that
 * comes twice once: the more units a call has, the better it uses the cores. No GPU is needed. On failure no unit has code. */
rcv_status rcvi_jit_compile(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor);
/* The same; go_on, where it is not NULL, is asked by the calling thread before each source that it compiles. RCV_STOPPED where it says no. */
rcv_status rcvi_jit_compile_while(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor,
                                  bool (*go_on)(void *user), void *user);

/* Threads that compile so many programs: one for each, at most one for every core; beside a caller, who computes meanwhile, for every other. */
size_t rcvi_jit_count_threads(size_t programs, int64_t cores, bool beside_caller);

/* Is every source in the cache on disk, so that rcvi_jit_compile compiles nothing? */
bool rcvi_jit_is_compiled(rcv_context *context, const rcvi_jit_unit *units, size_t count, int major, int minor);

/* Loads code into the current device and finds its kernel. */
rcv_status rcvi_jit_load(const void *code, const char *name, size_t shared_bytes, cudaLibrary_t *library,
                         cudaKernel_t *kernel);

/* Name and version of NVRTC, or NULL with a sentence that says why there is none. */
const char *rcvi_jit_name(void);
/* That sentence, or NULL where there is NVRTC. */
const char *rcvi_jit_absence(void);

#endif

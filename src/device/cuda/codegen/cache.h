/* Compiled kernels in the cache on disk (base/cache.h). The key is all that the code depends on. A file that is truncated, damaged or of
 * another key is ignored, and so is one that another user may have written: its code would run on the GPU with access to all memory of
 * this process there, and a checksum detects damage, not intent. Failures of the disk are logged, not returned. */
#ifndef RCVI_CUDA_CACHE_H
#define RCVI_CUDA_CACHE_H

#include "base/cache.h"

/* The cached code, to be freed with rcvi_free, or NULL. */
void rcvi_kernel_cache_read(rcv_context *context, const rcvi_cache_entry *entry, void **code, size_t *bytes);
void rcvi_kernel_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const void *code, size_t bytes);

#endif

/* Compiled kernels on disk, each in a file named by the hash of all that its code depends on. The folder is RECURVE_CACHE, else
 * XDG_CACHE_HOME/recurve, else HOME/.cache/recurve; an empty RECURVE_CACHE turns the cache off. A file that is truncated, damaged or of
 * another key is ignored, and so is one that another user may have written (rcvi_open_trusted): its code would run on the GPU with access
 * to all memory of this process there, and a checksum detects damage, not intent. Failures of the disk are logged, not returned. */
#ifndef RCVI_CUDA_CACHE_H
#define RCVI_CUDA_CACHE_H

#include "base/base.h"

typedef struct {
    uint64_t hash[2];
    size_t key_bytes;
    char *folder, *path; /* NULL: nothing is cached */
} rcvi_cache_entry;

/* The entry for a key of several strings (NULL ends them); fails only without memory. */
rcv_status rcvi_cache_find(rcv_context *context, const char *const *key, rcvi_cache_entry *entry);
void rcvi_cache_drop(rcv_context *context, rcvi_cache_entry *entry);

/* The cached code, to be freed with rcvi_free, or NULL. */
void rcvi_cache_read(rcv_context *context, const rcvi_cache_entry *entry, void **code, size_t *bytes);
void rcvi_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const void *code, size_t bytes);

#endif

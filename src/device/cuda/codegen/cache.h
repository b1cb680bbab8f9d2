/* Compiled kernels on disk, each a file named by the hash of all that its code depends on. The folder is RECURVE_CACHE,
 * else XDG_CACHE_HOME/recurve, else HOME/.cache/recurve; an empty RECURVE_CACHE turns it off. A file that is short,
 * damaged or of another key counts as none, and so does one that another user may have written (rcvi_open_trusted): code of a
 * file runs on the GPU with all that this process has there, and a checksum tells damage, not intent. Nothing that goes wrong with the
 * disk is an error: it is logged. */
#ifndef RCVI_CUDA_CACHE_H
#define RCVI_CUDA_CACHE_H

#include "base/base.h"

typedef struct {
    uint64_t hash[2];
    size_t key_bytes;
    char *folder, *path; /* NULL: nothing is kept */
} rcvi_cache_entry;

/* The entry for a key of several parts (NULL ends them); fails where there is no memory. */
rcv_status rcvi_cache_find(rcv_context *context, const char *const *key, rcvi_cache_entry *entry);
void rcvi_cache_drop(rcv_context *context, rcvi_cache_entry *entry);

/* The code that is kept, to be freed with rcvi_free, or NULL. */
void rcvi_cache_read(rcv_context *context, const rcvi_cache_entry *entry, void **code, size_t *bytes);
void rcvi_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const void *code, size_t bytes);

#endif

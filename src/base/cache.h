/* What is kept on disk from process to process: compiled kernels and wisdom, in one folder, one file an entry, named by the hash of its key.
 *
 * Files are written beside their path and renamed, so a reader sees a whole file or none, however many processes write. A file that another
 * user may have written is not used (rcvi_open_trusted). Whoever reads an entry checks its content. Nothing here fails a caller: what goes
 * wrong with the disk is logged. */
#ifndef RCVI_CACHE_H
#define RCVI_CACHE_H

#include "base/base.h"

/* The folder of the option `cache` of a context, else of RECURVE_CACHE, else XDG_CACHE_HOME/recurve, else HOME/.cache/recurve; NULL where it is
 * "off" or empty, or where there is none. Fails only without memory. */
rcv_status rcvi_cache_folder(rcv_context *context, const char *given, char **folder);

typedef struct {
    uint64_t hash[2]; /* of the key */
    size_t key_bytes;
    char *path; /* NULL: nothing is cached */
} rcvi_cache_entry;

/* Two different hashes, so that keys that collide in one do not in the other. */
void rcvi_cache_hash_begin(uint64_t hash[2]);
void rcvi_cache_hash(uint64_t hash[2], const void *bytes, size_t count);

/* The entry for a key of several strings (NULL ends them); `ending` of its file's name. Fails only without memory. */
rcv_status rcvi_cache_find(rcv_context *context, const char *const *key, const char *ending, rcvi_cache_entry *entry);
void rcvi_cache_drop(rcv_context *context, rcvi_cache_entry *entry);

/* The whole file, to be freed with rcvi_free; NULL where there is none. A failure says why the file cannot be used. */
rcv_status rcvi_cache_read(rcv_context *context, const rcvi_cache_entry *entry, size_t limit, char **bytes,
                           size_t *length);
/* Replaces the file; `what` begins the line that is logged where that fails, once for each context. Makes the folder, and trims it now and
 * then. */
void rcvi_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const char *what, const rcvi_bytes *parts,
                      size_t count);

/* What a folder holds at most after it was trimmed. */
enum { RCVI_CACHE_FILES = 16384, RCVI_CACHE_MIB = 512 };

/* Where the folder has more entries or bytes than this, removes the least recently used ones until three quarters are left. Other files are
 * left alone. */
void rcvi_cache_trim(rcv_context *context, const char *folder, size_t most_files, int64_t most_bytes);

#endif

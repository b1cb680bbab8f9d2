/* Declarations that every module uses: failures with a message, memory of the context, growing text, files, locks and checked arithmetic. */
#ifndef RCVI_BASE_H
#define RCVI_BASE_H

#include "base/limits.h"
#include "recurve.h"

#include <pthread.h>
#include <stdarg.h>

/* Records the message for rcv_message() and returns `status`, so that a caller can `return rcvi_fail(...)`. */
rcv_status rcvi_fail(rcv_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rcv_status rcvi_no_memory(size_t bytes);

rcv_status rcvi_fail_null(const char *function, const char *argument);

/* Refuses a NULL argument of a public function, by the name that recurve.h gives it. */
#define RCVI_NEED(argument, name)                                                                                      \
    do {                                                                                                               \
        if (!(argument)) return rcvi_fail_null(__func__, name);                                                        \
    } while (0)

/* Structs of the public headers begin with a member `size`: the caller's sizeof, of an older or a newer header than this library's.
 *
 * rcvi_struct_read copies such a struct into `to` of `known` bytes. Members that the caller's header does not have are zero; NULL gives zeros. It
 * fails if the size is 0, or if members that this library does not know are not zero. */
rcv_status rcvi_struct_read(const char *function, const char *name, const char *type, const void *given, void *to,
                            size_t known);
/* For structs that the library writes: rcvi_struct_check refuses size 0; rcvi_struct_write writes the bytes that fit into the caller's size. */
rcv_status rcvi_struct_check(const char *function, const char *name, const char *type, const void *given);
void rcvi_struct_write(void *given, const void *from, size_t known);

/* Replaces the caller's pointer to such a struct by a pointer to a local copy, or returns the failure. */
#define RCVI_READ(type, pointer, name)                                                                                 \
    type pointer##_read;                                                                                               \
    do {                                                                                                               \
        rcv_status read_status =                                                                                       \
            rcvi_struct_read(__func__, name, #type, pointer, &pointer##_read, sizeof pointer##_read);                  \
        if (read_status) return read_status;                                                                           \
        (pointer) = &pointer##_read;                                                                                   \
    } while (0)

/* Returns the failure of a call to the caller. */
#define RCVI_TRY(call)                                                                                                 \
    do {                                                                                                               \
        rcv_status try_status = (call);                                                                                \
        if (try_status) return try_status;                                                                             \
    } while (0)

enum { RCVI_MAX_THREADS = 1024 }; /* of a plan */

struct rcv_context {
    rcv_allocator allocator;
    void (*log)(void *user, const char *line);
    void *log_user;
    int64_t threads; /* as given: 0 means one per core */
    char *kernels;   /* as given, or NULL */
    /* cache.h: the folder on disk, or NULL; whether wisdom is read from it and written to it; the last two are guarded by rcvi_global_lock. */
    char *cache;
    bool reads_wisdom, writes_wisdom;
    bool cache_failed; /* a write to it */
    unsigned cache_writes;
    /* Set by module `plan`: its wisdom, and the function that frees it with the context. Both are guarded by rcvi_global_lock. */
    void *wisdom;
    void (*free_wisdom)(rcv_context *context, void *wisdom);
    /* Set by module `plan`: a search runs beside the caller, in the process with this fork generation. Guarded by rcvi_global_lock. */
    bool searching;
    unsigned searching_generation;
};

/* A number that changes in a child of fork(). An object with threads stores it when it is made; a different number later means that the threads
 * do not exist in this process. */
unsigned rcvi_fork_generation(void);
bool rcvi_is_forked(void); /* this process is a child, forked after the library was first used */
/* The library's one global mutex, for short critical sections. fork() acquires it first: a child never inherits it locked, nor the data it
 * guards half changed. */
void rcvi_global_lock(void);
void rcvi_global_unlock(void);

/* Starts a thread with all signals blocked: the program's own threads handle signals. Returns 0, or an error number. */
int rcvi_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

double rcvi_now(void);              /* seconds of the monotonic clock */
int64_t rcvi_cores(void);           /* online cores; at least 1 */
int64_t rcvi_available_cores(void); /* those in the affinity mask of this process */

/* Memory of the context's allocator. `rcvi_new` returns zeroed memory; NULL, with the message recorded, if there is
 * none or if count * size overflows. Zero bytes give a valid pointer. */
void *rcvi_new(rcv_context *context, size_t count, size_t size);
/* The same, not zeroed: for large memory that is written before it is read. */
void *rcvi_allocate(rcv_context *context, size_t bytes);
void rcvi_free(rcv_context *context, void *memory); /* NULL is harmless */
/* Grows `*array` of `*capacity` elements to hold at least `needed`; on failure nothing changes and false is returned.
 */
bool rcvi_grow(rcv_context *context, void *array_pointer, size_t *capacity, size_t needed, size_t size);
char *rcvi_copy_text(rcv_context *context, const char *text, size_t length); /* NUL-terminated copy */
void rcvi_log(rcv_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text that grows. A failed allocation is remembered and reported by rcvi_text_take. */
typedef struct {
    rcv_context *context;
    char *bytes;
    size_t length, capacity;
    bool failed;
} rcvi_text;

void rcvi_text_init(rcvi_text *text, rcv_context *context);
void rcvi_text_add(rcvi_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rcvi_text_add_bytes(rcvi_text *text, const char *bytes, size_t length);
/* The shortest digits that rcvi_read_number reads back as the same number. */
void rcvi_text_add_number(rcvi_text *text, double number);
/* Gives the bytes to the caller (free with rcvi_free) and empties `text`. */
rcv_status rcvi_text_take(rcvi_text *text, char **out);
void rcvi_text_drop(rcvi_text *text);

/* The entry of `names` with the least edit distance to `name`, or NULL if more than a third of its letters differ. */
const char *rcvi_nearest_name(const char *name, const char *const *names, size_t count);

/* Parses a whole text as a number; the decimal separator is a point in every locale. False if it is not a number; the result may be
 * infinite. */
bool rcvi_read_number(const char *text, double *number);

/* Checked arithmetic on sizes: false on overflow or a negative operand. */
bool rcvi_multiply(int64_t a, int64_t b, int64_t *product);
bool rcvi_add(int64_t a, int64_t b, int64_t *sum);

/* a rounded up to a multiple */
static inline int64_t rcvi_round_up(int64_t a, int64_t multiple) { return (a + multiple - 1) / multiple * multiple; }

/* Bytes of a file that are read, hashed or written at a time; also the limit of a word of a text. */
enum { RCVI_FILE_CHUNK = 1 << 18 };
/* Updates `hash` with one more chunk. The hash depends on where the bytes are split: all chunks but the last have RCVI_FILE_CHUNK bytes. */
uint64_t rcvi_hash_chunk(uint64_t hash, const void *bytes, size_t length);

/* Length in bytes of the UTF-8 character that begins at `bytes`, and its code point; 0 if the bytes are not valid UTF-8. Overlong forms,
 * surrogates and code points above U+10FFFF are not valid. */
size_t rcvi_utf8_character(const char *bytes, size_t left, uint32_t *code);

/* The caller's arrays of one call. RCV_INVALID, with both names in the message, if an array that is written overlaps another. */
typedef struct {
    const void *begin; /* NULL: absent */
    size_t bytes;
    const char *name;
    bool written;
} rcvi_range;
rcv_status rcvi_check_overlap(const char *function, const rcvi_range *ranges, size_t count);

/* A whole file in memory, at most `limit` bytes; a trailing NUL is added beyond `*length`. */
rcv_status rcvi_read_file(rcv_context *context, const char *path, size_t limit, char **bytes, size_t *length);
/* Reads an open file; `path` is used in messages. The caller closes it. */
rcv_status rcvi_read_open_file(rcv_context *context, int file, const char *path, size_t limit, char **bytes,
                               size_t *length);
/* Reads `bytes` bytes from offset `from`. RCV_IO if the file has fewer. */
rcv_status rcvi_read_at(int file, const char *path, int64_t from, void *to, size_t bytes);
/* Opens a cache file that this program wrote earlier. `*file` is -1 if there is none. RCV_INVALID if another user may have written it. A
 * trusted file is a regular file that only its owner can write; the owner is this user, or owns the file's folder and is the only one
 * who can write it. */
rcv_status rcvi_open_trusted(rcv_context *context, const char *path, int *file);
/* Opens a regular file for reading in chunks; fails for a folder, a device or a pipe. `*bytes` is its size. */
rcv_status rcvi_open_regular(const char *path, int *file, int64_t *bytes);
/* Replaces a file atomically: writes the concatenated `parts` to a temporary file in the same folder, syncs it and renames it to `path`. */
typedef struct {
    const void *bytes;
    size_t length;
} rcvi_bytes;
rcv_status rcvi_write_file(rcv_context *context, const char *path, const rcvi_bytes *parts, size_t count);
/* The same with these permissions (0: as created); what has the name is replaced, also a link or a pipe. */
rcv_status rcvi_replace_file(rcv_context *context, const char *path, unsigned mode, const rcvi_bytes *parts,
                             size_t count);
/* Creates the temporary file PATH.tmp-PID-N and opens it for reading and writing; returns -1 with errno set on failure. `name` receives its name and
 * has room for 64 bytes more than the path. The file is locked while it is open: the caller renames it before closing it. Temporary
 * files of this path whose process has ended are removed. */
int rcvi_create_temporary(const char *path, char *name, size_t name_bytes);
bool rcvi_sync_file(int file);
/* Makes `to` a hard link to `from`, replacing an older `to`; a copy if the file system has no hard links. */
rcv_status rcvi_link_file(rcv_context *context, const char *from, const char *to);

/* Locks a path: PATH.lock is an empty file, locked until rcvi_unlock_path removes it or the process ends. Different spellings of one path have
 * the same lock. RCV_IO: another process holds it. RCV_UNSUPPORTED: the file system has no locks; none is held. */
typedef struct {
    int file;
    char *name;
} rcvi_file_lock;
rcv_status rcvi_lock_path(rcv_context *context, const char *path, rcvi_file_lock *lock);
void rcvi_unlock_path(rcv_context *context, rcvi_file_lock *lock); /* no effect if it is not held */
bool rcvi_make_parent_folders(
    rcv_context *context, const char *path); /* mkdir -p of its folder; false if the folder does not exist afterwards */
char *rcvi_full_path(rcv_context *context, const char *path); /* realpath(); a copy of `path` if that fails */

#endif

/* What every module stands on: failure with a sentence, memory from the context, growing text. */
#ifndef RCVI_BASE_H
#define RCVI_BASE_H

#include "base/limits.h"
#include "recurve.h"

#include <pthread.h>
#include <stdarg.h>

/* Records the sentence for rcv_message() and returns `status`, so that a caller can `return rcvi_fail(...)`. */
rcv_status rcvi_fail(rcv_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rcv_status rcvi_no_memory(size_t bytes);

rcv_status rcvi_fail_null(const char *function, const char *argument);

/* Refuses a NULL argument of a public function, by the name that recurve.h gives it. */
#define RCVI_NEED(argument, name)                                                                                      \
    do {                                                                                                               \
        if (!(argument)) return rcvi_fail_null(__func__, name);                                                        \
    } while (0)

/* Structs of the public headers with a member `size`, which a program may have compiled with an older or a newer header. */
/* Copies such a struct: members that the caller's header did not have are zero, and NULL gives zeros. Fails where the size is 0, and where members
 * are set that this library does not know. */
rcv_status rcvi_struct_read(const char *function, const char *name, const char *type, const void *given, void *to,
                            size_t known);
/* For structs that the library writes: refuses size 0; writes what fits into the caller's size. */
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

/* Hands a failure on. */
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
    int64_t threads; /* as given: 0 means one a core */
    char *kernels;   /* as given, or NULL */
    /* What a later module keeps here between calls, and how it is freed with the context. Both under rcvi_lock_briefly. */
    void *wisdom;
    void (*free_wisdom)(rcv_context *context, void *wisdom);
};

/* A number that is another one in a child of fork(): what has threads notes it, and finds out that they are gone. */
unsigned rcvi_process(void);
bool rcvi_is_forked(void); /* since the library was first used */
/* The library's one lock for data that threads share. fork() waits for it: a child never finds it locked, nor the data half changed. */
void rcvi_lock_briefly(void);
void rcvi_unlock_briefly(void);

double rcvi_now(void);        /* seconds that never go back */
int64_t rcvi_cores(void);     /* that the operating system runs threads on; at least 1 */
int64_t rcvi_own_cores(void); /* of these, those that this process may run on */

/* Memory of the context's allocator. `rcvi_new` gives zeroed memory; NULL (with the sentence recorded) when there is
 * none or when count * size overflows. Zero bytes give a valid pointer. */
void *rcvi_new(rcv_context *context, size_t count, size_t size);
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
/* Hands the text over (free with rcvi_free) and empties `text`. */
rcv_status rcvi_text_take(rcvi_text *text, char **out);
void rcvi_text_drop(rcvi_text *text);

/* The entry of `names` nearest to `name` in edit distance, or NULL when none is near enough to be meant. */
const char *rcvi_nearest(const char *name, const char *const *names, size_t count);

/* A whole text as a number, with a point whatever the program's locale says. False where it is not one; it may be
 * infinite. */
bool rcvi_read_number(const char *text, double *number);

/* Checked arithmetic on sizes: false on overflow or a negative operand. */
bool rcvi_multiply(int64_t a, int64_t b, int64_t *product);
bool rcvi_add(int64_t a, int64_t b, int64_t *sum);

enum {
    RCVI_PIECE = 1 << 18
}; /* bytes of a file read, hashed or written at a time; the longest word of a text has fewer */
/* Goes on from `hash` with one more piece. The same bytes cut otherwise give another hash: all pieces but the last are RCVI_PIECE long. */
uint64_t rcvi_hash_piece(uint64_t hash, const void *bytes, size_t length);

/* Bytes of the UTF-8 character that begins at `bytes`, and its code point; 0: none does. Overlong forms, surrogates and what lies
 * past U+10FFFF are no characters. */
size_t rcvi_utf8_character(const char *bytes, size_t left, uint32_t *code);

/* The caller's arrays of one call. RCV_INVALID, with both names, where one that is written overlaps another. */
typedef struct {
    const void *begin; /* NULL: absent */
    size_t bytes;
    const char *name;
    bool written;
} rcvi_range;
rcv_status rcvi_check_overlap(const char *function, const rcvi_range *ranges, size_t count);

/* A whole file in memory, at most `limit` bytes; a trailing NUL is added beyond `*length`. */
rcv_status rcvi_read_file(rcv_context *context, const char *path, size_t limit, char **bytes, size_t *length);
/* The same of a file that is open; `path` is used in messages. The caller closes it. */
rcv_status rcvi_read_open_file(rcv_context *context, int file, const char *path, size_t limit, char **bytes,
                               size_t *length);
/* `bytes` bytes from offset `from` on. RCV_IO where there are fewer. */
rcv_status rcvi_read_at(int file, const char *path, int64_t from, void *to, size_t bytes);
/* Opens a cache that this program wrote earlier. `*file` is -1 where there is none. RCV_INVALID, with a sentence, where somebody else may
 * have written it: trusted is a regular file that only its owner can write, and whose owner is this user, or the owner of a folder
 * that nobody else can write. */
rcv_status rcvi_open_trusted(rcv_context *context, const char *path, int *file);
/* Opens a regular file to be read in pieces: neither a folder nor a device nor a pipe. */
rcv_status rcvi_open_regular(const char *path, int *file, int64_t *bytes);
/* Writes beside `path`, syncs, renames over it. The pieces are written one after another. */
typedef struct {
    const void *bytes;
    size_t length;
} rcvi_piece;
rcv_status rcvi_write_file(rcv_context *context, const char *path, const rcvi_piece *pieces, size_t count);
/* For those who write a large file themselves: PATH.tmp-PID-N for reading and writing, its name in `name`, which has room for 64 bytes
 * more than the path; -1 with errno set. It is to be renamed before it is closed: then it is locked as long as it has that name. Those that
 * processes left at this path, which are no more, are removed. */
int rcvi_create_beside(const char *path, char *name, size_t name_bytes);
bool rcvi_sync_file(int file);
/* `from` gets a second name, in the place of what had it; a copy where the file system does not link. */
rcv_status rcvi_keep_file(rcv_context *context, const char *from, const char *to);

/* PATH.lock, an empty file that is locked until rcvi_unlock removes it, or the process ends. Spellings of one path have one lock. RCV_IO: another
 * has it; RCV_UNSUPPORTED: the file system has no locks, and there is none. */
typedef struct {
    int file;
    char *name;
} rcvi_lock;
rcv_status rcvi_lock_beside(rcv_context *context, const char *path, rcvi_lock *lock);
void rcvi_unlock(rcv_context *context, rcvi_lock *lock);          /* one that is not held is harmless */
bool rcvi_make_folder_of(rcv_context *context, const char *path); /* and those above it; false where it is not there */
char *rcvi_full_path(rcv_context *context, const char *path);     /* without links; as given where it leads nowhere */

#endif

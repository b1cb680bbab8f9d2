/* The cache of compiled kernels. A file is one line "recurve kernel 1 HASH KEYBYTES CODEBYTES CHECKSUM", then the code. */
#include "device/cuda/codegen/cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 160 };

/* Two different hashes, so that keys that collide in one do not in the other. */
static void hash_bytes(uint64_t hash[2], const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++) {
        hash[0] = (hash[0] ^ byte[i]) * UINT64_C(0x100000001b3);
        hash[1] = (hash[1] + byte[i] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        hash[1] ^= hash[1] >> 29;
    }
}

static void hash_begin(uint64_t hash[2]) {
    hash[0] = UINT64_C(0xcbf29ce484222325);
    hash[1] = UINT64_C(0x6c62272e07bb0142);
}

static rcv_status join(rcv_context *context, char **path, const char *folder, const char *name) {
    rcvi_text text;
    rcvi_text_init(&text, context);
    rcvi_text_add(&text, "%s/%s", folder, name);
    return rcvi_text_take(&text, path);
}

/* The cache folder; NULL: the cache is off. */
static rcv_status find_folder(rcv_context *context, char **folder) {
    const char *own = getenv("RECURVE_CACHE"), *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *folder = NULL;
    if (own) {
        if (!*own) return RCV_OK;
        *folder = rcvi_copy_text(context, own, strlen(own));
        return *folder ? RCV_OK : RCV_NO_MEMORY;
    }
    if (caches && caches[0] == '/') return join(context, folder, caches, "recurve");
    return home && *home ? join(context, folder, home, ".cache/recurve") : RCV_OK;
}

rcv_status rcvi_cache_find(rcv_context *context, const char *const *key, rcvi_cache_entry *entry) {
    memset(entry, 0, sizeof *entry);
    hash_begin(entry->hash);
    for (; *key; key++) {
        size_t length = strlen(*key) + 1; /* the NUL separates strings */
        hash_bytes(entry->hash, *key, length);
        entry->key_bytes += length;
    }
    RCVI_TRY(find_folder(context, &entry->folder));
    if (!entry->folder) return RCV_OK;
    char name[40];
    snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64, entry->hash[0], entry->hash[1]);
    rcv_status status = join(context, &entry->path, entry->folder, name);
    if (status != RCV_OK) rcvi_cache_drop(context, entry);
    return status;
}

void rcvi_cache_drop(rcv_context *context, rcvi_cache_entry *entry) {
    rcvi_free(context, entry->folder);
    rcvi_free(context, entry->path);
    memset(entry, 0, sizeof *entry);
}

/* The first line of a file with this code. */
static size_t write_line(const rcvi_cache_entry *entry, const void *code, size_t bytes, char line[LINE_BYTES]) {
    uint64_t sum[2];
    hash_begin(sum);
    hash_bytes(sum, code, bytes);
    return (size_t)snprintf(line, LINE_BYTES,
                            "recurve kernel 1 %016" PRIx64 "%016" PRIx64 " %zu %zu %016" PRIx64 "%016" PRIx64 "\n",
                            entry->hash[0], entry->hash[1], entry->key_bytes, bytes, sum[0], sum[1]);
}

void rcvi_cache_read(rcv_context *context, const rcvi_cache_entry *entry, void **code, size_t *bytes) {
    char *file, line[LINE_BYTES];
    size_t length;
    int opened = -1;
    *code = NULL;
    *bytes = 0;
    if (!entry->path) return;
    rcv_status status = rcvi_open_trusted(context, entry->path, &opened);
    if (status == RCV_OK && opened < 0) return;
    if (status == RCV_OK) status = rcvi_read_open_file(context, opened, entry->path, RCVI_LIMIT_KERNEL, &file, &length);
    if (opened >= 0) close(opened);
    if (status != RCV_OK) {
        rcvi_log(context, "a kernel is compiled again: %s", rcv_message());
        return;
    }
    char *end = memchr(file, '\n', length);
    size_t begin = end ? (size_t)(end - file) + 1 : 0;
    size_t expected = end ? write_line(entry, file + begin, length - begin, line) : 0;
    if (!end || begin == length || expected != begin || memcmp(line, file, begin) != 0) {
        rcvi_log(context, "a kernel is compiled again: %s is damaged, or of another version", entry->path);
    } else {
        *code = rcvi_new(context, length - begin, 1);
        if (*code) memcpy(*code, file + begin, length - begin);
        if (*code) *bytes = length - begin;
    }
    rcvi_free(context, file);
}

/* Creates the folder and its parents. */
static bool make_folder(rcv_context *context, const char *folder) {
    char *path = rcvi_copy_text(context, folder, strlen(folder));
    if (!path) return false;
    bool good = true;
    for (char *c = path; good && *c; c++) {
        if (c == path || *c != '/') continue;
        *c = '\0';
        good = mkdir(path, 0700) == 0 || errno == EEXIST || errno == EISDIR || errno == EROFS || errno == EACCES;
        *c = '/';
    }
    good = good && (mkdir(path, 0700) == 0 || errno == EEXIST);
    if (!good) rcvi_fail(RCV_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    rcvi_free(context, path);
    return good;
}

void rcvi_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const void *code, size_t bytes) {
    if (!entry->path) return;
    char line[LINE_BYTES];
    rcvi_bytes pieces[] = {{line, write_line(entry, code, bytes, line)}, {code, bytes}};
    if (!make_folder(context, entry->folder) || rcvi_write_file(context, entry->path, pieces, 2) != RCV_OK)
        rcvi_log(context, "a compiled kernel is not cached: %s", rcv_message());
    else
        (void)chmod(entry->path, 0600); /* whatever the umask: files that others can write are not trusted */
}

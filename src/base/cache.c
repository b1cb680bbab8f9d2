/* The cache on disk: its folder, its files, and how they are bounded.
 *
 * The time of modification of a file is that of its last use, to a day. So the oldest are the least recently used. */
#define _XOPEN_SOURCE 700 /* futimens */

#include "base/cache.h"
#include "recurve_bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DAY = 24 * 60 * 60, NAME_DIGITS = 32, NAME_ROOM = 96, WRITES_PER_TRIM = 64 };

/* ---- the folder ---- */

static rcv_status join(rcv_context *context, char **path, const char *folder, const char *name) {
    rcvi_text text;
    rcvi_text_init(&text, context);
    rcvi_text_add(&text, "%s/%s", folder, name);
    return rcvi_text_take(&text, path);
}

rcv_status rcvi_cache_folder(rcv_context *context, const char *given, char **folder) {
    const char *own = given ? given : getenv("RECURVE_CACHE");
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *folder = NULL;
    if (own) {
        if (!*own || !strcmp(own, "off")) return RCV_OK;
        *folder = rcvi_copy_text(context, own, strlen(own));
        return *folder ? RCV_OK : RCV_NO_MEMORY;
    }
    if (caches && caches[0] == '/') return join(context, folder, caches, "recurve");
    if (home && home[0] == '/') return join(context, folder, home, ".cache/recurve");
    rcvi_log(context, "nothing is cached: there is no home directory; name a folder by RECURVE_CACHE");
    return RCV_OK;
}

/* Creates the folder and its parents. */
static bool make_folder(rcv_context *context, const char *folder) {
    struct stat info;
    if (stat(folder, &info) == 0 && S_ISDIR(info.st_mode)) return true;
    char *path = rcvi_copy_text(context, folder, strlen(folder));
    if (!path) return false;
    for (char *c = path + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        (void)mkdir(path, 0700); /* the last one says whether it worked */
        *c = '/';
    }
    bool good = mkdir(path, 0700) == 0 || (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    if (!good) rcvi_fail(RCV_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    rcvi_free(context, path);
    return good;
}

/* ---- entries ---- */

void rcvi_cache_hash_begin(uint64_t hash[2]) {
    hash[0] = UINT64_C(0xcbf29ce484222325);
    hash[1] = UINT64_C(0x6c62272e07bb0142);
}

void rcvi_cache_hash(uint64_t hash[2], const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++) {
        hash[0] = (hash[0] ^ byte[i]) * UINT64_C(0x100000001b3);
        hash[1] = (hash[1] + byte[i] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        hash[1] ^= hash[1] >> 29;
    }
}

rcv_status rcvi_cache_find(rcv_context *context, const char *const *key, const char *ending, rcvi_cache_entry *entry) {
    memset(entry, 0, sizeof *entry);
    rcvi_cache_hash_begin(entry->hash);
    for (; *key; key++) {
        size_t length = strlen(*key) + 1; /* the NUL separates strings */
        rcvi_cache_hash(entry->hash, *key, length);
        entry->key_bytes += length;
    }
    if (!context->cache) return RCV_OK;
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64 "%s", entry->hash[0], entry->hash[1], ending);
    return join(context, &entry->path, context->cache, name);
}

void rcvi_cache_drop(rcv_context *context, rcvi_cache_entry *entry) {
    rcvi_free(context, entry->path);
    memset(entry, 0, sizeof *entry);
}

/* Notes the use of an open file, at most once a day. */
static void note_use(int file) {
    struct stat info;
    if (fstat(file, &info) == 0 && time(NULL) - info.st_mtime > DAY) (void)futimens(file, NULL);
}

rcv_status rcvi_cache_read(rcv_context *context, const rcvi_cache_entry *entry, size_t limit, char **bytes,
                           size_t *length) {
    int file = -1;
    *bytes = NULL;
    *length = 0;
    if (!entry->path) return RCV_OK;
    RCVI_TRY(rcvi_open_trusted(context, entry->path, &file));
    if (file < 0) return RCV_OK;
    rcv_status status = rcvi_read_open_file(context, file, entry->path, limit, bytes, length);
    if (!status) note_use(file);
    close(file);
    return status;
}

/* True for the first failure of a context: one line of the log says it, not one for every file. */
static bool fails_first(rcv_context *context) {
    rcvi_global_lock();
    bool first = !context->cache_failed;
    context->cache_failed = true;
    rcvi_global_unlock();
    return first;
}

static bool is_time_to_trim(rcv_context *context) {
    rcvi_global_lock();
    bool due = context->cache_writes++ % WRITES_PER_TRIM == 0;
    rcvi_global_unlock();
    return due;
}

void rcvi_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const char *what, const rcvi_bytes *parts,
                      size_t count) {
    if (!entry->path) return;
    /* 0600 whatever the umask: files that others can write are not trusted. */
    if (!make_folder(context, context->cache) ||
        rcvi_replace_file(context, entry->path, 0600, parts, count) != RCV_OK) {
        if (fails_first(context)) rcvi_log(context, "%s is not cached: %s", what, rcv_message());
        return;
    }
    if (is_time_to_trim(context))
        rcvi_cache_trim(context, context->cache, RCVI_CACHE_FILES, (int64_t)RCVI_CACHE_MIB << 20);
}

/* ---- the bound ---- */

typedef struct {
    char name[NAME_ROOM];
    struct timespec used;
    int64_t bytes;
} kept_file;

typedef struct {
    kept_file *files;
    size_t count, capacity;
    int64_t bytes;
} listing;

/* name = 32 hexadecimal digits [ ".wisdom" ] [ ".tmp-" anything ] */
static bool is_entry(const char *name, bool *temporary) {
    static const char wisdom[] = ".wisdom", unfinished[] = ".tmp-";
    if (strspn(name, "0123456789abcdef") != NAME_DIGITS || strlen(name) >= NAME_ROOM) return false;
    name += NAME_DIGITS;
    if (!strncmp(name, wisdom, strlen(wisdom))) name += strlen(wisdom);
    *temporary = !strncmp(name, unfinished, strlen(unfinished));
    return *temporary || !*name;
}

/* The entries of this user. Temporary files of a day ago are removed: their process was killed. */
static void list_files(rcv_context *context, DIR *folder, listing *out) {
    const time_t yesterday = time(NULL) - DAY;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        bool temporary;
        if (!is_entry(entry->d_name, &temporary) ||
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode) ||
            info.st_uid != geteuid())
            continue;
        if (temporary) {
            if (info.st_mtime < yesterday) (void)unlinkat(dirfd(folder), entry->d_name, 0);
            continue;
        }
        if (!rcvi_grow(context, &out->files, &out->capacity, out->count + 1, sizeof *out->files)) return;
        kept_file *file = &out->files[out->count++];
        memcpy(file->name, entry->d_name, strlen(entry->d_name) + 1); /* is_entry: it fits */
        file->used = info.st_mtim;
        file->bytes = info.st_size;
        out->bytes += info.st_size;
    }
}

static int compare_uses(const void *a, const void *b) {
    const struct timespec *x = &((const kept_file *)a)->used, *y = &((const kept_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void rcvi_cache_trim(rcv_context *context, const char *folder, size_t most_files, int64_t most_bytes) {
    DIR *open = opendir(folder);
    if (!open) return;
    listing all = {0};
    list_files(context, open, &all);
    if (all.count > most_files || all.bytes > most_bytes) {
        qsort(all.files, all.count, sizeof *all.files, compare_uses);
        size_t left = all.count;
        for (size_t i = 0; i < all.count && (left > most_files / 4 * 3 || all.bytes > most_bytes / 4 * 3); i++) {
            (void)unlinkat(dirfd(open), all.files[i].name, 0); /* another process may have removed it */
            all.bytes -= all.files[i].bytes;
            left--;
        }
        rcvi_log(context, "the cache in %s was trimmed to %zu files of %lld bytes", folder, left, (long long)all.bytes);
    }
    rcvi_free(context, all.files);
    closedir(open);
}

/* ---- for users ---- */

/* Looks at one file; the first that is not trusted becomes *problem. */
static rcv_status look_at_file(rcv_context *context, const char *folder, const char *name, rcv_cache *cache,
                               char **problem) {
    char *path = NULL;
    struct stat info;
    int file = -1;
    RCVI_TRY(join(context, &path, folder, name));
    if (lstat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        cache->files++;
        cache->bytes += info.st_size;
        if (rcvi_open_trusted(context, path, &file) != RCV_OK) {
            cache->untrusted++;
            if (!*problem) *problem = rcvi_copy_text(context, rcv_message(), strlen(rcv_message()));
        }
        if (file >= 0) close(file);
    }
    rcvi_free(context, path);
    return RCV_OK;
}

/* Can files be made in the folder, or the folder itself in the nearest one that is there? */
static bool is_writable(rcv_context *context, const char *folder) {
    char *path = rcvi_copy_text(context, folder, strlen(folder));
    bool good = false;
    for (char *slash = path; path && slash;) {
        good = access(path, W_OK | X_OK) == 0;
        slash = access(path, F_OK) == 0 ? NULL : strrchr(path, '/');
        if (slash == path) break; /* of a folder in /, which the system made */
        if (slash) *slash = '\0';
    }
    rcvi_free(context, path);
    return good;
}

static rcv_status describe_folder(rcv_context *context, const char *folder, rcv_cache *cache, char **problem) {
    rcv_status status = RCV_OK;
    DIR *open = opendir(folder);
    for (const struct dirent *entry; open && !status && (entry = readdir(open));)
        status = look_at_file(context, folder, entry->d_name, cache, problem);
    if (open) closedir(open);
    cache->writable = is_writable(context, folder);
    if (status || cache->writable || *problem) return status;
    rcvi_text text;
    rcvi_text_init(&text, context);
    rcvi_text_add(&text, "the folder %s cannot be written: name another one by RECURVE_CACHE", folder);
    return rcvi_text_take(&text, problem);
}

rcv_status rcv_cache_describe(rcv_context *context, rcv_cache *cache, char **folder, char **problem) {
    if (folder) *folder = NULL;
    if (problem) *problem = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(cache, "cache");
    RCVI_NEED(folder, "folder");
    RCVI_NEED(problem, "problem");
    RCVI_TRY(rcvi_struct_check(__func__, "cache", "rcv_cache", cache));
    rcv_cache found = {.size = sizeof found, .most_bytes = (int64_t)RCVI_CACHE_MIB << 20};
    char *copy = NULL, *sentence = NULL;
    if (context->cache) {
        copy = rcvi_copy_text(context, context->cache, strlen(context->cache));
        rcv_status status = copy ? describe_folder(context, copy, &found, &sentence) : RCV_NO_MEMORY;
        if (status) {
            rcvi_free(context, sentence);
            rcvi_free(context, copy);
            return status;
        }
    }
    *folder = copy;
    *problem = sentence;
    rcvi_struct_write(cache, &found, sizeof found);
    return RCV_OK;
}

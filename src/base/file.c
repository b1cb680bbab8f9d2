/* Reading and writing of whole files. Writes are atomic: after a failure the file has its old content. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_retrying(const char *path, int flags, mode_t mode) {
    int file;
    do file = open(path, flags | O_CLOEXEC, mode);
    while (file < 0 && errno == EINTR);
    return file;
}

/* Reads to the end of the file into `text`; the size that the system reports may be wrong, or 0 (a pipe). */
static rcv_status read_all(int file, const char *path, size_t limit, size_t expected, rcvi_text *text) {
    enum { CHUNK = 65536 };
    size_t room = expected > CHUNK ? expected : CHUNK;
    for (;;) {
        if (!rcvi_grow(text->context, &text->bytes, &text->capacity, text->length + room + 1, 1))
            return rcvi_no_memory(text->length + room + 1);
        ssize_t got = read(file, text->bytes + text->length, text->capacity - text->length - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return RCV_OK;
        text->length += (size_t)got;
        if (text->length > limit) return rcvi_fail(RCV_FORMAT, "%s has more than the %zu bytes allowed", path, limit);
        room = text->capacity - text->length > 1 ? 0 : CHUNK;
    }
}

rcv_status rcvi_read_open_file(rcv_context *context, int file, const char *path, size_t limit, char **bytes,
                               size_t *length) {
    *bytes = NULL;
    *length = 0;
    struct stat info;
    rcv_status status = RCV_OK;
    rcvi_text text;
    rcvi_text_init(&text, context);
    if (fstat(file, &info) != 0)
        status = rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = rcvi_fail(RCV_IO, "%s is a directory, not a file", path);
    else if (info.st_size > 0 && (uintmax_t)info.st_size > limit)
        status =
            rcvi_fail(RCV_FORMAT, "%s has %jd bytes, more than the %zu allowed", path, (intmax_t)info.st_size, limit);
    else
        status = read_all(file, path, limit, info.st_size > 0 ? (size_t)info.st_size + 1 : 0, &text);
    size_t total = text.length;
    if (status == RCV_OK)
        status = rcvi_text_take(&text, bytes);
    else
        rcvi_text_drop(&text);
    if (status == RCV_OK) *length = total;
    return status;
}

rcv_status rcvi_read_file(rcv_context *context, const char *path, size_t limit, char **bytes, size_t *length) {
    *bytes = NULL;
    *length = 0;
    int file = open_retrying(path, O_RDONLY, 0);
    if (file < 0) return rcvi_fail(RCV_IO, "cannot open %s: %s", path, strerror(errno));
    rcv_status status = rcvi_read_open_file(context, file, path, limit, bytes, length);
    close(file);
    return status;
}

rcv_status rcvi_read_at(int file, const char *path, int64_t from, void *to, size_t bytes) {
    for (char *at = to; bytes > 0;) {
        size_t part = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
        ssize_t got = pread(file, at, part, from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return rcvi_fail(RCV_IO, "%s became shorter while it was read", path);
        at += got;
        from += got;
        bytes -= (size_t)got;
    }
    return RCV_OK;
}

static bool write_all(int file, const char *bytes, size_t length) {
    while (length > 0) {
        /* Linux writes at most about 2^31 bytes a call; asking for less keeps every system's return value in range. */
        size_t part = length < ((size_t)1 << 30) ? length : (size_t)1 << 30;
        ssize_t written = write(file, bytes, part);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        if (written == 0) {
            errno = ENOSPC;
            return false;
        }
        bytes += written;
        length -= (size_t)written;
    }
    return true;
}

bool rcvi_sync_file(int file) {
    int result;
    do result = fsync(file);
    while (result != 0 && errno == EINTR);
    /* Some file systems have nothing to sync and return one of these. */
    return result == 0 || errno == EINVAL || errno == ENOTSUP;
}

bool rcvi_make_parent_folders(rcv_context *context, const char *path) {
    char *folder = rcvi_copy_text(context, path, strlen(path));
    if (!folder) return false;
    bool there = true;
    for (char *c = folder + (path[0] != '\0'); *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        there = mkdir(folder, 0700) == 0 || errno == EEXIST || errno == EISDIR;
        *c = '/';
    }
    rcvi_free(context, folder);
    return there;
}

char *rcvi_full_path(rcv_context *context, const char *path) {
    char *full = realpath(path, NULL);
    char *copy = rcvi_copy_text(context, full ? full : path, strlen(full ? full : path));
    free(full);
    return copy;
}

/* Makes a rename durable; a directory that cannot be synced is not a failure. */
static void sync_directory_of(char *name) {
    char *slash = strrchr(name, '/');
    if (slash == name)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    int directory = open_retrying(slash ? name : ".", O_RDONLY | O_DIRECTORY, 0);
    if (directory < 0) return;
    (void)fsync(directory);
    close(directory);
}

static bool write_parts(int file, const rcvi_bytes *parts, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!write_all(file, parts[i].bytes, parts[i].length)) return false;
    return rcvi_sync_file(file);
}

/* For devices and pipes, which cannot be replaced by a rename. */
static rcv_status write_in_place(const char *path, const rcvi_bytes *parts, size_t count) {
    int file = open_retrying(path, O_WRONLY, 0);
    bool good = file >= 0;
    for (size_t i = 0; i < count && good; i++) good = write_all(file, parts[i].bytes, parts[i].length);
    int reason = errno;
    if (file >= 0) close(file);
    return good ? RCV_OK : rcvi_fail(RCV_IO, "cannot write %s: %s", path, strerror(reason));
}

rcv_status rcvi_replace_file(rcv_context *context, const char *path, unsigned mode, const rcvi_bytes *parts,
                             size_t count) {
    size_t name_bytes = strlen(path) + 64;
    char *name = rcvi_new(context, name_bytes, 1);
    if (!name) return RCV_NO_MEMORY;
    rcv_status status = RCV_OK;
    int file = rcvi_create_temporary(path, name, name_bytes);
    if (file < 0) {
        status = rcvi_fail(RCV_IO, "cannot write %s: %s", path, strerror(errno));
    } else {
        bool good = write_parts(file, parts, count);
        if (good && mode != 0) (void)fchmod(file, mode);
        if (!good || rename(name, path) != 0) {
            status = rcvi_fail(RCV_IO, "cannot write %s: %s", path, strerror(errno));
            (void)unlink(name);
        } else {
            sync_directory_of(name);
        }
        close(file); /* after the rename: until then its lock marks it as in use */
    }
    rcvi_free(context, name);
    return status;
}

rcv_status rcvi_write_file(rcv_context *context, const char *path, const rcvi_bytes *parts, size_t count) {
    if (path[0] == '\0') return rcvi_fail(RCV_IO, "cannot write to an empty path");
    struct stat info;
    if (stat(path, &info) != 0) return rcvi_replace_file(context, path, 0, parts, count);
    if (S_ISDIR(info.st_mode)) return rcvi_fail(RCV_IO, "cannot write %s: it is a directory, not a file", path);
    if (access(path, W_OK) != 0) return rcvi_fail(RCV_IO, "cannot write %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return write_in_place(path, parts, count);
    /* The target of a symbolic link is replaced, not the link. */
    char *target = realpath(path, NULL);
    if (!target) return rcvi_fail(RCV_IO, "cannot write %s: %s", path, strerror(errno));
    rcv_status status = rcvi_replace_file(context, target, info.st_mode & 0777, parts, count);
    free(target);
    return status;
}

rcv_status rcv_file_save(rcv_context *context, const char *path, const void *bytes, size_t length) {
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(bytes || length == 0, "bytes");
    const rcvi_bytes part = {bytes, length};
    return rcvi_write_file(context, path, &part, 1);
}

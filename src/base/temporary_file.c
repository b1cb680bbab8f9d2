/* Temporary files for atomic writes (write, sync, rename), hard links, and lock files.
 *
 * A temporary file is locked (flock) while it is written. A temporary file that can be locked and whose process has ended is stale: a process
 * crashed while writing it. Stale files of a path are removed when the path is written again. On a file system without locks nothing is
 * removed. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TEMPORARY[] = ".tmp-", LOCK[] = ".lock";

static int open_retrying(const char *path, int flags) {
    int file;
    do file = open(path, flags | O_CLOEXEC, 0666);
    while (file < 0 && errno == EINTR);
    return file;
}

static bool lock(int file, int how) {
    int result;
    do result = flock(file, how);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/* Whether the open file still has this name. */
static bool has_name(int file, const char *name) {
    struct stat own, named;
    return fstat(file, &own) == 0 && lstat(name, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

/* ---- stale temporary files ---- */

/* number = digit { digit }, at most 18 digits; NULL if there is none */
static const char *read_digits(const char *at, long *number) {
    int digits = 0;
    for (*number = 0; *at >= '0' && *at <= '9' && digits < 18; at++, digits++) *number = *number * 10 + (*at - '0');
    return digits ? at : NULL;
}

/* NAME.tmp-PID-N of a process that has ended. */
static bool is_stale(const char *entry, const char *name, size_t length) {
    long process, number;
    if (strncmp(entry, name, length) || strncmp(entry + length, TEMPORARY, strlen(TEMPORARY))) return false;
    const char *at = read_digits(entry + length + strlen(TEMPORARY), &process);
    if (at && *at == '-') at = read_digits(at + 1, &number);
    return at && !*at && process > 0 && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void remove_stale_file(int folder, const char *entry) {
    struct stat info;
    int file = openat(folder, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && lock(file, LOCK_EX | LOCK_NB))
        (void)unlinkat(folder, entry, 0);
    close(file);
}

/* Changes `path` temporarily and restores it before it returns. */
static void remove_stale_files(char *path) {
    char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (slash) *slash = '\0';
    DIR *folder = opendir(!slash ? "." : slash == path ? "/" : path);
    if (slash) *slash = '/';
    if (!folder) return;
    size_t length = strlen(name);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (is_stale(entry->d_name, name, length)) remove_stale_file(dirfd(folder), entry->d_name);
    closedir(folder);
}

/* ---- temporary files ---- */

int rcvi_create_temporary(const char *path, char *name, size_t name_bytes) {
    int reason = errno;
    snprintf(name, name_bytes, "%s", path);
    remove_stale_files(name);
    errno = reason;
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(name, name_bytes, "%s%s%ld-%d", path, TEMPORARY, (long)getpid(), attempt);
        int file = open_retrying(name, O_RDWR | O_CREAT | O_EXCL);
        if (file < 0 && errno != EEXIST) return file;
        if (file < 0) continue;
        (void)lock(file, LOCK_EX); /* without locks no process removes stale files */
        if (has_name(file, name)) return file;
        close(file); /* another process removed it as stale before it was locked */
    }
    return -1;
}

/* Makes a hard link to `from` under a new temporary name of `path`. */
static int link_temporary(const char *from, const char *path, char *name, size_t name_bytes) {
    snprintf(name, name_bytes, "%s", path);
    remove_stale_files(name);
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(name, name_bytes, "%s%s%ld-%d", path, TEMPORARY, (long)getpid(), attempt);
        if (linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0) return 0;
        if (errno != EEXIST) return -1;
    }
    return -1;
}

static bool copy_bytes(int from, int to) {
    enum { PART = 1 << 16 };
    char part[PART];
    for (;;) {
        ssize_t got = read(from, part, sizeof part);
        if (got == 0) return true;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = write(to, part + done, (size_t)(got - done));
            if (put < 0 && errno != EINTR) return false;
            if (put > 0) done += put;
        }
    }
}

/* For file systems without hard links: copies the bytes and syncs them. */
static bool copy_file(const char *from, const char *to, char *name, size_t name_bytes) {
    int source = open_retrying(from, O_RDONLY);
    if (source < 0) return false;
    int file = rcvi_create_temporary(to, name, name_bytes);
    bool good = file >= 0 && copy_bytes(source, file) && rcvi_sync_file(file) && rename(name, to) == 0;
    int reason = errno;
    if (file >= 0 && !good) (void)unlink(name);
    if (file >= 0) close(file);
    close(source);
    errno = reason;
    return good;
}

rcv_status rcvi_link_file(rcv_context *context, const char *from, const char *to) {
    size_t name_bytes = strlen(to) + 64;
    char *name = rcvi_new(context, name_bytes, 1);
    if (!name) return RCV_NO_MEMORY;
    bool good = false;
    if (link_temporary(from, to, name, name_bytes) == 0) {
        good = rename(name, to) == 0;
        int reason = errno;
        (void)unlink(name); /* rename failed, or did nothing because both names are the same file */
        errno = reason;
    } else if (errno != ENOENT) {
        good = copy_file(from, to, name, name_bytes);
    }
    rcvi_free(context, name);
    return good ? RCV_OK : rcvi_fail(RCV_IO, "cannot copy %s to %s: %s", from, to, strerror(errno));
}

/* ---- locks ---- */

/* The absolute path without symbolic links: of the file, or, if it does not exist, of its folder with the file's name. */
static char *resolve_path(rcv_context *context, const char *path) {
    const char *slash = strrchr(path, '/');
    char *full = realpath(path, NULL), *folder = NULL, *resolved = NULL;
    rcvi_text text;
    rcvi_text_init(&text, context);
    if (full) {
        rcvi_text_add(&text, "%s", full);
    } else {
        folder = slash ? rcvi_copy_text(context, path, (size_t)(slash - path) + 1) : rcvi_copy_text(context, ".", 1);
        full = folder ? realpath(folder, NULL) : NULL;
        if (folder) rcvi_text_add(&text, "%s/%s", full ? full : folder, slash ? slash + 1 : path);
    }
    bool good = full || folder;
    rcvi_free(context, folder);
    free(full);
    if (good && !rcvi_text_take(&text, &resolved)) return resolved;
    rcvi_text_drop(&text);
    return NULL;
}

/* RCV_OK with *held >= 0: locked. RCV_OK with *held < 0: another process removed the lock file meanwhile; the caller tries again. */
static rcv_status try_lock(const char *path, const char *name, int *held) {
    int file = open_retrying(name, O_RDWR | O_CREAT | O_NOFOLLOW);
    struct stat info;
    rcv_status status = RCV_OK;
    *held = -1;
    if (file < 0)
        return rcvi_fail(RCV_IO, "cannot write %s: cannot open its lock file %s: %s", path, name, strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != 0)
        status = rcvi_fail(RCV_IO, "cannot lock %s: %s exists and is not a lock file; move it away", path, name);
    else if (lock(file, LOCK_EX | LOCK_NB))
        *held = has_name(file, name) ? file : -1;
    else if (errno == EWOULDBLOCK)
        status = rcvi_fail(RCV_IO, "another process writes %s: wait for its end, or choose another path", path);
    else
        status = rcvi_fail(RCV_UNSUPPORTED,
                           "%s lies on a file system without locks (%s): nothing keeps another "
                           "process from writing it at the same time",
                           path, strerror(errno));
    if (status == RCV_UNSUPPORTED) (void)unlink(name);
    if (*held < 0) close(file);
    return status;
}

rcv_status rcvi_lock_path(rcv_context *context, const char *path, rcvi_file_lock *held) {
    *held = (rcvi_file_lock){.file = -1};
    char *resolved = resolve_path(context, path);
    rcvi_text text;
    if (!resolved) return RCV_NO_MEMORY;
    rcvi_text_init(&text, context);
    rcvi_text_add(&text, "%s%s", resolved, LOCK);
    rcvi_free(context, resolved);
    RCVI_TRY(rcvi_text_take(&text, &held->name));
    rcv_status status = RCV_OK;
    while (!status && held->file < 0) status = try_lock(path, held->name, &held->file);
    if (status) rcvi_unlock_path(context, held);
    return status;
}

void rcvi_unlock_path(rcv_context *context, rcvi_file_lock *held) {
    if (held->name && held->file >= 0) {
        (void)unlink(held->name);
        close(held->file);
    }
    rcvi_free(context, held->name);
    *held = (rcvi_file_lock){.file = -1};
}

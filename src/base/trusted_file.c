/* Opening of cache files that no other user can have written, and of regular files. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHERS_WRITE = S_IWGRP | S_IWOTH };

/* O_NONBLOCK: opening a pipe does not wait for a writer. */
static int open_to_read(const char *path, int flags) {
    int file;
    do file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    while (file < 0 && errno == EINTR);
    return file;
}

rcv_status rcvi_open_regular(const char *path, int *file, int64_t *bytes) {
    struct stat info;
    *file = open_to_read(path, 0);
    if (*file < 0) return rcvi_fail(RCV_IO, "cannot open %s: %s", path, strerror(errno));
    rcv_status status = RCV_OK;
    if (fstat(*file, &info) != 0)
        status = rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = rcvi_fail(RCV_IO, "%s is a directory, not a file", path);
    else if (!S_ISREG(info.st_mode))
        status = rcvi_fail(RCV_IO, "%s is a pipe or a device, not a regular file; copy it into one", path);
    if (status) {
        close(*file);
        *file = -1;
    } else {
        *bytes = info.st_size;
    }
    return status;
}

/* stat() of the folder of a path. */
static bool stat_folder(rcv_context *context, const char *path, struct stat *info) {
    const char *slash = strrchr(path, '/');
    if (!slash) return stat(".", info) == 0;
    char *folder = rcvi_copy_text(context, path, slash == path ? 1 : (size_t)(slash - path));
    bool good = folder && stat(folder, info) == 0;
    rcvi_free(context, folder);
    return good;
}

static rcv_status check_trust(rcv_context *context, const char *path, const struct stat *info) {
    struct stat folder;
    if (!S_ISREG(info->st_mode)) return rcvi_fail(RCV_INVALID, "%s is not used: it is not a regular file", path);
    if (info->st_mode & OTHERS_WRITE)
        return rcvi_fail(RCV_INVALID,
                         "%s is not used: others than its owner can write it; remove that permission with chmod go-w",
                         path);
    if (info->st_uid == geteuid()) return RCV_OK;
    if (stat_folder(context, path, &folder) && folder.st_uid == info->st_uid && !(folder.st_mode & OTHERS_WRITE))
        return RCV_OK;
    return rcvi_fail(RCV_INVALID,
                     "%s is not used: it belongs to another user (%lu), and others than that user can write its folder",
                     path, (unsigned long)info->st_uid);
}

rcv_status rcvi_open_trusted(rcv_context *context, const char *path, int *file) {
    struct stat info;
    *file = open_to_read(path, O_NOFOLLOW);
    if (*file < 0) return RCV_OK;
    rcv_status status = fstat(*file, &info) == 0 ? check_trust(context, path, &info)
                                                 : rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
    if (status) {
        close(*file);
        *file = -1;
    }
    return status;
}

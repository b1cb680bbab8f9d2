/* An open file that is read in parts with pread(), and detection of changes. Files are not mapped: truncating a mapped file during a run would kill the
 * process with SIGBUS; here it is a failure with a message. The page cache of the system makes repeated reads fast. */
#include "data/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

rcv_status rcvi_stamp_file(int file, const char *path, rcvi_stamp *stamp) {
    struct stat info;
    if (fstat(file, &info) != 0) return rcvi_fail(RCV_IO, "cannot read %s: %s", path, strerror(errno));
    *stamp = (rcvi_stamp){info.st_size, (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    return RCV_OK;
}

rcv_status rcvi_check_stamp(int file, const char *path, const rcvi_stamp *then) {
    rcvi_stamp now = {0};
    RCVI_TRY(rcvi_stamp_file(file, path, &now));
    if (now.bytes == then->bytes && now.seconds == then->seconds && now.nanoseconds == then->nanoseconds) return RCV_OK;
    return rcvi_fail(RCV_IO, "%s changed while it was read; start again, and do not change the file during the run",
                     path);
}

struct rcvi_data_file {
    rcv_context *context;
    int file;
    char *path;
    rcvi_stamp stamp;
};

rcv_status rcvi_data_file_new(rcv_context *context, int file, const char *path, const rcvi_stamp *stamp,
                              rcvi_data_file **out) {
    *out = NULL;
    rcvi_data_file *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    *made =
        (rcvi_data_file){.context = context, .file = dup(file), .path = rcvi_copy_text(context, path, strlen(path))};
    rcv_status status = !made->path ? RCV_NO_MEMORY
                        : made->file < 0
                            ? rcvi_fail(RCV_IO, "cannot duplicate the descriptor of %s: %s", path, strerror(errno))
                        : stamp ? RCV_OK
                                : rcvi_stamp_file(file, path, &made->stamp);
    if (stamp) made->stamp = *stamp;
    if (status)
        rcvi_data_file_free(made);
    else
        *out = made;
    return status;
}

rcv_status rcvi_data_file_copy(const rcvi_data_file *file, rcvi_data_file **copy) {
    return rcvi_data_file_new(file->context, file->file, file->path, &file->stamp, copy);
}

void rcvi_data_file_free(rcvi_data_file *file) {
    if (!file) return;
    if (file->file >= 0) close(file->file);
    rcvi_free(file->context, file->path);
    rcvi_free(file->context, file);
}

rcv_status rcvi_data_file_read(const rcvi_data_file *file, int64_t from, void *to, size_t bytes) {
    return rcvi_read_at(file->file, file->path, from, to, bytes);
}

rcv_status rcvi_data_file_check(const rcvi_data_file *file) {
    return rcvi_check_stamp(file->file, file->path, &file->stamp);
}

rcv_status rcvi_data_file_fail_changed(const rcvi_data_file *file) {
    return rcvi_fail(RCV_IO,
                     "%s changed while it was read: it contains numbers that it did not contain when it was opened",
                     file->path);
}

/* A file that stays open and is read in parts. Nothing of it is mapped: a file that somebody cuts short or edits while a run reads it ends
 * the run with a sentence, where a mapping would end the process. What was read of it stays in the system's cache. */
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
    return rcvi_fail(RCV_IO, "%s changed while it was read; start again with a file that stays as it is", path);
}

struct rcvi_data_file {
    rcv_context *context;
    int file;
    char *path;
    rcvi_stamp stamp;
};

rcv_status rcvi_data_file_new(rcv_context *context, int file, const char *path, const rcvi_stamp *stamp,
                              rcvi_data_file **kept) {
    *kept = NULL;
    rcvi_data_file *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    *made =
        (rcvi_data_file){.context = context, .file = dup(file), .path = rcvi_copy_text(context, path, strlen(path))};
    rcv_status status = !made->path      ? RCV_NO_MEMORY
                        : made->file < 0 ? rcvi_fail(RCV_IO, "cannot keep %s open: %s", path, strerror(errno))
                        : stamp          ? RCV_OK
                                         : rcvi_stamp_file(file, path, &made->stamp);
    if (stamp) made->stamp = *stamp;
    if (status)
        rcvi_data_file_free(made);
    else
        *kept = made;
    return status;
}

void rcvi_data_file_free(rcvi_data_file *kept) {
    if (!kept) return;
    if (kept->file >= 0) close(kept->file);
    rcvi_free(kept->context, kept->path);
    rcvi_free(kept->context, kept);
}

rcv_status rcvi_data_file_read(const rcvi_data_file *kept, int64_t from, void *to, size_t bytes) {
    return rcvi_read_at(kept->file, kept->path, from, to, bytes);
}

rcv_status rcvi_data_file_check(const rcvi_data_file *kept) {
    return rcvi_check_stamp(kept->file, kept->path, &kept->stamp);
}

rcv_status rcvi_data_file_fail_changed(const rcvi_data_file *kept) {
    return rcvi_fail(RCV_IO, "%s changed while it was read: it holds numbers that it did not when it was opened",
                     kept->path);
}

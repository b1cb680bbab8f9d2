#define _XOPEN_SOURCE 700 /* realpath */

#include "output_file.h"

#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

/* Creates the file beside its target, with the rights of the file that it replaces. */
static bool create(output_file *output) {
    struct stat info;
    char *target = realpath(output->path, NULL);
    output->target = target != NULL ? target : text_of("%s", output->path);
    output->temporary = text_of("%s.tmp-%ld-0", output->target, (long)getpid());
    output->file = open(output->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output->file >= 0 && stat(output->target, &info) == 0) {
        (void)fchmod(output->file, info.st_mode & 0777);
    }
    return output->file >= 0;
}

static void release(output_file *output) {
    if (output->path != NULL && output->file >= 0) {
        close(output->file);
    }
    free(output->target);
    free(output->temporary);
    free(output);
}

output_file *output_file_open(const char *path) {
    output_file *output = need(1, sizeof *output);
    output->path = path;
    output->file = STDOUT_FILENO;
    if (path != NULL && !create(output)) {
        say("cannot write %s: %s", path, strerror(errno));
        release(output);
        return NULL;
    }
    return output;
}

/* ---- writing ---- */

static void write_bytes(output_file *output, const char *bytes, size_t length) {
    while (length > 0 && output->error == 0) {
        const ssize_t put = write(output->file, bytes, length);
        if (put > 0) {
            bytes += put;
            length -= (size_t)put;
        } else if (put == 0 || errno != EINTR) {
            output->error = put == 0 ? EIO : errno;
        }
    }
}

bool output_file_flush(output_file *output) {
    write_bytes(output, output->buffer, output->used);
    output->used = 0;
    return output->error == 0;
}

void output_file_write(output_file *output, const void *bytes, size_t length) {
    if (length > OUTPUT_BUFFER - output->used) {
        output_file_flush(output);
    }
    if (length > OUTPUT_BUFFER) {
        write_bytes(output, bytes, length);
        return;
    }
    memcpy(output->buffer + output->used, bytes, length);
    output->used += length;
}

void output_file_rewrite(output_file *output, const void *bytes, size_t length) {
    if (output_file_flush(output) && pwrite(output->file, bytes, length, 0) != (ssize_t)length) {
        output->error = errno != 0 ? errno : EIO;
    }
}

/* ---- the end ---- */

static bool finish_file(output_file *output, bool keep) {
    if (keep && output->error == 0 && fsync(output->file) != 0 && errno != EINVAL) {
        output->error = errno;
    }
    if (keep && output->error == 0 && rename(output->temporary, output->target) == 0) {
        return true;
    }
    const int error = output->error != 0 ? output->error : errno;
    (void)unlink(output->temporary);
    if (keep) {
        say("cannot write %s: %s", output->path, strerror(error));
    }
    return !keep;
}

bool output_file_close(output_file *output, bool keep) {
    if (output == NULL) {
        return true;
    }
    output_file_flush(output);
    bool good = true;
    if (output->path != NULL) {
        good = finish_file(output, keep);
    } else if (output->error != 0 && output->error != EPIPE) {
        say("cannot write to standard output: %s", strerror(output->error));
        good = false;
    }
    release(output);
    return good;
}

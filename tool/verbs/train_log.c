#include "verbs/train_log.h"

#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void train_log_begin(train_log *log, const rcv_settings *settings, const char *output, bool resumes) {
    const char *given = rcv_settings_get(settings, "log");
    *log = (train_log){.file = -1, .resumes = resumes};
    log->path = given != NULL && given[0] != '\0' ? text_of("%s", given)
                                                  : text_of("%.*s.jsonl", (int)path_stem(output), output);
}

bool train_log_is_free(const train_log *log, bool overwrite) {
    struct stat info;
    if (!output_is_free(log->path, OUTPUT_LOG)) {
        return false;
    }
    if (log->resumes || overwrite || stat(log->path, &info) != 0 || info.st_size == 0) {
        return true;
    }
    say("the log %s exists: resume the run, choose another path (--log), or replace it (--overwrite)", log->path);
    return false;
}

/* ---- writing ---- */

/* Removes an incomplete last line, which a killed run may have left. */
static bool cut_partial_line(int file) {
    char block[4096];
    const off_t end = lseek(file, 0, SEEK_END);
    off_t whole = 0;
    for (off_t at = end; at > 0 && whole == 0;) {
        const off_t length = at < (off_t)sizeof block ? at : (off_t)sizeof block;
        at -= length;
        if (pread(file, block, (size_t)length, at) != (ssize_t)length) {
            return false;
        }
        for (off_t i = length; i > 0 && whole == 0; i--) {
            whole = block[i - 1] == '\n' ? at + i : 0;
        }
    }
    return end >= 0 && (whole == end || ftruncate(file, whole) == 0) && lseek(file, whole, SEEK_SET) >= 0;
}

static bool open_file(train_log *log) {
    if (!log->opened) {
        log->file = open(log->path, O_RDWR | O_CREAT | O_CLOEXEC | (log->resumes ? 0 : O_TRUNC), 0666);
        log->opened = true;
        if (log->file >= 0 && log->resumes && !cut_partial_line(log->file)) {
            close(log->file);
            log->file = -1;
        }
    }
    return log->file >= 0;
}

/* Writes the whole line or nothing. */
static bool write_line(int file, const char *line) {
    char *text = text_of("%s\n", line);
    const size_t length = strlen(text);
    const off_t begin = lseek(file, 0, SEEK_END);
    size_t done = 0;
    bool good = begin >= 0;
    while (good && done < length) {
        const ssize_t more = write(file, text + done, length - done);
        good = more > 0 || (more < 0 && errno == EINTR);
        done += more > 0 ? (size_t)more : 0;
    }
    const int reason = errno;
    if (!good && begin >= 0 && ftruncate(file, begin) != 0) {
        errno = reason;
    }
    free(text);
    errno = reason;
    return good;
}

bool train_log_line(train_log *log, const char *line) {
    if (open_file(log) && write_line(log->file, line)) {
        return true;
    }
    const bool is_first = !log->failed;
    log->failed = true;
    return !is_first;
}

void train_log_failure(const train_log *log) {
    say("cannot write the log %s: %s; training continues, and the log will miss lines", log->path, strerror(errno));
}

bool train_log_end(train_log *log) {
    if (log->opened && log->file >= 0 && close(log->file) != 0 && !log->failed) {
        say("cannot write the log %s: %s", log->path, strerror(errno));
        log->failed = true;
    }
    free(log->path);
    log->path = NULL;
    log->opened = false;
    return !log->failed;
}

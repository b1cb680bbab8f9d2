/* Reading the files of training logs, block by block, and on from where the last call ended.
 *
 * Every line is looked at: plain progress and validation lines by scan_line, all others by jansson. Several files are read at a time, so nothing
 * in here prints: what is wrong with a file is kept in it, and the first in the order of the files is said. */
#include "report/training/training_log.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, MOST_THREADS = 8, WORTH_A_THREAD = 8 << 20 }; /* bytes; bytes of several files that are new */

/* ---- lines ---- */

static bool is_blank(const char *text, const char *end) {
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\r')) {
        text++;
    }
    return text == end;
}

/* jansson does not notice every failed allocation while it reads. If it reads the line twice with equal results, they are complete. */
static json_t *read_json(const char *text, size_t length, json_error_t *error) {
    json_t *line = json_loadb(text, length, 0, error),
           *again = line != NULL ? json_loadb(text, length, 0, error) : NULL;
    if (line != NULL && !json_equal(line, again)) {
        json_decref(line);
        line = NULL;
        snprintf(error->text, sizeof error->text, "there is no memory to read it");
    }
    json_decref(again);
    return line;
}

typedef enum {
    LINE_READ,
    LINE_WRONG,
    LINE_BROKEN
} line_state; /* broken: it is not JSON, as a line that is cut short */

/* Handles a line; a newline stands at `end`. Otherwise `wrong` says what is wrong with it. */
static line_state add_line(training_log *log, const char *text, const char *end, line_shape *shape, char wrong[256]) {
    log_row row;
    const scanned event = scan_line(text, end, &row, shape);
    if (event != SCANNED_NOTHING) {
        const char *reason = log_add_row(log, event, &row);
        snprintf(wrong, 256, "%s", reason != NULL ? reason : "");
        return reason != NULL ? LINE_WRONG : LINE_READ;
    }
    json_error_t error;
    json_t *line = read_json(text, (size_t)(end - text), &error);
    const char *reason = line != NULL ? log_add_line(log, line) : error.text;
    snprintf(wrong, 256, "%s", reason != NULL ? reason : "");
    const line_state state = line == NULL ? LINE_BROKEN : reason != NULL ? LINE_WRONG : LINE_READ;
    json_decref(line);
    return state;
}

/* ---- blocks ---- */

typedef struct {
    log_file *file;
    char *bytes; /* [capacity + 1 + SCAN_PADDING] */
    size_t length, capacity;
    size_t newlines; /* before the bytes */
    size_t broken;   /* number of the first line that is not JSON; 0: none. It is an error if another line follows */
    char reason[256];
    line_shape shape;
} reader;

static void set_wrong(log_file *file, size_t line, const char *reason) {
    file->wrong = text_of("%s:%zu: not a line of a training log: %s", file->path, line, reason);
}

/* Handles a line that ends at `end`. False if the file is wrong. */
static bool take_line(reader *reader, const char *text, const char *end) {
    const size_t number = reader->newlines + 1;
    if (is_blank(text, end)) {
        return true;
    }
    if (reader->broken > 0) {
        set_wrong(reader->file, reader->broken, reader->reason);
        return false;
    }
    char wrong[256];
    const line_state state = add_line(&reader->file->log, text, end, &reader->shape, wrong);
    if (state == LINE_WRONG) {
        set_wrong(reader->file, number, wrong);
    } else if (state == LINE_BROKEN) {
        reader->broken = number;
        snprintf(reader->reason, sizeof reader->reason, "%s", wrong);
    }
    return state != LINE_WRONG;
}

/* The file is read on from here; a broken line is read again then. */
static void advance(reader *reader, size_t bytes, size_t newlines) {
    reader->newlines += newlines;
    if (reader->broken == 0) {
        reader->file->offset += (int64_t)bytes;
        reader->file->newlines = reader->newlines;
    }
}

/* Handles all complete lines, and keeps the rest. */
static bool take_lines(reader *reader) {
    char *at = reader->bytes, *const last = reader->bytes + reader->length;
    for (char *end; (end = memchr(at, '\n', (size_t)(last - at))) != NULL; at = end + 1) {
        if (!take_line(reader, at, end)) {
            return false;
        }
        advance(reader, (size_t)(end + 1 - at), 1);
    }
    reader->length = (size_t)(last - at);
    memmove(reader->bytes, at, reader->length);
    return true;
}

/* Makes room for another block behind a line that is not complete. */
static bool make_room(reader *reader) {
    if (reader->capacity - reader->length >= BLOCK) {
        return true;
    }
    if (reader->length > LIMIT_LINE) {
        reader->file->wrong = text_of("%s:%zu: the line has more than the %zu bytes allowed", reader->file->path,
                                      reader->newlines + 1, LIMIT_LINE);
        return false;
    }
    const size_t capacity = reader->capacity > 0 ? 2 * reader->capacity : 2 * (size_t)BLOCK;
    char *longer = realloc(reader->bytes, capacity + 1 + SCAN_PADDING);
    if (longer == NULL) {
        reader->file->wrong = text_of("no memory for a line of %zu bytes of %s", reader->length, reader->file->path);
        return false;
    }
    reader->bytes = longer;
    reader->capacity = capacity;
    return true;
}

/* The last line, which has no newline. */
static bool take_rest(reader *reader) {
    char *const end = reader->bytes + reader->length;
    if (reader->length == 0) {
        return true;
    }
    *end = '\n';
    if (!take_line(reader, reader->bytes, end)) {
        return false;
    }
    advance(reader, reader->length, 0);
    return true;
}

static bool read_blocks(reader *reader, int handle) {
    for (;;) {
        if (!make_room(reader)) {
            return false;
        }
        const ssize_t more = read(handle, reader->bytes + reader->length, BLOCK);
        if (more < 0 && errno == EINTR) {
            continue;
        }
        if (more < 0) {
            reader->file->wrong = text_of("cannot read all of %s: %s", reader->file->path, strerror(errno));
            return false;
        }
        if (more == 0) {
            return take_rest(reader);
        }
        reader->length += (size_t)more;
        if (!take_lines(reader)) {
            return false;
        }
    }
}

/* ---- the file ---- */

static void begin_again(log_file *file) {
    log_free(&file->log);
    file->offset = 0;
    file->newlines = 0;
}

/* Is it a regular file? Begins again if it is another file than before. */
static bool check_file(log_file *file, int handle) {
    struct stat info;
    if (fstat(handle, &info) != 0) {
        file->wrong = text_of("cannot read %s: %s", file->path, strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        file->wrong = text_of("%s is a directory; give the log of a training run, a file", file->path);
    } else if (!S_ISREG(info.st_mode)) {
        file->wrong = text_of("%s is not a regular file; copy the log into a regular file", file->path);
    } else {
        if (file->exists && (file->place != (int64_t)info.st_ino || info.st_size < file->offset)) {
            begin_again(file);
        }
        file->exists = true;
        file->place = (int64_t)info.st_ino;
        file->size = info.st_size;
        return true;
    }
    return false;
}

static void read_on(log_file *file) {
    const int handle = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (handle < 0) {
        file->wrong =
            errno == ENOENT && file->waits ? NULL : text_of("cannot open %s: %s", file->path, strerror(errno));
        return;
    }
    if (check_file(file, handle) && file->size > file->offset) {
        reader reader = {.file = file, .newlines = file->newlines};
        if (lseek(handle, (off_t)file->offset, SEEK_SET) < 0) {
            file->wrong = text_of("cannot read %s: %s", file->path, strerror(errno));
        } else {
            read_blocks(&reader, handle);
        }
        free(reader.bytes);
    }
    close(handle);
}

bool log_file_read(log_file *file) {
    const int64_t before = file->offset;
    if (file->wrong != NULL) {
        return false;
    }
    read_on(file);
    if (file->wrong != NULL && before > 0) { /* it may have been replaced and be longer by now */
        free(file->wrong);
        file->wrong = NULL;
        begin_again(file);
        read_on(file);
    }
    return file->wrong == NULL && file->offset != before;
}

void log_file_check(log_file *file) {
    const training_log *log = &file->log;
    const bool any = log->start != NULL || log->progress.count > 0 || log->validations.count > 0;
    if (file->wrong != NULL || any) {
        return;
    }
    file->wrong = file->size == 0
                      ? text_of("%s is empty: a training log has at least one line", file->path)
                      : text_of("%s has no start, no progress and no validation: it is not a training log", file->path);
}

void log_file_free(log_file *file) {
    log_free(&file->log);
    free(file->wrong);
    *file = (log_file){0};
}

/* ---- several files ---- */

typedef struct {
    log_file *files;
    size_t count;
    atomic_size_t next;
    atomic_bool changed;
} queue;

static void *read_queue(void *shared) {
    queue *queue = shared;
    for (size_t i; (i = atomic_fetch_add(&queue->next, 1)) < queue->count;) {
        if (log_file_read(&queue->files[i])) {
            atomic_store(&queue->changed, true);
        }
    }
    return NULL;
}

/* Is there so much to read that more threads are sooner done? */
static bool need_threads(const log_file *files, size_t count) {
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        bytes += stat(files[i].path, &info) == 0 ? (int64_t)info.st_size - files[i].offset : 0;
    }
    return bytes > WORTH_A_THREAD;
}

bool log_files_read(log_file *files, size_t count) {
    queue queue = {.files = files, .count = count};
    pthread_t threads[MOST_THREADS];
    const long cores = need_threads(files, count) ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    size_t started = 0;
    json_object_seed(0); /* jansson does this with the first object, and not safely where threads do it at once */
    while (started + 1 < count && (long)started + 1 < cores && started < MOST_THREADS - 1 &&
           pthread_create(&threads[started], NULL, read_queue, &queue) == 0) {
        started++;
    }
    read_queue(&queue); /* without threads this reads all */
    for (size_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return queue.changed;
}

bool log_read(training_log *log, const char *path) {
    log_file file = {.path = path};
    *log = (training_log){0};
    log_file_read(&file);
    log_file_check(&file);
    if (file.wrong != NULL) {
        say("%s", file.wrong);
        log_file_free(&file);
        return false;
    }
    *log = file.log;
    return true;
}

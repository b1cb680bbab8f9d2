/* A text read in pieces: hashed, split into words, split into lines. */
#include "data/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

rcv_status rcvi_text_file_open(rcv_context *context, const char *path, rcvi_text_file *source) {
    *source = (rcvi_text_file){.context = context, .path = path, .capacity = 2 * RCVI_FILE_CHUNK};
    rcv_status status = rcvi_open_regular(path, &source->file, &source->bytes);
    if (status) {
        *source = (rcvi_text_file){0};
        return status;
    }
    source->buffer = rcvi_new(context, source->capacity, 1);
    status = source->buffer ? rcvi_stamp_file(source->file, path, &source->stamp) : RCV_NO_MEMORY;
    if (status) rcvi_text_file_close(source);
    return status;
}

rcv_status rcvi_text_file_check(const rcvi_text_file *source) {
    return rcvi_check_stamp(source->file, source->path, &source->stamp);
}

void rcvi_text_file_close(rcvi_text_file *source) {
    if (!source->context) return;
    close(source->file);
    rcvi_free(source->context, source->buffer);
    *source = (rcvi_text_file){0};
}

/* Fills the buffer from the end of what it holds, up to `most` bytes more; `*got` of 0 is the end. */
static rcv_status fill(rcvi_text_file *source, size_t most, size_t *got) {
    *got = 0;
    while (*got < most) {
        int64_t from = source->offset + (int64_t)source->filled;
        ssize_t part = pread(source->file, source->buffer + source->filled, most - *got, from);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return rcvi_fail(RCV_IO, "cannot read %s: %s", source->path, strerror(errno));
        if (part == 0) break;
        source->filled += (size_t)part;
        *got += (size_t)part;
    }
    return RCV_OK;
}

static void rewind_source(rcvi_text_file *source) {
    source->offset = 0;
    source->filled = 0;
}

/* Forgets the first `count` bytes of the buffer. */
static void drop(rcvi_text_file *source, size_t count) {
    memmove(source->buffer, source->buffer + count, source->filled - count);
    source->filled -= count;
    source->offset += (int64_t)count;
}

rcv_status rcvi_text_file_chunks(rcvi_text_file *source, rcvi_visit *visit, void *user) {
    size_t got;
    rewind_source(source);
    do {
        RCVI_TRY(fill(source, RCVI_FILE_CHUNK, &got));
        RCVI_TRY(visit(user, source->buffer, got, source->offset));
        drop(source, got);
    } while (got == RCVI_FILE_CHUNK);
    return RCV_OK;
}

static rcv_status hash_piece(void *user, const char *bytes, size_t length, int64_t place) {
    uint64_t *hash = user;
    (void)place;
    *hash = rcvi_hash_chunk(*hash, bytes, length);
    return RCV_OK;
}

rcv_status rcvi_text_file_hash(rcvi_text_file *source, uint64_t *hash) {
    *hash = 0;
    RCVI_TRY(rcvi_text_file_chunks(source, hash_piece, hash));
    return rcvi_text_file_check(source);
}

/* ---- UTF-8 ---- */

size_t rcvi_utf8_prefix(const char *bytes, size_t length) {
    size_t at = 0, step = 1;
    uint32_t code;
    while (at < length && (step = rcvi_utf8_character(bytes + at, length - at, &code)) > 0) at += step;
    return at < length ? at : length;
}

/* ---- words ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Visits what is complete in `bytes`, which begin at `place` of the text; a word that ends where they end is complete only where they
 * are `all` that is left. `*used` bytes are done with. */
static rcv_status split(const char *bytes, size_t length, bool all, int64_t place, const char *name, rcvi_visit *visit,
                        void *user, size_t *used) {
    size_t at = 0;
    while (at < length) {
        if (bytes[at] == '\n') RCVI_TRY(visit(user, NULL, 0, place + (int64_t)at));
        if (is_space(bytes[at])) {
            at++;
            continue;
        }
        size_t from = at;
        unsigned char bits = 0;
        for (; at < length && !is_space(bytes[at]); at++) bits |= (unsigned char)bytes[at];
        if (at == length && !all) {
            *used = from;
            return RCV_OK;
        }
        const char *zero =
            memchr(bytes + from, '\0', at - from); /* models keep words as a text, which would end there */
        if (zero)
            return rcvi_fail(RCV_FORMAT, "%s has a NUL at byte %lld; a text of any bytes is read at byte level", name,
                             (long long)place + (zero - bytes));
        size_t good = bits & 0x80 ? rcvi_utf8_prefix(bytes + from, at - from) : at - from;
        const int64_t wrong = place + (int64_t)from + (int64_t)good;
        if (good < at - from)
            return rcvi_fail(RCV_FORMAT, "%s is not UTF-8 at byte %lld; a text of any bytes is read at byte level",
                             name, (long long)wrong);
        RCVI_TRY(visit(user, bytes + from, at - from, place + (int64_t)from));
    }
    *used = at;
    return RCV_OK;
}

rcv_status rcvi_text_words(const char *bytes, size_t length, const char *name, rcvi_visit *visit, void *user) {
    size_t used;
    RCVI_TRY(split(bytes, length, true, 0, name, visit, user, &used));
    return length > 0 && bytes[length - 1] != '\n' ? visit(user, NULL, 0, (int64_t)length) : RCV_OK;
}

rcv_status rcvi_text_file_words(rcvi_text_file *source, rcvi_visit *visit, void *user) {
    char last = '\n';
    size_t got, used = 0;
    bool ended = false;
    rewind_source(source);
    while (!ended) {
        if (source->filled > RCVI_FILE_CHUNK)
            return rcvi_fail(RCV_FORMAT, "%s has a word of more than %d bytes at byte %lld", source->path,
                             RCVI_FILE_CHUNK, (long long)source->offset);
        RCVI_TRY(fill(source, source->capacity - source->filled, &got));
        if (got > 0) last = source->buffer[source->filled - 1];
        ended = source->filled < source->capacity;
        RCVI_TRY(split(source->buffer, source->filled, ended, source->offset, source->path, visit, user, &used));
        drop(source, used);
    }
    return last == '\n' ? RCV_OK : visit(user, NULL, 0, source->offset);
}

/* ---- lines ---- */

/* Room for at least a piece more, so that a line fits that is longer than the buffer. */
static rcv_status make_room(rcvi_text_file *source, size_t longest, int64_t line) {
    if (source->filled > longest)
        return rcvi_fail(RCV_FORMAT, "%s: line %lld has more than %zu bytes", source->path, (long long)line, longest);
    if (source->capacity - source->filled >= RCVI_FILE_CHUNK) return RCV_OK;
    return rcvi_grow(source->context, &source->buffer, &source->capacity, source->capacity + RCVI_FILE_CHUNK, 1)
               ? RCV_OK
               : RCV_NO_MEMORY;
}

rcv_status rcvi_text_file_lines(rcvi_text_file *source, size_t longest, rcvi_visit *visit, void *user) {
    size_t got, searched = 0; /* bytes of the buffer known to hold no newline */
    int64_t line = 1;
    rewind_source(source);
    do {
        RCVI_TRY(make_room(source, longest, line));
        RCVI_TRY(fill(source, RCVI_FILE_CHUNK, &got));
        size_t from = 0;
        const char *end;
        while (searched < source->filled &&
               (end = memchr(source->buffer + searched, '\n', source->filled - searched)) != NULL) {
            size_t length = (size_t)(end - source->buffer) - from;
            RCVI_TRY(visit(user, source->buffer + from, length, source->offset + (int64_t)from));
            from += length + 1;
            searched = from;
            line++;
        }
        drop(source, from);
        searched = source->filled;
    } while (got == RCVI_FILE_CHUNK);
    return source->filled > 0 ? visit(user, source->buffer, source->filled, source->offset) : RCV_OK;
}

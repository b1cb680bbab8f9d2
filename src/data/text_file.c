/* A text file read in chunks: hashed, split into words, or split into lines. */
#include "data/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

rcv_status rcvi_text_file_open(rcv_context *context, const char *path, rcvi_text_file *text) {
    *text = (rcvi_text_file){.context = context, .path = path, .capacity = 2 * RCVI_FILE_CHUNK};
    rcv_status status = rcvi_open_regular(path, &text->file, &text->bytes);
    if (status) {
        *text = (rcvi_text_file){0};
        return status;
    }
    text->buffer = rcvi_new(context, text->capacity, 1);
    status = text->buffer ? rcvi_stamp_file(text->file, path, &text->stamp) : RCV_NO_MEMORY;
    if (status) rcvi_text_file_close(text);
    return status;
}

rcv_status rcvi_text_file_check(const rcvi_text_file *text) {
    return rcvi_check_stamp(text->file, text->path, &text->stamp);
}

void rcvi_text_file_close(rcvi_text_file *text) {
    if (!text->context) return;
    close(text->file);
    rcvi_free(text->context, text->buffer);
    *text = (rcvi_text_file){0};
}

/* Appends up to `most` bytes of the file to the buffer; *got == 0 at the end of the file. */
static rcv_status read_more(rcvi_text_file *text, size_t most, size_t *got) {
    *got = 0;
    while (*got < most) {
        int64_t from = text->offset + (int64_t)text->filled;
        ssize_t part = pread(text->file, text->buffer + text->filled, most - *got, from);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return rcvi_fail(RCV_IO, "cannot read %s: %s", text->path, strerror(errno));
        if (part == 0) break;
        text->filled += (size_t)part;
        *got += (size_t)part;
    }
    return RCV_OK;
}

static void rewind_text(rcvi_text_file *text) {
    text->offset = 0;
    text->filled = 0;
}

/* Removes the first `count` bytes of the buffer. */
static void remove_bytes(rcvi_text_file *text, size_t count) {
    memmove(text->buffer, text->buffer + count, text->filled - count);
    text->filled -= count;
    text->offset += (int64_t)count;
}

rcv_status rcvi_text_file_chunks(rcvi_text_file *text, rcvi_visit *visit, void *user) {
    size_t got;
    rewind_text(text);
    do {
        RCVI_TRY(read_more(text, RCVI_FILE_CHUNK, &got));
        RCVI_TRY(visit(user, text->buffer, got, text->offset));
        remove_bytes(text, got);
    } while (got == RCVI_FILE_CHUNK);
    return RCV_OK;
}

rcv_status rcvi_text_file_parts(rcvi_text_file *text, rcvi_visit_part *visit, void *user) {
    size_t got, used = 0;
    bool ended = false;
    rewind_text(text);
    while (!ended) {
        if (text->filled > RCVI_FILE_CHUNK)
            return rcvi_fail(RCV_FORMAT, "%s has a word of more than %d bytes at byte %lld", text->path,
                             RCVI_FILE_CHUNK, (long long)text->offset);
        RCVI_TRY(read_more(text, text->capacity - text->filled, &got));
        ended = text->filled < text->capacity;
        RCVI_TRY(visit(user, text->buffer, text->filled, ended, text->offset, &used));
        remove_bytes(text, used);
    }
    return RCV_OK;
}

static rcv_status hash_chunk(void *user, const char *bytes, size_t length, int64_t offset) {
    uint64_t *hash = user;
    (void)offset;
    *hash = rcvi_hash_chunk(*hash, bytes, length);
    return RCV_OK;
}

rcv_status rcvi_text_file_hash(rcvi_text_file *text, uint64_t *hash) {
    *hash = 0;
    RCVI_TRY(rcvi_text_file_chunks(text, hash_chunk, hash));
    return rcvi_text_file_check(text);
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

/* Visits the complete words and line ends of `bytes`, which begin at `offset` of the text. A word at the end of `bytes` is complete only if they
 * are `all` the rest of the text. *used: bytes that were processed. */
static rcv_status split_words(const char *bytes, size_t length, bool all, int64_t offset, const char *name,
                              rcvi_visit *visit, void *user, size_t *used) {
    size_t at = 0;
    while (at < length) {
        if (bytes[at] == '\n') RCVI_TRY(visit(user, NULL, 0, offset + (int64_t)at));
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
        const char *zero = memchr(bytes + from, '\0', at - from); /* models store words as C strings */
        if (zero)
            return rcvi_fail(RCV_FORMAT, "%s has a NUL at byte %lld; a text of any bytes is read at byte level", name,
                             (long long)offset + (zero - bytes));
        size_t good = bits & 0x80 ? rcvi_utf8_prefix(bytes + from, at - from) : at - from;
        const int64_t wrong = offset + (int64_t)from + (int64_t)good;
        if (good < at - from)
            return rcvi_fail(RCV_FORMAT, "%s is not UTF-8 at byte %lld; a text of any bytes is read at byte level",
                             name, (long long)wrong);
        RCVI_TRY(visit(user, bytes + from, at - from, offset + (int64_t)from));
    }
    *used = at;
    return RCV_OK;
}

rcv_status rcvi_text_words(const char *bytes, size_t length, const char *name, rcvi_visit *visit, void *user) {
    size_t used;
    RCVI_TRY(split_words(bytes, length, true, 0, name, visit, user, &used));
    return length > 0 && bytes[length - 1] != '\n' ? visit(user, NULL, 0, (int64_t)length) : RCV_OK;
}

rcv_status rcvi_text_file_words(rcvi_text_file *text, rcvi_visit *visit, void *user) {
    char last = '\n';
    size_t got, used = 0;
    bool ended = false;
    rewind_text(text);
    while (!ended) {
        if (text->filled > RCVI_FILE_CHUNK)
            return rcvi_fail(RCV_FORMAT, "%s has a word of more than %d bytes at byte %lld", text->path,
                             RCVI_FILE_CHUNK, (long long)text->offset);
        RCVI_TRY(read_more(text, text->capacity - text->filled, &got));
        if (got > 0) last = text->buffer[text->filled - 1];
        ended = text->filled < text->capacity;
        RCVI_TRY(split_words(text->buffer, text->filled, ended, text->offset, text->path, visit, user, &used));
        remove_bytes(text, used);
    }
    return last == '\n' ? RCV_OK : visit(user, NULL, 0, text->offset);
}

/* ---- lines ---- */

/* Grows the buffer by a chunk if needed, for a line that is longer than the buffer. */
static rcv_status make_room(rcvi_text_file *text, size_t longest, int64_t line) {
    if (text->filled > longest)
        return rcvi_fail(RCV_FORMAT, "%s: line %lld has more than %zu bytes", text->path, (long long)line, longest);
    if (text->capacity - text->filled >= RCVI_FILE_CHUNK) return RCV_OK;
    return rcvi_grow(text->context, &text->buffer, &text->capacity, text->capacity + RCVI_FILE_CHUNK, 1)
               ? RCV_OK
               : RCV_NO_MEMORY;
}

rcv_status rcvi_text_file_lines(rcvi_text_file *text, size_t longest, rcvi_visit *visit, void *user) {
    size_t got, searched = 0; /* bytes of the buffer known to hold no newline */
    int64_t line = 1;
    rewind_text(text);
    do {
        RCVI_TRY(make_room(text, longest, line));
        RCVI_TRY(read_more(text, RCVI_FILE_CHUNK, &got));
        size_t from = 0;
        const char *end;
        while (searched < text->filled &&
               (end = memchr(text->buffer + searched, '\n', text->filled - searched)) != NULL) {
            size_t length = (size_t)(end - text->buffer) - from;
            RCVI_TRY(visit(user, text->buffer + from, length, text->offset + (int64_t)from));
            from += length + 1;
            searched = from;
            line++;
        }
        remove_bytes(text, from);
        searched = text->filled;
    } while (got == RCVI_FILE_CHUNK);
    return text->filled > 0 ? visit(user, text->buffer, text->filled, text->offset) : RCV_OK;
}

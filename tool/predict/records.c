#include "records.h"

#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART = 1 << 16 };
static const size_t BLOCK = (size_t)1 << 22; /* so many bytes are read ahead at most, unless one record has more */

/* ---- whole records ---- */

static void add_record(record_reader *r, size_t begin, int64_t line) {
    if (r->count == r->room) {
        const size_t room = r->room > 0 ? 2 * r->room : 1024;
        record *larger = need(room, sizeof *larger);
        if (r->count > 0) {
            memcpy(larger, r->records, r->count * sizeof *larger);
        }
        free(r->records);
        r->records = larger;
        r->room = room;
    }
    r->records[r->count++] = (record){begin, line};
}

static bool is_blank(const char *text, size_t length) {
    size_t at = 0;
    while (at < length && (text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r'))) {
        at++;
    }
    return at == length;
}

/* The end of the record that begins at `scanned`, after its newline; 0: it is not whole. */
static size_t find_end(record_reader *r) {
    for (size_t at = r->scanned + r->searched; at < r->length; at++) {
        if (r->buffer[at] == '"' && r->is_table) {
            r->is_quoted = !r->is_quoted;
        } else if (r->buffer[at] == '\n') {
            r->searched_lines++;
            if (!r->is_quoted) {
                return at + 1;
            }
        }
    }
    r->searched = r->length - r->scanned;
    return r->has_ended && r->scanned < r->length ? r->length : 0;
}

static void scan(record_reader *r) {
    for (size_t end; (end = find_end(r)) > 0; r->scanned = end) {
        if (r->keeps_blank || !is_blank(r->buffer + r->scanned, end - r->scanned)) {
            add_record(r, r->scanned, r->scanned_line);
        }
        r->scanned_line += r->searched_lines;
        r->searched_lines = 0;
        r->searched = 0;
        r->is_quoted = false;
    }
}

void records_join_quoted(record_reader *r) {
    r->is_table = true;
    r->count = r->scanned = r->searched = 0;
    r->searched_lines = 0;
    r->scanned_line = 1;
    scan(r);
}

size_t records_end(const record_reader *r, size_t index) {
    return index + 1 < r->count ? r->records[index + 1].begin : r->scanned;
}

void records_drop(record_reader *r, size_t count) {
    const size_t bytes = count < r->count ? r->records[count].begin : r->scanned;
    memmove(r->buffer, r->buffer + bytes, r->length - bytes);
    r->length -= bytes;
    r->scanned -= bytes;
    r->count -= count;
    memmove(r->records, r->records + count, r->count * sizeof *r->records);
    for (size_t i = 0; i < r->count; i++) {
        r->records[i].begin -= bytes;
    }
}

void records_free(record_reader *r) {
    free(r->buffer);
    free(r->records);
    *r = (record_reader){.has_ended = true};
}

/* ---- reading ---- */

static void make_room(record_reader *r) {
    if (r->capacity - r->length >= PART) {
        return;
    }
    r->capacity = 2 * r->capacity + PART;
    char *larger = need(r->capacity, 1);
    if (r->length > 0) {
        memcpy(larger, r->buffer, r->length);
    }
    free(r->buffer);
    r->buffer = larger;
}

static bool is_more_waiting(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) == 1;
}

/* False where nothing can be read. */
static bool read_part(record_reader *r) {
    make_room(r);
    const ssize_t got = read(STDIN_FILENO, r->buffer + r->length, PART);
    if (stop_signal() != 0) {
        return false;
    }
    if (got < 0 && errno != EINTR) {
        say("cannot read standard input: %s", strerror(errno));
        return false;
    }
    r->has_ended = got == 0;
    r->length += got > 0 ? (size_t)got : 0;
    scan(r);
    if (r->length - r->scanned > LIMIT_LINE) {
        say("standard input: line %lld has more than the %zu MiB allowed", (long long)r->scanned_line,
            LIMIT_LINE >> 20);
        return false;
    }
    return true;
}

bool records_read(record_reader *r, size_t known) {
    if (r->scanned_line == 0) {
        r->scanned_line = 1;
    }
    while (!r->has_ended && (r->count <= known || (r->length < BLOCK && is_more_waiting()))) {
        if (!read_part(r)) {
            return false;
        }
    }
    return true;
}

/* ---- fields ---- */

/* Goes past a field. Its end is stored, without the separator. */
static const char *skip_field(const char *at, const char *end, char separator, const char **field_end) {
    bool is_quoted = false;
    for (; at < end && (is_quoted || (*at != separator && *at != '\n' && *at != '\r')); at++) {
        is_quoted ^= *at == '"';
    }
    *field_end = at;
    return at < end && *at == separator ? at + 1 : NULL;
}

char *records_field(const char *row, size_t length, char separator, size_t index) {
    const char *end = row + length, *stop = row;
    for (size_t i = 0; row != NULL; i++) {
        const char *next = skip_field(row, end, separator, &stop);
        if (i == index) {
            break;
        }
        row = next;
    }
    char *text = need(row != NULL ? (size_t)(stop - row) + 1 : 1, 1);
    const bool is_quoted = row != NULL && stop > row + 1 && *row == '"';
    size_t used = 0;
    for (const char *at = row; at != NULL && at < stop; at++) {
        if (is_quoted && *at == '"') {
            if (at + 1 < stop && at[1] == '"' && at > row) {
                text[used++] = *at++;
            }
        } else {
            text[used++] = *at;
        }
    }
    return text;
}

int64_t records_find_field(const char *header, size_t length, char separator, const char *name) {
    int64_t count = 0, found = -1;
    const char *end = header + length, *at = header, *stop;
    if (length >= 3 && memcmp(header, "\xef\xbb\xbf", 3) == 0) {
        at += 3;
    }
    for (const char *first = at; at != NULL && found < 0; count++) {
        at = skip_field(at, end, separator, &stop);
        char *field = records_field(first, (size_t)(end - first), separator, (size_t)count);
        found = strcmp(field, name) == 0 ? count : -1;
        free(field);
    }
    return found;
}

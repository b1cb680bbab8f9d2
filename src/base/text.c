/* Growing text, edit distance of names, and checked arithmetic. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { NAME_LIMIT = 128 }; /* names longer than this are not compared */

void rcvi_text_init(rcvi_text *text, rcv_context *context) {
    memset(text, 0, sizeof *text);
    text->context = context;
}

/* Reserves `more` bytes and a terminating NUL. */
static bool reserve(rcvi_text *text, size_t more) {
    if (!text->failed && (more >= SIZE_MAX - text->length ||
                          !rcvi_grow(text->context, &text->bytes, &text->capacity, text->length + more + 1, 1)))
        text->failed = true;
    return !text->failed;
}

void rcvi_text_add_bytes(rcvi_text *text, const char *bytes, size_t length) {
    if (!reserve(text, length)) return;
    if (length > 0) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void rcvi_text_add(rcvi_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)length)) return;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}

rcv_status rcvi_text_take(rcvi_text *text, char **out) {
    *out = NULL;
    if (!reserve(text, 0)) {
        size_t bytes = text->length;
        rcvi_text_drop(text);
        return rcvi_fail(RCV_NO_MEMORY, "no memory for a text of more than %zu bytes", bytes);
    }
    text->bytes[text->length] = '\0';
    *out = text->bytes;
    rcvi_text_init(text, text->context);
    return RCV_OK;
}

void rcvi_text_drop(rcvi_text *text) {
    rcvi_free(text->context, text->bytes);
    rcvi_text_init(text, text->context);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; both within NAME_LIMIT. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][NAME_LIMIT + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(replaced, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[b_length];
}

const char *rcvi_nearest_name(const char *name, const char *const *names, size_t count) {
    size_t length = strlen(name);
    if (length > NAME_LIMIT) return NULL;
    const char *nearest = NULL;
    size_t nearest_distance = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(names[i]);
        if (other > NAME_LIMIT) continue;
        size_t distance = edit_distance(name, length, names[i], other);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = names[i];
        }
    }
    /* Accepted: at most a third of the longer name differs, and not all of it. */
    if (!nearest) return NULL;
    size_t longer = length > strlen(nearest) ? length : strlen(nearest);
    return nearest_distance <= (longer + 2) / 3 && nearest_distance < longer ? nearest : NULL;
}

bool rcvi_multiply(int64_t a, int64_t b, int64_t *product) {
    if (a < 0 || b < 0 || (b != 0 && a > INT64_MAX / b)) return false;
    *product = a * b;
    return true;
}

bool rcvi_add(int64_t a, int64_t b, int64_t *sum) {
    if (a < 0 || b < 0 || a > INT64_MAX - b) return false;
    *sum = a + b;
    return true;
}

/* Vocabularies of characters: counting, order, and the text in which they are stored.
 *
 *   text      = "recurve characters" newline { line }
 *   line      = ( character | escape | "<unk>" ) newline
 *   escape    = "\n" | "\t" | "\r" | "\\" | "\u{" hexadecimal "}"
 *
 * The first line has two words, so no list of words begins with it. */
#include "data/vocabulary/encoder.h"
#include "data/vocabulary/unicode.h"

#include <stdio.h>
#include <string.h>

static const char FIRST_LINE[] = "recurve characters\n";

/* ---- counting ---- */

rcv_status rcvi_count_characters(rcvi_words *counted, const char *bytes, size_t length) {
    int64_t ascii[128] = {0};
    for (size_t at = 0, step; at < length; at += step) {
        const uint32_t code = rcvi_utf8_next(bytes + at, &step);
        if (code < 128)
            ascii[code]++;
        else
            RCVI_TRY(rcvi_words_count(counted, bytes + at, step, 1, NULL));
    }
    for (int code = 0; code < 128; code++) {
        const char byte = (char)code;
        if (ascii[code] > 0) RCVI_TRY(rcvi_words_count(counted, &byte, 1, ascii[code], NULL));
    }
    return RCV_OK;
}

static bool is_more_frequent(const rcvi_words *words, int64_t a, int64_t b) {
    if (words->counts[a] != words->counts[b]) return words->counts[a] > words->counts[b];
    return rcvi_words_compare(words, a, b) < 0;
}

rcv_status rcvi_characters_rank(const rcvi_words *counted, rcvi_words *words) {
    RCVI_TRY(rcvi_words_sort(counted, is_more_frequent, words));
    RCVI_TRY(rcvi_words_count(words, "\n", 1, 0, NULL));
    return rcvi_words_count(words, RCVI_UNK, strlen(RCVI_UNK), 0, NULL);
}

/* ---- printing ---- */

static const struct { char character, letter; } escapes[] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}, {'\\', '\\'}};
enum { ESCAPES = sizeof escapes / sizeof *escapes };

static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (rcvi_unicode_properties(code) & RCVI_UNICODE_SPACE) ||
           code == 0xfeff;
}

static void print_character(const char *bytes, size_t length, rcvi_text *out) {
    size_t step;
    const uint32_t code = rcvi_utf8_next(bytes, &step);
    for (size_t i = 0; i < ESCAPES && step == length; i++)
        if (code == (unsigned char)escapes[i].character) {
            rcvi_text_add(out, "\\%c\n", escapes[i].letter);
            return;
        }
    if (step == length && is_control(code))
        rcvi_text_add(out, "\\u{%x}\n", (unsigned)code);
    else
        rcvi_text_add(out, "%.*s\n", (int)length, bytes);
}

void rcvi_characters_print(const rcvi_words *words, rcvi_text *out) {
    rcvi_text_add(out, "%s", FIRST_LINE);
    for (int64_t i = 0; i < words->size; i++) {
        size_t length;
        const char *bytes = rcvi_words_at(words, i, &length);
        print_character(bytes, length, out);
    }
}

/* ---- reading ---- */

bool rcvi_characters_are(const char *text, size_t length) {
    const size_t first = strlen(FIRST_LINE);
    return length >= first && memcmp(text, FIRST_LINE, first) == 0;
}

/* hexadecimal "}" ; gives the character, or UINT32_MAX. */
static uint32_t read_code(const char *text, size_t length) {
    uint32_t code = 0;
    if (length < 2 || length > 7 || text[length - 1] != '}') return UINT32_MAX;
    for (size_t i = 0; i + 1 < length; i++) {
        const char *digit = text[i] ? strchr("0123456789abcdef", text[i]) : NULL;
        if (!digit) return UINT32_MAX;
        code = code << 4 | (uint32_t)(digit - "0123456789abcdef");
    }
    return code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? code : UINT32_MAX;
}

/* The bytes of a line's token; 0 where the line is none. */
static size_t read_line(const char *line, size_t length, char bytes[8]) {
    uint32_t code;
    if (length == strlen(RCVI_UNK) && memcmp(line, RCVI_UNK, length) == 0) {
        memcpy(bytes, line, length);
        return length;
    }
    if (length > 3 && memcmp(line, "\\u{", 3) == 0) {
        code = read_code(line + 3, length - 3);
        return code != UINT32_MAX ? rcvi_utf8_write(code, bytes) : 0;
    }
    for (size_t i = 0; i < ESCAPES && length == 2 && line[0] == '\\'; i++)
        if (line[1] == escapes[i].letter) {
            bytes[0] = escapes[i].character;
            return 1;
        }
    if (length == 0 || line[0] == '\\' || rcvi_utf8_character(line, length, &code) != length) return 0;
    memcpy(bytes, line, length);
    return length;
}

rcv_status rcvi_characters_parse(const char *text, size_t length, const char *name, rcvi_words *words) {
    long long number = 1;
    for (size_t at = strlen(FIRST_LINE); at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        const size_t own = (end ? (size_t)(end - text) : length) - at;
        char bytes[8];
        const size_t size = read_line(text + at, own, bytes);
        int64_t before = words->size, found;
        number++;
        if (size == 0)
            return rcvi_fail(
                RCV_FORMAT,
                "%s: line %lld is neither one character, nor an escape such as \\n or \\u{20}, nor " RCVI_UNK, name,
                number);
        RCVI_TRY(rcvi_words_count(words, bytes, size, 0, &found));
        if (found < before)
            return rcvi_fail(RCV_FORMAT, "%s: line %lld repeats the character of line %lld", name, number,
                             (long long)found + 2);
        at += own + 1;
    }
    if (rcvi_words_find(words, "\n", 1) < 0)
        return rcvi_fail(RCV_FORMAT, "%s: a vocabulary of characters needs the newline, as \\n", name);
    return RCV_OK;
}

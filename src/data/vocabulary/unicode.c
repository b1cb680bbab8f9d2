/* Reading of UTF-8, and the table of properties. */
#include "data/vocabulary/unicode.h"

const rcvi_unicode_range *rcvi_unicode_find(uint32_t code) {
    static const rcvi_unicode_range none = {0};
    size_t from = 0, to = rcvi_unicode_table_size;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (code > rcvi_unicode_table[middle].last)
            from = middle + 1;
        else
            to = middle;
    }
    return from < rcvi_unicode_table_size && code >= rcvi_unicode_table[from].first ? &rcvi_unicode_table[from] : &none;
}

#define SPACE RCVI_UNICODE_SPACE
#define DIGIT (RCVI_UNICODE_NUMBER | RCVI_UNICODE_WORD_CHARACTER)
#define LETTER (RCVI_UNICODE_LETTER | RCVI_UNICODE_WORD_CHARACTER)
#define UNDERSCORE RCVI_UNICODE_WORD_CHARACTER

static const uint8_t ascii[128] = {
    ['\t'] = SPACE, ['\n'] = SPACE, ['\v'] = SPACE,     ['\f'] = SPACE, ['\r'] = SPACE, [' '] = SPACE,  ['0'] = DIGIT,
    ['1'] = DIGIT,  ['2'] = DIGIT,  ['3'] = DIGIT,      ['4'] = DIGIT,  ['5'] = DIGIT,  ['6'] = DIGIT,  ['7'] = DIGIT,
    ['8'] = DIGIT,  ['9'] = DIGIT,  ['_'] = UNDERSCORE, ['A'] = LETTER, ['B'] = LETTER, ['C'] = LETTER, ['D'] = LETTER,
    ['E'] = LETTER, ['F'] = LETTER, ['G'] = LETTER,     ['H'] = LETTER, ['I'] = LETTER, ['J'] = LETTER, ['K'] = LETTER,
    ['L'] = LETTER, ['M'] = LETTER, ['N'] = LETTER,     ['O'] = LETTER, ['P'] = LETTER, ['Q'] = LETTER, ['R'] = LETTER,
    ['S'] = LETTER, ['T'] = LETTER, ['U'] = LETTER,     ['V'] = LETTER, ['W'] = LETTER, ['X'] = LETTER, ['Y'] = LETTER,
    ['Z'] = LETTER, ['a'] = LETTER, ['b'] = LETTER,     ['c'] = LETTER, ['d'] = LETTER, ['e'] = LETTER, ['f'] = LETTER,
    ['g'] = LETTER, ['h'] = LETTER, ['i'] = LETTER,     ['j'] = LETTER, ['k'] = LETTER, ['l'] = LETTER, ['m'] = LETTER,
    ['n'] = LETTER, ['o'] = LETTER, ['p'] = LETTER,     ['q'] = LETTER, ['r'] = LETTER, ['s'] = LETTER, ['t'] = LETTER,
    ['u'] = LETTER, ['v'] = LETTER, ['w'] = LETTER,     ['x'] = LETTER, ['y'] = LETTER, ['z'] = LETTER,
};

int rcvi_unicode_properties(uint32_t code) { return code < 128 ? ascii[code] : rcvi_unicode_find(code)->properties; }

uint32_t rcvi_utf8_next(const char *bytes, size_t *step) {
    const unsigned char *at = (const unsigned char *)bytes;
    if (at[0] < 0x80) {
        *step = 1;
        return at[0];
    }
    *step = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t code = at[0] & (0xffU >> (*step + 1));
    for (size_t i = 1; i < *step; i++) code = code << 6 | (at[i] & 0x3f);
    return code;
}

size_t rcvi_utf8_write(uint32_t code, char bytes[4]) {
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    const size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = count; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)((0xf00 >> count & 0xff) | code);
    return count;
}

/* Whether bytes at the end of a part may be a character whose other bytes follow. */
static bool may_continue(const unsigned char *bytes, size_t left) {
    const size_t needed = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || left >= needed) return false;
    for (size_t i = 1; i < left; i++)
        if ((bytes[i] & 0xc0) != 0x80) return false;
    return true;
}

rcv_status rcvi_utf8_whole(const char *bytes, size_t length, bool ends, const char *name, int64_t offset,
                           size_t *whole) {
    size_t at = 0;
    *whole = 0;
    while (at < length) {
        uint32_t code;
        const size_t step = (unsigned char)bytes[at] < 0x80 ? 1 : rcvi_utf8_character(bytes + at, length - at, &code);
        if (step == 0) {
            if (!ends && may_continue((const unsigned char *)bytes + at, length - at)) break;
            return rcvi_fail(RCV_FORMAT, "%s is not UTF-8 at byte %lld; read it at byte level", name,
                             (long long)offset + (long long)at);
        }
        at += step;
    }
    *whole = at;
    return RCV_OK;
}

/* Scanners for pre-tokens. Each is the regular expression in its comment, written by hand: the first alternative that matches, as long as it can be. */
#include "data/vocabulary/pretokens.h"

#include "data/vocabulary/unicode.h"

#include <string.h>

typedef struct {
    const char *text;
    size_t length;
    bool is_at_end; /* the scanner looked behind the last byte: more text may change what it found */
} cursor;

enum { OTHER = 0, END = -1 };

/* RCVI_UNICODE_LETTER, RCVI_UNICODE_NUMBER, RCVI_UNICODE_SPACE, OTHER or, behind the text, END. */
static int class_at(cursor *c, size_t at, size_t *step) {
    *step = 0;
    if (at >= c->length) {
        c->is_at_end = true;
        return END;
    }
    return rcvi_unicode_properties(rcvi_utf8_next(c->text + at, step)) &
           (RCVI_UNICODE_LETTER | RCVI_UNICODE_NUMBER | RCVI_UNICODE_SPACE);
}

/* The end of the run of characters of a class from `at`; at most `most` characters. */
static size_t end_of_run(cursor *c, size_t at, int class, size_t most) {
    size_t step;
    for (; most > 0 && class_at(c, at, &step) == class; most--) at += step;
    return at;
}

static int byte_at(cursor *c, size_t at) {
    if (at < c->length) return (unsigned char)c->text[at];
    c->is_at_end = true;
    return END;
}

static bool is_line_break(int byte) { return byte == '\r' || byte == '\n'; }

/* 's|'t|'re|'ve|'m|'ll|'d. Where case is ignored, U+017F is an s, too. */
static size_t contraction(cursor *c, bool ignore_case) {
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (c->text[0] != '\'') return 0;
    if (ignore_case && byte_at(c, 1) == 0xc5 && byte_at(c, 2) == 0xbf) return 3;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t at = 0;
        while (ends[i][at]) {
            int byte = byte_at(c, 1 + at);
            if (ignore_case && byte >= 'A' && byte <= 'Z') byte += 'a' - 'A';
            if (byte != ends[i][at]) break;
            at++;
        }
        if (!ends[i][at]) return 1 + at;
    }
    return 0;
}

/* \s+(?!\S)|\s+ : white space without its last character, which belongs to what follows, unless it is alone or ends the text. */
static size_t white_space(cursor *c) {
    size_t at = 0, last = 0, step;
    while (class_at(c, at, &step) == RCVI_UNICODE_SPACE) {
        last = at;
        at += step;
    }
    return at < c->length && last > 0 ? last : at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(cursor *c) {
    size_t step, end = contraction(c, false), from = c->text[0] == ' ';
    if (end > 0) return end;
    const int class = class_at(c, from, &step);
    return class == RCVI_UNICODE_SPACE || class == END ? white_space(c) : end_of_run(c, from, class, SIZE_MAX);
}

/* \s*[\r\n]+ : white space up to its last line break; 0 where it has none. */
static size_t line_breaks(cursor *c) {
    size_t end = 0, step;
    for (size_t at = 0; class_at(c, at, &step) == RCVI_UNICODE_SPACE; at += step)
        if (is_line_break(c->text[at])) end = at + 1;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t scan_cl100k(cursor *c, size_t digits) {
    size_t step, next, end = contraction(c, true);
    if (end > 0) return end;
    const int class = class_at(c, 0, &step);
    if (class == RCVI_UNICODE_LETTER) return end_of_run(c, 0, RCVI_UNICODE_LETTER, SIZE_MAX);
    if (class == RCVI_UNICODE_NUMBER) return end_of_run(c, 0, RCVI_UNICODE_NUMBER, digits);
    if (!is_line_break(c->text[0]) && class_at(c, step, &next) == RCVI_UNICODE_LETTER)
        return end_of_run(c, step, RCVI_UNICODE_LETTER, SIZE_MAX);
    const size_t from = c->text[0] == ' ';
    if (class_at(c, from, &next) == OTHER) {
        end = end_of_run(c, from, OTHER, SIZE_MAX);
        while (is_line_break(byte_at(c, end))) end++;
        return end;
    }
    end = line_breaks(c);
    return end > 0 ? end : white_space(c);
}

static size_t scan_cl100k_three(cursor *c) { return scan_cl100k(c, 3); }
static size_t scan_cl100k_one(cursor *c) { return scan_cl100k(c, 1); }

/* The end of the run of characters that agree with the first one in these properties. */
static size_t same_properties(cursor *c, int mask) {
    size_t at = 0, step;
    const int first = rcvi_unicode_properties(rcvi_utf8_next(c->text, &step)) & mask;
    do {
        at += step;
        if (at >= c->length) c->is_at_end = true;
    } while (at < c->length && (rcvi_unicode_properties(rcvi_utf8_next(c->text + at, &step)) & mask) == first);
    return at;
}

/* \w+|[^\w\s]+, or white space */
static size_t scan_words(cursor *c) { return same_properties(c, RCVI_UNICODE_WORD_CHARACTER | RCVI_UNICODE_SPACE); }
static size_t scan_white_space(cursor *c) { return same_properties(c, RCVI_UNICODE_SPACE); }
static size_t scan_numbers(cursor *c) { return same_properties(c, RCVI_UNICODE_NUMBER); }

static size_t scan_digits(cursor *c) {
    size_t step;
    return class_at(c, 0, &step) == RCVI_UNICODE_NUMBER ? step : scan_numbers(c);
}

static size_t scan_metaspace(cursor *c) {
    const size_t mark = strlen(RCVI_METASPACE);
    for (size_t at = 1; at < c->length; at++) {
        if (c->text[at] == ' ') return at;
        if (c->text[at] == RCVI_METASPACE[0] && c->length - at >= mark &&
            memcmp(c->text + at, RCVI_METASPACE, mark) == 0)
            return at;
    }
    c->is_at_end = true;
    return c->length;
}

static size_t scan_all(cursor *c) {
    c->is_at_end = true;
    return c->length;
}

static const struct {
    size_t (*scan)(cursor *c);
    bool drops_space;
    bool gives_parts; /* a pre-token is given to the next split before its end is known */
} splits[RCVI_SPLITS] = {
    [RCVI_SPLIT_NONE] = {scan_all, false, true},
    [RCVI_SPLIT_GPT2] = {scan_gpt2, false, false},
    [RCVI_SPLIT_CL100K] = {scan_cl100k_three, false, false},
    [RCVI_SPLIT_CL100K_ONE_DIGIT] = {scan_cl100k_one, false, false},
    [RCVI_SPLIT_WORDS] = {scan_words, true, false},
    [RCVI_SPLIT_WHITE_SPACE] = {scan_white_space, true, false},
    [RCVI_SPLIT_METASPACE] = {scan_metaspace, false, false},
    [RCVI_SPLIT_NUMBERS] = {scan_numbers, false, true},
    [RCVI_SPLIT_DIGITS] = {scan_digits, false, true},
};

rcvi_pretoken rcvi_pretoken_next(rcvi_text_split split, const char *text, size_t length, bool ends) {
    cursor c = {.text = text, .length = length};
    size_t step, bytes = splits[split].scan(&c);
    const bool is_known = ends || !c.is_at_end;
    if (!is_known && !splits[split].gives_parts) return (rcvi_pretoken){0};
    const bool dropped = splits[split].drops_space && class_at(&c, 0, &step) == RCVI_UNICODE_SPACE;
    return (rcvi_pretoken){.bytes = bytes, .dropped = dropped, .ends = is_known};
}

rcvi_text_split rcvi_split_of_pattern(const char *pattern) {
    static const char contractions[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}";
    static const char rest[] = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const size_t begin = strlen(contractions);
    if (strcmp(pattern, gpt2) == 0) return RCVI_SPLIT_GPT2;
    if (strncmp(pattern, contractions, begin) != 0) return RCVI_SPLIT_NONE;
    if (strncmp(pattern + begin, "{1,3}", 5) == 0)
        return strcmp(pattern + begin + 5, rest) == 0 ? RCVI_SPLIT_CL100K : RCVI_SPLIT_NONE;
    return strcmp(pattern + begin, rest) == 0 ? RCVI_SPLIT_CL100K_ONE_DIGIT : RCVI_SPLIT_NONE;
}

/* Properties of characters that tokenizers ask for. */
#ifndef RCVI_DATA_UNICODE_H
#define RCVI_DATA_UNICODE_H

#include "base/base.h"

enum {
    RCVI_UNICODE_LETTER = 1,         /* category L */
    RCVI_UNICODE_NUMBER = 2,         /* category N */
    RCVI_UNICODE_SPACE = 4,          /* White_Space */
    RCVI_UNICODE_WORD_CHARACTER = 8, /* \w of a regular expression */
    RCVI_UNICODE_MAY_CHANGE = 16 /* is another character in the normal form NFC, or may combine with one before it */
};

typedef struct {
    uint32_t first, last;
    uint8_t properties, combining; /* the bits above; Canonical_Combining_Class */
} rcvi_unicode_range;

/* In increasing order. A character in none of the ranges has no property. */
extern const rcvi_unicode_range rcvi_unicode_table[];
extern const size_t rcvi_unicode_table_size;

/* The range of a character, or one without properties. */
const rcvi_unicode_range *rcvi_unicode_find(uint32_t code);
int rcvi_unicode_properties(uint32_t code);
/* The character at `bytes`, which are known to be UTF-8; *step: its bytes. */
uint32_t rcvi_utf8_next(const char *bytes, size_t *step);
/* Writes a character as UTF-8; gives how many bytes. */
size_t rcvi_utf8_write(uint32_t code, char bytes[4]);
/* How many of `length` bytes are whole characters; the others, at most three, may be the beginning of one. RCV_FORMAT where the bytes are not UTF-8; the message has `name` and the
 * place, which is counted from `offset`. `ends`: no bytes follow. */
rcv_status rcvi_utf8_whole(const char *bytes, size_t length, bool ends, const char *name, int64_t offset,
                           size_t *whole);

#endif

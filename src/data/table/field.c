/* A field of a table as a number. */
#include "data/table/csv.h"

#include <string.h>

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

rcvi_field rcvi_field_trim(rcvi_field field) {
    while (field.length > 0 && is_space(field.bytes[0])) {
        field.bytes++;
        field.length--;
    }
    while (field.length > 0 && is_space(field.bytes[field.length - 1])) field.length--;
    return field;
}

static bool is_missing(rcvi_field field) {
    static const char *const names[] = {"NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "-nan"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == field.length && !memcmp(names[i], field.bytes, field.length)) return true;
    return field.length == 0;
}

/* Any number that the C library reads, but no hexadecimal one. */
static bool read_slowly(rcvi_field field, bool comma, double *number) {
    char digits[64];
    if (field.length >= sizeof digits) return false;
    for (size_t i = 0; i < field.length; i++) {
        const char c = field.bytes[i] == ',' && comma ? '.' : field.bytes[i];
        if (c == 'x' || c == 'X' || c == '\0') return false;
        digits[i] = c;
    }
    digits[field.length] = '\0';
    return rcvi_read_number(digits, number);
}

/* Digits with a point, whose value is exact: at most 15 digits divided by a power of ten that a double holds. This is the correctly rounded
 * number. */
static bool read_decimal(rcvi_field field, double *number) {
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = field.bytes, *end = at + field.length;
    const bool negative = at < end && *at == '-';
    if (negative || (at < end && *at == '+')) at++;
    const char *from = at, *point = NULL;
    if (end - at > 16) return false;
    int64_t value = 0;
    for (; at < end; at++) {
        const unsigned digit = (unsigned)(unsigned char)*at - '0';
        if (digit <= 9) {
            value = 10 * value + (int64_t)digit;
        } else if (*at == '.' && !point) {
            point = at;
        } else {
            return false;
        }
    }
    const int64_t digits = end - from - (point != NULL);
    if (digits < 1 || digits > 15) return false;
    const double whole = (double)value / powers[point ? end - point - 1 : 0];
    *number = negative ? -whole : whole;
    return true;
}

rcvi_field_kind rcvi_field_read(rcvi_field field, bool comma, double *number) {
    if (read_decimal(field, number)) return RCVI_FIELD_NUMBER;
    field = rcvi_field_trim(field);
    if (is_missing(field)) return RCVI_FIELD_MISSING;
    return read_slowly(field, comma, number) ? RCVI_FIELD_NUMBER : RCVI_FIELD_TEXT;
}

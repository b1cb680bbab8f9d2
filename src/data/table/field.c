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

rcvi_field_kind rcvi_field_read(rcvi_field field, bool comma, double *number) {
    if (rcvi_field_read_decimal(field, number)) return RCVI_FIELD_NUMBER;
    field = rcvi_field_trim(field);
    if (is_missing(field)) return RCVI_FIELD_MISSING;
    return read_slowly(field, comma, number) ? RCVI_FIELD_NUMBER : RCVI_FIELD_TEXT;
}

/* Records of a table in a text file, as RFC 4180 has them: fields between separators, with quotes where a field holds separators, quotes or line
 * breaks.
 *
 *   record = field { separator field } line-break          line-break = LF | CRLF
 *   field  = { character } | '"' { character | '""' } '"'                                                              */
#ifndef RCVI_DATA_TABLE_CSV_H
#define RCVI_DATA_TABLE_CSV_H

#include "data/internal.h"

typedef struct {
    const char *bytes;
    size_t length;
} rcvi_field;

typedef struct {
    rcv_context *context;
    const char *path;
    char separator;
    int64_t line;       /* on which the record begins, from 1 on */
    rcvi_field *fields; /* [count]; valid until the next record */
    size_t count, capacity;
    /* With `head` + `tail` > 0 only so many first and last fields of a record without quotes are looked for; the others are empty until
     * rcvi_csv_split_all. */
    size_t head, tail;
    const char *record, *record_end; /* without the line break; NULL: the record is split whole */
    char *unquoted;                  /* content of the fields with quotes */
    size_t unquoted_capacity;
    char *open; /* the lines of a record whose quotes are still open */
    size_t open_length, open_capacity;
    int64_t next_line;
} rcvi_csv;

enum { RCVI_MOST_COLUMNS = 1 << 16 };

void rcvi_csv_begin(rcvi_csv *csv, rcv_context *context, const char *path, char separator);
void rcvi_csv_free(rcvi_csv *csv);
/* Adds a line without its line feed. *complete: the fields of a record are there; otherwise the next line belongs to it. An empty line is a
 * record of one empty field. */
rcv_status rcvi_csv_line(rcvi_csv *csv, const char *line, size_t length, bool *complete);
rcv_status rcvi_csv_split_all(rcvi_csv *csv); /* the fields of the record that were not looked for */
/* After the last line: RCV_FORMAT where a quote is still open. */
rcv_status rcvi_csv_end(const rcvi_csv *csv);
/* The separator of a table by its first line: the most frequent of comma, semicolon, tab and bar outside of quotes; 0: there is none. */
char rcvi_csv_separator(const char *line, size_t length);

typedef enum { RCVI_FIELD_NUMBER, RCVI_FIELD_MISSING, RCVI_FIELD_TEXT } rcvi_field_kind;

/* ---- numbers ---- */

/* Appends digits to a number. Returns where they end. */
static inline const char *rcvi_read_digits(const char *at, const char *end, uint64_t *value) {
    for (unsigned digit; at < end && (digit = (unsigned)(unsigned char)*at - '0') <= 9; at++)
        *value = 10 * *value + digit;
    return at;
}

/* Digits with a point, whose value is exact: at most 15 digits divided by a power of ten that a double holds. This is the correctly rounded
 * number. */
static inline bool rcvi_field_read_decimal(rcvi_field field, double *number) {
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = field.bytes, *end = at + field.length;
    if (field.length == 0 || field.length > 17) return false;
    const int negative = *at == '-'; /* no branches: signs are not predicted well */
    at += negative | (*at == '+');
    const char *from = at;
    uint64_t value = 0;
    at = rcvi_read_digits(from, end, &value);
    int64_t digits = at - from, fraction = 0;
    if (at < end && *at == '.') {
        const char *point = at + 1;
        at = rcvi_read_digits(point, end, &value);
        fraction = at - point;
        digits += fraction;
    }
    if (at != end || digits < 1 || digits > 15) return false;
    const double exact = (double)(int64_t)value / powers[fraction];
    *number = exact * (1 - 2 * negative);
    return true;
}

/* What a field holds. White space around it does not count. With `comma` numbers may have a decimal comma. */
rcvi_field_kind rcvi_field_read(rcvi_field field, bool comma, double *number);
rcvi_field rcvi_field_trim(rcvi_field field);

#endif

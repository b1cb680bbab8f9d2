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
    char *unquoted; /* content of the fields with quotes */
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
/* After the last line: RCV_FORMAT where a quote is still open. */
rcv_status rcvi_csv_end(const rcvi_csv *csv);
/* The separator of a table by its first line: the most frequent of comma, semicolon, tab and bar outside of quotes; 0: there is none. */
char rcvi_csv_separator(const char *line, size_t length);

typedef enum { RCVI_FIELD_NUMBER, RCVI_FIELD_MISSING, RCVI_FIELD_TEXT } rcvi_field_kind;

/* What a field holds. White space around it does not count. With `comma` numbers may have a decimal comma. */
rcvi_field_kind rcvi_field_read(rcvi_field field, bool comma, double *number);
rcvi_field rcvi_field_trim(rcvi_field field);

#endif

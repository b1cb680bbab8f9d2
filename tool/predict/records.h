/* Standard input as records: lines, or rows of a table, of which a quoted field may hold line breaks. */
#ifndef TOOL_RECORDS_H
#define TOOL_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t begin; /* in the buffer */
    int64_t line; /* of its first line, from 1 */
} record;

typedef struct {
    char *buffer; /* `length` bytes that were read and not yet used */
    size_t length, capacity;
    bool has_ended;   /* nothing more will come */
    bool is_table;    /* quotes may hold line breaks: see records_join_quoted */
    bool keeps_blank; /* a blank line is a record */
    record *records;  /* whole records, in order */
    size_t count, room;
    size_t scanned;       /* bytes before this are in `records`, or blank */
    int64_t scanned_line; /* number of the line that begins there */
    size_t searched;      /* bytes of the record that begins there in which its end was searched */
    int64_t searched_lines;
    bool is_quoted; /* what follows these bytes is within quotes */
} record_reader;

/* Reads until there are more than `known` records or the input has ended, and more while more is waiting. False after saying what is wrong, or when
 * a signal asks to stop. */
bool records_read(record_reader *reader, size_t known);
/* From now on the input is a table. Nothing has been dropped yet. */
void records_join_quoted(record_reader *reader);
/* The end of record `index`. */
size_t records_end(const record_reader *reader, size_t index);
/* Removes the first `count` records from the buffer. */
void records_drop(record_reader *reader, size_t count);
void records_free(record_reader *reader);

/* Field `index` of a row, without its quotes, for free(). */
char *records_field(const char *row, size_t length, char separator, size_t index);
/* The place of a field in a header; -1: there is none. */
int64_t records_find_field(const char *header, size_t length, char separator, const char *name);

#endif

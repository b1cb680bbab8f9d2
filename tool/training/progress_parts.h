/* A line of parts, of which the least important are left out where it would be too long. */
#ifndef TOOL_TRAINING_PROGRESS_PARTS_H
#define TOOL_TRAINING_PROGRESS_PARTS_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_PARTS = 10, PART_BYTES = 64 };

typedef struct {
    char text[PART_BYTES]; /* ASCII; the bar's is written by parts_print */
    int rank;              /* parts of a higher rank are left out first; 0: never */
    bool is_bar, is_left_out;
} line_part;

typedef struct {
    line_part parts[MOST_PARTS];
    size_t count;
    double done; /* the part of the work that is done, for the bar */
} part_line;

void parts_add(part_line *line, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));
void parts_add_bar(part_line *line, int rank);
/* The line in at most `columns` columns, for free(). */
char *parts_print(part_line *line, size_t columns, bool is_unicode);

#endif

/* A file that is written part by part, and has its name only when it is whole; or standard output. */
#ifndef TOOL_OUTPUT_FILE_H
#define TOOL_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OUTPUT_BUFFER = 1 << 16 };

typedef struct {
    const char *path; /* of the file; NULL: standard output */
    char *target;     /* the file that is replaced: `path` without links */
    char *temporary;  /* name while it is written */
    int file;
    int error; /* errno of the first write that failed; 0: none */
    size_t used;
    char buffer[OUTPUT_BUFFER];
} output_file;

/* `path` NULL: standard output. NULL after saying what is wrong. */
output_file *output_file_open(const char *path);
void output_file_write(output_file *output, const void *bytes, size_t length);
/* Replaces bytes at the beginning of a file; not of standard output. */
void output_file_rewrite(output_file *output, const void *bytes, size_t length);
/* Writes what is buffered. False where a write has failed, now or before. */
bool output_file_flush(output_file *output);
/* Gives the file its name if `keep`, otherwise removes it. False after saying what is wrong; a reader of standard output that has gone is
 * nothing wrong. Frees the output; NULL: nothing to do. */
bool output_file_close(output_file *output, bool keep);

#endif

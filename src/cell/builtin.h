/* The built-in cells: the texts of cells/, embedded by cmake/embed_cells.cmake when the library is built. */
#ifndef RCVI_BUILTIN_H
#define RCVI_BUILTIN_H

#include <stddef.h>

typedef struct {
    const char *name; /* the file's name without .cell */
    const char *text; /* length bytes and a NUL */
    size_t length;
    const char *summary; /* the first line, without its # */
} rcvi_builtin;

extern const rcvi_builtin rcvi_builtins[]; /* [rcvi_builtin_total + 1], sorted by name; the last entry is all NULL */
extern const size_t rcvi_builtin_total;

#endif

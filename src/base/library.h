/* Shared libraries that are opened at run time, so that the library also runs where they are missing. */
#ifndef RCVI_LIBRARY_H
#define RCVI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Opens one of these libraries (NULL ends the names) and finds every symbol: one that the process has loaded, else one in the folders of
 * rcv_libraries_set_folders, else the one that the loader finds. Each of the three goes through the names in order. symbols: [count] names;
 * functions: [count] function pointers. Returns false, with a sentence in `reason`, otherwise. Libraries stay open. */
bool rcvi_library_open(const char *const *names, const char *const *symbols, void **functions, size_t count,
                       char *reason, size_t room);

/* Does such a reason say that there is no library, or that this build or the environment leaves it out? Otherwise it is there and cannot be used. */
bool rcvi_library_is_absent(const char *reason);

#endif

/* A child process that answers each line on its standard input with a line on its standard output. */
#ifndef TOOL_CHILD_PROCESS_H
#define TOOL_CHILD_PROCESS_H

#include "tool.h"

#include <sys/types.h>

typedef struct child {
    pid_t id; /* 0: none */
    int in, out;
} child;

/* arguments[0] is looked up in PATH. Its standard error is discarded. */
bool child_start(child *child, const char *const *arguments);
bool child_write(child *child, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads one line without its newline. False after `seconds`, at the end of the output, or when a signal asks to stop. */
bool child_read(child *child, char *line, size_t room, double seconds);
void child_end(child *child);

#endif

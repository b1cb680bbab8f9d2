/* The log of a training: a JSON object a line, in a file that begins when the first line comes. */
#ifndef TOOL_TRAIN_LOG_H
#define TOOL_TRAIN_LOG_H

#include "tool.h"

typedef struct {
    char *path;
    bool resumes; /* lines are added to those that are there */
    int file;     /* open, where there was a line */
    bool opened, failed;
} train_log;

/* The setting's path, or the output's with .jsonl for its ending. The file is not touched yet. */
void train_log_begin(train_log *log, const rcv_settings *settings, const char *output, bool resumes);
/* May lines go there? A log that is there is added to, or replaced where that is allowed; anything else is left alone. Says why not. */
bool train_log_is_free(const train_log *log, bool overwrite);
/* Says so the first time that it cannot be written. */
void train_log_line(train_log *log, const char *line);
/* False where lines are missing. */
bool train_log_end(train_log *log);

#endif

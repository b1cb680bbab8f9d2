/* The log of a training run: one JSON object a line. The file is created with the first line. */
#ifndef TOOL_TRAIN_LOG_H
#define TOOL_TRAIN_LOG_H

#include "tool.h"

typedef struct {
    char *path;
    bool resumes; /* append to an existing log */
    int file;     /* open after the first line */
    bool opened, failed;
} train_log;

/* Sets the path: that of the setting, or the output's with the extension .jsonl. The file is not opened yet. */
void train_log_begin(train_log *log, const rcv_settings *settings, const char *output, bool resumes);
/* May the log be written? An existing log is appended to by a resumed run, and replaced if `overwrite`; any other file is not replaced. Says
 * why not. */
bool train_log_is_free(const train_log *log, bool overwrite);
/* Appends a line. False the first time that this fails; train_log_failure says why, by errno. */
bool train_log_line(train_log *log, const char *line);
void train_log_failure(const train_log *log);
/* Closes the log. False if lines are missing. */
bool train_log_end(train_log *log);

#endif

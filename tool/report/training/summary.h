/* The summary of training runs as JSON. */
#ifndef TOOL_REPORT_SUMMARY_H
#define TOOL_REPORT_SUMMARY_H

#include "report/training/training_log.h"

/* Writes the file whole or not at all; "-": prints it on standard output. False after saying what went wrong. */
bool write_summary(const char *path, const log_file *files, size_t count);

#endif

/* Parquet, Arrow and Feather files, which are converted into a table that the library reads. */
#ifndef TOOL_COLUMNAR_H
#define TOOL_COLUMNAR_H

#include <stdbool.h>

/* *path, for free(), becomes the path of the converted file if it names such a file; otherwise it stays. The result is kept in the user's cache
 * while the file does not change. False after saying what is wrong. */
bool columnar_convert(char **path);

#endif

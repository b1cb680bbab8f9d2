/* The files that a verb reads and writes. A verb fills in the table and has it checked before it opens anything. */
#ifndef TOOL_PATHS_H
#define TOOL_PATHS_H

#include "data_files.h"
#include "problem.h"

typedef enum {
    PATH_READ,
    PATH_RESUMED, /* read before anything is written: it may be one of the checkpoints */
    PATH_WRITTEN,
    PATH_CHECKPOINT, /* written by a rename: two names of one file are allowed, since rotation creates them */
    PATH_FOLDER      /* files are written into it */
} path_role;

typedef struct {
    path_role role;
    char *label; /* for messages: an option, an operand, or a description */
    char *path;
} path_entry;

typedef struct path_table {
    path_entry *entries;
    size_t count;
} paths;

/* Does nothing if the path is NULL or empty. */
void paths_add(paths *paths, path_role role, const char *label, const char *path);
/* Does nothing if `cell` is the name of a built-in cell. */
void paths_add_cell(paths *paths, const char *label, const char *cell);
/* Cells of a list: CELL,CELL,... */
void paths_add_cells(paths *paths, const char *label, const char *cells);
/* The data files of a training run, and the folder of its cache. */
void paths_add_data_files(paths *paths, const data_files *files, const rcv_settings *settings);
/* The cell and the wisdom file of a problem. */
void paths_add_problem(paths *paths, const problem *problem);
/* The output of a training run: its checkpoints, its best model and its lock file. */
void paths_add_model(paths *paths, const char *output, int64_t keep);
/* The length of a path without its extension. */
size_t path_stem(const char *path);
/* Checks that no file that is written is another file of the table, by any spelling or link, and that each can be written. Empties the
 * table. False after saying what is wrong. */
bool paths_are_apart(paths *paths);

#endif

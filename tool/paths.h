/* The files of a verb: what it reads and what it writes. A verb fills the table and has it checked before it touches anything. */
#ifndef TOOL_PATHS_H
#define TOOL_PATHS_H

#include "data_files.h"
#include "problem.h"

typedef enum {
    PATH_READ,
    PATH_RESUMED, /* read before anything is written: it may be one of the checkpoints */
    PATH_WRITTEN,
    PATH_CHECKPOINT, /* written by a rename: two names of one file are no harm, as rotation leaves them */
    PATH_FOLDER      /* files are written into it */
} path_role;

typedef struct {
    path_role role;
    char *label; /* as the message names it: an option, an operand, or words */
    char *path;
} path_entry;

typedef struct path_table {
    path_entry *entries;
    size_t count;
} paths;

/* A path that is NULL or empty is none. */
void paths_add(paths *paths, path_role role, const char *label, const char *path);
/* Where that is a file, not the name of a built-in cell. */
void paths_add_cell(paths *paths, const char *label, const char *cell);
/* The same of a list, CELL,CELL,... */
void paths_add_cells(paths *paths, const char *label, const char *cells);
/* What a training reads, and where its tokens are kept. */
void paths_add_data_files(paths *paths, const data_files *files, const rcv_settings *settings);
/* The cell and the wisdom of a problem. */
void paths_add_problem(paths *paths, const problem *problem);
/* The output of a training with its numbered checkpoints, its best model and its lock. */
void paths_add_model(paths *paths, const char *output, int64_t keep);
/* What of a path comes before its ending: bytes. */
size_t path_stem(const char *path);
/* No file that is written is another of the table, by whatever spelling or link, and each can be written. Empties the table. False after
 * saying what is wrong. */
bool paths_are_apart(paths *paths);

#endif

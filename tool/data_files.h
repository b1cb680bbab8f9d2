/* The files that a run learns from, validates on and is tested on. */
#ifndef TOOL_DATA_FILES_H
#define TOOL_DATA_FILES_H

#include "recurve.h"

typedef struct data_files {
    char *paths[3];           /* train, valid, test; NULL: none */
    rcv_data *data[3];        /* opened, or NULL */
    bool is_named_by_file[3]; /* a checkpoint names the data: then nothing is written beside it */
} data_files;

enum { PART_TRAIN, PART_VALID, PART_TEST };

/* Notes which files a checkpoint's settings name, and not those that were given. */
void data_files_note_names(data_files *files, const rcv_settings *settings, const rcv_settings *given,
                           bool is_data_given);
/* Finds the files that the settings name: data is a file, or a folder with one for each part. False after saying what is wrong. */
bool data_files_find(data_files *files, const rcv_settings *settings);
/* Opens training and validation data. `vocabulary` NULL: of the settings, or made from the training text. */
rcv_status data_files_open(data_files *files, rcv_context *context, const rcv_settings *settings,
                           const rcv_vocabulary *vocabulary);
/* Opens the test data, where there is any, as the training data is. */
rcv_status data_files_open_test(data_files *files, rcv_context *context, const rcv_settings *settings);
void data_files_close(data_files *files);

/* The file of this part in a folder, for free(); NULL: there is none. */
char *data_files_part(const char *folder, int part);

#endif

/* The files with training, validation and test data. */
#ifndef TOOL_DATA_FILES_H
#define TOOL_DATA_FILES_H

#include "recurve.h"

typedef struct data_files {
    char *paths[3];           /* train, valid, test; NULL: none, or a share of the training data */
    rcv_data *data[3];        /* opened; or NULL */
    char *recognised;         /* what the training data was recognised as, and what changes that; NULL: it was said */
    bool is_named_by_file[3]; /* the checkpoint names the data: then no cache is written beside it */
} data_files;

enum { PART_TRAIN, PART_VALID, PART_TEST };

/* Sets is_named_by_file: which files come from the settings of a checkpoint, not from the command line. */
void data_files_note_names(data_files *files, const rcv_settings *settings, const rcv_settings *given,
                           bool is_data_given);
/* Finds the files that the settings name: `data` is a file, or a folder with a file for each part. Parquet and Arrow files are converted, and the results
 * take their places. False after saying what is wrong. */
bool data_files_find(data_files *files, const rcv_settings *settings);
/* Opens training and validation data, and test data that is a share of the training data. What was recognised is kept as a sentence, and set in `settings`. `vocabulary` NULL:
 * that of the settings, or one made from the training text. */
rcv_status data_files_open(data_files *files, rcv_context *context, rcv_settings *settings,
                           const rcv_vocabulary *vocabulary);
/* Opens the test data, if there is any, like the training data. */
rcv_status data_files_open_test(data_files *files, rcv_context *context, const rcv_settings *settings);
/* Is there test data? After data_files_open. */
bool data_files_has_test(const data_files *files);
void data_files_close(data_files *files);

/* The path of this part in a folder, for free(); NULL: there is none. */
char *data_files_part(const char *folder, int part);

#endif

/* The files that a run learns from, validates on and is tested on. */
#ifndef TOOL_CORPUS_H
#define TOOL_CORPUS_H

#include "recurve.h"

typedef struct corpus_files {
    char *paths[3];           /* train, valid, test; NULL: none */
    rcv_data *data[3];        /* opened, or NULL */
    bool is_named_by_file[3]; /* a checkpoint names the data: then nothing is written beside it */
} corpus;

enum { PART_TRAIN, PART_VALID, PART_TEST };

/* Notes which files a checkpoint's settings name, and not those that were given. */
void corpus_note_names(corpus *corpus, const rcv_settings *settings, const rcv_settings *given, bool is_data_given);
/* Finds the files that the settings name: data is a file, or a folder with one for each part. False after saying what is wrong. */
bool corpus_find(corpus *corpus, const rcv_settings *settings);
/* Opens training and validation data. `vocabulary` NULL: of the settings, or made from the training text. */
rcv_status corpus_open(corpus *corpus, rcv_context *context, const rcv_settings *settings,
                       const rcv_vocabulary *vocabulary);
/* Opens the test data, where there is any, as the training data is. */
rcv_status corpus_open_test(corpus *corpus, rcv_context *context, const rcv_settings *settings);
void corpus_close(corpus *corpus);

/* The file of this part in a folder, for free(); NULL: there is none. */
char *corpus_part(const char *folder, int part);

#endif

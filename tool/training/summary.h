/* What a training run is about to do, in plain words on standard error. */
#ifndef TOOL_TRAINING_SUMMARY_H
#define TOOL_TRAINING_SUMMARY_H

#include "data_files.h"
#include "recurve.h"

/* "data      TEXT", in bold where standard error has colours. Long texts are wrapped at words and indented. Nothing with --quiet. */
void put_entry(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The data: what it is, how much, and its parts. */
void summarise_data(const data_files *files, const rcv_settings *settings);
/* "2 layers of 128" */
char *shape_text(const rcv_net *net); /* for free() */
void summarise_model(const rcv_learner *learner, const rcv_settings *settings);
/* The device and the files that are written. */
void summarise_machine(const rcv_settings *settings, const char *output, const char *log);
/* "3 epochs, or 60 s", for free(). `updates`: of an epoch; 0: not known. */
char *limits_text(const rcv_settings *settings, int64_t updates);
/* How long it will train. `batches`: of an epoch; `step`: updates done before. */
void summarise_training(const rcv_settings *settings, int64_t batches, int64_t step);

#endif

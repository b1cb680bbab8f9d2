/* One example: a line of a file, parsed to numbers or a text, and its label (a class or values). */
#ifndef RCVI_DATA_EXAMPLE_H
#define RCVI_DATA_EXAMPLE_H

#include "data/internal.h"

typedef struct {
    rcv_context *context;
    const char *path;
    rcv_data_kind kind;
    rcv_missing missing; /* with RCV_MISSING_ERROR a feature must not be null, else it becomes NaN */
    int64_t line;        /* its number, from 1 on */
    void *json;          /* owns `text` */
    const char *text;    /* NULL: the example is numbers */
    size_t text_length;
    float *x; /* [steps, features] */
    size_t x_capacity;
    int64_t steps, features;
    char label[256]; /* name of the class */
    size_t label_length;
    /* Of a class at every step: [steps] names, each with its NUL; empty where the class is missing. */
    char *names;
    size_t names_bytes, names_capacity;
    /* [outputs]; of kinds with steps [steps, outputs], NaN where they are missing. */
    float *values;
    size_t value_capacity;
    int64_t outputs; /* 0: all of them are missing */
} rcvi_example;

/* Parses a line; the result is valid until the next call. */
rcv_status rcvi_example_parse(rcvi_example *example, const char *line, size_t length);
void rcvi_example_free(rcvi_example *example);

#endif

/* One example: a line of a file, parsed to numbers or a text, and its label (a class or values). */
#ifndef RCVI_DATA_EXAMPLE_H
#define RCVI_DATA_EXAMPLE_H

#include "data/internal.h"

typedef struct {
    rcv_context *context;
    const char *path;
    rcv_data_kind kind;
    rcv_missing missing;                  /* with RCV_MISSING_ERROR a feature must not be null, else it becomes NaN */
    bool unlabelled;                      /* there is no target, or it is not read */
    const char *feature_key, *target_key; /* of JSON objects; NULL: "x" or "text", "y" */
    const char *unit;                     /* what `line` counts: "line", "sequence" */
    int64_t line;                         /* its number, from 1 on */
    void *json;                           /* owns `text` */
    const char *text;                     /* NULL: the example is numbers */
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
    /* Of a sequence that is cut into pieces, or has a name */
    const char *name; /* NULL: it has none */
    size_t name_length;
    bool continues; /* a later piece of the sequence before */
} rcvi_example;

/* Parses a line; the result is valid until the next call. */
rcv_status rcvi_example_parse(rcvi_example *example, const char *line, size_t length);
void rcvi_example_free(rcvi_example *example);

/* Examples on their way into the token cache. A reader fills in `example`, and calls rcvi_examples_add: in the first pass examples are counted, in the
 * second (`writes`) they are written. */
typedef struct {
    rcvi_import *import;
    bool writes;
    rcvi_example example;
    int64_t steps, sequences, longest; /* of all examples so far */
    int64_t features, outputs;         /* of the first one */
    int64_t own_steps;                 /* of the current text */
    rcvi_text_reader texts;            /* at the levels character and piece */
    int64_t groups, name_bytes;        /* whole sequences, and their names */
    int64_t left_out;                  /* sequences without a target */
} rcvi_examples;

void rcvi_examples_begin(rcvi_examples *examples, rcvi_import *import, bool writes);
void rcvi_examples_end(rcvi_examples *examples);
rcv_status rcvi_examples_add(rcvi_examples *examples);
rcv_status rcvi_examples_finish(rcvi_examples *examples); /* after the last one: sets the totals of the import */

#endif

/* What a file seems to be: its format, the kind of data, and what its columns are for. */
#ifndef RCVI_DATA_RECOGNISE_H
#define RCVI_DATA_RECOGNISE_H

#include "data/internal.h"

enum { RCVI_KIND_OPEN = -1 };

static inline bool rcvi_is_given(const char *name) { return name && name[0]; }
/* Whether options name a column. */
static inline bool rcvi_names_columns(const rcv_data_options *o) {
    return rcvi_is_given(o->features) || rcvi_is_given(o->target) || rcvi_is_given(o->sequence) ||
           rcvi_is_given(o->time);
}

typedef struct {
    rcv_context *context;
    const char *path;
    int file;
    int64_t bytes; /* of the file */
    char *text;    /* its beginning, with a NUL behind it */
    size_t length; /* of the beginning; whole lines alone, unless the file has one line */
    const rcv_data_options *options;
    rcv_file_format format; /* not RCV_FORMAT_AUTO once it is recognised */
    int kind;               /* an rcv_data_kind, or RCVI_KIND_OPEN: to be recognised */
    char separator;         /* of a table */
    rcvi_schema schema;
    rcvi_text sentence; /* what was recognised */
} rcvi_recognised;

/* Reads the beginning of an open file. `kind`: known, or RCVI_KIND_OPEN. */
rcv_status rcvi_recognise_begin(rcv_context *context, int file, int64_t bytes, const char *path,
                                const rcv_data_options *options, int kind, rcvi_recognised *r);
void rcvi_recognise_end(rcvi_recognised *r);
/* The format alone; then kind, schema and sentence. */
rcv_status rcvi_recognise_format(rcvi_recognised *r);
rcv_status rcvi_recognise_content(rcvi_recognised *r);

/* Of each format. */
rcv_status rcvi_recognise_table(rcvi_recognised *r);
rcv_status rcvi_recognise_json(rcvi_recognised *r);
rcv_status rcvi_recognise_numbers(rcvi_recognised *r);
rcv_status rcvi_recognise_arrays(rcvi_recognised *r);

/* Different values of a target, at most RCVI_MOST_CLASSES + 1 of them: are they classes? */
enum { RCVI_MOST_CLASSES = 20 };
typedef struct {
    rcv_context *context;
    char *names[RCVI_MOST_CLASSES + 1];
    size_t count;
    bool comma;          /* numbers may have a decimal comma */
    bool text, fraction; /* one is no number; one is no whole number */
} rcvi_values_seen;
rcv_status rcvi_values_see(rcvi_values_seen *seen, const char *bytes, size_t length);
bool rcvi_values_are_classes(const rcvi_values_seen *seen);
void rcvi_values_free(rcvi_values_seen *seen);

/* Of sequences and time steps: the kind with a class or a value for each. */
static inline rcv_data_kind rcvi_kind_of(bool classes, bool steps) {
    if (steps) return classes ? RCV_DATA_STEP_CLASSES : RCV_DATA_STEP_VALUES;
    return classes ? RCV_DATA_CLASSES : RCV_DATA_VALUES;
}

#endif

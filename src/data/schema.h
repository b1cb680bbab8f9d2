/* What the columns of a table are for. A model stores it, so that data for it is read as its training data was. */
#ifndef RCVI_DATA_SCHEMA_H
#define RCVI_DATA_SCHEMA_H

#include "base/base.h"

typedef struct {
    rcv_context *context;
    char **features; /* [feature_count] names of the input; none where a file has no names (arrays, numbers, texts) */
    size_t feature_count, feature_capacity;
    char **targets; /* [target_count] */
    size_t target_count, target_capacity;
    char *sequence, *time; /* NULL: there is no such column */
    bool is_text;          /* the one feature is a text */
    bool
        is_wide; /* every row is a sequence, and its features are time steps of one feature; `sequence` then names it */
    int64_t inputs, outputs; /* features and values of a time step; 0: as the file has them */
    int64_t horizon, piece;
    rcv_missing missing;
} rcvi_schema;

/* Names in files, as rcv_missing; ends in NULL. */
extern const char *const rcvi_missing_names[];

void rcvi_schema_init(rcvi_schema *schema, rcv_context *context);
void rcvi_schema_free(rcvi_schema *schema);
/* Splits NAME,NAME and adds the names. RCV_INVALID where one is empty or given twice; `option` is for the message. */
rcv_status rcvi_schema_add_names(rcvi_schema *schema, const char *list, const char *option, bool is_target);
rcv_status rcvi_schema_add(rcvi_schema *schema, const char *name, size_t length, bool is_target);
/* NAME,NAME; with rcvi_free. */
rcv_status rcvi_schema_names(const rcvi_schema *schema, bool targets, char **list);
uint64_t rcvi_schema_hash(const rcvi_schema *schema);
rcv_status rcvi_schema_copy(const rcvi_schema *from, rcvi_schema *to);
/* As a JSON object; with rcvi_free. */
rcv_status rcvi_schema_print(const rcvi_schema *schema, char **json);
/* RCV_FORMAT where it is not such an object; `file` is for the message. */
rcv_status rcvi_schema_parse(rcv_context *context, const char *json, const char *file, rcvi_schema *schema);

const rcvi_schema *rcvi_data_schema(const rcv_data *data);
/* rcv_data_open, with a schema that is known: columns of `options` are not looked at. */
rcv_status rcvi_data_open_with(rcv_context *context, const char *path, const rcv_data_options *options,
                               const rcvi_schema *schema, rcv_data **data);

#endif

/* Statistics of the features and classes of training data. */
#ifndef TOOL_DATA_COLUMNS_H
#define TOOL_DATA_COLUMNS_H

#include "json.h"
#include "recurve.h"

typedef struct {
    char *name;
    int64_t values, missing;
    double least, most, mean; /* NaN: there are no values */
} feature_statistics;

typedef struct {
    feature_statistics *features; /* [feature_count]; 0 where the data has tokens */
    size_t feature_count;
    int64_t *class_counts; /* [class_count] */
    size_t class_count;
} column_statistics;

rcv_status columns_compute(const rcv_data *data, column_statistics *columns);
void columns_free(column_statistics *columns);
/* Tables; nothing where there are neither features nor classes. */
void columns_print(const column_statistics *columns, const rcv_data *data);
/* Adds "columns" and "classes". */
void columns_add_json(const column_statistics *columns, const rcv_data *data, json_t *all);

#endif

/* The reader of tables. */
#ifndef RCVI_DATA_TABLE_H
#define RCVI_DATA_TABLE_H

#include "data/example.h"
#include "data/table/csv.h"

extern const rcvi_data_reader rcvi_table_reader;

#endif

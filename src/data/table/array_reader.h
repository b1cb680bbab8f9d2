/* The reader of .npy, .npz and safetensors files. */
#ifndef RCVI_DATA_TABLE_ARRAY_READER_H
#define RCVI_DATA_TABLE_ARRAY_READER_H

#include "data/internal.h"

extern const rcvi_data_reader rcvi_array_reader;

#endif

/* Arrays in files: .npy, .npz and safetensors. An array is where its elements lie in an open file; elements are read in parts. */
#ifndef RCVI_DATA_TABLE_ARRAYS_H
#define RCVI_DATA_TABLE_ARRAYS_H

#include "data/internal.h"

typedef enum {
    RCVI_ARRAY_FLOAT,
    RCVI_ARRAY_BFLOAT,
    RCVI_ARRAY_SIGNED,
    RCVI_ARRAY_UNSIGNED,
    RCVI_ARRAY_TEXT
} rcvi_array_type;

enum { RCVI_ARRAY_DIMS = 8, RCVI_MOST_ARRAYS = 64 };

typedef struct {
    char name[64]; /* in an .npz or safetensors file */
    int file;      /* borrowed; of a compressed array a file of its own */
    bool owns_file;
    int64_t offset; /* of the first element */
    rcvi_array_type type;
    int64_t item; /* bytes of an element; of texts, 4 bytes a character */
    int dims;
    int64_t shape[RCVI_ARRAY_DIMS];
} rcvi_array;

typedef struct {
    rcv_context *context;
    const char *path;
    rcvi_array arrays[RCVI_MOST_ARRAYS];
    size_t count;
} rcvi_arrays;

/* Finds the arrays of an open file of this format (npy, npz, safetensors). The file stays open as long as they are used. */
rcv_status rcvi_arrays_open(rcv_context *context, int file, int64_t bytes, const char *path, rcv_file_format format,
                            rcvi_arrays *arrays);
void rcvi_arrays_close(rcvi_arrays *arrays);
const rcvi_array *rcvi_arrays_find(const rcvi_arrays *arrays, const char *name); /* NULL: there is none */
/* Elements first .. first + count - 1 as numbers; of texts not. `buffer` has room for count * item bytes. */
rcv_status rcvi_array_read(const rcvi_arrays *arrays, const rcvi_array *array, int64_t first, int64_t count,
                           void *buffer, double *numbers);
/* One text, in UTF-8 with a NUL. */
rcv_status rcvi_array_read_text(const rcvi_arrays *arrays, const rcvi_array *array, int64_t index, char *text,
                                size_t room);

/* The header of a .npy file at `at`; `end`: where the file or member ends. */
rcv_status rcvi_npy_read(rcvi_arrays *arrays, int file, int64_t at, int64_t end, rcvi_array *array);
/* The members of an .npz file, each as an array. */
rcv_status rcvi_npz_read(rcvi_arrays *arrays, int file, int64_t bytes);

#endif

/* Internals of tensor collections, for the files of this folder. */
#ifndef RCVI_TENSORS_H
#define RCVI_TENSORS_H

#include "base/base.h"

typedef struct {
    char *key;
    char *value;
} rcvi_metadata;

/* Keys of metadata: the version of the model format, and the checksum of the file. The latter belongs to the file; collections do not have it. */
#define RCVI_FORMAT_KEY "recurve.format"
#define RCVI_CHECKSUM_KEY "recurve.checksum"

struct rcv_tensors {
    rcv_context *context;
    rcv_tensor **items; /* each owns its name and data; the address of a tensor does not change when others are added */
    size_t count, capacity;
    rcvi_metadata *metadata;
    size_t metadata_count, metadata_capacity;
};

/* Adds a tensor of zeros; does not check that the name is new. The caller writes its elements through `*data`. */
rcv_status rcvi_tensors_append(rcv_tensors *tensors, const rcv_tensor *like, void **data);
rcv_status rcvi_metadata_append(rcv_tensors *tensors, const char *key, const char *value);

/* Number of elements of a shape, and their bytes; false on overflow or a negative extent. */
bool rcvi_shape_bytes(rcv_dtype dtype, int dims, const int64_t *shape, int64_t *elements, int64_t *bytes);

/* Escapes a name from a file for a message; a long one is truncated. */
enum { RCVI_ESCAPED_NAME = 96 };
const char *rcvi_escape_name(const char *name, char out[RCVI_ESCAPED_NAME]);
/* A shape as text: "[3, 4]". */
enum { RCVI_SHAPE_TEXT = 24 * RCV_MAX_DIMS };
const char *rcvi_shape_text(int dims, const int64_t *shape, char out[RCVI_SHAPE_TEXT]);

#endif

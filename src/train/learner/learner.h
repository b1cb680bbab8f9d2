/* What learns: rows of an embedding (or numbers as they are), a network, an output layer. Its arrays lie in its device's memory. Of a model
 * that several devices share, a learner has the whole description, and of the arrays the part that is here: consecutive layers, the first ones
 * with the embedding, the last ones with the output layer. */
#ifndef RCVI_LEARNER_H
#define RCVI_LEARNER_H

#include "data/data.h"
#include "device/device.h"
#include "device/learn.h"

/* Offsets of parts in the flat array of parameters are multiples of this, so that a GPU reads them in vectors. What lies between is zero. */
enum { RCVI_PART_ELEMENTS = 64 };

typedef struct {
    rcv_data_kind kind;       /* what is predicted: the next token (stream, lines), a class, values */
    int64_t tokens, features; /* one of them is 0: tokens go through the embedding, features are numbers */
    int64_t embedding;        /* into the network */
    int64_t outputs;          /* classes or values */
    bool tied;                /* the output layer's matrix is the embedding */
    bool fixed;               /* the embedding stays as it was made */
} rcvi_shape;

struct rcv_learner {
    rcv_context *context;
    const rcvi_device *device;
    char *device_name;
    int ordinal;
    rcv_dtype dtype, real; /* of products; of the arrays: float32 or float64 */
    rcvi_shape shape;
    rcv_cell *cell;
    rcv_net *net;               /* the whole */
    rcv_net *part;              /* what of it is here: the whole, or a slice */
    bool has_embedding;         /* the first layer is here, with the embedding where inputs are tokens */
    bool has_head;              /* the last layer is here, with the output layer */
    rcv_vocabulary *vocabulary; /* NULL where inputs are numbers */
    char *classes;              /* names, a line each; NULL */
    char **class_names;         /* [outputs] the same names, split; NULL */
    int64_t width;              /* features out of the network */
    int64_t elements;           /* with what lies between */
    int64_t at_net, at_weight, at_bias;
    int64_t at_part;  /* where the parameters of the part's layers begin */
    int64_t from, to; /* the elements that are here: arrays of parameters, moments and averages have these */
    void *
        parameters; /* the device's: embedding [tokens, embedding], the network's, weight [outputs, width], bias [outputs] */
};

/* A tensor within an array of `elements`. */
typedef struct {
    char name[160];
    int dims;
    int64_t shape[3];
    int64_t offset, count;
} rcvi_tensor_place;

size_t rcvi_learner_tensor_count(const rcv_learner *learner);
void rcvi_learner_tensor_at(const rcv_learner *learner, size_t index, rcvi_tensor_place *place);

/* The next token at every step; else something of the whole sequence, at its last. */
static inline bool rcvi_predicts_next(const rcv_learner *l) {
    return l->shape.kind == RCV_DATA_STREAM || l->shape.kind == RCV_DATA_LINES;
}
static inline size_t rcvi_real_bytes(const rcv_learner *l) { return l->real == RCV_FLOAT64 ? 8 : 4; }
/* Element `element` of an array, counted from its begin. */
static inline void *rcvi_element_at(const rcv_learner *l, const void *array, int64_t element) {
    return (char *)(uintptr_t)array + element * (int64_t)rcvi_real_bytes(l);
}
/* The same of an array that has the elements which are here, counted in the whole. */
static inline void *rcvi_at(const rcv_learner *l, const void *array, int64_t element) {
    return rcvi_element_at(l, array, element - l->from);
}

/* How a learner is made, whoever says so. `net_options.input` follows from the shape. */
typedef struct {
    rcvi_shape shape;
    rcv_net_options net;
    rcv_dtype dtype;
    const char *device;
} rcvi_learner_options;

/* All but parameters, which are not there yet. Owns the cell where RCV_OK is returned. */
rcv_status rcvi_learner_shell(rcv_context *context, rcv_cell *cell, const rcvi_learner_options *options,
                              rcv_learner **learner);
/* Before it has parameters: layers first .. first + count - 1 are here. */
rcv_status rcvi_learner_take_part(rcv_learner *learner, int64_t first, int64_t count);
/* What a learner with these layers alone would be, of one that may have others: a description, without parameters. Dropped by the second. */
rcv_status rcvi_learner_describe_part(const rcv_learner *learner, int64_t first, int64_t count, rcv_learner *part);
void rcvi_learner_drop_part(rcv_learner *part);
rcv_status rcvi_learner_allocate(rcv_learner *learner);
/* All but parameters, as settings say, for this data; and these, with their first values. */
rcv_status rcvi_learner_make(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                             rcv_learner **learner);
rcv_status rcvi_learner_begin(rcv_learner *learner, const rcv_settings *settings);
/* `init` 0: as PyTorch does; else everything uniform in +-init. */
rcv_status rcvi_learner_initialize(rcv_learner *learner, double init, uint64_t seed);

/* Is the data of the kind, with the tokens, features and outputs that the learner has? */
rcv_status rcvi_learner_fits(const rcv_learner *learner, const rcv_data *data);

/* `text`, names a line each, becomes the learner's. RCV_FORMAT where there are not as many as outputs. */
rcv_status rcvi_learner_name_classes(rcv_learner *learner, char *text);

/* RCV_UNSUPPORTED where some layers alone are here. */
rcv_status rcvi_learner_is_whole(const rcv_learner *learner);

/* ---- the device's memory ---- */

/* Zeroed. */
rcv_status rcvi_device_new(const rcv_learner *learner, int64_t count, size_t size, void **memory);
void rcvi_device_free(const rcv_learner *learner, void *memory);
rcv_status rcvi_device_write(const rcv_learner *learner, void *to, const void *from, size_t bytes);
rcv_status rcvi_device_read(const rcv_learner *learner, void *to, const void *from, size_t bytes);

/* ---- files ---- */

/* What the model is, without its parameters. */
rcv_status rcvi_learner_describe(const rcv_learner *learner, rcv_tensors *tensors);
/* RCV_FORMAT where the file's model is not the same: cell, sizes, words, classes. Dropout and zoneout may differ. */
rcv_status rcvi_learner_check_same(const rcv_learner *learner, const rcv_tensors *tensors, const char *file);
/* The model as a file; `parameters`, all of them, in the host's memory. */
rcv_status rcvi_learner_save_as(const rcv_learner *learner, const void *parameters, const char *path);
rcv_status rcvi_learner_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     const char *device, rcv_dtype dtype, rcv_learner **learner);
/* All `elements` of an array, in the host's memory, as tensors of the parameters' names behind a prefix. */
rcv_status rcvi_array_to_tensors(const rcv_learner *learner, const char *prefix, const void *host,
                                 rcv_tensors *tensors);
/* The same back: to the host's memory, for rcvi_free. */
rcv_status rcvi_array_from_tensors(const rcv_learner *learner, const char *prefix, const rcv_tensors *tensors,
                                   const char *file, void **host);
/* The mean of a run's parameters, where its file has one: that is what is used then. */
#define RCVI_AVERAGE_PREFIX "average."

#endif

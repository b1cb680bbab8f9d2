/* A learner: a model that is trained. It is an embedding (or inputs that are numbers), a network and an output layer. Its arrays are in its
 * device's memory. In a pipeline each rank has a learner that describes the whole model and has the arrays of its stage: consecutive layers,
 * the first stage with the embedding, the last stage with the output layer. */
#ifndef RCVI_LEARNER_H
#define RCVI_LEARNER_H

#include "data/data.h"
#include "data/scaling.h"
#include "data/schema.h"
#include "device/device.h"
#include "device/learn.h"

/* Embedding, network, weight and bias begin at multiples of this in the flat array of parameters, so that a GPU reads them in vectors.
 * Elements between them are zero. */
enum { RCVI_ALIGNED_ELEMENTS = 64 };

typedef struct {
    rcv_data_kind
        kind; /* what is predicted: the next token (stream, lines), a class or values, once or at every step */
    int64_t tokens, features; /* one of them is 0: inputs are tokens, which the embedding maps, or numbers */
    int64_t embedding;        /* features of the network's input */
    int64_t outputs;          /* classes or values */
    bool tied;                /* the output layer's matrix is the embedding */
    bool fixed;               /* the embedding is not trained */
} rcvi_shape;

struct rcv_learner {
    rcv_context *context;
    const rcvi_device *device;
    char *device_name;
    int ordinal;
    rcv_dtype dtype, real; /* of products; of arrays: float32 or float64 */
    rcvi_shape shape;
    rcv_cell *cell;
    rcv_net *net;               /* the whole network */
    rcv_net *slice;             /* its layers that are here: `net` itself, or a slice of it */
    bool has_embedding;         /* the first layer is here, with the embedding where inputs are tokens */
    bool has_head;              /* the last layer is here, with the output layer */
    rcv_vocabulary *vocabulary; /* NULL where inputs are numbers */
    char *classes;              /* names of classes, one per line; NULL */
    char **class_names;         /* [outputs] the same names, split; NULL */
    int64_t width;              /* features of the network's output */
    int64_t elements;           /* of the flat array of the whole model */
    int64_t net_offset, weight_offset, bias_offset;
    int64_t slice_offset; /* of the parameters of the slice */
    /* Elements first_element .. end_element - 1 of the whole are here: arrays of parameters, moments and averages have these. */
    int64_t first_element, end_element;
    /* The device's: embedding [tokens, embedding], the network's, weight [outputs, width], bias [outputs]. */
    void *parameters;
    rcvi_schema *schema;                /* how its data is read; NULL: a text, or a file that does not say */
    char *feature_names, *target_names; /* NAME,NAME of the schema; NULL: it has none */
    rcvi_scaling *scaling;              /* of features and values; NULL: they are read as the data has them */
    float *class_weights;               /* [outputs] weights of classes in the loss, on the host; NULL: all are 1 */
    void *device_weights;               /* the same in the device's memory, as reals */
    /* Plans and memory that rcv_learner_predict keeps for its next call (inference/predict.c); NULL before the first. */
    void *predictor;
    void (*free_predictor)(void *predictor);
};

/* A named tensor within a flat array of `elements`. */
typedef struct {
    char name[160];
    int dims;
    int64_t shape[3];
    int64_t offset, count;
} rcvi_tensor_place;

size_t rcvi_learner_tensor_count(const rcv_learner *learner);
void rcvi_learner_tensor_at(const rcv_learner *learner, size_t index, rcvi_tensor_place *place);

/* The learner has an output at every step: the next token, a class or values; else one for the whole sequence, at its last step. */
static inline bool rcvi_predicts_steps(const rcv_learner *l) { return rcvi_kind_has_steps(l->shape.kind); }
static inline size_t rcvi_real_bytes(const rcv_learner *l) { return l->real == RCV_FLOAT64 ? 8 : 4; }
/* Address of an element of an array. */
static inline void *rcvi_element_at(const rcv_learner *l, const void *array, int64_t element) {
    return (char *)(uintptr_t)array + element * (int64_t)rcvi_real_bytes(l);
}
/* Address of element `element` of the whole model, in an array of the elements that are here. */
static inline void *rcvi_local_element_at(const rcv_learner *l, const void *array, int64_t element) {
    return rcvi_element_at(l, array, element - l->first_element);
}

/* How a learner is made. `net.input` is set from the shape. */
typedef struct {
    rcvi_shape shape;
    rcv_net_options net;
    rcv_dtype dtype;
    const char *device;
} rcvi_learner_options;

/* Without parameters yet. Owns the cell where RCV_OK is returned. */
rcv_status rcvi_learner_new_empty(rcv_context *context, rcv_cell *cell, const rcvi_learner_options *options,
                                  rcv_learner **learner);
/* Before it has parameters: layers first .. first + count - 1 are here, the others on other ranks. */
rcv_status rcvi_learner_take_slice(rcv_learner *learner, int64_t first, int64_t count);
/* Describes a learner that has these layers alone, without parameters. `part` borrows from `learner`; freed by rcvi_learner_drop_slice. */
rcv_status rcvi_learner_describe_slice(const rcv_learner *learner, int64_t first, int64_t count, rcv_learner *part);
void rcvi_learner_drop_slice(rcv_learner *part);
rcv_status rcvi_learner_allocate(rcv_learner *learner);
/* A learner for this data as settings say, without parameters; and the parameters, with their first values. */
rcv_status rcvi_learner_make(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                             rcv_learner **learner);
rcv_status rcvi_learner_set_first_values(rcv_learner *learner, const rcv_settings *settings);
/* `init` 0: as PyTorch does; else everything uniform in +-init. */
rcv_status rcvi_learner_initialize(rcv_learner *learner, double init, uint64_t seed);

/* RCV_INVALID where the data has another kind, or other numbers of tokens, features or outputs than the learner. */
rcv_status rcvi_learner_fits(const rcv_learner *learner, const rcv_data *data);

/* `text`, one name per line, becomes the learner's. RCV_FORMAT where there are not as many names as outputs. */
rcv_status rcvi_learner_name_classes(rcv_learner *learner, char *text);

/* RCV_UNSUPPORTED where layers of the model are on other ranks. */
rcv_status rcvi_learner_is_whole(const rcv_learner *learner);

/* ---- the device's memory ---- */

/* Zeroed memory of count * size bytes. */
rcv_status rcvi_device_new(const rcv_learner *learner, int64_t count, size_t size, void **memory);
void rcvi_device_free(const rcv_learner *learner, void *memory);
rcv_status rcvi_device_write(const rcv_learner *learner, void *to, const void *from, size_t bytes);
rcv_status rcvi_device_read(const rcv_learner *learner, void *to, const void *from, size_t bytes);

/* ---- files ---- */

const char *rcvi_kind_name(rcv_data_kind kind); /* as in files and settings */

/* Adds the description of the model, without its parameters. */
rcv_status rcvi_learner_describe(const rcv_learner *learner, rcv_tensors *tensors);
/* RCV_FORMAT where the file's model is not the same: cell, sizes, words, classes. Dropout and zoneout may differ. */
rcv_status rcvi_learner_check_same(const rcv_learner *learner, const rcv_tensors *tensors, const char *file);
/* Writes the model. `parameters`: [elements] in the host's memory. */
rcv_status rcvi_learner_save_as(const rcv_learner *learner, const void *parameters, const char *path);
rcv_status rcvi_learner_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     const char *device, rcv_dtype dtype, rcv_learner **learner);
/* Adds an array, [elements] in the host's memory, as tensors with the parameters' names after a prefix. */
rcv_status rcvi_array_to_tensors(const rcv_learner *learner, const char *prefix, const void *host,
                                 rcv_tensors *tensors);
/* Reads such tensors into an array, [elements] in the host's memory, for rcvi_free. */
rcv_status rcvi_array_from_tensors(const rcv_learner *learner, const char *prefix, const rcv_tensors *tensors,
                                   const char *file, void **host);
/* Words of a vocabulary or names of classes in a file: one a line, each followed by a newline; text is NULL where the file has none. rcvi_free. */
typedef enum { RCVI_NAMES_VOCABULARY, RCVI_NAMES_CLASSES, RCVI_NAMES_KINDS } rcvi_names_kind;
typedef struct {
    char *text;
    size_t length;
} rcvi_names;
rcv_status rcvi_names_to_tensors(const rcv_learner *learner, rcv_tensors *tensors);
rcv_status rcvi_names_from_tensors(rcv_context *context, rcvi_names_kind kind, const rcv_tensors *tensors,
                                   const char *file, rcvi_names *names);
/* *what: which names of the two differ; NULL: none. `file` is that of b, for messages. */
rcv_status rcvi_names_differ(rcv_context *context, const rcv_tensors *a, const rcv_tensors *b, const char *file,
                             const char **what);
/* Prefix of averaged parameters. A file that has them is loaded with these. */
#define RCVI_AVERAGE_PREFIX "average."

#endif

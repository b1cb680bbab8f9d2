/* The state of a network by cuDNN, shared by its construction (cudnn.c) and its runs (run.c). */
#ifndef RCVI_CUDNN_H
#define RCVI_CUDNN_H

#include "device/cuda/cudnn/api.h"
#include "device/cuda/cudnn/copy.h"
#include "device/cuda/cudnn/vendor.h"

/* The tensors of a pass. A port's tensor is the caller's array itself, or our own memory where cuDNN's type differs or where cuDNN needs a
 * tensor that the caller may leave out. */
typedef enum {
    RCVI_CUDNN_X,
    RCVI_CUDNN_Y,
    RCVI_CUDNN_H0,
    RCVI_CUDNN_C0,
    RCVI_CUDNN_H1,
    RCVI_CUDNN_C1,
    RCVI_CUDNN_DX, /* the gradient of port p is RCVI_CUDNN_DX + p */
    RCVI_CUDNN_DY,
    RCVI_CUDNN_DH0,
    RCVI_CUDNN_DC0,
    RCVI_CUDNN_DH1,
    RCVI_CUDNN_DC1,
    RCVI_CUDNN_PORTS
} rcvi_cudnn_port_index;

typedef struct {
    int buffer;            /* of the program; RCVI_NONE: the pass has no such tensor */
    int64_t rows, columns; /* contiguous */
    bool own;
    size_t offset;       /* in our own memory: where `own`, and for dx and dy that the caller left out */
    rcvi_cuda_type type; /* of the caller's array */
    bool is_batch_major; /* the caller's array is */
} rcvi_cudnn_port;

typedef struct {
    size_t offset, bytes;
} rcvi_cudnn_part;

/* The pieces of one array of the caller: of all parameters or, where these are separate, of a tensor. */
typedef struct {
    int parameters, gradients; /* buffers of the program; RCVI_NONE: the pass has none */
    rcvi_weight_map map;
} rcvi_cudnn_tensor;

struct rcvi_cudnn {
    const rcvi_cudnn_api *api;
    const rcvi_program *program;
    rcv_context *context;
    int cell; /* RCVI_CUDNN_LSTM, ... */
    int64_t gates;
    rcvi_cuda_type type; /* of cuDNN's data: F32, BF16 or F16 */
    bool training;
    rcvi_sizes sizes; /* of the descriptors, and of the ports' rows */
    int *lengths;     /* [batch] scratch */
    void *handle, *rnn, *dropout;
    void *x, *y;                 /* data descriptors */
    void *state, *matrix, *bias; /* tensor descriptors */
    rcvi_cudnn_port ports[RCVI_CUDNN_PORTS];
    rcvi_cudnn_part weights, dweights, work, reserve, pieces; /* bytes 0: none */
    rcvi_cudnn_tensor *tensors;
    size_t tensor_count; /* 1 where the parameters are one flat array */
    size_t bytes;        /* of the one allocation */
    unsigned char *base; /* device memory */
};

/* RCV_OK, or a sentence with cuDNN's name for the failure. */
rcv_status rcvi_cudnn_check(const rcvi_cudnn *vendor, int status, const char *what);

static inline void *rcvi_cudnn_at(const rcvi_cudnn *vendor, rcvi_cudnn_part part) {
    return part.bytes ? vendor->base + part.offset : NULL;
}

#endif

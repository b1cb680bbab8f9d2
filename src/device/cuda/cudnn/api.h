/* The functions of cuDNN 9 that are used, declared here: a build needs no cuDNN header, and the library is opened at the first use. Handles
 * and descriptors are opaque pointers; enumerations are int. */
#ifndef RCVI_CUDNN_API_H
#define RCVI_CUDNN_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

enum { RCVI_CUDNN_MAJOR = 9 }; /* values below are those of this version */

enum { RCVI_CUDNN_SUCCESS = 0, RCVI_CUDNN_NO_HOST_MEMORY = 4003, RCVI_CUDNN_NO_DEVICE_MEMORY = 4004 };
enum { RCVI_CUDNN_FLOAT = 0, RCVI_CUDNN_HALF = 2, RCVI_CUDNN_BFLOAT16 = 9 };
/* For float data: tensor cores on tf32 where there are any; tensor cores; none at all. */
enum { RCVI_CUDNN_DEFAULT_MATH = 0, RCVI_CUDNN_TENSOR_MATH = 1, RCVI_CUDNN_FMA_MATH = 3 };
enum { RCVI_CUDNN_STANDARD, RCVI_CUDNN_STATIC, RCVI_CUDNN_DYNAMIC, RCVI_CUDNN_STATIC_SMALL, RCVI_CUDNN_ALGORITHMS };
enum { RCVI_CUDNN_RELU, RCVI_CUDNN_TANH, RCVI_CUDNN_LSTM, RCVI_CUDNN_GRU };
enum { RCVI_CUDNN_NO_BIAS = 0, RCVI_CUDNN_DOUBLE_BIAS = 2 };
enum { RCVI_CUDNN_ONE_DIRECTION, RCVI_CUDNN_BOTH_DIRECTIONS };
enum { RCVI_CUDNN_LINEAR_INPUT = 0, RCVI_CUDNN_UNPADDED = 0 };
enum { RCVI_CUDNN_PACKED_STEPS = 1 }; /* [steps, batch, features] without gaps */
enum { RCVI_CUDNN_INFERENCE, RCVI_CUDNN_TRAINING };
enum { RCVI_CUDNN_ADD_GRADIENTS = 0 };

/* clang-format off */
#define RCVI_CUDNN_FUNCTIONS(F)                                                                                        \
    F(size_t, GetVersion, (void))                                                                                      \
    F(const char *, GetErrorString, (int status))                                                                      \
    F(int, Create, (void **handle))                                                                                    \
    F(int, Destroy, (void *handle))                                                                                    \
    F(int, SetStream, (void *handle, cudaStream_t stream))                                                             \
    F(int, CreateTensorDescriptor, (void **tensor))                                                                    \
    F(int, DestroyTensorDescriptor, (void *tensor))                                                                    \
    F(int, SetTensorNdDescriptor, (void *tensor, int type, int dims, const int *shape, const int *strides))            \
    F(int, GetTensorNdDescriptor, (void *tensor, int most_dims, int *type, int *dims, int *shape, int *strides))       \
    F(int, CreateDropoutDescriptor, (void **dropout))                                                                  \
    F(int, DestroyDropoutDescriptor, (void *dropout))                                                                  \
    F(int, SetDropoutDescriptor, (void *dropout, void *handle, float probability, void *states, size_t state_bytes,    \
                                  unsigned long long seed))                                                            \
    F(int, CreateRNNDescriptor, (void **rnn))                                                                          \
    F(int, DestroyRNNDescriptor, (void *rnn))                                                                          \
    F(int, SetRNNDescriptor_v8, (void *rnn, int algorithm, int cell, int bias, int direction, int input_mode,          \
                                 int type, int precision, int math, int32_t input, int32_t hidden, int32_t projection, \
                                 int32_t layers, void *dropout, uint32_t flags))                                       \
    F(int, BuildRNNDynamic, (void *handle, void *rnn, int batch))                                                      \
    F(int, CreateRNNDataDescriptor, (void **data))                                                                     \
    F(int, DestroyRNNDataDescriptor, (void *data))                                                                     \
    F(int, SetRNNDataDescriptor, (void *data, int type, int layout, int steps, int batch, int features,                \
                                  const int *lengths, void *padding))                                                  \
    F(int, GetRNNTempSpaceSizes, (void *handle, void *rnn, int mode, void *x, size_t *work, size_t *reserve))          \
    F(int, GetRNNWeightSpaceSize, (void *handle, void *rnn, size_t *bytes))                                            \
    F(int, GetRNNWeightParams, (void *handle, void *rnn, int32_t pseudo_layer, size_t bytes, const void *space,        \
                                int32_t linear, void *matrix, void **matrix_at, void *bias, void **bias_at))           \
    F(int, RNNForward, (void *handle, void *rnn, int mode, const int32_t *lengths, void *x_data, const void *x,        \
                        void *y_data, void *y, void *h_tensor, const void *h0, void *h1, void *c_tensor,               \
                        const void *c0, void *c1, size_t weight_bytes, const void *weights, size_t work_bytes,         \
                        void *work, size_t reserve_bytes, void *reserve))                                              \
    F(int, RNNBackwardData_v8, (void *handle, void *rnn, const int32_t *lengths, void *y_data, const void *y,          \
                                const void *dy, void *x_data, void *dx, void *h_tensor, const void *h0,                \
                                const void *dh1, void *dh0, void *c_tensor, const void *c0, const void *dc1,           \
                                void *dc0, size_t weight_bytes, const void *weights, size_t work_bytes, void *work,    \
                                size_t reserve_bytes, void *reserve))                                                  \
    F(int, RNNBackwardWeights_v8, (void *handle, void *rnn, int mode, const int32_t *lengths, void *x_data,            \
                                   const void *x, void *h_tensor, const void *h0, void *y_data, const void *y,         \
                                   size_t weight_bytes, void *dweights, size_t work_bytes, void *work,                 \
                                   size_t reserve_bytes, void *reserve))
/* clang-format on */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define RCVI_CUDNN_FIELD(TYPE, NAME, ARGUMENTS) TYPE(*NAME) ARGUMENTS;
typedef struct {
    RCVI_CUDNN_FUNCTIONS(RCVI_CUDNN_FIELD)
} rcvi_cudnn_api;

/* NULL, with the sentence recorded, where there is no cuDNN of this major version. */
const rcvi_cudnn_api *rcvi_cudnn_open(void);

#endif

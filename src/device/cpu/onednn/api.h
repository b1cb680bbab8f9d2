/* One interface to oneDNN's recurrent primitives for both of its C interfaces: in version 2 a memory descriptor is a struct, from
 * version 3 on an object. */
#ifndef RCVI_CPU_VENDOR_ONEDNN_API_H
#define RCVI_CPU_VENDOR_ONEDNN_API_H

#include <dnnl.h>
#include <stdbool.h>

typedef enum { RCVI_ONEDNN_LSTM, RCVI_ONEDNN_GRU, RCVI_ONEDNN_TANH, RCVI_ONEDNN_RELU } rcvi_onednn_cell;

/* Ports: the tensors of a primitive, then their gradients in the same order. */
enum {
    RCVI_PORT_X,
    RCVI_PORT_H0, /* states before the first step */
    RCVI_PORT_C0,
    RCVI_PORT_W,
    RCVI_PORT_U,
    RCVI_PORT_BIAS,
    RCVI_PORT_Y,
    RCVI_PORT_H1, /* states after the last step */
    RCVI_PORT_C1,
    RCVI_PORT_GRADIENT,
    RCVI_PORT_COUNT = 2 * RCVI_PORT_GRADIENT
};

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t rcvi_onednn_desc;
static inline rcvi_onednn_desc rcvi_onednn_desc_of(const dnnl_memory_desc_t *owned) { return *owned; }
#else
typedef const dnnl_memory_desc_t *rcvi_onednn_desc;
static inline rcvi_onednn_desc rcvi_onednn_desc_of(const dnnl_memory_desc_t *owned) { return owned; }
#endif

dnnl_status_t rcvi_onednn_create_desc(dnnl_memory_desc_t *owned, int dims, const int64_t *shape, dnnl_data_type_t type,
                                      dnnl_format_tag_t tag);
void rcvi_onednn_free_desc(dnnl_memory_desc_t *owned); /* a zeroed descriptor is ignored */

typedef struct {
    dnnl_engine_t engine;
    rcvi_onednn_cell cell;
    dnnl_rnn_direction_t direction;
    const_dnnl_primitive_attr_t attributes;
} rcvi_onednn_kind;

/* ports: [RCVI_PORT_COUNT]; those of c are used for an LSTM only, gradients for the backward pass only. */
dnnl_status_t rcvi_onednn_create_forward(const rcvi_onednn_kind *kind, bool training, const dnnl_memory_desc_t *ports,
                                         dnnl_primitive_desc_t *desc);
dnnl_status_t rcvi_onednn_create_backward(const rcvi_onednn_kind *kind, const dnnl_memory_desc_t *ports,
                                          dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *desc);

#endif

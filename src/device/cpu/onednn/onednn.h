/* The structures that building (onednn.c) and running (run.c) a network by oneDNN share. */
#ifndef RCVI_CPU_VENDOR_ONEDNN_H
#define RCVI_CPU_VENDOR_ONEDNN_H

#include "device/cpu/onednn/api.h"
#include "device/cpu/onednn/guard.h"
#include "device/cpu/onednn/vendor.h"

enum { RCVI_PORT_BACKWARD_WEIGHTS = RCVI_PORT_COUNT, RCVI_PORT_TOTAL = RCVI_PORT_BACKWARD_WEIGHTS + 2 };

typedef struct {
    dnnl_memory_t outside; /* the caller's array; NULL where there is none */
    dnnl_memory_t inside;  /* what the primitive reads or writes; equal to outside where that is the caller's array */
    dnnl_primitive_t reorder;
    size_t bytes; /* of inside, where that is our memory */
} rcvi_onednn_port;

typedef struct {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[RCVI_PORT_COUNT + 2];
    int argument_count;
} rcvi_onednn_pass;

typedef struct {
    int64_t first, layers, input; /* layers first .. first + layers - 1; features of their inputs */
    dnnl_memory_desc_t descs[RCVI_PORT_COUNT];
    rcvi_onednn_port ports[RCVI_PORT_TOTAL]; /* tensors, gradients, weights of the backward pass */
    rcvi_onednn_pass passes[2];
} rcvi_onednn_block;

typedef struct {
    dnnl_memory_t memory;
    bool own;      /* its bytes are in our allocation, */
    size_t offset; /* at this offset */
} rcvi_onednn_memory;

struct rcvi_vendor {
    const rcvi_program *program;
    rcv_context *context;
    rcvi_onednn_kind kind;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes;
    int64_t steps, batch, hidden, directions, gates, bias_gates;
    bool training;
    rcvi_onednn_block *blocks;
    size_t block_count;
    rcvi_onednn_memory *memories;
    size_t memory_count, memory_capacity;
    dnnl_primitive_t *reorders;
    size_t reorder_count, reorder_capacity;
    dnnl_primitive_desc_t reorder_desc; /* of the reorder that is being created, */
    dnnl_memory_desc_t plain_desc;      /* and of the port: fields, so that they are freed after an exception */
    int buffers[RCVI_ROLE_COUNT][2];    /* the program's buffer of a role and state, or RCVI_NONE */
    int *tensors[2]; /* [parameter_count] buffers of parameters, of gradients, where they are separate; else NULL */
    size_t bytes;    /* of our memory; the next fields are offsets in it */
    size_t scratch, staging, zeros, sink; /* shared scratchpad; weights in our gates' order; absent inputs; outputs */
    void *allocation;
    unsigned char *base;   /* our memory */
    bool backward_stale;   /* parameters changed since the backward pass converted them */
    dnnl_status_t failure; /* first failed status of a pass, or dnnl_success */
    int (*get_threads)(void);
    void (*set_threads)(int);
};

/* True if a block's weights in the caller's array have the plain layout: one matrix, its gates in oneDNN's order. */
static inline bool rcvi_onednn_weights_in_place(const rcvi_vendor *vendor, const rcvi_onednn_block *block) {
    return block->layers * vendor->directions == 1 && vendor->kind.cell != RCVI_ONEDNN_GRU;
}

/* Runs `work`, which calls oneDNN, with the program's number of threads. An exception from it becomes a status. */
rcv_status rcvi_onednn_call(rcvi_vendor *vendor, void (*work)(void *user), void *user);

#endif

/* What the building and the running of a network by oneDNN share. */
#ifndef RCVI_CPU_VENDOR_ONEDNN_H
#define RCVI_CPU_VENDOR_ONEDNN_H

#include "device/cpu/onednn/api.h"
#include "device/cpu/onednn/guard.h"
#include "device/cpu/onednn/vendor.h"

enum { RCVI_PORT_BACKWARD_WEIGHTS = RCVI_PORT_COUNT, RCVI_PORT_TOTAL = RCVI_PORT_BACKWARD_WEIGHTS + 2 };

typedef struct {
    dnnl_memory_t outside; /* the caller's array; NULL where there is none */
    dnnl_memory_t inside;  /* what the primitive takes; the same where that is the caller's array */
    dnnl_primitive_t reorder;
    size_t bytes; /* inside, where that is ours */
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
    bool own;     /* its bytes are ours */
    size_t place; /* then: from the start of our memory */
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
    dnnl_primitive_desc_t reorder_desc;   /* of the reorder that is being made, */
    dnnl_memory_desc_t plain_desc;        /* and of the port: here, so that an exception leaves none behind */
    int buffers[RCVI_ROLE_COUNT][2];      /* the program's buffer of a role and state, or RCVI_NONE */
    size_t bytes;                         /* of our memory; below, places in it */
    size_t scratch, staging, zeros, sink; /* shared scratchpad; weights in our gates' order; absent inputs; outputs */
    void *allocation;
    unsigned char *base;   /* our memory */
    bool backward_stale;   /* parameters changed since the backward pass laid them out */
    dnnl_status_t failure; /* the first of a pass */
    int (*get_threads)(void);
    void (*set_threads)(int);
};

/* Whether a block's weights lie in the caller's array as the plain description says: one matrix, its gates in order. */
static inline bool rcvi_onednn_in_place(const rcvi_vendor *vendor, const rcvi_onednn_block *block) {
    return block->layers * vendor->directions == 1 && vendor->kind.cell != RCVI_ONEDNN_GRU;
}

/* Calls into oneDNN stand inside of `work`: the program's number of threads holds there, and an exception that leaves it is a status. */
rcv_status rcvi_onednn_call(rcvi_vendor *vendor, void (*work)(void *user), void *user);

#endif

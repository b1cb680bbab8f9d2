/* A network: layers of one cell, bound to sizes, with their parameters laid out in one flat array. */
#ifndef RCVI_NET_H
#define RCVI_NET_H

#include "cell/cell.h"

/* Where a parameter of a bound graph lies in the flat array. */
typedef struct {
    int64_t offset;
    int64_t rows, columns; /* of one diagonal block */
    int64_t blocks;        /* one behind the other */
} rcvi_param_place;

typedef struct {
    rcvi_graph forward; /* bound; one output; x is its first input, behind it is what is new of states that zone out */
    rcvi_graph adjoint; /* of it */
    int64_t input, output;
    int64_t start; /* of its parameters in the flat array */
    int parts;     /* of the forward graph, its recurrences taken apart */
    bool scans, bends,
        multiplies; /* among these are elementwise ones; of them some that are not affine; some that multiply states */
    rcvi_param_place *places[2]; /* [directions][forward.param_count] */
} rcvi_layer;

struct rcv_net {
    rcv_context *context;
    rcvi_pool pool;
    const rcv_cell *cell;
    rcv_net_options options; /* sizes: all declared ones */
    int64_t directions;
    rcvi_layer *layers;
    rcv_parameter *parameters;
    const rcvi_param **parameter_kinds; /* [parameter_count]: one of the parameters stacked in it */
    size_t parameter_count, parameter_capacity;
    int64_t parameter_elements;
    rcv_state *states;
    size_t state_count;
    int64_t first; /* its first layer's number in the network of which it is a slice, else 0 */
    bool certain;  /* in training, too, states take the mean of what zoneout may leave them */
};

/* Does a plan for training ask for a seed? */
static inline bool rcvi_net_is_random(const rcv_net *net) {
    return net->options.dropout > 0 || (net->options.zoneout > 0 && !net->certain);
}

/* Features of a value of a bound graph. */
static inline int64_t rcvi_features(const rcvi_graph *graph, int size) {
    return size < 0 ? 1 : graph->sizes[size].value;
}

/* Layers first .. first + count - 1 as a network of their own, whose masks are those that they have in the whole: what is dropped between its
 * last layer and the next is left to whoever passes it on. Its parameters lie as in the whole, from rcvi_layer_start(net, first) on. */
rcv_status rcvi_net_slice(const rcv_net *net, int64_t first, int64_t count, rcv_net **slice);

/* Where the parameters of a layer begin in the flat array; of the number of layers: where all end. */
static inline int64_t rcvi_layer_start(const rcv_net *net, int64_t layer) {
    return layer < net->options.layers ? net->layers[layer].start : net->parameter_elements;
}

/* Behind the first layer's gradients nothing is computed that could hide their exchange. So their lead is told of by itself: those before
 * the boundary of parameters nearest to the layer's middle, which may be its end. */
int64_t rcvi_lead_end(const rcv_net *net);

/* Elements before the block of (layer, direction) in a tensor of this state, for batch 1. */
int64_t rcvi_state_offset(const rcv_net *net, size_t state, int64_t layer, int64_t direction);

#endif

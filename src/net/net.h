/* A network: layers of one cell, bound to sizes, with their parameters laid out in one flat array. */
#ifndef RCVI_NET_H
#define RCVI_NET_H

#include "cell/cell.h"

/* Location and shape of a parameter of a bound graph in the flat array; or of a constant in the row of its layer's constants. */
typedef struct {
    int64_t offset;
    int64_t rows, columns; /* of one diagonal block */
    int64_t blocks;        /* diagonal blocks, stored one after another */
    bool constant;
} rcvi_param_layout;

/* Constants begin at multiples of so many elements of their row, for vector loads. */
enum { RCVI_CONSTANT_ALIGNMENT = 16 };

typedef struct {
    rcvi_graph forward; /* bound; one output; inputs: x, then one zoneout mask per state if the network has zoneout */
    rcvi_graph adjoint; /* derivative of `forward` */
    /* Where values depend on the parameters alone: these constants, and the step with them as learned vectors, each with its derivative.
     * Else without values. */
    rcvi_graph constants, constants_adjoint;
    rcvi_graph step, step_adjoint;
    int64_t constant_elements; /* of the row that holds the constants */
    int64_t input, output;
    int64_t start;                                 /* of its parameters in the flat array */
    int parts;                                     /* of the forward graph after loop distribution */
    bool has_elementwise, has_diagonal, has_dense; /* some part is of class scan or diagonal; diagonal; dense */
    rcvi_param_layout *layouts[2];                 /* [directions][parameters of forward, then constants] */
} rcvi_layer;

/* The graph of a time step without its constants, and the derivative of that. */
static inline const rcvi_graph *rcvi_layer_step(const rcvi_layer *layer) {
    return layer->constants.output_count ? &layer->step : &layer->forward;
}
static inline const rcvi_graph *rcvi_layer_step_adjoint(const rcvi_layer *layer) {
    return layer->constants.output_count ? &layer->step_adjoint : &layer->adjoint;
}

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
    int64_t first; /* of a slice: number of its first layer in the whole network; else 0 */
};

/* Whether training needs a random seed. */
static inline bool rcvi_net_is_random(const rcv_net *net) {
    return net->options.dropout > 0 || (net->options.zoneout > 0 && !net->options.expected_zoneout);
}

/* Does a direction go from the last step to the first? */
static inline bool rcvi_net_is_reversed(const rcv_net *net, int64_t direction) {
    return direction || net->options.reverse;
}

/* Features of a value of a bound graph. */
static inline int64_t rcvi_features(const rcvi_graph *graph, int size) {
    return size < 0 ? 1 : graph->sizes[size].value;
}

/* Layers first .. first + count - 1 as a network. Its dropout and zoneout masks are those of the same layers in `net`; dropout after its last layer is
 * not part of it. Its parameters have the order of `net`, from rcvi_layer_start(net, first). */
rcv_status rcvi_net_slice(const rcv_net *net, int64_t first, int64_t count, rcv_net **slice);

/* The parameter (tensor) that has this element of the flat array. */
size_t rcvi_net_tensor_at(const rcv_net *net, int64_t offset);

/* Offset of a layer's parameters in the flat array; for layer == layers: the end of all parameters. */
static inline int64_t rcvi_layer_start(const rcv_net *net, int64_t layer) {
    return layer < net->options.layers ? net->layers[layer].start : net->parameter_elements;
}

/* The first layer's gradients are the last that the backward pass computes, so no computation overlaps with their all-reduce. They are
 * reduced in two parts: the first part ends at the parameter boundary nearest to the layer's middle, which this returns. It
 * may be the layer's end. */
int64_t rcvi_first_layer_split(const rcv_net *net);

/* Offset of the block of (layer, direction) in a tensor of this state, in elements for batch 1. */
int64_t rcvi_state_offset(const rcv_net *net, size_t state, int64_t layer, int64_t direction);

#endif

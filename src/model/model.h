/* A model: a network and its parameters, and their representation in tensor files. */
#ifndef RCVI_MODEL_H
#define RCVI_MODEL_H

#include "base/base.h"

struct rcv_model {
    rcv_context *context;
    const rcv_net *net;
    rcv_net *owned_net;   /* `net` if the model owns it, else NULL */
    rcv_cell *owned_cell; /* the cell of `owned_net`, else NULL */
    rcv_dtype dtype;
    void *parameters; /* [rcv_net_parameter_elements] of dtype */
};

rcv_context *rcvi_net_context(const rcv_net *net);

/* Makes a model whose parameters are 0. If it succeeds, the model owns `owned_net` and `owned_cell`; each may be NULL. */
rcv_status rcvi_model_new_zeros(const rcv_net *net, rcv_dtype dtype, rcv_net *owned_net, rcv_cell *owned_cell,
                                rcv_model **model);

/* ---- the network in a file's metadata ---- */

/* {"input":3,"hidden":4,"layers":1,"bidirectional":false,"no_bias":false,"dropout":0.0,"rank":0,"sizes":{}}, and
 * "variational":true,"zoneout":0.1,"reverse":true if they are set */
rcv_status rcvi_network_to_json(const rcv_net *net, char **text); /* free with rcvi_free */
/* Sets recurve.format, recurve.cell and recurve.network. */
rcv_status rcvi_network_to_tensors(const rcv_net *net, rcv_tensors *tensors);
/* Makes the cell and the network that the metadata describe. The caller owns both. `file` is used in messages. */
rcv_status rcvi_network_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     rcv_cell **cell, rcv_net **net);

/* ---- the parameters as tensors named prefix + parameter name ---- */

/* parameters: the flat array, [rcv_net_parameter_elements] of dtype. */
rcv_status rcvi_parameters_to_tensors(const rcv_net *net, const char *prefix, rcv_dtype dtype, const void *parameters,
                                      rcv_tensors *tensors);
/* Checks that every parameter is there as a float tensor of its shape, and that no other tensor has the prefix. Called before memory is allocated for the
 * sizes that a file claims. */
rcv_status rcvi_parameters_check(const rcv_net *net, const rcv_tensors *tensors, const char *file, const char *prefix);
/* Checks, then converts the tensors to the flat array of dtype. */
rcv_status rcvi_parameters_from_tensors(const rcv_net *net, const rcv_tensors *tensors, const char *file,
                                        const char *prefix, rcv_dtype dtype, void *parameters);

/* Finds the prefix of the tensor prefix + name: "", else "rnn.", else the only prefix with such a tensor. Free with rcvi_free. */
rcv_status rcvi_find_prefix(rcv_context *context, const rcv_tensors *tensors, const char *file, const char *name,
                            char **prefix);

/* ---- a PyTorch state dict ---- */

/* Makes the network of this cell whose parameters the tensors are. Layers, directions and sizes are inferred from names and shapes. */
rcv_status rcvi_net_from_state_dict(const rcv_cell *cell, const rcv_tensors *tensors, const char *file,
                                    const char *prefix, rcv_net **net);

#endif

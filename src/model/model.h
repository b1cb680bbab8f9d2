/* A network and its parameters, and how both are kept in tensor files. */
#ifndef RCVI_MODEL_H
#define RCVI_MODEL_H

#include "base/base.h"

struct rcv_model {
    rcv_context *context;
    const rcv_net *net;
    rcv_net *owned_net;   /* the same net where the model made it, else NULL */
    rcv_cell *owned_cell; /* likewise */
    rcv_dtype dtype;
    void *parameters; /* [rcv_net_parameter_elements] of dtype */
};

rcv_context *rcvi_net_context(const rcv_net *net);

/* A model of zeros. Where RCV_OK is returned it owns `owned_net` and `owned_cell`, each of which may be NULL. */
rcv_status rcvi_model_new_zeros(const rcv_net *net, rcv_dtype dtype, rcv_net *owned_net, rcv_cell *owned_cell,
                                rcv_model **model);

/* ---- the network in a file's metadata ---- */

/* {"input":3,"hidden":4,"layers":1,"bidirectional":false,"no_bias":false,"dropout":0.0,"rank":0,"sizes":{}}, and
 * "variational":true,"zoneout":0.1 where these act */
rcv_status rcvi_network_to_json(const rcv_net *net, char **text); /* free with rcvi_free */
/* Sets recurve.format, recurve.cell and recurve.network. */
rcv_status rcvi_network_to_tensors(const rcv_net *net, rcv_tensors *tensors);
/* Makes the cell and the net that the metadata describe. `file` is for messages. */
rcv_status rcvi_network_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     rcv_cell **cell, rcv_net **net);

/* ---- the parameters as tensors named prefix + parameter name ---- */

/* parameters: the flat array, of dtype. */
rcv_status rcvi_parameters_to_tensors(const rcv_net *net, const char *prefix, rcv_dtype dtype, const void *parameters,
                                      rcv_tensors *tensors);
/* Every parameter is there once, a float tensor of its shape, and no other tensor begins with the prefix. To be asked
 * before memory is taken for what a file claims. */
rcv_status rcvi_parameters_check(const rcv_net *net, const rcv_tensors *tensors, const char *file, const char *prefix);
/* Checks, then fills the flat array with elements of dtype. */
rcv_status rcvi_parameters_from_tensors(const rcv_net *net, const rcv_tensors *tensors, const char *file,
                                        const char *prefix, rcv_dtype dtype, void *parameters);

/* The prefix of the tensor prefix + name: "", or "rnn.", or the only one there is. Free with rcvi_free. */
rcv_status rcvi_find_prefix(rcv_context *context, const rcv_tensors *tensors, const char *file, const char *name,
                            char **prefix);

/* ---- a PyTorch state dict ---- */

/* The net of this cell whose parameters the tensors are: layers, directions and sizes read off names and shapes. */
rcv_status rcvi_net_from_state_dict(const rcv_cell *cell, const rcv_tensors *tensors, const char *file,
                                    const char *prefix, rcv_net **net);

#endif

/* Calls of a network with PyTorch's tensors: their checks, results and reserves, whoever passes the tensors (operators.c, quick.c). */
#ifndef RCVB_TORCH_CALL_H
#define RCVB_TORCH_CALL_H

#include "torch/tensors.h"

typedef struct {
    const about *at;
    size_t count;
} abouts;

/* Every tensor is contiguous, and on a GPU but for the seed begins at a multiple of 16 bytes. An optional tensor is a list of none or one, tensors
 * for the states are a list of none or all. */
typedef struct {
    const rcv_net *net;
    int64_t flags;
    about x;
    abouts parameters, initial, restart, lengths, resets, seed;
    /* rcvb_check_call sets the rest. */
    rcvb_kind kind;
    int64_t steps, batch;
    void *stream;
} call;

/* What a backward call has besides. */
typedef struct {
    abouts dy, dfinal; /* a final state's gradient without elements is none */
    about reserve;
    int64_t reserve_bytes; /* of its storage */
    const char *wanted;    /* '1' for each gradient that is returned, in the order of RCVB_WANT_ */
} gradients;

enum { RCVB_WANT_X, RCVB_WANT_INITIAL, RCVB_WANT_RESTART, RCVB_WANT_PARAMETERS };

rcv_status rcvb_check_call(call *c);
/* out: y, the final states and, with RCVB_TRAINING, the reserve. It may hold tensors also where the call fails. */
rcv_status rcvb_run_forward(const call *c, uint64_t frozen, tensors *out);
/* out: the gradients that are wanted, in the order x, parameters, initial, restart. The same. */
rcv_status rcvb_run_backward(const call *c, const gradients *g, tensors *out);

#endif

/* Operators in the namespace `recurve` of PyTorch. */
#ifndef RCVB_OPERATORS_H
#define RCVB_OPERATORS_H

#include "call/call.h"

/* The argument `flags`: the type of products (rcv_dtype), and these bits. */
enum {
    RCVB_DTYPE = 15,
    RCVB_TRAINING = 16,    /* make a reserve; apply dropout and zoneout */
    RCVB_BATCH_FIRST = 32, /* x and y are [batch, steps, features] */
    RCVB_EFFORT_SHIFT = 8, /* rcv_effort */
    RCVB_EFFORT = 15
};

/* Registers the operators with the PyTorch that the process has loaded. Once. */
RCV_API rcv_status rcvb_torch_register(void);

#endif

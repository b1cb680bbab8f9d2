/* A function of Python that runs a network forwards without derivatives, past PyTorch's dispatcher, which takes longer than a small network. */
#ifndef RCVB_QUICK_H
#define RCVB_QUICK_H

#include "call/call.h"

/* A new reference to the function, for ctypes' py_object:
 *
 *     run(net, flags, frozen, x, parameters, names, states) -> [y, final states ...] or None
 *
 * net: the address of a network. flags: as of the operators, and RCVB_ALLOW_TF32; the type of products follows from x. parameters: a dict, and names: the
 * tuple of its keys in the library's order. states: a tuple or list, which may be empty. None: the tensors are not simply what they should be, and
 * the operator is to be called. *function is NULL with RCV_UNSUPPORTED where this Python or this PyTorch lacks what it needs. exchange: the address of
 * PyTorch's DLPack exchange table. Call it with the interpreter's lock held, once, after rcvb_torch_register. */
RCV_API rcv_status rcvb_torch_quick(const void *exchange, void **function);

enum { RCVB_ALLOW_TF32 = 64 };

#endif

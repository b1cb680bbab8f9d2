/* Functions of Python that run a network past PyTorch's dispatcher, which takes longer than a small network. */
#ifndef RCVB_QUICK_H
#define RCVB_QUICK_H

#include "call/call.h"

/* A new reference to a tuple of three functions, for ctypes' py_object:
 *
 *     infer(net, flags, frozen, x, parameters, names, states) -> (y, final states ...), with RCVB_TRAINING (..., reserve)
 *     forward(net, flags, parameter_count, initial_count, lengths, resets, seed, x, tensors) -> (y, final states ..., reserve)
 *     backward(net, flags, parameter_count, initial_count, tensor_count, length_count, reset_count, place, saved, needs, grads) -> gradients
 *
 * net: the address of a network. Each returns None where the tensors are not simply what they should be, and where the call fails: then the operator
 * is to be called, which copies tensors where it must and raises what there is to be raised. Nothing may watch or transform calls of operators,
 * such as a mode, a transform of torch.func, a trace or a profiler.
 *
 * infer: flags are those of the operators, and RCVB_ALLOW_TF32; the type of products follows from x. parameters is a dict, and names the tuple of its
 * keys in the library's order. states: a tuple or list, which may be empty. Shapes and types are checked as a module checks them.
 * forward: as the operator with RCVB_TRAINING. tensors: the parameters, the initial and the restart states.
 * backward: saved is (x, tensors ..., lengths, resets, seed, reserve). needs, bools, and the gradients begin with `place` items for what is no tensor
 * and go on in the order x, tensors. grads: those of y and the final states, or None for each.
 *
 * *functions is NULL with RCV_UNSUPPORTED where this Python or this PyTorch lacks what they need. exchange: the address of PyTorch's DLPack exchange
 * table. Call it with the interpreter's lock held, once, after rcvb_torch_register. */
RCV_API rcv_status rcvb_torch_quick(const void *exchange, void **functions);

enum { RCVB_ALLOW_TF32 = 64 };

#endif

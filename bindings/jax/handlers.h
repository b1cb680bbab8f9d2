/* Functions that XLA calls: for networks and for scans, on the CPU and on CUDA devices. jax.ffi registers them.
 *
 * Attributes of a network's call:
 *   net     its description (call.h)
 *   plan    the plan string; forward and backward calls have the same
 *   flags   rcvb_jax_flags
 *   given   a '1' for each array that is given, otherwise '0': the initial states, the restart states, the seed; backward also dy and the
 *           gradients of the final states
 *   wanted  of a backward call: a '1' for each gradient that is a result: of x, the parameters, the initial states, the restart states
 *
 *   recurve_forward   x, parameters, given initial and restart states, lengths, resets, seed
 *                     -> y, final states, and with TRAINING the reserve
 *   recurve_backward  the same, dy, gradients of final states, and the reserve -> the gradients that are wanted
 *
 * Lengths and the seed have 64 bits an element: int32 [batch, 2] and uint32 [2], the low half first. A reserve is an array of bytes.
 *
 * Attributes of a scan's call: flags (rcvb_jax_scan_flags), given (a '1' or '0': the initial state), wanted (a, b, the initial state).
 *
 *   recurve_scan           a, b, given initial, lengths, resets -> h
 *   recurve_scan_backward  a, h, given initial, lengths, resets, dh -> the gradients that are wanted */
#ifndef RCVB_HANDLERS_H
#define RCVB_HANDLERS_H

#include "call/call.h"
#include "jax/xla.h"

typedef enum {
    RCVB_JAX_DTYPE_SHIFT = 0,      /* rcv_dtype, of products */
    RCVB_JAX_DATA_SHIFT = 4,       /* rcv_dtype, of x, y and states */
    RCVB_JAX_PARAMETERS_SHIFT = 8, /* rcv_dtype */
    RCVB_JAX_TYPE = 15,
    RCVB_JAX_TRAINING = 1 << 12,
    RCVB_JAX_BATCH_FIRST = 1 << 13, /* x and y are [batch, steps, features], resets [batch, steps] */
    RCVB_JAX_LENGTHS = 1 << 14,
    RCVB_JAX_RESETS = 1 << 15,
    RCVB_JAX_CUDA = 1 << 16 /* the plan is for a GPU */
} rcvb_jax_flags;

typedef enum {
    RCVB_JAX_SCAN_REVERSE = 1 << 4, /* below: rcv_dtype */
    RCVB_JAX_SCAN_LENGTHS = 1 << 5,
    RCVB_JAX_SCAN_RESETS = 1 << 6
} rcvb_jax_scan_flags;

/* The plan of calls with these attributes, by this effort or with this plan string (NULL: none); on the first GPU where it is for one. Free
 * with rcv_plan_free. */
RCV_API rcv_status rcvb_jax_plan(const char *net, size_t net_length, int64_t flags, const char *schedule, int effort,
                                 int64_t steps, int64_t batch, rcv_plan **plan);

RCV_API xla_error *rcvb_jax_forward_cpu(xla_frame *frame);
RCV_API xla_error *rcvb_jax_forward_cuda(xla_frame *frame);
RCV_API xla_error *rcvb_jax_backward_cpu(xla_frame *frame);
RCV_API xla_error *rcvb_jax_backward_cuda(xla_frame *frame);
RCV_API xla_error *rcvb_jax_scan_cpu(xla_frame *frame);
RCV_API xla_error *rcvb_jax_scan_cuda(xla_frame *frame);
RCV_API xla_error *rcvb_jax_scan_backward_cpu(xla_frame *frame);
RCV_API xla_error *rcvb_jax_scan_backward_cuda(xla_frame *frame);

#endif

/* The set of kernels that a context uses. */
#ifndef RCVI_KERNELS_SELECT_H
#define RCVI_KERNELS_SELECT_H

#include "base/base.h"
#include "device/cpu/kernels/kernels.h"

/* The set that the context names, else the one that the environment variable RECURVE_KERNELS names, else the best set. NULL, with
 * the error recorded, if this machine does not have the named set. */
const rcvi_kernels *rcvi_context_kernels(rcv_context *context);

#endif

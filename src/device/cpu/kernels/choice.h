/* Which set of kernels a context uses. */
#ifndef RCVI_KERNELS_CHOICE_H
#define RCVI_KERNELS_CHOICE_H

#include "base/base.h"
#include "device/cpu/kernels/kernels.h"

/* The set that the context names, or RECURVE_KERNELS of the environment where that is not empty, or the best. NULL, with
 * the sentence recorded, where this machine does not have it. */
const rcvi_kernels *rcvi_context_kernels(rcv_context *context);

#endif

/* What the public calls about the machine share. */
#ifndef RCVI_MEASURE_H
#define RCVI_MEASURE_H

#include "base/base.h"
#include "device/cpu/kernels/kernels.h"

/* Only float32, float64 and bfloat16 are multiplied. */
rcv_status rcvi_measured_type(rcv_dtype dtype, rcvi_kernel_type *type);
rcv_status rcvi_measured_threads(int64_t threads);

/* As rcvi_device.bandwidth. */
rcv_status rcvi_measured_bandwidth(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                                   double *bandwidth);

#endif

/* Checks and measurements shared by the public functions that measure the CPU and multiply matrices. */
#ifndef RCVI_MEASURE_H
#define RCVI_MEASURE_H

#include "base/base.h"
#include "device/cpu/kernels/kernels.h"

/* Finds the kernel type of float32, float64 or bfloat16; RCV_INVALID for all other types. */
rcv_status rcvi_check_product_type(rcv_dtype dtype, rcvi_kernel_type *type);
/* RCV_INVALID unless threads is 1 to RCVI_MAX_THREADS. */
rcv_status rcvi_check_threads(int64_t threads);

/* rcvi_device.measure_bandwidth: bytes per second, the best of several rounds, of `threads` threads that read `reads` arrays
 * (1 or 2) of `bytes` bytes and write one. */
rcv_status rcvi_measure_bandwidth(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                                  double *bandwidth);

#endif

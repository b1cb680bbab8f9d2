/* What a GPU reaches at most: operations of products, and bytes of memory. */
#ifndef RCVI_CUDA_MEASURE_H
#define RCVI_CUDA_MEASURE_H

#include "device/cuda/cuda.h"

/* Operations per second of a product of large square matrices by cuBLASLt: the limit of every plan. */
rcv_status rcvi_cuda_peak(rcv_context *context, int ordinal, rcv_dtype dtype, double *operations);

/* Bytes per second of c = a, or c = a + b, over arrays of so many bytes each: the fastest of several runs. */
rcv_status rcvi_cuda_bandwidth(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                               double *bandwidth);

#endif

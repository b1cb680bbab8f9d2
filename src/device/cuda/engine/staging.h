/* Asynchronous copies between a GPU's memory and pinned host memory: rcvi_staging_table of device/device.h. */
#ifndef RCVI_CUDA_STAGING_H
#define RCVI_CUDA_STAGING_H

extern const struct rcvi_staging_table rcvi_cuda_staging;

#endif

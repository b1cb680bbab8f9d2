/* Collectives on a GPU's memory by NCCL: rcvi_collectives of device/device.h. */
#ifndef RCVI_CUDA_NCCL_H
#define RCVI_CUDA_NCCL_H

extern const struct rcvi_collectives rcvi_cuda_collectives;

#endif

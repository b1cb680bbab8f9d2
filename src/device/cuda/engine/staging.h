/* Copies beside what is enqueued: device/device.h says what. */
#ifndef RCVI_CUDA_FERRY_H
#define RCVI_CUDA_FERRY_H

extern const struct rcvi_ferries rcvi_cuda_ferries;

#endif

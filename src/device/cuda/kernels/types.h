/* Element types of device memory. Plain C and C++. */
#ifndef RCVI_CUDA_TYPES_H
#define RCVI_CUDA_TYPES_H

typedef enum { RCVI_F32, RCVI_F64, RCVI_BF16, RCVI_F16, RCVI_U8, RCVI_I64 } rcvi_cuda_type;

#endif

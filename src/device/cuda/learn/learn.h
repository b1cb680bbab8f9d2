/* What stands around a network while it learns, on a GPU: device/learn.h says what. */
#ifndef RCVI_CUDA_LEARN_H
#define RCVI_CUDA_LEARN_H

extern const struct rcvi_learn_table rcvi_cuda_learn;

#endif

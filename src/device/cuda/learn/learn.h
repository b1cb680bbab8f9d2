/* Learning on a GPU: embedding, output layer, update. The interface is device/learn.h. */
#ifndef RCVI_CUDA_LEARN_H
#define RCVI_CUDA_LEARN_H

extern const struct rcvi_learn_table rcvi_cuda_learn;

#endif

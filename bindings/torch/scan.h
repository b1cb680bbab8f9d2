/* Kernels of the operators of linear recurrences: see scan.c. */
#ifndef RCVB_TORCH_SCAN_H
#define RCVB_TORCH_SCAN_H

#include "torch/shim.h"

void rcvb_scan_kernel(value *stack, uint64_t inputs, uint64_t outputs);
void rcvb_scan_backward_kernel(value *stack, uint64_t inputs, uint64_t outputs);

#endif

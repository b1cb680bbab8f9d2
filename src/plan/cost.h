/* The cost model: estimates the seconds of a program without running it. Its purpose is to rank plans, not to predict times. */
#ifndef RCVI_COST_H
#define RCVI_COST_H

#include "program/program.h"

/* Seconds of a forward pass, and of a backward pass in training; always positive. Matrices count as packed before in
 * inference, and as packed anew in training, where they change from call to call. */
double rcvi_estimate(const rcvi_program *program);
double rcvi_estimate_gpu(const rcvi_program *program); /* of a program for a GPU */

#endif

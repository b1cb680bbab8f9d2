/* The learning-rate schedule. */
#ifndef RCVI_RATE_H
#define RCVI_RATE_H

#include "train/config/train_options.h"

/* The learning rate of update `step` (from 0), after `epoch` whole epochs. `length`: updates that the run will have, 0: not known;
 * `plateau_factor`: by which plateaus have multiplied the rate so far. */
double rcvi_rate(const rcvi_train_options *options, int64_t step, int64_t epoch, int64_t length, double plateau_factor);

#endif

/* Weights of classes in the loss: that of an example is multiplied by the weight of its class, and the mean is over the weights, as
 * torch.nn.CrossEntropyLoss(weight=...) has it. */
#ifndef RCVI_CLASS_WEIGHTS_H
#define RCVI_CLASS_WEIGHTS_H

#include "train/learner/learner.h"

/* `text`: NAME=X,..., where other classes have 1; or balanced: the inverse of the share of a class, times 1 / number of classes. NULL: none. */
rcv_status rcvi_class_weights_measure(rcv_learner *learner, const char *text, const rcv_data *data);
/* weights: [outputs] positive numbers. Copied, to the device's memory too. */
rcv_status rcvi_class_weights_set(rcv_learner *learner, const float *weights);
void rcvi_class_weights_drop(rcv_learner *learner);
/* What the loss of a batch is divided by for its mean: the targets that count, or the sum of the weights of their classes. */
double rcvi_batch_weight(const rcv_learner *learner, const rcvi_batch *batch);

#endif

/* The loss and the metrics of data that is read once. */
#ifndef RCVI_EVALUATE_H
#define RCVI_EVALUATE_H

#include "train/step/work.h"

/* Of all batches of a batcher, from its start, with the work's parameters. `windows`, [count]: of its buckets; they are opened here and
 * closed afterwards. Collective. */
rcv_status rcvi_evaluate(rcvi_work *work, rcvi_batcher *batcher, const size_t *windows, size_t count,
                         rcv_evaluation *result);

#endif

/* Outcomes of updates (loss and norm) that are still in the device's memory. Fetching them waits for the device, so several are fetched
 * at once. */
#ifndef RCVI_OUTCOMES_H
#define RCVI_OUTCOMES_H

#include "train/step/work.h"

enum { RCVI_PENDING_OUTCOMES = 64 };

typedef struct {
    int64_t step; /* number of the update, from 1 */
    double
        weight; /* what its loss is divided by for the mean: the targets that counted, or the weights of their classes */
    double rate; /* learning rate */
} rcvi_pending_update;

typedef struct {
    rcvi_outcome *device; /* [RCVI_PENDING_OUTCOMES] */
    rcvi_pending_update updates[RCVI_PENDING_OUTCOMES];
    int count; /* pending */
} rcvi_outcomes;

rcv_status rcvi_outcomes_allocate(rcvi_outcomes *outcomes, const rcv_learner *learner);
void rcvi_outcomes_free(rcvi_outcomes *outcomes, const rcv_learner *learner);
static inline bool rcvi_outcomes_are_full(const rcvi_outcomes *o) { return o->count == RCVI_PENDING_OUTCOMES; }
/* Enqueues a copy of the work's outcome. There must be room. */
rcv_status rcvi_outcomes_push(rcvi_outcomes *outcomes, const rcvi_work *work, const rcvi_pending_update *update);
/* All pending outcomes to `host`, [RCVI_PENDING_OUTCOMES], losses summed over all ranks; then none is pending. `updates` of the first *count
 * stay until the next push. Collective. */
rcv_status rcvi_outcomes_fetch(rcvi_outcomes *outcomes, rcvi_work *work, rcvi_outcome *host, int *count);

#endif

/* Moments and averages of the parameters, and what an update of this rank changes. */
#ifndef RCVI_OPTIMISER_H
#define RCVI_OPTIMISER_H

#include "train/step/work.h"

typedef struct {
    rcvi_update_kind kind;
    bool averages; /* averaged SGD */
    /* Arrays in the device's memory over the elements that are here, or, where replicas share the optimiser, over this one's shares.
     * NULL: this kind of update does not use it. */
    void *first, *second, *average;
    rcvi_update_part *parts; /* ranges of parameters that an update changes; made by the first rcvi_optimiser_update */
    int part_count;
} rcvi_optimiser;

/* The kind of update that settings ask for, without arrays. */
rcvi_optimiser rcvi_optimiser_of(const rcv_settings *settings);
/* Plain SGD: without moments or averages. */
static inline bool rcvi_optimiser_is_plain(const rcvi_optimiser *o) { return o->kind == RCVI_SGD && !o->averages; }
/* Zeroed arrays of so many elements each. */
rcv_status rcvi_optimiser_allocate(rcvi_optimiser *optimiser, const rcv_learner *learner, int64_t elements);
void rcvi_optimiser_free(rcvi_optimiser *optimiser, const rcv_learner *learner);
size_t rcvi_optimiser_array_count(const rcvi_optimiser *optimiser);
/* The update of the work's parameters, for rcvi_work_train. It points to `parts`. */
rcv_status rcvi_optimiser_update(rcvi_optimiser *optimiser, const rcvi_work *work, rcvi_update *update);

#endif

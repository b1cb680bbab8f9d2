/* Outcomes of updates in the device's memory: see outcomes.h. */
#include "train/run/report/outcomes.h"

rcv_status rcvi_outcomes_allocate(rcvi_outcomes *o, const rcv_learner *learner) {
    void *memory;
    RCVI_TRY(rcvi_device_new(learner, RCVI_PENDING_OUTCOMES, sizeof *o->device, &memory));
    o->device = memory;
    return RCV_OK;
}

void rcvi_outcomes_free(rcvi_outcomes *o, const rcv_learner *learner) {
    rcvi_device_free(learner, o->device);
    *o = (rcvi_outcomes){0};
}

rcv_status rcvi_outcomes_push(rcvi_outcomes *o, const rcvi_work *w, const rcvi_pending_update *update) {
    o->updates[o->count] = *update;
    return w->ops->copy(w->learn, &o->device[o->count++], w->outcome, sizeof *w->outcome);
}

/* A rank's loss is of its part of the batch; its norm is that of the whole gradient already. */
static rcv_status sum_losses(const rcvi_topology *topology, rcvi_outcome *outcomes, int count) {
    double losses[RCVI_PENDING_OUTCOMES];
    if (!topology) return RCV_OK;
    for (int i = 0; i < count; i++) losses[i] = outcomes[i].loss;
    RCVI_TRY(rcvi_comm_all_reduce(topology->world, RCVI_ALL_REDUCE_SUM, losses, count));
    for (int i = 0; i < count; i++) outcomes[i].loss = losses[i];
    return RCV_OK;
}

rcv_status rcvi_outcomes_fetch(rcvi_outcomes *o, rcvi_work *w, rcvi_outcome *host, int *count) {
    *count = 0;
    if (!o->count) return RCV_OK;
    RCVI_TRY(w->ops->fetch(w->learn, host, o->device, (size_t)o->count * sizeof *host));
    RCVI_TRY(rcvi_work_wait(w));
    RCVI_TRY(sum_losses(w->options.topology, host, o->count));
    *count = o->count;
    o->count = 0;
    return RCV_OK;
}

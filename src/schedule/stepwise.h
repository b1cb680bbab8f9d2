/* What the writer of stepwise programs and those who choose its rungs share. */
#ifndef RCVI_STEPWISE_H
#define RCVI_STEPWISE_H

#include "schedule/schedule.h"

/* Steps of a chunk, and in the forward pass of training. */
static inline int64_t rcvi_chunk_of(const rcvi_rungs *rungs, int64_t steps) {
    int64_t chunk = rungs->recompute ? rungs->recompute : !rungs->combine ? 1 : rungs->steps ? rungs->steps : steps;
    return chunk < steps ? chunk : steps;
}

static inline int64_t rcvi_forward_chunk_of(const rcvi_rungs *rungs, int64_t steps) {
    int64_t chunk = rungs->combine && rungs->forward ? rungs->forward : rcvi_chunk_of(rungs, steps);
    return chunk < steps ? chunk : steps;
}

rcv_status rcvi_stepwise_applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                                 const rcvi_machine *machine);
void rcvi_stepwise_variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                            void (*offer)(void *user, const rcvi_rungs *rungs), void *user);

#endif

/* Arrays of the whole model, put together on rank 0 from what ranks have of them, and the other way. Collective. `topology` NULL: one
 * rank has all. */
#ifndef RCVI_COLLECT_H
#define RCVI_COLLECT_H

#include "train/step/work.h"

/* What an array has an element for: every parameter that is here, or, where replicas share the optimiser, those of this replica's share. */
typedef enum { RCVI_OF_PARAMETERS, RCVI_OF_SHARES } rcvi_array_kind;

/* Elements that an array of this rank has of moments. -1: no memory. */
int64_t rcvi_share_elements(const rcv_learner *learner, const rcvi_topology *topology);
/* All elements of an array, in the host's memory, for rcvi_free: on rank 0; elsewhere NULL. */
rcv_status rcvi_collect_array(const rcv_learner *learner, const rcvi_topology *topology, const void *array,
                              rcvi_array_kind kind, void **host);
/* The elements that are here, from an array of all elements in the host's memory. */
rcv_status rcvi_distribute_array(const rcv_learner *learner, const rcvi_topology *topology, const void *host,
                                 rcvi_array_kind kind, void *array);
/* The texts of the first replica's ranks, one after the other: on rank 0, for rcvi_free; elsewhere NULL. */
rcv_status rcvi_collect_text(rcv_context *context, const rcvi_topology *topology, const char *text, char **all);
/* Carried state `state` of all layers and of the whole batch, by layer as a state tensor has it: [state's total size, batch] on rank 0, for
 * rcvi_free; elsewhere NULL. `window` carries it. */
rcv_status rcvi_collect_state(const rcvi_work *work, const rcvi_window *window, size_t state, void **host);
/* The part of such an array that is here, into the window. */
rcv_status rcvi_distribute_state(const rcvi_work *work, const rcvi_window *window, size_t state, const void *host);

#endif

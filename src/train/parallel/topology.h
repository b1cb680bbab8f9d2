/* Who does what in a run of several ranks: rank = replica * stages + stage. Replicas have parts of every batch; stages have layers. */
#ifndef RCVI_TOPOLOGY_H
#define RCVI_TOPOLOGY_H

#include "comm/comm.h"

typedef struct {
    rcvi_comm *world;
    rcvi_comm *replicas; /* the ranks with the layers of this one; its rank there is its replica */
    rcvi_comm *stages;   /* those with its part of the batch; its rank there is its stage */
    int replica_count, replica, stage_count, stage;
    bool reduces_gradients;  /* gradients are summed among replicas: there are several, or NCCL is to have its part */
    bool bfloat16_gradients; /* gradients travel as bfloat16 */
    bool shares_optimiser;   /* every replica updates a share of the parameters, and has the moments of these alone */
} rcvi_topology;

/* How ranks are arranged: "data", "data:D", "pipeline", "pipeline:S", or one of each with a comma between them. What is not said follows from
 * the number of ranks. */
rcv_status rcvi_topology_parse(const char *text, int ranks, int *replicas, int *stages);
/* Collective. The topology keeps the world, which outlives it. */
rcv_status rcvi_topology_open(rcvi_comm *world, const rcv_settings *settings, rcvi_topology *topology);
void rcvi_topology_close(rcvi_topology *topology);

/* Is it the one that writes files? */
static inline bool rcvi_topology_is_leader(const rcvi_topology *topology) {
    return !topology || rcvi_comm_rank(topology->world) == 0;
}
/* Does this run have ranks that this one must ask before an update, for the norm of the whole gradient? */
static inline bool rcvi_topology_sums_norm(const rcvi_topology *topology) {
    return topology && (topology->stage_count > 1 || topology->shares_optimiser);
}

#endif

/* Ranks of a run: rank = replica * stages + stage. Data parallel replicas have the same layers and a part of every batch each;
 * pipeline stages have consecutive layers each and the same part of the batch. */
#ifndef RCVI_TOPOLOGY_H
#define RCVI_TOPOLOGY_H

#include "comm/comm.h"

typedef struct {
    rcvi_comm *world;    /* all ranks; NULL: this process trains alone */
    rcvi_comm *replicas; /* the ranks with the layers of this one; its rank there is its replica */
    rcvi_comm *stages;   /* the ranks with its part of the batch; its rank there is its stage */
    int replica_count, replica, stage_count, stage;
    bool reduces_gradients;  /* replicas all-reduce gradients: there are several, or the transport is NCCL */
    bool bfloat16_gradients; /* gradients are sent as bfloat16 */
    bool
        shares_optimiser; /* every replica updates a share of the parameters, and has the moments of that share alone */
} rcvi_topology;

/* "data", "data:D", "pipeline", "pipeline:S", or one of each with a comma between them. A count that the text leaves out follows from
 * the number of ranks. */
rcv_status rcvi_topology_parse(const char *text, int ranks, int *replicas, int *stages);
/* Collective. The topology keeps the world, which outlives it. */
rcv_status rcvi_topology_open(rcvi_comm *world, const rcv_settings *settings, rcvi_topology *topology);
void rcvi_topology_close(rcvi_topology *topology);

/* Below, NULL is one rank alone. */

/* Rank 0: it writes files and the log. */
static inline bool rcvi_topology_is_leader(const rcvi_topology *t) { return !t || rcvi_comm_rank(t->world) == 0; }
/* The norm of the whole gradient is a sum over ranks, since each has a part of the gradient alone. */
static inline bool rcvi_topology_sums_norm(const rcvi_topology *t) {
    return t && (t->stage_count > 1 || t->shares_optimiser);
}
static inline int rcvi_topology_replicas(const rcvi_topology *t) { return t ? t->replica_count : 1; }
static inline int rcvi_topology_stages(const rcvi_topology *t) { return t ? t->stage_count : 1; }
static inline int rcvi_topology_stage(const rcvi_topology *t) { return t ? t->stage : 0; }
/* Every rank fails where one does, before any waits for a message that will not come. */
static inline rcv_status rcvi_topology_agree(const rcvi_topology *t, rcv_status status) {
    return t ? rcvi_comm_agree(t->world, status) : status;
}
/* CPU threads of this rank: the setting, or its part of the machine's cores. */
int64_t rcvi_topology_threads(const rcvi_topology *topology, rcv_context *context, const rcv_settings *settings);

#endif

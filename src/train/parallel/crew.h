/* Who does what in a run of several ranks: rank = replica * stages + stage. Replicas have parts of every batch; stages have layers. */
#ifndef RCVI_CREW_H
#define RCVI_CREW_H

#include "comm/comm.h"

typedef struct {
    rcvi_comm *world;
    rcvi_comm *replicas; /* the ranks with the layers of this one; its rank there is its replica */
    rcvi_comm *stages;   /* those with its part of the batch; its rank there is its stage */
    int replica_count, replica, stage_count, stage;
    bool sums;   /* gradients are summed among replicas: there are several, or NCCL is to have its part */
    bool narrow; /* gradients travel as bfloat16 */
    bool shares; /* every replica updates a share of the parameters, and has the moments of these alone */
} rcvi_crew;

/* How ranks are arranged: "data", "data:D", "pipeline", "pipeline:S", or one of each with a comma between them. What is not said follows from
 * the number of ranks. */
rcv_status rcvi_crew_arrange(const char *text, int ranks, int *replicas, int *stages);
/* Collective. The crew keeps the world, which outlives it. */
rcv_status rcvi_crew_open(rcvi_comm *world, const rcv_settings *settings, rcvi_crew *crew);
void rcvi_crew_close(rcvi_crew *crew);

/* Is it the one that writes files? */
static inline bool rcvi_crew_leads(const rcvi_crew *crew) { return !crew || rcvi_comm_rank(crew->world) == 0; }
/* Does this run have ranks that this one must ask before an update, for the norm of the whole gradient? */
static inline bool rcvi_crew_asks(const rcvi_crew *crew) { return crew && (crew->stage_count > 1 || crew->shares); }

#endif

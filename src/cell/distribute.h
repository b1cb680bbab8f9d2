/* Loop distribution: splits the recurrences of a graph into parts. Each part runs over all steps (or a chunk of them) before the next starts. Values of
 * earlier parts are then known at all steps, so matrix products with them run outside the loop over time, over all steps at once. */
#ifndef RCVI_DISTRIBUTE_H
#define RCVI_DISTRIBUTE_H

#include "cell/cell.h"

typedef struct {
    int count;           /* parts, at least one */
    int *part_of;        /* [values] the part that computes it; RCVI_NONE: unused */
    int *of_state;       /* [states] the part that computes its recurrence */
    rcvi_class *classes; /* [count] of the recurrence; RCVI_MAP: no recurrence (no states, or lags only) */
} rcvi_distribution;

/* Makes each recurrence a part, in execution order; one part for all if not `separate`. The pool owns the tables. False if there is no
 * memory. */
bool rcvi_distribute(rcvi_pool *pool, const rcvi_graph *graph, bool separate, rcvi_distribution *distribution);

#endif

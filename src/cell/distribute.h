/* Loop distribution: a graph's recurrences in parts that are taken one after the other, each over all steps (or a chunk of them)
 * before the next. What a part computes of those before it is there at all steps: products with it need not wait for a loop. */
#ifndef RCVI_DISTRIBUTE_H
#define RCVI_DISTRIBUTE_H

#include "cell/cell.h"

typedef struct {
    int count;           /* parts, at least one */
    int *part_of;        /* [values] the part that computes it; RCVI_NONE: nobody wants it */
    int *of_state;       /* [states] the part that has its recurrence */
    rcvi_class *classes; /* [count] of the recurrence; RCVI_MAP: of states that only hand on (lags), or of none */
} rcvi_distribution;

/* Each recurrence is a part, in an order in which they can run; where not `apart`, all of them are one. False without memory. The tables
 * are of the pool. */
bool rcvi_distribute(rcvi_pool *pool, const rcvi_graph *graph, bool apart, rcvi_distribution *distribution);

#endif

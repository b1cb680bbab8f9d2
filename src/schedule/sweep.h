/* One way through time, forward, forward again or backward, in parts: one where recurrences are not taken apart. A part has its own work
 * before, inside and behind its loop, computes its own values alone, and sees what those before it have computed at all steps. */
#ifndef RCVI_SWEEP_H
#define RCVI_SWEEP_H

#include "cell/distribute.h"
#include "schedule/frame.h"
#include "schedule/fuse.h"

typedef struct {
    rcvi_program *program;
    const rcvi_graph *graph;
    rcvi_clock clock;
    rcvi_distribution parts;
    rcvi_fusion *fusions; /* [parts.count] */
    rcvi_place *states;   /* [states] before the step, in the order of the sweep */
    rcvi_place *kept;     /* [values] for the derivative, where it has its own of them */
    bool gathers;         /* gradients of parameters are summed behind all loops */
    int open;             /* fusions that are to be freed */
} rcvi_sweep;

/* Tables and fusions. False where the program has failed. */
bool rcvi_sweep_open(rcvi_sweep *sweep, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_place *params,
                     const char *label, rcvi_clock clock, bool apart);
void rcvi_sweep_close(rcvi_sweep *sweep);

/* The part in which a value is seen: which computes it, or else the last. */
rcvi_fusion *rcvi_sweep_fusion_of(const rcvi_sweep *sweep, int value);

/* Before the analysis of a part, when what is at hand everywhere is marked, and those before it are prepared: lets it see of them what they
 * have computed, and compute nothing but its own. */
void rcvi_sweep_restrict(rcvi_sweep *sweep, int part);

/* Behind the analysis, of the values of a part that have no place yet: places for what later parts read. What gradients are made of has a
 * place with others. With `slots`, before states have their slots: of what these would hold, and a boundary overwrite, whatever is read
 * behind the loop. */
void rcvi_sweep_share(rcvi_sweep *sweep, int part, bool slots);

#endif

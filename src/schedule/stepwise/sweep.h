/* A sweep: one way of a track through time, over the forward graph or its adjoint.
 *
 * With loop distribution (rcvi_distribute) it has several parts, else one. A part has its own work before, in and after its loop. It
 * computes its own values only, and reads values of earlier parts at all steps of the chunk. */
#ifndef RCVI_SWEEP_H
#define RCVI_SWEEP_H

#include "cell/distribute.h"
#include "schedule/frame.h"
#include "schedule/fuse/fuse.h"

typedef enum {
    RCVI_SWEEP_FORWARD,         /* writes the layer's output, keeps nothing for a derivative */
    RCVI_SWEEP_FORWARD_KEEPING, /* writes the output, and keeps what the derivative reads of all steps */
    RCVI_SWEEP_RECOMPUTING,     /* over a chunk again: no output, keeps what the derivative reads of the chunk */
    RCVI_SWEEP_BACKWARD         /* over the adjoint */
} rcvi_sweep_kind;

typedef struct {
    rcvi_sweep_kind kind;
    rcvi_program *program;
    const rcvi_graph *graph;
    rcvi_time_map time_map;
    rcvi_distribution parts;
    rcvi_fusion *fusions;  /* [parts.count] */
    rcvi_storage *states;  /* [states] before the step, in the order of the sweep */
    rcvi_storage *kept;    /* [values] further storage, for the derivative */
    bool defers_gradients; /* gradients of parameters are summed after all loops */
    int open;              /* number of fusions to be freed */
} rcvi_sweep;

/* Tables and fusions. False where the program has failed. */
bool rcvi_sweep_open(rcvi_sweep *sweep, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_layout *params,
                     const char *label, rcvi_time_map time_map, bool distribute);
void rcvi_sweep_close(rcvi_sweep *sweep);

/* The part that computes a value, or else the last one. */
rcvi_fusion *rcvi_sweep_fusion_of(const rcvi_sweep *sweep, int value);

/* Restricts a part to its own values, and gives it those of earlier parts. Before its analysis, after what is given to all parts is
 * marked and earlier parts are prepared. */
void rcvi_sweep_restrict(rcvi_sweep *sweep, int part);

/* Gives storage over the chunk to values of a part that later parts read and that have none yet; factors of gradients get theirs with
 * the other factors. After the part's analysis. With `next_states`, before states have their slots: only next states, whose slots a
 * reset overwrites, and also those that are read after the loop. */
void rcvi_sweep_store_shared(rcvi_sweep *sweep, int part, bool next_states);

#endif

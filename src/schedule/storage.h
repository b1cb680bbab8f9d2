/* Where a value is stored over time, and its views at one time step or over a chunk of steps.
 *
 * Time. Each direction counts its own time t: t is step t forwards, and step T-1-t in the reverse direction. A direction's own values
 * (states, kept values) are stored in the order of t; what layers share (x, y, masks) is stored in the order of steps. The sequence is
 * cut into chunks of `chunk` steps; the last one may be shorter. */
#ifndef RCVI_STORAGE_H
#define RCVI_STORAGE_H

#include "program/program.h"

/* How t follows from the iterations of the loops around a step: see rcvi_time. */
typedef struct {
    int64_t steps, batch, chunk;
    rcvi_time step;                  /* of steps inside of the time loop */
    rcvi_time span;                  /* of steps for a whole chunk, outside of the time loop */
    int64_t local_base, local_inner; /* position in the chunk = local_base + i * local_inner */
} rcvi_time_map;

/* Forwards from the first chunk, or backwards from the last; `delay` chunks later than tracks without a delay in the same loops. */
rcvi_time_map rcvi_time_map_new(int64_t steps, int64_t batch, int64_t chunk, int64_t delay, bool backward);

/* The buffer of a value and the order of its time steps there. A slot is [batch, row]. */
typedef struct {
    enum {
        RCVI_NOT_STORED,
        RCVI_FIXED,              /* one slot for all times; row 0: one row for the whole batch */
        RCVI_OVER_TIME,          /* [steps, batch, row], or more steps, in the order of t */
        RCVI_OVER_TIME_REVERSED, /* the same in the order of steps, read or written by the reverse direction */
        RCVI_OVER_CHUNK,         /* [chunk, batch, row] */
        RCVI_RING                /* [2, batch, row]: time t is in slot t mod 2 */
    } kind;
    int buffer;
    int64_t offset; /* elements: columns before it in a row, plus the elements of slots that it is ahead of t */
    int64_t row;
} rcvi_storage;

/* [batch] rows of the current time step. */
rcvi_view rcvi_storage_at_step(const rcvi_time_map *time_map, const rcvi_storage *storage);
/* [span * batch] rows from the chunk's first step on; of a ring, the slot of that step. Not for RCVI_OVER_TIME_REVERSED. */
rcvi_view rcvi_storage_over_chunk(const rcvi_time_map *time_map, const rcvi_storage *storage);
/* [steps * batch] rows of the whole sequence, in the order of time. For RCVI_OVER_TIME only. */
rcvi_view rcvi_storage_over_all(const rcvi_storage *storage);
/* [batch] rows of a ring's time t, outside of loops. */
rcvi_view rcvi_storage_ring_slot(const rcvi_storage *storage, int64_t batch, int64_t t);
rcvi_storage rcvi_storage_later(const rcvi_time_map *time_map, rcvi_storage storage); /* of time t + 1 */

#endif

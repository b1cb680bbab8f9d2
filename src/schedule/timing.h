/* Where a value lies while time goes on, and its views at one time step or over a chunk of steps.
 *
 * Time. A direction takes the steps in its own order: its time t is step t, or step T-1-t in reverse. What belongs to a
 * direction (states, kept values) is stored in the order of its time, what layers share (x, y, masks) in the order of
 * steps. The sequence is cut into chunks of `chunk` steps. */
#ifndef RCVI_TIMING_H
#define RCVI_TIMING_H

#include "program/program.h"

/* How t follows from the iterations of the loops around a step: see rcvi_time. */
typedef struct {
    int64_t steps, batch, chunk;
    rcvi_time step;                  /* of steps inside of the time loop */
    rcvi_time span;                  /* of steps for a whole chunk, outside of it */
    int64_t local_base, local_inner; /* position in the chunk = local_base + i * local_inner */
} rcvi_clock;

/* Forwards from the first chunk, or backwards from the last; `delay` chunks later than others in the same loops. */
rcvi_clock rcvi_clock_new(int64_t steps, int64_t batch, int64_t chunk, int64_t delay, bool backward);

typedef struct {
    enum {
        RCVI_NOWHERE,
        RCVI_STILL,      /* [batch, row]: at every time the same; row 0: one row for all */
        RCVI_OVER_TIME,  /* [steps, batch, row], or more steps */
        RCVI_OVER_STEPS, /* the same in the order of steps, seen by a reverse direction */
        RCVI_OVER_CHUNK, /* [chunk, batch, row] */
        RCVI_RING        /* [2, batch, row]: time t lies in slot t mod 2 */
    } kind;
    int buffer;
    int64_t offset; /* elements before it in a row, or slots of a ring it is ahead, times the slot's size */
    int64_t row;
} rcvi_place;

rcvi_view rcvi_place_at_step(const rcvi_clock *clock, const rcvi_place *place);
/* [span * batch] rows from the chunk's first step on; of a ring, the slot of that step. Not for RCVI_OVER_STEPS. */
rcvi_view rcvi_place_over_chunk(const rcvi_clock *clock, const rcvi_place *place);
/* [steps * batch] rows of the whole sequence, in the order of time. For RCVI_OVER_TIME alone. */
rcvi_view rcvi_place_over_all(const rcvi_place *place);
rcvi_place rcvi_place_later(const rcvi_clock *clock, rcvi_place place); /* of one time step later */

#endif

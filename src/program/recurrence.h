/* Recurrences: a loop of maps as a recurrence of elements.
 *
 * An iteration is one map, and passes some values to the next one: they are carried. Elements are independent of each other, so a device
 * may compute them in parallel, each over all iterations. Where one value is carried and the next one is affine in it, iterations can be
 * computed in parallel too: a scan. What each iteration stores at a different address stays in memory. Of what is stored at one address,
 * at a ring of a few, or is read only after the loop ends, only the values of the last iterations stay.
 *
 * Independent steps of a loop, as those of two directions, are recurrences of their own. */
#ifndef RCVI_RECURRENCE_H
#define RCVI_RECURRENCE_H

#include "program/program.h"

enum { RCVI_MAX_CARRIED = 8 };

/* A value that an iteration reads as the one before has stored it; the first one reads it from memory. */
typedef struct {
    int read;   /* the operand */
    int source; /* register that the next iteration reads as it */
    int term;   /* of a sum, which is read only to add to it: the register that is added; else RCVI_NONE */
} rcvi_carried;

typedef struct {
    size_t loop;
    const rcvi_step **steps; /* steps of the loop that belong to it */
    int step_count;
    rcvi_time time;
    int64_t rows, columns, count;
    rcvi_map map;      /* an iteration. Instructions have no `out`; all stores are among the map's */
    int *last;         /* [operands] written: only what so many of the last iterations store there stays; 0: all does */
    bool *is_constant; /* [operands] read: the same in every iteration */
    bool *depends;     /* [instructions] on a value that is carried, and is no sum */
    rcvi_carried carried[RCVI_MAX_CARRIED];
    int carried_count;
    int state;         /* the only one that is no sum, or RCVI_NONE: there are none, or several */
    int scale, offset; /* the next state is scale * state + offset: registers; RCVI_NONE: it is not affine */
    int slope; /* derivative of the next state by the state: a register, where it is not affine; else RCVI_NONE */
} rcvi_recurrence;

/* The loop at this step as independent recurrences; RCV_UNSUPPORTED, with the reason, where it is none. */
rcv_status rcvi_recurrences_find(rcvi_pool *pool, const rcvi_program *program, size_t loop, rcvi_recurrence **out,
                                 int *count);

/* The iterations of the loop that are due in iteration `outer` of the loop around it: sets the first one, returns their number. */
int64_t rcvi_recurrence_due(const rcvi_program *program, const rcvi_recurrence *recurrence, int64_t outer,
                            int64_t *first);

#endif

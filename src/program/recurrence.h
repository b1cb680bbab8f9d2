/* A loop of maps as a recurrence: what an iteration does to every element, as one map, and what it hands to the next one.
 *
 * Elements do not meet, so a device may take them side by side, each over all iterations. Where one value is handed on, and the next one
 * is affine in it, iterations need not wait for each other either: a scan. What is stored in every iteration at another place stays in
 * memory; of what is stored at one place, or at a few in turn, or read by nobody else but where the loop ends, only the last iterations'
 * values do.
 *
 * Steps of a loop that have nothing to do with each other, as those of two directions, are recurrences of their own. */
#ifndef RCVI_RECURRENCE_H
#define RCVI_RECURRENCE_H

#include "program/program.h"

enum { RCVI_MAX_CARRIED = 8 };

/* A value that an iteration finds as the one before has left it; the first one finds it in memory. */
typedef struct {
    int read;   /* the operand */
    int source; /* register that becomes it */
    int term;   /* of a sum, which nobody reads but to add to it: the register that is added; else RCVI_NONE */
} rcvi_carried;

typedef struct {
    size_t loop;
    const rcvi_step **steps; /* of the loop: those that are the recurrence's */
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

/* The loop at this step as recurrences that have nothing to do with each other; or a sentence that says what stands against it. */
rcv_status rcvi_recurrences_find(rcvi_pool *pool, const rcvi_program *program, size_t loop, rcvi_recurrence **out,
                                 int *count);

/* The iterations of the loop that are due in iteration `outer` of the one around it: the first one, and how many follow each other. */
int64_t rcvi_recurrence_due(const rcvi_program *program, const rcvi_recurrence *recurrence, int64_t outer,
                            int64_t *first);

#endif

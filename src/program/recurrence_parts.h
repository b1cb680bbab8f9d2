/* Shared by recurrence.c and recurrence_derive.c. */
#ifndef RCVI_RECURRENCE_PARTS_H
#define RCVI_RECURRENCE_PARTS_H

#include "program/recurrence.h"

/* Is the operand where an iteration finds a value that is carried, and is no sum? */
bool rcvi_recurrence_carries(const rcvi_recurrence *recurrence, int operand);
/* Whether instruction k depends on such a value; those before it are known. */
void rcvi_recurrence_find_dependence(rcvi_recurrence *recurrence, int k);
/* How the next state follows from the state: adds the instructions for scale and offset where it is affine, else those for its slope. */
void rcvi_recurrence_derive(rcvi_recurrence *recurrence);

#endif

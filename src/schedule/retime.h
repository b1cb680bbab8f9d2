/* The adjoint of a cell with products moved a step: where the adjoint of a state is a sum with products in it, such as
 * U^T times the gates' adjoints, they are computed at the beginning of the next step instead of at the end of this one. Then
 * they meet the pointwise work that waits for them in one kernel. The same goes for the adjoint of the input, where that is
 * nothing but products: it may come a step later.
 *
 * What such products multiply, the operands, are states of the retimed graph: their values of the step before. A late
 * state's own value is what the caller gave at the first step, and from then on the rest of the sum, or zero. Behind the
 * last step the products of its operands are left to do: the graph `last`. */
#ifndef RCVI_RETIME_H
#define RCVI_RETIME_H

#include "schedule/fuse.h"

typedef struct {
    rcvi_graph graph; /* states: those of the adjoint, then one an operand */
    rcvi_graph
        last;       /* inputs: the operands, then late states with a rest; outputs: late states, then the adjoint of the
                         input if that is late */
    size_t states;  /* of the adjoint */
    bool *is_late;  /* [states] */
    bool *has_rest; /* [states] */
    bool output_late;
    int *operands; /* [operand_count] values of `graph` */
    int operand_count;
} rcvi_retimed;

/* Whether any state is late: then the graphs are there. Without memory the program has failed. */
bool rcvi_retime(rcvi_program *program, const rcvi_graph *adjoint, bool output_may_be_late, rcvi_retimed *retimed);
void rcvi_retimed_free(rcvi_retimed *retimed);

#endif

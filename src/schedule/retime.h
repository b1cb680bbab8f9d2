/* Retiming: the adjoint of a cell with products moved one step later.
 *
 * Where the adjoint of a state is a sum that contains products, such as U^T times the gates' adjoints, these products are computed at the
 * beginning of the next step instead of at the end of this one. There they are in one kernel with the pointwise operations that read
 * them. The adjoint of the input, where it consists of products only, may come one step later too.
 *
 * The operands of such late products are states of the retimed graph: their values of the step before. A late state's own value is
 * the caller's at the first step; after that it is the rest of the sum, or zero. After the last step, the products of that step are left
 * to compute: the graph `last`. */
#ifndef RCVI_RETIME_H
#define RCVI_RETIME_H

#include "schedule/fuse/fuse.h"

typedef struct {
    rcvi_graph graph; /* states: those of the adjoint, then one for each operand */
    /* Inputs: the operands, then late states with a rest. Outputs: late states, then the adjoint of the input if that is late. */
    rcvi_graph last;
    size_t states;  /* of the adjoint */
    bool *is_late;  /* [states] */
    bool *has_rest; /* [states] late, and the sum has other terms than late products */
    bool output_late;
    int *operands; /* [operand_count] values of `graph` */
    int operand_count;
} rcvi_retimed;

/* Whether any state is late: then the graphs are there. Without memory the program has failed. */
bool rcvi_retime(rcvi_program *program, const rcvi_graph *adjoint, bool output_may_be_late, rcvi_retimed *retimed);
void rcvi_retimed_free(rcvi_retimed *retimed);

#endif

/* Plain steps for one time step of a graph: one gemm for each matrix, one map for each operation. The naive schedule consists of them; the
 * fusion uses them for values that are steps of their own. */
#ifndef RCVI_EMIT_H
#define RCVI_EMIT_H

#include "program/program.h"

typedef struct {
    rcvi_program *program;
    const rcvi_graph *graph;
    const rcvi_param_layout *params; /* of the graph's parameters */
    const char *label;               /* prefix of buffers' names */
    int constants, dconstants;       /* buffers: the row of the constants, and of their gradients; or RCVI_NONE */
    int64_t batch;
    rcvi_view *views; /* [values]: preset for inputs, states and what is kept; others get a buffer of their own */
    bool *live;       /* [values] read by an output, a next state or a gradient */
} rcvi_emitter;

/* Allocates the tables; every view is absent at first. Free with rcvi_emitter_free. */
bool rcvi_emitter_init(rcvi_emitter *emitter, rcvi_program *program, const rcvi_graph *graph,
                       const rcvi_param_layout *params, const char *label);
void rcvi_emitter_free(rcvi_emitter *emitter);

void rcvi_emit_value(rcvi_emitter *emitter, int value);
void rcvi_emit_values(rcvi_emitter *emitter);
void rcvi_emit_gradients(rcvi_emitter *emitter); /* of the parameters, added to dparameters */

/* A learned vector or a constant: one row. */
rcvi_view rcvi_emitter_vector(const rcvi_emitter *emitter, int param);
/* A gradient's step: left^T right, or the sum of left's rows, added to dparameters or, for a constant, to dconstants. `depth` rows are
 * summed over. */
void rcvi_emit_gradient(const rcvi_emitter *emitter, const rcvi_param_layout *param, int64_t rows, rcvi_view left,
                        rcvi_view right, int64_t depth);

/* Single steps. Views are [rows, columns]. */
void rcvi_emit_copy(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, rcvi_view a);
void rcvi_emit_fill(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, double number);
void rcvi_emit_select(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view mask, rcvi_view out, rcvi_view a,
                      rcvi_view b);
void rcvi_emit_add(rcvi_program *program, int64_t rows, int64_t columns, rcvi_view out, rcvi_view a, rcvi_view b);
/* Copies a result of the graph, which may be a number. */
void rcvi_emit_result(rcvi_emitter *emitter, int value, rcvi_view out);

#endif

/* A parsed and checked cell, and what is derived from it. */
#ifndef RCVI_CELL_H
#define RCVI_CELL_H

#include "cell/ast.h"
#include "cell/graph.h"

struct rcv_cell {
    rcv_context *context;
    rcvi_ast ast;
    rcvi_graph graph; /* sizes symbolic; one input, one output */
};

/* Names, sizes and dependences of a tree; the step it describes goes to `graph` (initialised by the caller). */
rcv_status rcvi_check(const rcvi_ast *ast, rcvi_graph *graph);

/* The adjoint of a graph: a recurrence over the steps taken backwards. Its states are the adjoints of the states, its
 * first inputs the adjoints of the outputs, its further inputs the values that the forward pass keeps (`source` says
 * which); its outputs are the adjoints of the inputs. `recomputed` ([values of forward], may be NULL) says which values it
 * computes again instead of having them kept. */
rcv_status rcvi_differentiate(const rcvi_graph *forward, rcvi_graph *adjoint, bool *recomputed);

typedef enum { RCVI_MAP, RCVI_SCAN, RCVI_DIAGONAL, RCVI_DENSE } rcvi_class;
extern const char *const rcvi_class_names[];

typedef struct {
    rcvi_class class;
    int cause; /* the value that decides the class, or RCVI_NONE */
} rcvi_stage;

/* The stages of a graph in an order in which they can run, each over all time steps before the next. */
typedef struct {
    rcvi_stage *stages;
    size_t stage_count;
    int *stage_of; /* [value_count]: RCVI_NONE for dead values, numbers, parameters and inputs */
} rcvi_analysis;

rcv_status rcvi_analyse(rcv_context *context, const rcvi_graph *graph, rcvi_analysis *analysis);
void rcvi_analysis_free(rcv_context *context, rcvi_analysis *analysis);
/* One sentence: why this stage has its class. */
void rcvi_stage_reason(const rcvi_graph *graph, const rcvi_analysis *analysis, size_t stage, rcvi_text *out);

/* The graph with every size a number: shortcuts settled, biases left out where `no_bias`, matrices split into two of
 * `rank` (0: none). `sizes` gives each size's value. Parameters that vanished are gone from the bound graph. */
rcv_status rcvi_bind(const rcvi_graph *graph, const int64_t *sizes, bool no_bias, int64_t rank, rcvi_graph *bound);

/* Gives a bound graph an input more for each state that is no lag, in their order: what of the state is new at the step, from
 * 0, which leaves it as it was, to 1. */
rcv_status rcvi_add_zoneout(rcvi_graph *graph);

#endif

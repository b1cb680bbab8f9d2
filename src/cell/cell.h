/* A parsed and checked cell, and the passes over its graph: differentiation, analysis of recurrences, binding to sizes, zoneout. */
#ifndef RCVI_CELL_H
#define RCVI_CELL_H

#include "cell/ast.h"
#include "cell/graph.h"

struct rcv_cell {
    rcv_context *context;
    rcvi_ast ast;
    rcvi_graph graph; /* one time step; sizes are symbolic; one input, one output */
};

/* Checks the names, sizes and dependences of an AST and builds the graph of its time step. The caller initialises `graph`. */
rcv_status rcvi_check(const rcvi_ast *ast, rcvi_graph *graph);

/* Reverse-mode differentiation: the adjoint of a graph, which runs from the last step to the first. Its states are the adjoints of the
 * states. Its inputs are the adjoints of the outputs, then the forward values that the forward pass must store (`source` names them). Its
 * outputs are the adjoints of the inputs. `recomputed` ([values of forward], may be NULL) receives which forward values the adjoint
 * recomputes instead of loading them. */
rcv_status rcvi_differentiate(const rcvi_graph *forward, rcvi_graph *adjoint, bool *recomputed);

typedef enum { RCVI_CONSTANT, RCVI_MAP, RCVI_SCAN, RCVI_DIAGONAL, RCVI_DENSE } rcvi_class;
extern const char *const rcvi_class_names[];

typedef struct {
    rcvi_class class;
    int cause; /* a value because of which the class is not a smaller one, or RCVI_NONE */
} rcvi_stage;

/* The stages of a graph in execution order: each stage can run over all time steps before the next one starts. */
typedef struct {
    rcvi_stage *stages;
    size_t stage_count;
    int *stage_of; /* [value_count]: RCVI_NONE for dead values, numbers, parameters and inputs */
} rcvi_analysis;

rcv_status rcvi_analyse(rcv_context *context, const rcvi_graph *graph, rcvi_analysis *analysis);
void rcvi_analysis_free(rcv_context *context, rcvi_analysis *analysis);
/* Appends one sentence: why this stage has its class. */
void rcvi_stage_reason(const rcvi_graph *graph, const rcvi_analysis *analysis, size_t stage, rcvi_text *out);

/* Finds the values that depend on the parameters alone. is_constant: [value_count]; vectors and numbers are not among them. */
void rcvi_find_constants(const rcvi_graph *graph, bool *is_constant);
/* Splits a graph with constants that its step reads; else leaves both results empty. `constants` has the graph's parameters, and these
 * constants as outputs. In `step` they are learned vectors, in the same order, whose parameters follow those of the graph; the inputs,
 * states and outputs are the graph's. The last operation of a constant that is a next state or an output stays in the step. The caller
 * initialises both. */
rcv_status rcvi_split_constants(const rcvi_graph *graph, rcvi_graph *constants, rcvi_graph *step);

/* Binds a graph to numeric sizes (`sizes`: [size_count]). A shortcut becomes the identity or a matrix; biases are removed if `no_bias`; each matrix
 * becomes a product of two of rank `rank` (0: none). Unused parameters are not in `bound`. */
rcv_status rcvi_bind(const rcvi_graph *graph, const int64_t *sizes, bool no_bias, int64_t rank, rcvi_graph *bound);

/* Adds zoneout to a bound graph: one input for each state that is not a lag, in the order of the states. It is the fraction of the state that the step updates: 0
 * keeps the previous value, 1 takes the new one. */
rcv_status rcvi_add_zoneout(rcvi_graph *graph);

#endif

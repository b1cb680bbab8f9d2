/* The intermediate representation of one time step: a graph in SSA form. Values are in topological order; each is an operation on earlier values. A
 * state connects its next value to its RCVI_STATE value of the following step. The adjoint of a graph is a graph too, for steps in reverse
 * order. The builders eliminate common subexpressions. */
#ifndef RCVI_GRAPH_H
#define RCVI_GRAPH_H

#include "base/pool.h"
#include "cell/operation.h"

enum { RCVI_NONE = -1 }; /* no value, or a builder that ran out of memory */

enum { RCVI_SIZE_ANY = -1, RCVI_SIZE_ONE = 0, RCVI_SIZE_INPUT = 1, RCVI_SIZE_HIDDEN = 2 };

typedef struct {
    const char *name;
    int64_t value; /* default value; in a bound graph the actual value; 0: not known yet */
} rcvi_size;

typedef struct {
    const char *equation; /* the equation that names it; NULL if equations share it */
    const char *symbol;
    const char *stored; /* name in files, before _l0 */
    const char *suffix; /* after _l0: "", or ".A" and ".B" of a low-rank pair */
    int rows, columns;  /* sizes; columns is RCVI_SIZE_ONE for a vector */
    int blocks;         /* size that counts the diagonal blocks; RCVI_SIZE_ONE for a full matrix */
    bool vector;
    bool shortcut; /* the identity where rows and columns are the same number */
    bool constant; /* initialised to `initial` */
    double initial;
} rcvi_param;

typedef struct {
    rcvi_operation operation;
    int arguments[2]; /* RCVI_NONE where there is none */
    int size;         /* RCVI_SIZE_ANY for numbers */
    int index;        /* of the input, state, parameter or size */
    double number;
    const char *name; /* of the equation, or NULL */
} rcvi_value;

typedef struct {
    const char *name;
    int size;
    int next;  /* value at the end of the step */
    int value; /* its RCVI_STATE value */
    bool lag;  /* a value of an earlier step, copied unchanged */
} rcvi_graph_state;

typedef struct {
    const char *name;
    int size;
    int value;  /* its RCVI_INPUT value */
    int source; /* in an adjoint graph: the forward value that it holds; RCVI_NONE for an adjoint */
    bool fixed; /* constant: it has no derivative */
} rcvi_graph_input;

typedef struct {
    const char *name;
    int value;
} rcvi_graph_output;

/* The gradient of a parameter, summed over steps and batch: left right^T for a matrix, left for a vector. */
typedef struct {
    int param;
    int left, right;
} rcvi_gradient;

typedef struct {
    rcvi_pool *pool;
    rcvi_value *values;
    size_t value_count, value_capacity;
    rcvi_size *sizes;
    size_t size_count, size_capacity;
    rcvi_param *params;
    size_t param_count, param_capacity;
    rcvi_graph_state *states;
    size_t state_count, state_capacity;
    rcvi_graph_input *inputs;
    size_t input_count, input_capacity;
    rcvi_graph_output *outputs;
    size_t output_count, output_capacity;
    rcvi_gradient *gradients;
    size_t gradient_count, gradient_capacity;
    int *buckets; /* hash table over values */
    size_t bucket_count;
    bool failed; /* out of memory; every builder then returns RCVI_NONE */
} rcvi_graph;

/* `pool` owns names and other strings; it outlives the graph. */
void rcvi_graph_init(rcvi_graph *graph, rcvi_pool *pool);
void rcvi_graph_free(rcvi_graph *graph);

/* Builders. Each returns the index of the new element, or of an equal existing value, or RCVI_NONE. */
int rcvi_graph_add_size(rcvi_graph *graph, const char *name, int64_t value);
int rcvi_graph_add_param(rcvi_graph *graph, const rcvi_param *param);
int rcvi_graph_add_state(rcvi_graph *graph, const char *name, int size);
int rcvi_graph_add_input(rcvi_graph *graph, const char *name, int size, int source);
void rcvi_graph_add_output(rcvi_graph *graph, const char *name, int value);
void rcvi_graph_add_gradient(rcvi_graph *graph, int param, int left, int right);
int rcvi_graph_number(rcvi_graph *graph, double number);
int rcvi_graph_size(rcvi_graph *graph, int size);
int rcvi_graph_vector(rcvi_graph *graph, int param);
int rcvi_graph_matrix(rcvi_graph *graph, rcvi_operation operation, int param, int argument);
int rcvi_graph_sum(rcvi_graph *graph, int argument);
int rcvi_graph_spread(rcvi_graph *graph, int argument, int size);
/* An elementwise operation. Folds constants, simplifies x + 0 and x * 1, and broadcasts (RCVI_SPREAD) an operand of size one. */
int rcvi_graph_apply(rcvi_graph *graph, rcvi_operation operation, int left, int right);

int rcvi_graph_state_of_next(const rcvi_graph *graph, int value); /* a state whose next value this is, or RCVI_NONE */
/* Whether every schedule stores the value for all steps anyway: an input, a parameter, a number, or a value of a state. */
bool rcvi_graph_is_available(const rcvi_graph *graph, int value);
bool rcvi_graph_is_number(const rcvi_graph *graph, int value);

/* Finds the live values: those that next states, outputs or gradients depend on. live: [value_count] */
void rcvi_graph_find_live(const rcvi_graph *graph, bool *live);

/* Prints a value as an expression. Named operands are printed as their names. */
void rcvi_graph_print_value(const rcvi_graph *graph, int value, rcvi_text *out);
/* Prints the graph as equations. */
void rcvi_graph_print(const rcvi_graph *graph, rcvi_text *out);

#endif

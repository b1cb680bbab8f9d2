/* One time step as a graph: values in topological order, each an operation on earlier ones. A state edge goes from a
 * state's next value to its RCVI_STATE value of the following step. The derivative of a graph is a graph again, for
 * steps taken backwards. Equal values are built once. */
#ifndef RCVI_GRAPH_H
#define RCVI_GRAPH_H

#include "base/pool.h"
#include "cell/operation.h"

enum { RCVI_NONE = -1 }; /* no value, or a builder that ran out of memory */

enum { RCVI_SIZE_ANY = -1, RCVI_SIZE_ONE = 0, RCVI_SIZE_INPUT = 1, RCVI_SIZE_HIDDEN = 2 };

typedef struct {
    const char *name;
    int64_t value; /* a default; what is in force once the graph is bound; 0: not known yet */
} rcvi_size;

typedef struct {
    const char *equation; /* that names it; NULL where equations share it */
    const char *symbol;
    const char *stored; /* name in files, before _l0 */
    const char *suffix; /* behind _l0: "", or ".A", ".B" of a low-rank pair */
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
    bool lag;  /* what another value was: nothing but time acts on it */
} rcvi_graph_state;

typedef struct {
    const char *name;
    int size;
    int value;  /* its RCVI_INPUT value */
    int source; /* in a derivative: the value of the differentiated graph that it is; RCVI_NONE for an adjoint */
    bool fixed; /* nobody wants its derivative */
} rcvi_graph_input;

typedef struct {
    const char *name;
    int value;
} rcvi_graph_output;

/* A parameter's gradient, summed over steps and batch: left right^T for a matrix, left for a vector. */
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
    bool failed; /* out of memory; every builder call then answers RCVI_NONE */
} rcvi_graph;

/* Names and other texts go to `pool`, which outlives the graph. */
void rcvi_graph_init(rcvi_graph *graph, rcvi_pool *pool);
void rcvi_graph_free(rcvi_graph *graph);

/* Builders. Each answers the index of the new (or equal older) element, or RCVI_NONE. */
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
/* Elementwise, with numbers folded, x + 0 and x * 1 left out, and a value of size one spread to its partner's size. */
int rcvi_graph_apply(rcvi_graph *graph, rcvi_operation operation, int left, int right);

int rcvi_graph_state_of_next(const rcvi_graph *graph, int value); /* a state whose next value this is, or RCVI_NONE */
/* Whether every schedule has the value of every step at hand: a source, or what a state held. */
bool rcvi_graph_is_available(const rcvi_graph *graph, int value);
bool rcvi_graph_is_number(const rcvi_graph *graph, int value);

/* For every value, whether anything that matters (next states, outputs, gradients) depends on it. [value_count] */
void rcvi_graph_find_live(const rcvi_graph *graph, bool *live);

/* A value as an expression; values with a name are printed by it, except at the top. */
void rcvi_graph_print_value(const rcvi_graph *graph, int value, rcvi_text *out);
/* The graph as equations. */
void rcvi_graph_print(const rcvi_graph *graph, rcvi_text *out);

#endif

/* Semantic analysis of an AST, in two parts: name resolution and order of equations (check.c); size inference and construction of the graph (elaborate.c). */
#ifndef RCVI_CHECKER_H
#define RCVI_CHECKER_H

#include "cell/cell.h"

typedef struct {
    const char *name, *stored;
    bool vector, constant, used;
    int blocks;
    double initial;
} rcvi_symbol; /* a name for parameters, one per equation that names it */

typedef struct {
    enum { RCVI_UNSEEN, RCVI_OPENED, RCVI_DONE } mark;
    bool used;
    int size;       /* known once the equation is built; earlier if another equation reads a lag of it */
    int value;      /* in the graph */
    int lags;       /* the longest lag that is read */
    int lag_states; /* the graph's state [t-1]; longer lags follow it */
    rcvi_text_position lag_position;
} rcvi_equation_info;

typedef struct {
    const rcvi_ast *ast;
    rcvi_graph *graph;
    rcvi_symbol *symbols;
    size_t symbol_count;
    rcvi_equation_info *info; /* [equation_count + 2]: the equations, then the return value, then the input */
    int *order;               /* [equation_count + 1]: equations and the return value in topological order */
    size_t order_count;
} rcvi_checker;

static inline int rcvi_return_index(const rcvi_checker *c) { return (int)c->ast->equation_count; }
static inline int rcvi_input_index(const rcvi_checker *c) { return (int)c->ast->equation_count + 1; }

static inline const rcvi_expr *rcvi_equation_value(const rcvi_checker *c, int equation) {
    return equation == rcvi_return_index(c) ? c->ast->output : c->ast->equations[equation].value;
}

int rcvi_find_state(const rcvi_checker *c, const char *name);
int rcvi_find_equation(const rcvi_checker *c, const char *name, bool next);
int rcvi_find_size(const rcvi_checker *c, const char *name);
rcvi_symbol *rcvi_find_symbol(const rcvi_checker *c, const char *name);
rcv_status rcvi_unknown_size(const rcvi_checker *c, rcvi_text_position position, const char *name);

/* Builds the graph's values, parameters and lag states from the ordered equations. */
rcv_status rcvi_elaborate(rcvi_checker *c);

#endif

/* The operations of cells: one table for the parser, differentiation, the printers and the devices. */
#ifndef RCVI_OPERATION_H
#define RCVI_OPERATION_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    /* sources */
    RCVI_INPUT,  /* an input of the graph at this step */
    RCVI_STATE,  /* a state's value from the step before */
    RCVI_VECTOR, /* a learned vector */
    RCVI_NUMBER, /* a constant, of any size */
    RCVI_SIZE,   /* a size as a number, of any size; a number once the sizes are known */
    /* mixing features */
    RCVI_MATRIX,           /* a matrix times a value */
    RCVI_MATRIX_TRANSPOSE, /* its transpose times a value */
    RCVI_SUM,              /* over the features: a value of size one */
    RCVI_SPREAD,           /* broadcast of a value of size one to a larger size */
    /* element by element */
    RCVI_ADD,
    RCVI_SUBTRACT,
    RCVI_MULTIPLY,
    RCVI_DIVIDE,
    RCVI_NEGATE,
    RCVI_SIGMOID,
    RCVI_TANH,
    RCVI_RELU,
    RCVI_EXP,
    RCVI_LOG,
    RCVI_SOFTPLUS,
    RCVI_ABS,
    RCVI_SQRT,
    RCVI_MIN,
    RCVI_MAX,
    RCVI_STEP, /* 1 where positive, else 0: the derivative of relu */
    RCVI_SIGN, /* -1, 0 or 1: the derivative of abs */
    /* only in maps that a device has fused, not in cells */
    RCVI_SELECT, /* the second where the first is not 0, else the third */
    RCVI_OPERATION_COUNT
} rcvi_operation;

typedef struct {
    const char *name;                       /* as printed; the function's name where it is one */
    int arguments;                          /* operands that are values */
    bool elementwise;                       /* element i of the result depends on elements i of the operands alone */
    bool function;                          /* may be called by name in a cell's text */
    double (*evaluate)(double a, double b); /* for elementwise operations */
} rcvi_operation_info;

extern const rcvi_operation_info rcvi_operations[RCVI_OPERATION_COUNT];

/* Functions of the language that expand to several operations; ends with NULL. */
extern const char *const rcvi_composed[];
bool rcvi_is_composed(const char *name);
int rcvi_find_function(const char *name); /* the operation with this function name, or -1 */

#endif

/* The table of operations, with their evaluation on double for constant folding. */
#include "cell/operation.h"

#include <math.h>
#include <string.h>

static double add(double a, double b) { return a + b; }
static double subtract(double a, double b) { return a - b; }
static double multiply(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double negate(double a, double b) {
    (void)b;
    return -a;
}
static double sigmoid(double a, double b) {
    (void)b;
    return 1 / (1 + exp(-a));
}
static double tangent(double a, double b) {
    (void)b;
    return tanh(a);
}
static double relu(double a, double b) {
    (void)b;
    return a > 0 ? a : 0;
}
static double exponential(double a, double b) {
    (void)b;
    return exp(a);
}
static double logarithm(double a, double b) {
    (void)b;
    return log(a);
}
static double softplus(double a, double b) {
    (void)b;
    return a > 0 ? a + log1p(exp(-a)) : log1p(exp(a));
}
static double absolute(double a, double b) {
    (void)b;
    return fabs(a);
}
static double root(double a, double b) {
    (void)b;
    return sqrt(a);
}
static double minimum(double a, double b) { return a < b ? a : b; }
static double maximum(double a, double b) { return a > b ? a : b; }
static double step(double a, double b) {
    (void)b;
    return a > 0;
}
static double sign(double a, double b) {
    (void)b;
    return (a > 0) - (a < 0);
}

const rcvi_operation_info rcvi_operations[RCVI_OPERATION_COUNT] = {
    [RCVI_INPUT] = {"input", 0, false, false, NULL},
    [RCVI_STATE] = {"state", 0, false, false, NULL},
    [RCVI_VECTOR] = {"vector", 0, false, false, NULL},
    [RCVI_NUMBER] = {"number", 0, false, false, NULL},
    [RCVI_SIZE] = {"size", 0, false, false, NULL},
    [RCVI_MATRIX] = {"matrix", 1, false, false, NULL},
    [RCVI_MATRIX_TRANSPOSE] = {"transpose", 1, false, false, NULL},
    [RCVI_SUM] = {"sum", 1, false, true, NULL},
    [RCVI_SPREAD] = {"spread", 1, false, false, NULL},
    [RCVI_ADD] = {"+", 2, true, false, add},
    [RCVI_SUBTRACT] = {"-", 2, true, false, subtract},
    [RCVI_MULTIPLY] = {"*", 2, true, false, multiply},
    [RCVI_DIVIDE] = {"/", 2, true, false, divide},
    [RCVI_NEGATE] = {"-", 1, true, false, negate},
    [RCVI_SIGMOID] = {"sigmoid", 1, true, true, sigmoid},
    [RCVI_TANH] = {"tanh", 1, true, true, tangent},
    [RCVI_RELU] = {"relu", 1, true, true, relu},
    [RCVI_EXP] = {"exp", 1, true, true, exponential},
    [RCVI_LOG] = {"log", 1, true, true, logarithm},
    [RCVI_SOFTPLUS] = {"softplus", 1, true, true, softplus},
    [RCVI_ABS] = {"abs", 1, true, true, absolute},
    [RCVI_SQRT] = {"sqrt", 1, true, true, root},
    [RCVI_MIN] = {"min", 2, true, true, minimum},
    [RCVI_MAX] = {"max", 2, true, true, maximum},
    [RCVI_STEP] = {"step", 1, true, false, step},
    [RCVI_SIGN] = {"sign", 1, true, false, sign},
    [RCVI_SELECT] = {"select", 3, false, false, NULL},
};

const char *const rcvi_composed[] = {"mean", "layernorm", "shortcut", NULL};

bool rcvi_is_composed(const char *name) {
    for (size_t i = 0; rcvi_composed[i]; i++) {
        if (!strcmp(name, rcvi_composed[i])) return true;
    }
    return false;
}

int rcvi_find_function(const char *name) {
    for (int i = 0; i < RCVI_OPERATION_COUNT; i++) {
        if (rcvi_operations[i].function && !strcmp(name, rcvi_operations[i].name)) return i;
    }
    return -1;
}

/* The memory problem of Martin and Cundy (2018): a network reads `length` random signs, and a linear layer with a logistic loss names the
 * first one from the network's last output. The network runs on any device; the linear layer and the optimiser run on the host. */
#ifndef MEMORY_TASK_H
#define MEMORY_TASK_H

#include "adam.h"
#include "options.h"

#include <stdbool.h>

/* What one iteration gave. */
typedef struct {
    double loss;     /* mean over the minibatch, in nats */
    int64_t correct; /* sequences whose first sign was named */
    double seconds;  /* of the iteration */
    double network;  /* seconds of the forward and the backward pass alone */
} outcome;

typedef struct task {
    const options *options;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    rcv_dtype storage;     /* of x, y and parameters: float32 or float64 */
    size_t size;           /* bytes of an element in storage */
    int64_t output;        /* features of y */
    int64_t network_count; /* parameters of the network */
    int64_t count;         /* and those of the linear layer after them: weights [output], bias [1] */

    /* in host memory */
    double *parameters, *gradient; /* [count] */
    void *x;                       /* [length, batch, 1] in storage: the sequences of the next iteration */
    void *buffer;                  /* in storage: what is copied to the device or from it */
    bool *labels;                  /* [batch] is the first sign +1? */

    /* in the device's memory, in storage; dy is zero but for the last step */
    struct {
        void *parameters, *x, *y, *dy, *gradient;
    } device;

    adam adam;
    uint64_t random;
} task;

/* Opens everything. task_close is needed in any case. */
rcv_status task_open(task *task, const options *options);
/* Trains on one minibatch, and draws the next one. */
rcv_status task_iterate(task *task, outcome *outcome);
void task_close(task *task);

double seconds_now(void); /* a clock that never goes back */
/* Zeroed memory; ends the program where there is none. */
void *allocate(size_t count, size_t size);

#endif

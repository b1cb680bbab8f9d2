/* Adam (Kingma and Ba, 2015) with gradient clipping and a warm-up of the learning rate, on the host. */
#ifndef MEMORY_ADAM_H
#define MEMORY_ADAM_H

#include <stdint.h>

typedef struct {
    double rate; /* learning rate after the warm-up */
    double clip; /* largest norm of the gradient; 0: any */
    int64_t count, updates;
    double *mean, *square; /* [count] moving averages of the gradient and of its square */
} adam;

/* Updates parameters [count] with gradient [count]. */
void adam_update(adam *adam, double *parameters, const double *gradient);

#endif

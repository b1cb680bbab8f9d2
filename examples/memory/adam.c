#include "adam.h"

#include <math.h>

/* The first updates of Adam have the full length whatever the gradient is. A few such updates could destroy the initial values, so the
 * learning rate grows linearly over this many updates. */
enum { WARM_UP = 20 };

static const double DECAY_MEAN = 0.9, DECAY_SQUARE = 0.99, EPSILON = 1e-8;

void adam_update(adam *adam, double *parameters, const double *gradient) {
    const double updates = (double)++adam->updates;
    double norm = 0;
    for (int64_t i = 0; i < adam->count; i++) {
        norm += gradient[i] * gradient[i];
    }
    norm = sqrt(norm);
    const double scale = adam->clip > 0 && norm > adam->clip ? adam->clip / norm : 1;
    const double rate = fmin(1, updates / WARM_UP) * adam->rate / (1 - pow(DECAY_MEAN, updates));
    const double correction = 1 / (1 - pow(DECAY_SQUARE, updates));
    for (int64_t i = 0; i < adam->count; i++) {
        const double g = scale * gradient[i];
        adam->mean[i] += (1 - DECAY_MEAN) * (g - adam->mean[i]);
        adam->square[i] += (1 - DECAY_SQUARE) * (g * g - adam->square[i]);
        parameters[i] -= rate * adam->mean[i] / (sqrt(adam->square[i] * correction) + EPSILON);
    }
}

/* A network with random data in double, and its gradients against central differences: shared by the gradient tests. */
#ifndef RECURVE_PROBE_H
#define RECURVE_PROBE_H

#include "test.h"

/* Random numbers that are the same everywhere (splitmix64). */
typedef struct {
    uint64_t state;
} random_source;

uint64_t random_bits(random_source *source);
double random_between(random_source *source, double from, double to);
int random_below(random_source *source, int bound);
/* Hash of a text, to give every cell its own numbers. */
uint64_t random_seed_of(const char *text);

enum { PROBE_MAX_STATES = 80 };

typedef enum { STATES_ZERO, STATES_INITIAL, STATES_RESTART, STATES_BOTH } probe_states; /* which ones are given */

typedef struct {
    rcv_net_options net;
    int64_t steps, batch;
    bool lengths, resets;
    probe_states states;
    uint64_t seed;
    const char *schedule; /* NULL: naive, the oracle */
} probe_config;

/* The loss is sum(dy * y) + sum(dfinal * final) with random dy and dfinal. */
typedef struct {
    probe_config config;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    size_t states;
    int64_t output, parameter_count;
    int64_t state_count[PROBE_MAX_STATES]; /* elements of a state tensor */
    double *parameters, *x, *y, *dy;
    double *initial[PROBE_MAX_STATES]; /* zeros where not given */
    double *restart[PROBE_MAX_STATES]; /* NULL where not given */
    double *final[PROBE_MAX_STATES], *dfinal[PROBE_MAX_STATES];
    double *dparameters, *dx, *dinitial[PROBE_MAX_STATES], *drestart[PROBE_MAX_STATES];
    int64_t *lengths;
    uint8_t *resets;
} probe;

void probe_open(probe *self, const rcv_cell *cell, const probe_config *config);
void probe_close(probe *self);
/* Runs forward over poisoned outputs and returns the loss. */
double probe_loss(probe *self);
/* Runs forward and backward over poisoned outputs; initial states that are not given are left to the library. */
void probe_gradients(probe *self);

typedef struct {
    size_t checked; /* derivatives compared */
    size_t skipped; /* of them, those where a kink lies between the two sides of the difference */
    double worst;   /* largest relative error seen */
} probe_tally;

/* Checks every gradient of the probe, at most `elements` single elements of each tensor and a direction through all of
 * it; `label` names the configuration in failures. */
void probe_check(probe *self, int elements, const char *label, probe_tally *tally);

#endif

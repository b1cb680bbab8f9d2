/* Initial values that make the state of gilr_lstm and lstm keep the first sign. Other cells keep the values of rcv_net_initialize.
 *
 * chrono (Tallec and Ollivier, 2018): the time constants of the forget gates are uniform in 1..length, and an input gate is open by one
 * over its time constant. Then all signs add up, and the share of the first in their standard deviation is 1/sqrt(length): too little to
 * learn from.
 *
 * clocks: half of the features are clocks. A clock rises from 0 to a fixed level with its own time constant; the time constants spread
 * over the orders of magnitude in 1..length, with more of the short ones. The input gates close while the clocks rise, to about
 * u^-sqrt(log t / log length) at step t, where u is the time constant of the forget gate. So the state holds most of what came first. */
#ifndef MEMORY_INITIAL_H
#define MEMORY_INITIAL_H

#include "options.h"

/* Changes `parameters` (flat, of the network) for every layer. Draws from `random`. */
void set_lasting_values(const rcv_net *net, const char *cell, initial_values initial, int64_t length,
                        double *parameters, uint64_t *random);

#endif

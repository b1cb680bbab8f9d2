#include "initial.h"

#include "random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A cell whose state is c' = forget * c + input * candidate. A gate is a block of `hidden` rows in weight_ih and bias_ih; the fields are
 * the numbers of these blocks. The gates with recurrent weights are the last ones: block `recurrent` is the first in weight_hh. */
typedef struct {
    const char *cell;
    int64_t keep, drive; /* of a clock: the gate that keeps its value, and the value that it approaches */
    int64_t input, forget, candidate, recurrent;
    bool has_own_clocks; /* clocks are features of a separate state; else of c */
    double level;        /* of a clock in the end */
} lasting_cell;

static const lasting_cell lasting_cells[] = {
    {"gilr_lstm", .keep = 0, .drive = 1, .input = 2, .forget = 3, .candidate = 4, .recurrent = 2,
     .has_own_clocks = true, .level = 0.96},
    {"lstm", .keep = 1, .drive = 2, .input = 0, .forget = 1, .candidate = 2, .recurrent = 0, .has_own_clocks = false,
     .level = 0.37},
};

static const double CLOCK_DRIVE = 2; /* tanh(2) is 0.96; after tanh and a gate that is half open 0.37 is left */

/* The parameters of a layer. The first `clocks` features are clocks. */
typedef struct {
    double *weight_ih, *weight_hh; /* [gates * hidden, input], [recurrent gates * hidden, hidden] */
    double *bias_ih, *bias_hh;     /* [gates * hidden]; bias_hh may be NULL */
    int64_t hidden, clocks;
    bool is_first;
} layer;

static double *find_parameter(const rcv_net *net, double *parameters, const char *name, int64_t layer) {
    char full[64];
    snprintf(full, sizeof full, "%s_l%lld", name, (long long)layer);
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        if (strcmp(parameter->name, full) == 0) {
            return parameters + parameter->offset;
        }
    }
    return NULL;
}

/* A feature of c that forgets 1/u a step, u = exp(span). Its input gate is 1/2 while the clocks are 0, and about 1/u when they have risen.
 * The candidate is the input without a bias: a constant would add up over time. */
static void set_memory(const layer *layer, const lasting_cell *cell, int64_t feature, double span) {
    const int64_t hidden = layer->hidden, clocks = layer->clocks;
    const int64_t input = cell->input * hidden + feature, candidate = cell->candidate * hidden + feature;
    double *input_weights = layer->weight_hh + (input - cell->recurrent * hidden) * hidden;
    double *candidate_weights = layer->weight_hh + (candidate - cell->recurrent * hidden) * hidden;
    layer->bias_ih[cell->forget * hidden + feature] = span;
    layer->bias_ih[input] = clocks > 0 ? 0 : -span;
    layer->bias_ih[candidate] = 0;
    for (int64_t i = 0; i < clocks; i++) {
        input_weights[i] -= span / (cell->level * (double)clocks);
        candidate_weights[i] = 0;
    }
    if (layer->is_first) { /* its input is one sign, not `hidden` features */
        layer->weight_ih[candidate] *= sqrt((double)hidden);
    }
}

/* A clock that rises with the time constant exp(span). */
static void set_clock(const layer *layer, const lasting_cell *cell, int64_t feature, double span) {
    layer->bias_ih[cell->keep * layer->hidden + feature] = span;
    layer->bias_ih[cell->drive * layer->hidden + feature] = CLOCK_DRIVE;
    if (!cell->has_own_clocks) {
        layer->bias_ih[cell->input * layer->hidden + feature] = -span;
    }
}

static void set_layer(const layer *layer, const lasting_cell *cell, double length, uint64_t *random) {
    const int64_t gates[] = {cell->input, cell->forget, cell->candidate};
    for (int64_t k = 0; k < layer->hidden; k++) {
        const double even = log(draw_uniform(random, 1, fmax(length - 1, 1)));
        const double share = draw_uniform(random, 0, 1), spread = share * share * log(length);
        for (size_t i = 0; i < 3 && layer->bias_hh != NULL; i++) {
            layer->bias_hh[gates[i] * layer->hidden + k] = 0;
        }
        if (cell->has_own_clocks || k >= layer->clocks) {
            set_memory(layer, cell, k, even);
        }
        if (k < layer->clocks) {
            set_clock(layer, cell, k, spread);
        }
    }
}

void set_lasting_values(const rcv_net *net, const char *cell, initial_values initial, int64_t length,
                        double *parameters, uint64_t *random) {
    const rcv_net_options *options = rcv_net_get_options(net);
    for (size_t i = 0; i < sizeof lasting_cells / sizeof *lasting_cells; i++) {
        if (initial == INITIAL_USUAL || strcmp(cell, lasting_cells[i].cell) != 0) {
            continue;
        }
        for (int64_t index = 0; index < options->layers; index++) {
            const layer layer = {.weight_ih = find_parameter(net, parameters, "weight_ih", index),
                                 .weight_hh = find_parameter(net, parameters, "weight_hh", index),
                                 .bias_ih = find_parameter(net, parameters, "bias_ih", index),
                                 .bias_hh = find_parameter(net, parameters, "bias_hh", index),
                                 .hidden = options->hidden,
                                 .clocks = initial == INITIAL_CLOCKS ? options->hidden / 2 : 0,
                                 .is_first = index == 0};
            if (layer.bias_ih != NULL && layer.weight_ih != NULL && layer.weight_hh != NULL) {
                set_layer(&layer, &lasting_cells[i], (double)length, random);
            }
        }
    }
}

/* The implementation that is written by hand on OpenBLAS. */
#include "bench/openblas/openblas.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *cell;
    by_hand_kind kind;
    int gates;
} known[] = {
    {"lstm", BY_HAND_LSTM, 4}, {"gru", BY_HAND_GRU, 3}, {"rnn_tanh", BY_HAND_TANH, 1}, {"rnn_relu", BY_HAND_RELU, 1}};

const rcv_openblas *openblas(void) {
    static rcv_openblas library = RCV_INIT(rcv_openblas);
    return library.config != NULL || rcv_openblas_open(&library) == RCV_OK ? &library : NULL;
}

/* Afterwards OpenBLAS has one thread: its threads must not poll while other implementations are timed. */
static double run(implementation *self, int64_t repeats) {
    by_hand *net = self->state;
    const bool wide = net->tensors->storage == RCV_FLOAT64;
    openblas()->set_threads((int)net->threads);
    const double start = now();
    for (int64_t i = 0; i < repeats; i++) {
        (wide ? by_hand_forward_double : by_hand_forward_float)(net);
        if (net->tensors->training) {
            (wide ? by_hand_backward_double : by_hand_backward_float)(net);
        }
    }
    const double seconds = now() - start;
    openblas()->set_threads(1);
    return seconds;
}

static void close_by_hand(implementation *self) {
    by_hand *net = self->state;
    for (int64_t i = 0; i + 1 < net->layers; i++) {
        free(net->outputs[i]);
    }
    for (int64_t i = 0; i < (net->tensors->training ? net->layers * net->directions : 1); i++) {
        free(net->gates[i]);
        free(net->cells[i]);
    }
    void *const blocks[] = {(void *)net->places, net->outputs, net->gates, net->cells,     net->recurrent, net->bias,
                            net->zeros,          net->dh,      net->dc,    net->dlayer[0], net->dlayer[1], net};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
}

/* Offset of the parameter with this name in the flat array, or -1. */
static int64_t place_of(const rcv_net *net, const char *part, int64_t layer, bool reverse) {
    char name[64];
    snprintf(name, sizeof name, "%s_l%lld%s", part, (long long)layer, reverse ? "_reverse" : "");
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        if (strcmp(parameter->name, name) == 0) {
            return parameter->offset;
        }
    }
    return -1;
}

static by_hand_place *find_places(const rcv_net *net, int64_t layers, int64_t directions) {
    by_hand_place *places = need((size_t)(layers * directions), sizeof *places);
    for (int64_t i = 0; i < layers * directions; i++) {
        const int64_t layer = i / directions;
        const bool reverse = i % directions == 1;
        places[i] = (by_hand_place){.w = place_of(net, "weight_ih", layer, reverse),
                                    .u = place_of(net, "weight_hh", layer, reverse),
                                    .b = place_of(net, "bias_ih", layer, reverse),
                                    .d = place_of(net, "bias_hh", layer, reverse)};
    }
    return places;
}

static void allocate(by_hand *net) {
    const size_t size = rcv_dtype_bytes(net->tensors->storage), hidden = (size_t)net->hidden,
                 batch = (size_t)net->batch;
    const size_t steps = (size_t)net->steps, layers = (size_t)net->layers, directions = (size_t)net->directions;
    const size_t width = (size_t)net->gate_count * hidden, output = steps * batch * directions * hidden;
    net->outputs = need(layers, sizeof(void *));
    for (size_t i = 0; i < layers; i++) {
        net->outputs[i] = i + 1 < layers ? need(output, size) : net->tensors->y;
    }
    net->gates = need(layers * directions, sizeof(void *));
    net->cells = need(layers * directions, sizeof(void *));
    for (size_t i = 0; i < layers * directions; i++) {
        const bool own = i == 0 || net->tensors->training;
        net->gates[i] = own ? need(steps * batch * width, size) : net->gates[0];
        net->cells[i] = own ? need(steps * batch * hidden, size) : net->cells[0];
    }
    net->recurrent = need(batch * width, size);
    net->bias = need(width, size);
    net->zeros = need(batch * hidden > width ? batch * hidden : width, size);
    net->dh = need(batch * hidden, size);
    net->dc = need(batch * hidden, size);
    if (net->tensors->training) {
        net->dlayer[0] = need(output, size);
        net->dlayer[1] = need(output, size);
    }
}

static const char *reason_against(const problem *problem, bool is_known, by_hand_kind kind) {
    const rcv_net_options *net = &problem->network.net;
    const double rows = (double)problem->steps * (double)problem->batch;
    if (!is_known) {
        return "implemented for lstm, gru, rnn_tanh and rnn_relu only";
    }
    if (problem->dtype == RCV_BFLOAT16) {
        return "OpenBLAS is called in float32 and float64 only";
    }
    if (net->rank > 0) {
        return "implemented for full matrices only";
    }
    if (problem->training && kind != BY_HAND_LSTM) {
        return "the backward pass is implemented for lstm only";
    }
    if (problem->training && net->dropout > 0 && net->layers > 1) {
        return "implemented without dropout";
    }
    return rows > INT_MAX / 2 ? "OpenBLAS counts rows in int, and there are more" : NULL;
}

implementation *comparison_add_openblas(comparison *comparison, const problem *problem, call_tensors *tensors) {
    implementation *added = comparison_add(comparison, "OpenBLAS by hand");
    const rcv_net_options *options = &problem->network.net;
    size_t place = 0;
    while (place < COUNT(known) && strcmp(known[place].cell, rcv_cell_name(problem->cell)) != 0) {
        place++;
    }
    const bool is_known = place < COUNT(known);
    const char *reason = reason_against(problem, is_known, is_known ? known[place].kind : BY_HAND_LSTM);
    if (reason != NULL || openblas() == NULL) {
        implementation_refuse(added, "%s", reason != NULL ? reason : rcv_message());
        return added;
    }
    by_hand *net = need(1, sizeof *net);
    const int64_t directions = options->bidirectional ? 2 : 1;
    *net = (by_hand){.tensors = tensors,
                     .kind = known[place].kind,
                     .gate_count = known[place].gates,
                     .steps = problem->steps,
                     .batch = problem->batch,
                     .input = rcv_net_get_options(problem->net)->input,
                     .hidden = options->hidden,
                     .layers = options->layers,
                     .directions = directions,
                     .threads = problem_threads(problem),
                     .places = find_places(problem->net, options->layers, directions)};
    allocate(net);
    added->state = net;
    added->run = run;
    added->close = close_by_hand;
    added->keeps_threads_busy = true;
    added->gradients_compare = true;
    added->measured.operations = problem_operations(problem, problem->net);
    added->measured.note = text_of("%s, core %s", openblas()->config, openblas()->core);
    return added;
}

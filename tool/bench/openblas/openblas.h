/* A recurrent network written by hand on OpenBLAS: one input product a layer, one recurrent product a step, one loop over the elements. */
#ifndef TOOL_BENCH_OPENBLAS_H
#define TOOL_BENCH_OPENBLAS_H

#include "bench/comparison.h"

#include "recurve_bench.h"

const rcv_openblas *openblas(void); /* NULL where there is none; rcv_message() says why */

typedef enum { BY_HAND_LSTM, BY_HAND_GRU, BY_HAND_TANH, BY_HAND_RELU } by_hand_kind;

/* Offsets of the parameters of one direction of one layer in the flat array; -1: none. */
typedef struct {
    int64_t w, u, b, d; /* weight_ih [gates * hidden, input], weight_hh [gates * hidden, hidden], bias_ih, bias_hh */
} by_hand_place;

/* Elements of buffers have the storage type of the tensors. In training `gates` and `cells` exist for each layer and direction; else all share
 * one buffer. */
typedef struct {
    call_tensors *tensors;
    by_hand_kind kind;
    int64_t gate_count, steps, batch, input, hidden, layers, directions, threads;
    const by_hand_place *places; /* [layers * directions] */
    void **outputs;              /* [layers]: [steps, batch, directions * hidden]; the last is y */
    void **gates;                /* [layers * directions]: [steps, batch, gates * hidden] */
    void **cells;                /* [layers * directions]: [steps, batch, hidden] */
    void *recurrent;             /* [batch, gates * hidden] */
    void *bias;                  /* [gates * hidden] */
    void *zeros;                 /* [batch, hidden] */
    void *dh, *dc;               /* [batch, hidden] */
    void *dlayer[2];             /* [steps, batch, directions * hidden]: gradients of a layer's output */
} by_hand;

void by_hand_forward_float(by_hand *net);
void by_hand_forward_double(by_hand *net);
void by_hand_backward_float(by_hand *net); /* LSTM only */
void by_hand_backward_double(by_hand *net);

#endif

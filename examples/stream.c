/* A network that runs step by step: frames arrive one at a time, for several sequences side by side, and their states stay in the stream.
 *
 *   cc stream.c $(pkg-config --cflags --libs recurve) -lm -o stream
 */
#include <recurve.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2, INPUT = 4, HIDDEN = 16, STEPS = 8 };

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "stream: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

/* The frame of time t, [ROWS, INPUT]: a sine a feature. */
static void make_frame(int t, float *frame) {
    for (int i = 0; i < ROWS * INPUT; i++) frame[i] = sinf(0.3f * (float)((i % INPUT + 1) * t));
}

int main(void) {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_model *model;
    rcv_stream *stream;
    float frame[ROWS * INPUT], y[ROWS * HIDDEN];

    check(rcv_context_new(NULL, &context));
    check(rcv_cell_open(context, "gru", &cell));
    check(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2), &net));
    check(rcv_model_new(net, RCV_FLOAT32, 1, &model)); /* or rcv_model_load */
    check(rcv_stream_new_model(model, &RCV_INIT(rcv_stream_options, .batch = ROWS, .effort = RCV_ESTIMATE), &stream));

    /* Both rows see the same frames; row 1 begins again in the middle. */
    for (int t = 0; t < STEPS; t++) {
        if (t == STEPS / 2) check(rcv_stream_reset(stream, (const uint8_t[ROWS]){0, 1}));
        make_frame(t, frame);
        check(rcv_stream_step(stream, frame, 1, y));
        printf("step %d: y[0] of the rows %9.6f %9.6f\n", t, (double)y[0], (double)y[HIDDEN]);
    }

    /* The states of a row can be stored, and put back here or in another stream of the network. */
    float *states = calloc((size_t)rcv_stream_state_elements(stream), sizeof *states), again[ROWS * HIDDEN];
    if (!states) return 1;
    check(rcv_stream_get_states(stream, 0, states));
    make_frame(STEPS, frame);
    check(rcv_stream_step(stream, frame, 1, y));
    check(rcv_stream_set_states(stream, 0, states));
    check(rcv_stream_step(stream, frame, 1, again));
    printf("step %d: %9.6f, and again %9.6f\n", STEPS, (double)y[0], (double)again[0]);
    bool same = y[0] == again[0];

    free(states);
    rcv_stream_free(stream);
    rcv_model_free(model);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return same ? 0 : 1;
}

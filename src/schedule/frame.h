/* The frame of a program: what every schedule writes around its layers. Masks of lengths and resets, the masked input, dropout between
 * layers, masks of zoneout, the caller's states, dy and dx. */
#ifndef RCVI_FRAME_H
#define RCVI_FRAME_H

#include "schedule/emit.h"

typedef struct {
    rcvi_program *program;
    const rcv_net *net;
    int64_t steps, batch;
    bool training;
    bool ragged, resets; /* sequences have lengths; have resets */
    int length_mask;     /* buffer [steps, batch]: is the step within the sequence's length? */
    int reset_mask;      /* buffer [steps + 1, batch]: is there a reset between the step before and this one? */
    int *inputs;         /* [layers + 1] buffers of [steps, batch, width]; the last is y. In the order of steps, but see
                            rcvi_frame_is_in_time_order */
    int64_t *rows;       /* [layers + 1] elements from row to row of these */
    bool pads_rows;      /* rows of buffers that are not the caller's are padded for products (rcvi_program_row) */
} rcvi_frame;

/* False without memory. */
bool rcvi_frame_init(rcvi_frame *frame, rcvi_program *program);
void rcvi_frame_free(rcvi_frame *frame);

/* Are the values into a layer in the order of the network's time? Those between the layers of a reverse network are, so that each layer
 * reads and writes them as a forward one does. */
bool rcvi_frame_is_in_time_order(const rcvi_frame *frame, int64_t layer);
int64_t rcvi_frame_width(const rcvi_frame *frame, int64_t layer); /* features into a layer; layer = layers: of y */
/* A buffer of [slots, batch, columns]. */
int rcvi_frame_buffer(rcvi_frame *frame, int64_t slots, int64_t columns, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
rcvi_view rcvi_whole_view(int buffer, int64_t columns); /* contiguous rows from its start */
/* The block of a layer and direction in the caller's tensor of a state. */
rcvi_view rcvi_state_block(rcvi_frame *frame, rcvi_role role, size_t state, int64_t layer, int64_t direction,
                           int64_t size);
int64_t rcvi_state_size(const rcvi_graph *graph, size_t state);

void rcvi_frame_write_masks(rcvi_frame *frame);
void rcvi_frame_write_input(rcvi_frame *frame);                /* inputs[0] */
void rcvi_frame_open_output(rcvi_frame *frame, int64_t layer); /* inputs[layer + 1] */
void rcvi_frame_write_output(rcvi_frame *frame); /* after the last layer: y, where it is not written directly */
bool rcvi_frame_has_dropout(const rcvi_frame *frame, int64_t layer);
/* Dropout of the values into a layer and, with the same mask, of their adjoints in the backward pass: a new buffer, with as many elements
 * from row to row as the one before. */
int rcvi_frame_write_dropout(rcvi_frame *frame, int64_t layer, int from, int64_t row, const char *name,
                             rcvi_rounding rounding);
/* The mask of zoneout for the graph's input `input`, as a buffer, before a layer's loops: random, [steps, batch, size] in the order of the
 * direction's time; or the mean, one row. */
bool rcvi_frame_has_random_zoneout(const rcvi_frame *frame);
int rcvi_frame_write_zone(rcvi_frame *frame, int64_t layer, int64_t direction, size_t input);

/* Are dy and dx in the pass as the caller has them, in the plan's 16-bit type? */
bool rcvi_frame_rounds_ends(const rcvi_frame *frame);
/* First steps of the backward pass: clear the gradients of the parameters, copy dy to a buffer of its own. */
int rcvi_frame_write_dy(rcvi_frame *frame);
void rcvi_frame_write_dx(rcvi_frame *frame, int dx);
/* After a layer's backward pass: adjoints of its initial and restart states for the caller. `first` is the adjoint before the first
 * step; `sum` what was added up at resets, not used without resets. */
void rcvi_frame_write_dstates(rcvi_frame *frame, size_t state, int64_t layer, int64_t direction, rcvi_view first,
                              rcvi_view sum);

#endif

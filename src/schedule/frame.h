/* What every schedule writes around its layers: masks, the masked input, dropout between layers, what zoneout leaves new, the
 * caller's states. */
#ifndef RCVI_FRAME_H
#define RCVI_FRAME_H

#include "schedule/emit.h"

typedef struct {
    rcvi_program *program;
    const rcv_net *net;
    int64_t steps, batch;
    bool training, ragged, resets;
    int live, boundary; /* mask buffers: [steps, batch], [steps + 1, batch] */
    int *inputs;        /* [layers + 1] buffers of [steps, batch, width]; the last is y */
    int64_t *rows;      /* [layers + 1] elements from row to row of these */
    bool pads;          /* of those that are not the caller's, as products like it; else their width */
} rcvi_frame;

/* False without memory. */
bool rcvi_frame_init(rcvi_frame *frame, rcvi_program *program);
void rcvi_frame_free(rcvi_frame *frame);

int64_t rcvi_frame_width(const rcvi_frame *frame, int64_t layer); /* features into it; behind the last: of y */
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
bool rcvi_frame_has_dropout(const rcvi_frame *frame, int64_t layer);
/* The same mask for the values into layer `layer` and, backwards, for their adjoints: a new buffer, with as many elements from row to
 * row as the one before. */
int rcvi_frame_write_dropout(rcvi_frame *frame, int64_t layer, int from, int64_t row, const char *name,
                             rcvi_rounding rounding);
/* Before a layer's loops: what of a state is new, the graph's input `input`, as a buffer; by chance [steps, batch, size] in the
 * order of the direction's own time, else one row for all. */
bool rcvi_frame_zones_by_chance(const rcvi_frame *frame);
int rcvi_frame_write_zone(rcvi_frame *frame, int64_t layer, int64_t direction, size_t input);

/* The backward pass's beginning: gradients of the parameters cleared, dy as a buffer of its own. */
int rcvi_frame_write_dy(rcvi_frame *frame);
void rcvi_frame_write_dx(rcvi_frame *frame, int dx);
/* Behind a layer's backward pass: the adjoints of its first states for the caller, and of the restart states. `first`
 * holds the former; `sum` what ended at boundaries, without resets not used. */
void rcvi_frame_write_dstates(rcvi_frame *frame, size_t state, int64_t layer, int64_t direction, rcvi_view first,
                              rcvi_view sum);

#endif

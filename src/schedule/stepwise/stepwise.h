/* The stepwise schedule: any combination of rungs but naive and vendor, as one program.
 *
 * It applies to every network; combinations of rungs that do not fit together or do not fit the problem are refused with a sentence
 * (stepwise_variants.c). It goes through the time steps one after the other, with products combined over gates and over chunks of time,
 * pointwise operations fused, weights packed, layers or directions side by side.
 *
 * A track is one layer in one direction. A set of tracks that may run side by side (the directions of a layer; in a wavefront, all
 * layers) shares its loops: an outer one over chunks of time steps, and inner ones over the steps of a chunk. Where a chunk is one step,
 * or all steps, there is only one loop. The two passes of training may differ in chunks and order: what the forward pass keeps is stored
 * in the order of time, however the pass went through it.
 *
 * A sweep is one way of a track through time (sweep.h). With loop distribution (scan) it has several parts, else one. Each part goes
 * through the whole chunk before the next one starts, with its own work before, in and after its loop.
 *
 * Files: stepwise.c (both passes, layer by layer), wavefront.c (both passes in a skewed order), track.c, chunks.c (chunks of time and their
 * loops), constants.c (values of parameters alone), forward_sweep.c, backward_sweep.c, recompute.c (checkpointing), masked_states.c
 * (lengths and resets), retimed_tail.c. */
#ifndef RCVI_STEPWISE_H
#define RCVI_STEPWISE_H

#include "schedule/retime.h"
#include "schedule/schedule.h"
#include "schedule/stepwise/sweep.h"

typedef struct {
    int64_t layer, direction;
    bool is_reversed;  /* it goes from the last step to the first */
    int64_t delay;     /* rounds of the outer loop that it starts after the first track of its set */
    const char *label; /* prefix of buffers' names */
    rcvi_sweep forward, recomputed, backward;
    int constants, dconstants;    /* buffers: the row of the constants, and of their gradients; or RCVI_NONE */
    rcvi_fusion constant_values;  /* of the graph of the constants */
    rcvi_fusion constant_adjoint; /* of its derivative */
    rcvi_storage *inputs;         /* [inputs of the forward graph] in the order of the track's time */
    int *restarts;                /* [states] buffers of restart states; with resets */
    int *checkpoints;             /* [states] buffers of states before every chunk; with recomputation */
    int *incoming;                /* [states] buffers of adjoints as they reach a step, masked; with lengths */
    int *drestarts;               /* [states] buffers of adjoints summed at resets */
    int *at_reset;                /* [states] scratch buffers: the adjoint where a reset is, else zero */
    int dx;                       /* buffer, in the order of the track's time; then see rcvi_backward_write_dx */
    bool is_retimed;              /* the backward sweep goes over `retimed`, not over the adjoint */
    rcvi_retimed retimed;
    rcvi_sweep tail;    /* of a retimed track: the products after its last step */
    int *tail_adjoints; /* [states] buffers: the adjoints before the first step that the tail computes */
} rcvi_track;

/* How a pass cuts and orders time. */
typedef struct {
    int64_t chunk, chunks; /* steps of a chunk, number of chunks */
    bool is_wavefront;     /* all layers in one set */
} rcvi_time_chunks;

/* What rungs ask for in both passes. */
typedef struct {
    bool recompute;       /* keep states at chunk boundaries only, and recompute a chunk before its backward sweep */
    bool defer_gradients; /* sum gradients of the parameters after all loops */
    bool retime;          /* move products of the backward sweep to the next step where possible */
    bool distribute;      /* loop distribution: each recurrence in a loop of its own */
} rcvi_stepwise_modes;

typedef struct {
    rcvi_frame frame;
    rcvi_time_chunks pass; /* that is being written */
    int64_t longest_chunk; /* of both passes */
    rcvi_stepwise_modes modes;
    rcvi_track *tracks; /* [layers * directions] */
} rcvi_stepwise;

/* ---- stepwise_variants.c ---- */

rcv_status rcvi_stepwise_applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                                 const rcvi_machine *machine);
void rcvi_stepwise_variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                            void (*offer)(void *user, const rcvi_rungs *rungs), void *user);
/* Rungs of the plan on a GPU that needs no compiled kernels and is fastest by our estimate. */
rcvi_rungs rcvi_stepwise_interpreted(const rcv_net *net, const rcv_plan_options *options);

/* ---- wavefront.c ---- */

rcv_status rcvi_wavefront_applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs);
/* The loops of all layers, forwards; inputs and outputs of the layers are open. */
void rcvi_wavefront_write_forward(rcvi_stepwise *w);
void rcvi_wavefront_write_backward(rcvi_stepwise *w, int dy);

/* ---- chunks.c ---- */

/* Steps of a chunk, in general and in the forward pass of training. */
int64_t rcvi_chunk_of(const rcvi_rungs *rungs, int64_t steps);
int64_t rcvi_forward_chunk_of(const rcvi_rungs *rungs, int64_t steps);
void rcvi_pass_begin(rcvi_stepwise *w, int64_t chunk, bool is_wavefront);
/* Loops over chunks, where there are several, and over the steps of a chunk. `delay` is the largest of the set's. */
void rcvi_open_chunks(rcvi_stepwise *w, int64_t delay);
void rcvi_close_chunks(rcvi_stepwise *w);
void rcvi_open_steps(rcvi_stepwise *w, int64_t delay);
void rcvi_close_steps(rcvi_stepwise *w);

/* ---- track.c ---- */

static inline const rcvi_layer *rcvi_track_layer(const rcvi_stepwise *w, const rcvi_track *t) {
    return &w->frame.net->layers[t->layer];
}
/* The graph of its time step, and the derivative of that: constants are learned vectors there. */
static inline const rcvi_graph *rcvi_track_graph(const rcvi_stepwise *w, const rcvi_track *t) {
    return rcvi_layer_step(rcvi_track_layer(w, t));
}
static inline const rcvi_graph *rcvi_track_adjoint(const rcvi_stepwise *w, const rcvi_track *t) {
    return rcvi_layer_step_adjoint(rcvi_track_layer(w, t));
}
bool rcvi_track_open(rcvi_stepwise *w, rcvi_track *t); /* tables; false without memory */
void rcvi_track_close(rcvi_track *t);
/* Steps written from here on belong to this track; NULL: to none. */
void rcvi_track_mark(rcvi_stepwise *w, const rcvi_track *t);
rcvi_time_map rcvi_track_time_map(const rcvi_stepwise *w, const rcvi_track *t, bool backward);
int rcvi_track_state_buffer(rcvi_stepwise *w, const rcvi_track *t, const rcvi_graph *graph, size_t state, int64_t slots,
                            const char *name);
bool rcvi_track_open_sweep(const rcvi_stepwise *w, const rcvi_track *t, rcvi_sweep *sweep, rcvi_sweep_kind kind,
                           const rcvi_graph *graph, rcvi_time_map time_map, bool distribute);
/* What layers share, [steps, batch, row] in the order of steps, as the track reads it. */
rcvi_storage rcvi_track_shared(const rcvi_track *t, int buffer, int64_t offset, int64_t row);
/* The same of values into a layer or their adjoints, which may be in the order of time (rcvi_frame_is_in_time_order). */
rcvi_storage rcvi_track_values_into(const rcvi_stepwise *w, const rcvi_track *t, int64_t layer, int buffer,
                                    int64_t offset, int64_t row);
/* A copy of shared storage in the order of the track's time, where chunks of a reverse direction need one; else as it is. */
rcvi_storage rcvi_track_own_order(rcvi_stepwise *w, const rcvi_track *t, rcvi_storage storage, int64_t columns,
                                  const char *name);
/* Makes a value that is copied or selected at a step readable there: gives it storage over the chunk. */
void rcvi_track_make_readable(rcvi_stepwise *w, const rcvi_track *t, rcvi_fusion *fusion, int value);
/* Can the step that computes a value write it to a state's slot or the output? Not where a mask decides. */
bool rcvi_track_stores_directly(const rcvi_stepwise *w, const rcvi_fusion *fusion, int value);
/* Is it computed after the loop? */
bool rcvi_track_is_after_loop(const rcvi_fusion *fusion, int value);
/* Does a state's slot hold this value after a step? Not where a reset or a length replaces it. */
bool rcvi_track_slot_holds(const rcvi_stepwise *w, const rcvi_graph *graph, int value);

/* ---- constants.c ---- */

void rcvi_constants_write(rcvi_stepwise *w, rcvi_track *t);          /* before the forward sweep is opened */
void rcvi_constants_clear_gradient(rcvi_stepwise *w, rcvi_track *t); /* before the backward sweep is opened */
/* The gradients of the parameters that constants depend on; after all loops. */
void rcvi_constants_write_gradient(rcvi_stepwise *w, rcvi_track *t);

/* ---- forward_sweep.c ---- */

void rcvi_forward_open(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *sweep, rcvi_sweep_kind kind,
                       rcvi_time_map time_map);
/* One time step of a part of a sweep: the body of its loop. */
void rcvi_forward_write_step(rcvi_stepwise *w, rcvi_track *t, rcvi_sweep *sweep, int part);
void rcvi_forward_write_set(rcvi_stepwise *w, rcvi_track *set, int64_t count);

/* ---- backward_sweep.c ---- */

/* A layer's buffer of dx; after rcvi_track_retime. */
int rcvi_backward_new_dx(rcvi_stepwise *w, int64_t layer);
/* Brings the dx of a layer's tracks that have another order into the order of its buffer. */
void rcvi_backward_write_dx(rcvi_stepwise *w, int64_t layer, int dx);
/* dy and dx: [count] buffers. */
void rcvi_backward_write_set(rcvi_stepwise *w, rcvi_track *set, int64_t count, const int *dy, const int *dx);

/* ---- recompute.c ---- */

void rcvi_recompute_open(rcvi_stepwise *w, rcvi_track *t);
void rcvi_recompute_save(rcvi_stepwise *w, rcvi_track *t, const rcvi_sweep *sweep); /* states before the chunk */
/* The forward sweep over a chunk once more, from its checkpoint. */
void rcvi_recompute_write_chunk(rcvi_stepwise *w, rcvi_track *set, int64_t count, int64_t delay);

/* ---- masked_states.c ---- */

/* Copies a value, or, with lengths, selects it within the sequence's length and `otherwise` past it. */
void rcvi_select_or_copy(rcvi_stepwise *w, const rcvi_track *t, const rcvi_fusion *fusion, int value, rcvi_view out,
                         rcvi_view otherwise);
/* With lengths: zero within the sequence's length, `otherwise` past it. */
void rcvi_clear_where_live(rcvi_stepwise *w, const rcvi_track *t, const rcvi_fusion *fusion, int64_t size,
                           rcvi_view out, rcvi_view otherwise);
/* Before a forward step: states become the restart states where there is a reset. */
void rcvi_write_restarts(rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *sweep, int part);
/* Where the adjoint of a state is read at a step. */
rcvi_storage rcvi_incoming_adjoint(const rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *sweep, size_t state);
/* Before a backward step: adjoints that reach it, zero past a sequence's length. */
void rcvi_write_incoming(rcvi_stepwise *w, const rcvi_track *t, const rcvi_sweep *sweep, int part);
/* After a backward step: where there is a reset, moves a state's adjoint to the sum of the restart state's. */
void rcvi_write_reset_adjoint(rcvi_stepwise *w, const rcvi_track *t, const rcvi_time_map *time_map, size_t state,
                              int64_t size, rcvi_view adjoint);

/* ---- retimed_tail.c ---- */

void rcvi_track_retime(rcvi_stepwise *w, rcvi_track *t); /* where modes ask for it and the adjoint allows it */
bool rcvi_track_is_dx_late(const rcvi_track *t); /* dx of a step is computed one step later: it has one slot more */
/* Is the tail a step of the loop? In a wavefront, since the layer below reads dx there; else it follows the loops. */
bool rcvi_track_has_tail_in_loop(const rcvi_stepwise *w, const rcvi_track *t);
void rcvi_tail_open(rcvi_stepwise *w, rcvi_track *t);
void rcvi_tail_write(rcvi_stepwise *w, rcvi_track *t);

#endif

/* What is computed for a batch: plans for the shapes of batches, arrays in the device's memory, and the calls that are enqueued.
 *
 * For a pipeline a batch is cut into units: micro-batches of sequences, and each of these into chunks of time; unit u = m * chunks + k. One
 * rank alone has one unit. Arrays over a batch hold one unit after the other, each [steps, batch, features] of the unit; a unit begins `pitch`
 * rows after the one before. */
#ifndef RCVI_WORK_H
#define RCVI_WORK_H

#include "train/learner/learner.h"
#include "train/parallel/pipeline.h"
#include "train/parallel/topology.h"
#include "train/step/trace.h"

/* Probabilities of dropout in training. */
typedef struct {
    double embedding;     /* of whole words */
    double input, output; /* of features into and out of the network */
    double weight;        /* of weights on states (weight drop) */
    bool variational;     /* the same mask at every step of a sequence */
} rcvi_drops;

typedef struct {
    bool training;
    rcvi_drops drops;
    bool sparse; /* plain SGD: the embedding's gradient is stored as the rows that were read */
    bool lean;   /* plain SGD without accumulation: the output layer's gradient is never stored (if the device can) */
    int64_t threads, chunk;
    rcv_effort effort;
    int64_t rows;                  /* of the largest window */
    int64_t units;                 /* of the window with most */
    const rcvi_topology *topology; /* NULL: one rank alone */
    rcvi_comm *peers;              /* ranks that must choose the same plans; NULL: none */
    bool (*go_on)(void *user);     /* as rcv_plan_options has it; NULL: always */
    void *user;
} rcvi_work_options;

/* One shape of batches. One window is used at a time: the runs of all windows share the memory of the first one's runs, where they fit. A
 * window without training may be closed while it is not needed: then it has its plan and states, and no runs. */
typedef struct {
    int64_t steps, batch;  /* of a unit */
    int64_t micro, chunks; /* micro-batches, and chunks of each */
    int64_t first, whole;  /* first sequence of the batch that is here; sequences of the whole batch */
    int64_t pitch;         /* rows from unit to unit */
    int64_t target_pitch;  /* the same of targets; where a sequence has one target, from micro-batch to micro-batch */
    int64_t in_flight;     /* micro-batches between their first forward and their last backward unit at once */
    bool training, lengths;
    bool carries; /* states are carried from batch to batch (truncated BPTT); else they begin at zero */
    rcv_plan *plan;
    rcv_run **runs;  /* [in_flight * chunks]; NULL while it is closed */
    bool packs_once; /* all runs use the weights that the first has packed */
    /* Features that the output layer reads: y, or y under a mask, or y of the last steps; and their gradient. */
    void *head_features, *dhead_features;
    void **states; /* [micro, chunks + 1, states] where states are carried: before each chunk, and after the last */
    /* [2, states] of training in chunks: gradients of states between a chunk and the one before, alternating. */
    void **dstates;
    rcvi_pipeline_task *tasks; /* [2 * units] of training, in the order in which they run */
    bool fixed;                /* its calls cannot be recorded as a graph */
} rcvi_window;

/* How a window is made. */
typedef struct {
    int64_t steps, batch;  /* of all units together */
    int64_t micro, chunks; /* numbers that divide batch and steps; 0 means 1 */
    int64_t first, whole;  /* as in the window; whole 0: the whole batch is here */
    bool training, lengths, carries;
    bool signals;         /* the plan signals complete gradients, even without ranks to exchange them with */
    const char *schedule; /* plan string; NULL: the planner chooses */
} rcvi_window_options;

static inline int64_t rcvi_window_units(const rcvi_window *v) { return v->micro * v->chunks; }
/* Rows of arrays over the batch, padding between units included. */
static inline int64_t rcvi_window_rows(const rcvi_window *v) { return rcvi_window_units(v) * v->pitch; }
/* Rows from one of several blocks to the next: a multiple of 4, so that blocks of float begin at multiples of 16 bytes. */
static inline int64_t rcvi_pitch(int64_t rows, int64_t blocks) { return blocks > 1 ? (rows + 3) / 4 * 4 : rows; }
/* Rows of the arrays of a window with these options. */
int64_t rcvi_window_options_rows(const rcvi_window_options *options);
/* [states] before chunk k of micro-batch m; NULL where states are not carried. */
static inline void **rcvi_window_states(const rcvi_window *v, size_t count, int64_t m, int64_t k) {
    return v->states ? v->states + (size_t)(m * (v->chunks + 1) + k) * count : NULL;
}

/* Byte offsets in the block that is sent to the device with every batch (feed.c). */
typedef struct {
    size_t ids, targets, groups, merged, last, last_groups, x, values, bytes;
} rcvi_feed;

typedef struct rcvi_exchange rcvi_exchange; /* exchange.h */

typedef struct {
    rcv_learner *learner;
    const rcvi_learn_table *ops;
    rcvi_learn *learn;
    rcvi_work_options options;
    rcvi_feed feed;
    char *device_block, *host_block; /* the feed, in the memory of each */
    int32_t *slots;                  /* [tokens] of the host; all -1 between calls */
    /* [rows of all replicas] of the host: tokens whose rows of the embedding replicas read, one replica after the other. */
    int32_t *read_rows;
    int64_t *row_starts;     /* [replicas + 1], in elements: where the rows of each replica begin */
    int64_t *lengths;        /* [rows] of the host: lengths of the window's sequences */
    rcvi_exchange *exchange; /* NULL: one rank alone */
    /* Of parameters from rcvi_work_gradient_start on: without an embedding whose gradient is sparse or not wanted, and without a lean head. */
    void *gradient;
    void *masked_parameters;      /* of the layers that are here, under weight drop; NULL: there is none */
    const void *layer_parameters; /* in use: masked_parameters, or the learner's */
    /* Arrays of the current window, in the device's memory; those of the backward pass in training alone. x is [rows, input], y [rows, output] of
     * the layers that are here. After the backward pass x is free: a sparse gradient of the embedding is put there. */
    void *x, *y;
    void *dx, *dy; /* gradients of these; dx NULL: not wanted */
    /* Features that the output layer reads and their gradient, where these are not y and dy; else NULL. */
    void *head_features, *dhead_features;
    rcvi_outcome *outcome;  /* the device's */
    const void *parameters; /* in use: the learner's, or their average */
    rcvi_window *windows;
    size_t window_count, window_capacity;
    size_t current_window; /* the window that was used last; SIZE_MAX: none */
    uint64_t batch_count;  /* enqueued so far */
    /* NULL, or called before every batch of an evaluation with the part that is done */
    void (*evaluating)(void *user, double part);
    void *evaluating_user;
    rcvi_trace trace; /* off, except for a few updates */
} rcvi_work;

rcv_status rcvi_work_new(rcv_learner *learner, const rcvi_work_options *options, rcvi_work **work);
void rcvi_work_free(rcvi_work *work);
/* The first parameter whose gradient is stored, and how many there are. */
int64_t rcvi_work_gradient_start(const rcvi_work *work);
int64_t rcvi_work_gradient_count(const rcvi_work *work);
/* Address of the gradient of a parameter. */
static inline void *rcvi_gradient_at(const rcvi_work *w, int64_t element) {
    return rcvi_element_at(w->learner, w->gradient, element - rcvi_work_gradient_start(w));
}
size_t rcvi_work_bytes(const rcvi_work *work); /* in the device's memory, without the learner's parameters */

/* The plan of a window with these options. Collective among `peers`. */
rcv_status rcvi_window_plan(const rcvi_work *work, const rcvi_window_options *options, rcv_plan **plan);
/* Adds a window, and gives its number. It is open. */
rcv_status rcvi_work_add_window(rcvi_work *work, const rcvi_window_options *options, size_t *window);
/* Of a window without training. Opening an open one, or closing a closed one, does nothing. */
rcv_status rcvi_work_open(rcvi_work *work, size_t window);
void rcvi_work_close(rcvi_work *work, size_t window);
rcv_status rcvi_work_clear_states(rcvi_work *work, size_t window); /* sets its carried states to zero */
/* Bytes of a state of one micro-batch. */
size_t rcvi_window_state_bytes(const rcvi_work *work, const rcvi_window *window, size_t state);
rcv_status rcvi_work_wait(rcvi_work *work); /* for all that is enqueued */

/* Enqueues the forward pass of a batch and its loss, which is added to the outcome, or overwrites it where the batch is the `first`. */
rcv_status rcvi_work_evaluate(rcvi_work *work, size_t window, const rcvi_batch *batch, bool first);
/* Enqueues forward and backward pass of a batch. The `first` batch of an update overwrites gradients and loss, later ones add to
 * them. With the last batch comes the `update` (else NULL): gradients are all-reduced, clipped, and parameters updated. Weight drop uses
 * `update_seed`, so that all batches of an update drop the same weights. */
rcv_status rcvi_work_train(rcvi_work *work, size_t window, const rcvi_batch *batch, const rcvi_control *control,
                           uint64_t update_seed, bool first, const rcvi_update *update);
/* Enqueues the forward pass of a batch without targets, of a window of one unit. The network's output is then in y. Parameters are those of
 * the batch before, unless it is the `first`. */
rcv_status rcvi_work_predict(rcvi_work *work, size_t window, const rcvi_batch *batch, bool first);

/* Where the trace is on: waits for all that is enqueued, and adds a span that ends now. */
rcv_status rcvi_work_trace(rcvi_work *work, rcvi_trace_kind kind, int64_t unit, double begin);

/* ---- shared by the files of this folder, and measured by forecast/costs.c ---- */

void rcvi_feed_lay_out(const rcvi_work *work, rcvi_feed *feed);
/* Fills the host's block and sends it to the device. */
rcv_status rcvi_feed_send(rcvi_work *work, const rcvi_window *window, const rcvi_batch *batch,
                          const rcvi_control *control, uint64_t update_seed);
/* The block begins with two controls: with the seed of the batch, and with that of the update. */
static inline const rcvi_control *rcvi_feed_control(const rcvi_work *w) {
    return (const rcvi_control *)(const void *)w->device_block;
}
static inline const rcvi_control *rcvi_feed_update(const rcvi_work *w) { return rcvi_feed_control(w) + 1; }
static inline const int32_t *rcvi_feed_ids(const rcvi_work *w) {
    return (const int32_t *)(const void *)(w->device_block + w->feed.ids);
}
/* Rows of the batch by token. */
rcvi_groups rcvi_feed_groups(const rcvi_work *work);
/* Rows that replicas gather, by token: of one replica after the other, each of its tokens once. */
rcvi_groups rcvi_feed_merged(const rcvi_work *work);
/* The last step of each sequence of a micro-batch, as groups of one row. */
rcvi_groups rcvi_feed_last(const rcvi_work *work, const rcvi_window *window, int64_t micro);
/* The embedding's gradient is sparse, and replicas gather its rows instead of all-reducing it. */
bool rcvi_work_merges(const rcvi_work *work);

rcv_status rcvi_window_new(rcvi_work *work, const rcvi_window_options *options, rcvi_window *window);
rcv_status rcvi_window_open(const rcvi_work *work, rcvi_window *window);
void rcvi_window_close(const rcvi_work *work, rcvi_window *window);
void rcvi_window_free(const rcvi_work *work, rcvi_window *window);

typedef struct {
    int64_t number, micro, chunk;
    int64_t row; /* its first row in arrays over the batch */
    rcv_run *run;
} rcvi_unit;

rcvi_unit rcvi_unit_of(const rcvi_window *window, int64_t number);
/* Once per batch: the parameters that layers multiply with, under weight drop. */
rcv_status rcvi_unit_prepare_parameters(rcvi_work *work, const rcvi_window *window);
/* Enqueues the forward pass of the layers that are here, and, of the last ones, makes the features that the output layer reads. `first`: unit
 * of the batch. */
rcv_status rcvi_unit_forward(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, uint64_t seed,
                             bool first);
rcvi_head rcvi_unit_head(const rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit);
/* Enqueues the output layer: loss, its gradients, and dy. `fresh`: gradients are overwritten, not added to. */
rcv_status rcvi_unit_train_head(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, bool fresh);
rcv_status rcvi_unit_backward(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, bool fresh);
/* After all units: the gradient of the embedding, from that of the network's inputs. */
rcv_status rcvi_unit_embedding_gradient(rcvi_work *work, const rcvi_window *window, bool fresh);
/* Weight drop: masks the gradients of the matrices. */
rcv_status rcvi_unit_mask_gradient(rcvi_work *work);

#endif

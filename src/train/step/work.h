/* A learner at work on batches: plans for their shapes, arrays in the device's memory, what is enqueued for one batch.
 *
 * A batch is cut into units: micro-batches of sequences, and each of these into chunks of time; unit u = m * chunks + k. Arrays over a batch
 * lie unit after unit, each [steps, batch, features] of the unit, `pitch` rows from one to the next. One rank alone has one unit. */
#ifndef RCVI_WORK_H
#define RCVI_WORK_H

#include "train/learner/learner.h"
#include "train/parallel/pipeline.h"
#include "train/parallel/topology.h"
#include "train/step/trace.h"

/* Probabilities with which something is left out in training. */
typedef struct {
    double embedding, input, output, weight;
    bool variational; /* the same at every step of a sequence */
} rcvi_drops;

typedef struct {
    bool training;
    rcvi_drops drops;
    bool sparse; /* the embedding's gradient as the rows that were read: for plain updates */
    bool lean;   /* the output layer's is never stored: for plain updates of one batch, where the device does it */
    int64_t threads, chunk;
    rcv_effort effort;
    int64_t rows;                  /* most of any window */
    int64_t units;                 /* the same */
    const rcvi_topology *topology; /* NULL: alone */
    rcvi_comm *peers;              /* ranks that have the same plans for the same shapes; NULL: nobody else */
    bool (*go_on)(void *user);     /* as rcv_plan_options has it; NULL: on */
    void *user;
} rcvi_work_options;

/* One shape of batches. Windows take turns: the runs of all but the first live in the memory of that one's, where they fit. One without
 * training may be closed until it is needed: it has its plan and states then, and no runs. */
typedef struct {
    int64_t steps, batch;  /* of a unit */
    int64_t micro, chunks; /* micro-batches, and chunks of each */
    int64_t first, whole;  /* the first sequence that is here, of how many that the batch has */
    int64_t pitch;         /* rows from unit to unit */
    int64_t
        target_pitch; /* rows of targets from unit to unit, or, where a sequence has one target, from micro-batch to micro-batch */
    int64_t in_flight; /* micro-batches between their first forward and their last backward unit at once */
    bool training, lengths;
    bool carries; /* states from batch to batch; else they begin with zeros */
    rcv_plan *plan;
    rcv_run **runs;  /* [in_flight * chunks]; NULL while it is closed */
    bool packs_once; /* all of them use what the first has packed */
    /* Features that the output layer reads: y, or y under a mask, or y of the last steps; and their gradient. */
    void *head_features, *dhead_features;
    void **states;  /* [micro, chunks + 1, states] where they are carried: before chunk k, and behind the last */
    void **dstates; /* [2, states] of training in chunks: gradients on their way from a chunk to the one before */
    rcvi_pipeline_task *tasks; /* [2 * units] in order; of training */
    bool fixed;                /* its calls cannot be recorded and repeated */
} rcvi_window;

/* What a window is made for; the schedule NULL: the planner chooses. */
typedef struct {
    int64_t steps, batch;  /* of all that is here */
    int64_t micro, chunks; /* which divide these; 0 is 1 */
    int64_t first, whole;  /* as in the window; whole 0: all is here */
    bool training, lengths, carries;
    bool signals; /* of gradients, whether there is somebody to exchange them with or not */
    const char *schedule;
} rcvi_window_options;

static inline int64_t rcvi_window_units(const rcvi_window *v) { return v->micro * v->chunks; }
/* With what lies between units. */
static inline int64_t rcvi_window_rows(const rcvi_window *v) { return rcvi_window_units(v) * v->pitch; }
/* Rows from one to the next of several blocks: so many that every block of 4 bytes an element lies at a multiple of 16 bytes. */
static inline int64_t rcvi_pitch(int64_t rows, int64_t blocks) { return blocks > 1 ? (rows + 3) / 4 * 4 : rows; }
/* Of a window's arrays. */
int64_t rcvi_window_options_rows(const rcvi_window_options *options);
/* Of state s before chunk k of micro-batch m. */
static inline void **rcvi_window_states(const rcvi_window *v, size_t count, int64_t m, int64_t k) {
    return v->states ? v->states + (size_t)(m * (v->chunks + 1) + k) * count : NULL;
}

/* Offsets in the block that travels to the device with every batch. */
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
    char *there, *here; /* the block: the device's, the host's */
    int32_t *slots;     /* [tokens] of the host, -1 */
    int32_t *
        merged; /* [rows of all replicas] of the host: rows of the embedding that they read, one replica after the other */
    int64_t *starts;         /* [replicas + 1], in elements: whose these are */
    int64_t *lengths;        /* [rows] of the host: of the window's sequences */
    rcvi_exchange *exchange; /* NULL: there is nobody to exchange with */
    void *
        gradient; /* [elements], from the network on where the embedding's is sparse or not wanted, to its end where lean */
    void *dropped;      /* the parameters of the layers that are here, some left out */
    const void *layers; /* in use: these, or the learner's */
    /* Arrays of the window whose turn it is, in the device's memory; those of the backward pass in training alone. */
    /* [rows, input], [rows, output] of the layers that are here. Behind the backward pass nobody reads x: where the embedding's gradient is
     * sparse, its rows lie there. */
    void *x, *y;
    void *dx, *dy; /* the same; dx NULL: not wanted */
    void *head_features,
        *dhead_features;    /* what the output layer reads and its gradient, where that is not y itself; else NULL */
    rcvi_outcome *outcome;  /* the device's */
    const void *parameters; /* in use: the learner's, or an average of them */
    rcvi_window *windows;
    size_t window_count, window_capacity;
    size_t turn;      /* the window that came last; SIZE_MAX: none */
    uint64_t batches; /* that were enqueued */
    rcvi_trace trace; /* off, but for an update now and then */
} rcvi_work;

rcv_status rcvi_work_new(rcv_learner *learner, const rcvi_work_options *options, rcvi_work **work);
void rcvi_work_free(rcvi_work *work);
/* Elements of the parameters before those that the gradient covers, and how many these are. */
int64_t rcvi_work_gradient_start(const rcvi_work *work);
int64_t rcvi_work_gradient_count(const rcvi_work *work);
/* Where the gradient of an element of the parameters lies. */
static inline void *rcvi_gradient_at(const rcvi_work *w, int64_t element) {
    return rcvi_element_at(w->learner, w->gradient, element - rcvi_work_gradient_start(w));
}
size_t rcvi_work_bytes(const rcvi_work *work); /* in the device's memory, but for the learner's parameters */

/* The plan that a window would have. */
rcv_status rcvi_window_plan(const rcvi_work *work, const rcvi_window_options *options, rcv_plan **plan);
/* Adds a window; its number comes back. */
rcv_status rcvi_work_window(rcvi_work *work, const rcvi_window_options *options, size_t *window);
/* One without training: it is open when it is added. Opening what is open, and closing what is closed, does nothing. */
rcv_status rcvi_work_open(rcvi_work *work, size_t window);
void rcvi_work_close(rcvi_work *work, size_t window);
rcv_status rcvi_work_forget(rcvi_work *work, size_t window); /* states that it carries become zero */
/* Of one micro-batch. */
size_t rcvi_window_state_bytes(const rcvi_work *work, const rcvi_window *window, size_t state);
rcv_status rcvi_work_wait(rcvi_work *work); /* for all that was enqueued */

/* Enqueues the batch: its loss is added to the outcome's, or overwrites it where this is the first. */
rcv_status rcvi_work_loss(rcvi_work *work, size_t window, const rcvi_batch *batch, bool first);
/* The same with gradients, which are added where it is not the first, and then, where it is the last, with the update. Weights are
 * dropped by `update_seed`, so that all batches of an update drop the same ones. */
rcv_status rcvi_work_learn(rcvi_work *work, size_t window, const rcvi_batch *batch, const rcvi_control *control,
                           uint64_t update_seed, bool first, const rcvi_update *update);
/* Runs the tokens [batch] one step further. The network's output lies in the window's `head_features`. */
rcv_status rcvi_work_step(rcvi_work *work, size_t window, const int32_t *tokens);

/* A span of the trace that ends here, when what was enqueued is done. */
rcv_status rcvi_work_trace(rcvi_work *work, rcvi_trace_kind kind, int64_t unit, double begin);

/* ---- what is shared by work.c, feed.c, window.c, unit.c and exchange.c ---- */

void rcvi_feed_lay_out(const rcvi_work *work, rcvi_feed *feed);
/* Fills the host's block and sends it. */
rcv_status rcvi_feed_send(rcvi_work *work, const rcvi_window *window, const rcvi_batch *batch,
                          const rcvi_control *control, uint64_t update_seed);
/* The block begins with two: of the batch, and the same with the seed of the update, which all batches of it share. */
static inline const rcvi_control *rcvi_feed_control(const rcvi_work *w) {
    return (const rcvi_control *)(const void *)w->there;
}
static inline const rcvi_control *rcvi_feed_update(const rcvi_work *w) { return rcvi_feed_control(w) + 1; }
static inline const int32_t *rcvi_feed_ids(const rcvi_work *w) {
    return (const int32_t *)(const void *)(w->there + w->feed.ids);
}
rcvi_groups rcvi_feed_groups(const rcvi_work *work);
/* Of the rows that all replicas read, one replica after the other, each its own once. */
rcvi_groups rcvi_feed_merged(const rcvi_work *work);
rcvi_groups rcvi_feed_last(const rcvi_work *work, const rcvi_window *window, int64_t micro);
/* Does the embedding's gradient have rows that replicas gather? */
bool rcvi_work_merges(const rcvi_work *work);

rcv_status rcvi_window_new(rcvi_work *work, const rcvi_window_options *options, rcvi_window *window);
rcv_status rcvi_window_open(const rcvi_work *work, rcvi_window *window);
void rcvi_window_close(const rcvi_work *work, rcvi_window *window);
void rcvi_window_free(const rcvi_work *work, rcvi_window *window);

typedef struct {
    int64_t number, micro, chunk;
    int64_t row; /* where its arrays begin */
    rcv_run *run;
} rcvi_unit;

rcvi_unit rcvi_unit_of(const rcvi_window *window, int64_t number);
/* What the layers multiply with, once a batch. */
rcv_status rcvi_unit_parameters(rcvi_work *work, const rcvi_window *window);
/* The layers that are here; with the last ones what the output layer reads, which `head` then takes. `first`: of the batch. */
rcv_status rcvi_unit_forward(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, uint64_t seed,
                             bool first);
rcvi_head rcvi_unit_head(const rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit);
/* The output layer with its gradients, and then what it hands back; `fresh`: these overwrite. */
rcv_status rcvi_unit_learn_head(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, bool fresh);
rcv_status rcvi_unit_backward(rcvi_work *work, const rcvi_window *window, const rcvi_unit *unit, bool fresh);
/* Behind all units: the gradient of the network's inputs to the rows that they were. */
rcv_status rcvi_unit_inputs(rcvi_work *work, const rcvi_window *window, bool fresh);
/* Gradients of matrices of which some weights are left out. */
rcv_status rcvi_unit_mask_gradient(rcvi_work *work);

#endif

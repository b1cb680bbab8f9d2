/* A learner at work on batches: plans for their shapes, arrays in the device's memory, what is enqueued for one batch. */
#ifndef RCVI_WORK_H
#define RCVI_WORK_H

#include "train/learner.h"

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
    int64_t rows;              /* most of any window */
    bool (*go_on)(void *user); /* as rcv_plan_options has it; NULL: on */
    void *user;
} rcvi_work_options;

/* One shape of batches. Windows take turns: the runs of all but the first live in the memory of that one's, where they fit. One without
 * training may be closed until it is needed: it has its plan and states then, and no run. */
typedef struct {
    int64_t steps, batch;
    bool training, lengths;
    bool carries; /* states from batch to batch; else they begin with zeros */
    rcv_plan *plan;
    rcv_run *run;
    void *seen, *dseen; /* what the output layer reads: y, or y under a mask, or y of the last steps; its gradient */
    void **initial, **final; /* [states], where they are carried */
    bool fixed;              /* its calls cannot be recorded and repeated */
} rcvi_window;

/* What a window is made for; the schedule NULL: the planner chooses. */
typedef struct {
    int64_t steps, batch;
    bool training, lengths, carries;
    const char *schedule;
} rcvi_window_options;

/* Offsets in the block that travels to the device with every batch. */
typedef struct {
    size_t ids, targets, groups, last, last_groups, x, values, bytes;
} rcvi_feed;

typedef struct {
    rcv_learner *learner;
    const rcvi_learns *ops;
    rcvi_learn *learn;
    rcvi_work_options options;
    rcvi_feed feed;
    char *there, *here; /* the block: the device's, the host's */
    int32_t *slots;     /* [tokens] of the host, -1 */
    void *
        gradient; /* [elements], from the network on where the embedding's is sparse or not wanted, to its end where lean */
    void *dropped; /* the network's parameters, some left out */
    /* Arrays of the window whose turn it is, in the device's memory; those of the backward pass in training alone. */
    /* [steps, batch, embedding], [steps, batch, width]. Behind the backward pass nobody reads x: where the embedding's gradient is sparse,
     * its rows lie there. */
    void *x, *y;
    void *dx, *dy;          /* the same; dx NULL: not wanted */
    void *apart, *dapart;   /* of what the output layer reads, where that is not y as it is; else NULL */
    rcvi_outcome *outcome;  /* the device's */
    const void *parameters; /* in use: the learner's, or an average of them */
    rcvi_window *windows;
    size_t window_count, window_capacity;
    size_t turn; /* the window that came last; SIZE_MAX: none */
} rcvi_work;

rcv_status rcvi_work_new(rcv_learner *learner, const rcvi_work_options *options, rcvi_work **work);
void rcvi_work_free(rcvi_work *work);
/* Elements of the parameters before those that the gradient covers, and how many these are. */
int64_t rcvi_work_gradient_start(const rcvi_work *work);
int64_t rcvi_work_gradient_count(const rcvi_work *work);
size_t rcvi_work_bytes(const rcvi_work *work); /* in the device's memory, but for the learner's parameters */

/* The plan that a window would have. */
rcv_status rcvi_window_plan(const rcvi_work *work, const rcvi_window_options *options, rcv_plan **plan);
/* Adds a window; its number comes back. */
rcv_status rcvi_work_window(rcvi_work *work, const rcvi_window_options *options, size_t *window);
/* One without training: it is open when it is added. Opening what is open, and closing what is closed, does nothing. */
rcv_status rcvi_work_open(rcvi_work *work, size_t window);
void rcvi_work_close(rcvi_work *work, size_t window);
rcv_status rcvi_work_forget(rcvi_work *work, size_t window); /* states that it carries become zero */
size_t rcvi_window_state_bytes(const rcvi_work *work, const rcvi_window *window, size_t state);

/* Enqueues the batch: its loss is added to the outcome's, or overwrites it where this is the first. */
rcv_status rcvi_work_loss(rcvi_work *work, size_t window, const rcvi_batch *batch, bool first);
/* The same with gradients, which are added where it is not the first, and then, where it is the last, with the update. Weights are
 * dropped by `update_seed`, so that all batches of an update drop the same ones. */
rcv_status rcvi_work_learn(rcvi_work *work, size_t window, const rcvi_batch *batch, const rcvi_control *control,
                           uint64_t update_seed, bool first, const rcvi_update *update);
/* Runs the tokens [batch] one step further. The network's output lies in the window's `seen`. */
rcv_status rcvi_work_step(rcvi_work *work, size_t window, const int32_t *tokens);

/* ---- what is shared by work.c, feed.c and window.c ---- */

void rcvi_feed_lay_out(const rcvi_work *work, rcvi_feed *feed);
/* Fills the host's block and sends it. */
rcv_status rcvi_feed_send(rcvi_work *work, const rcvi_batch *batch, const rcvi_control *control, uint64_t update_seed);
/* The block begins with two: of the batch, and the same with the seed of the update, which all batches of it share. */
static inline const rcvi_control *rcvi_feed_control(const rcvi_work *w) {
    return (const rcvi_control *)(const void *)w->there;
}
static inline const rcvi_control *rcvi_feed_update(const rcvi_work *w) { return rcvi_feed_control(w) + 1; }
static inline const int32_t *rcvi_feed_ids(const rcvi_work *w) {
    return (const int32_t *)(const void *)(w->there + w->feed.ids);
}
rcvi_groups rcvi_feed_groups(const rcvi_work *work, bool last);
rcv_status rcvi_window_new(rcvi_work *work, const rcvi_window_options *options, rcvi_window *window);
rcv_status rcvi_window_open(const rcvi_work *work, rcvi_window *window);
void rcvi_window_close(rcvi_window *window);
void rcvi_window_free(const rcvi_work *work, rcvi_window *window);

#endif

/* The schedule of a pipeline (1F1B: one forward, one backward) and its simulation: the order in which every stage runs its units, and, from
 * their costs, when each begins and ends. Nothing here computes or measures anything.
 *
 * A replica's part of a batch is cut into units: `micro` micro-batches of `chunks` time chunks each, unit u = m * chunks + k. The forward pass of
 * unit (m, k) needs that of (m, k - 1) on the same stage and that of (m, k) on the stage below. The backward pass of (m, k) needs that of
 * (m, k + 1) on the same stage and that of (m, k) on the stage above; on the last stage, all forward units of micro-batch m. A micro-batch is in
 * flight on a stage from its first forward unit to its last backward one, and the stage keeps its activations for that long. */
#ifndef RCVI_PIPELINE_H
#define RCVI_PIPELINE_H

#include "base/base.h"

typedef struct {
    int unit;
    bool backward;
} rcvi_pipeline_task;

/* A segment of a stage's gradient, which replicas all-reduce as one. */
typedef struct {
    double bytes;
    double at; /* when it is complete: fraction of the last backward unit, 0 to 1; above 1: after `inputs` */
} rcvi_pipeline_segment;

typedef struct {
    double forward, backward; /* seconds of a unit; the last stage's with the output layer */
    double begin;             /* before the first unit: sending the batch to the device, ... */
    double inputs;            /* after the last backward unit: the embedding's gradient, on the first stage */
    double update;            /* after all all-reduces: norm and update */
    double message;           /* bytes of a unit to the stage above, and as many back; not used of the last stage */
    const rcvi_pipeline_segment *segments; /* in the order in which they are reduced */
    int segment_count;
    /* Bytes of parameters that replicas all-gather after the update where each updates a share of them; gradients are then
     * reduce-scattered. 0: every replica updates all. */
    double gathered;
} rcvi_pipeline_stage;

typedef struct {
    int stages, replicas; /* devices of a pipeline; pipelines, each with a part of the batch */
    int micro, chunks;
    const rcvi_pipeline_stage *stage; /* [stages] */
    double latency, bandwidth;        /* of a link: seconds, bytes per second each way; not used with one rank */
    /* The same of messages between stages, where these differ; 0: they do not. */
    double message_latency, message_bandwidth;
    /* Bytes of the all-reduce over all ranks before the update (norm of the gradient); 0: there is none. */
    double outcome;
} rcvi_pipeline;

/* Micro-batches in flight on a stage at once: stages - stage, at most all. */
int rcvi_pipeline_in_flight(const rcvi_pipeline *pipeline, int stage);
/* The 2 * micro * chunks tasks of a stage in 1F1B order: as many micro-batches forward as may be in flight; then alternately the oldest one
 * backward and the next one forward. The order does not depend on costs, so all ranks have the same one, and no two stages wait for each
 * other for ever. A stage sends units in the order in which its neighbour runs them. */
void rcvi_pipeline_order(const rcvi_pipeline *pipeline, int stage, rcvi_pipeline_task *tasks);

/* ---- simulation ---- */

typedef enum {
    RCVI_PIPELINE_BEGIN,
    RCVI_PIPELINE_FORWARD,
    RCVI_PIPELINE_BACKWARD,
    RCVI_PIPELINE_INPUTS,
    RCVI_PIPELINE_SUM,     /* all-reduce of a segment among replicas */
    RCVI_PIPELINE_OUTCOME, /* all-reduce over all ranks, from when the last of them begins it */
    RCVI_PIPELINE_UPDATE,
    RCVI_PIPELINE_GATHER
} rcvi_pipeline_event_kind;

typedef struct {
    int stage;
    rcvi_pipeline_event_kind kind;
    int unit; /* or number of a segment; -1: neither */
    double begin, end;
} rcvi_pipeline_event;

/* seconds * stages = compute seconds of all stages + bubble * seconds * stages + exposed * stages. */
typedef struct {
    double seconds; /* of an update */
    double
        bubble; /* fraction of all stages' time in which they would wait for each other even if exchanges took no time */
    double exposed;  /* seconds by which the update would be shorter if exchanges took no time */
    double exchange; /* seconds of all exchanges of the rank with most, overlapped or not */
    double sent;     /* bytes of messages and exchanges of the rank that sends most */
} rcvi_pipeline_result;

/* An update of one replica, since all are alike. Stages run their tasks in order, each as soon as its inputs are there. A link to a neighbour
 * carries one message at a time, which arrives `latency` after its last byte was sent. Links overlap with computing, and exchanges among
 * replicas with both, one at a time per rank. An all-reduce among R replicas takes 2 (R - 1) latencies and 2 (R - 1) / R of its bytes; a
 * reduce-scatter or an all-gather takes half of that; the all-reduce over N ranks takes 2 ceil(log2 N) latencies and twice its bytes.
 *
 * `events`: NULL, or room for rcvi_pipeline_event_count events, all of which are filled: stage by stage, each in the order of the kinds, tasks in
 * the order in which they run. Exchanges that do not happen have no event; work of 0 seconds has one. */
size_t rcvi_pipeline_event_count(const rcvi_pipeline *pipeline);
rcv_status rcvi_pipeline_simulate(rcv_context *context, const rcvi_pipeline *pipeline, rcvi_pipeline_event *events,
                                  rcvi_pipeline_result *result);

/* The fraction of an update that devices spend computing. */
static inline double rcvi_pipeline_busy(const rcvi_pipeline_result *r) {
    double share = 1 - r->bubble - (r->seconds > 0 ? r->exposed / r->seconds : 0);
    return share > 0 ? share : 0;
}

/* ---- splitting layers ---- */

/* Splits layers into consecutive runs, at least one layer per stage, so that the slowest stage is as fast as possible; among equal splits (up to
 * rounding) the one with the least sum of squares, then with fewer layers on earlier stages, which have more micro-batches in flight.
 * `layer`: [layers] seconds of a unit; `first` and `last` are added to the first and last stage. */
rcv_status rcvi_pipeline_split(rcv_context *context, const double *layer, int layers, double first, double last,
                               int stages, int *counts);

#endif

/* How a step of training flows over devices, by itself: the order in which every stage of a pipeline takes its units, and, from what
 * things cost, when what is done. Nothing here runs or measures anything.
 *
 * A batch of a replica is cut into units: `micro` micro-batches of `chunks` time chunks each, unit u = m * chunks + k. Forwards, chunk k
 * of a micro-batch waits for its chunk k - 1 on the same stage and for the same unit on the stage below; backwards, for its chunk k + 1 and for
 * the stage above; and the last stage turns round: a micro-batch goes backwards, from its last chunk on, once all of its chunks have gone
 * forwards. Stages hold what a micro-batch's backward pass needs from its first forward unit to its last backward one, of as many
 * micro-batches at once as `held` says. */
#ifndef RCVI_FLOW_H
#define RCVI_FLOW_H

#include "base/base.h"

typedef struct {
    int unit;
    bool backward;
} rcvi_task;

/* Part of a stage's gradient that ranks sum as one. */
typedef struct {
    double bytes;
    double at; /* of the last backward unit's seconds, from 0 to 1, when it is ready; above 1: behind `finish_inputs` */
} rcvi_flow_bucket;

typedef struct {
    double forward, backward; /* seconds of a unit, forwards and backwards; of the last stage with the output layer */
    double begin;             /* before its first unit: what is sent to the device, ... */
    double inputs;            /* behind its last backward unit: the rows of the embedding, of the first stage */
    double update;            /* behind all sums: the norm and the update */
    double message;           /* bytes of a unit to the stage above, and as many back; 0 for the last */
    const rcvi_flow_bucket *buckets; /* in the order in which they are summed */
    int bucket_count;
    double
        gathered; /* bytes of parameters that every rank gathers behind the update, where it updates a share of them alone; 0: none */
} rcvi_flow_stage;

typedef struct {
    int stages, replicas; /* devices of a pipeline; pipelines that have parts of the batch each */
    int micro, chunks;
    const rcvi_flow_stage *stage; /* [stages] */
    double latency, bandwidth;    /* of a link: seconds, bytes a second each way */
    double
        outcome; /* bytes of the last sum of all ranks, without which no update is made (the norm of a pipeline); 0: there is none */
} rcvi_flow;

/* Micro-batches that a stage holds at once: stages - stage, at most all. */
int rcvi_flow_held(const rcvi_flow *flow, int stage);
/* 2 * micro * chunks tasks of a stage: forwards as far as `held` lets, then backwards before forwards as soon as it can be. It does not
 * depend on costs, so all ranks have the same, and no two stages wait for each other for ever. */
void rcvi_flow_order(const rcvi_flow *flow, int stage, rcvi_task *tasks);

typedef enum { RCVI_FLOW_FORWARD, RCVI_FLOW_BACKWARD, RCVI_FLOW_OTHER, RCVI_FLOW_EXCHANGE } rcvi_flow_kind;

typedef struct {
    int stage;
    rcvi_flow_kind kind;
    int unit; /* or bucket; -1: neither */
    double begin, end;
} rcvi_flow_event;

typedef struct {
    double seconds; /* of a step */
    double bubble;  /* part of all stages' time in which they wait for other stages */
    double
        exposed; /* part of a step in which the stage that ends last waits for sums of gradients, of the outcome and gathered parameters */
    double exchange; /* seconds of a rank's longest exchange, hidden or not */
    double sent;     /* bytes by the rank that sends most */
} rcvi_flow_result;

/* By events. `events` NULL, or room for rcvi_flow_event_count. */
size_t rcvi_flow_event_count(const rcvi_flow *flow);
rcv_status rcvi_flow_simulate(rcv_context *context, const rcvi_flow *flow, rcvi_flow_event *events,
                              rcvi_flow_result *result);

/* ---- splitting layers ---- */

/* Into how many consecutive layers each stage gets, at least one each, so that the slowest stage is as fast as can be; of equal
 * ones, that with the least sum of squares. `layer`: [layers] seconds of a unit; `first` and `last` are added to the first and last stage's. */
void rcvi_flow_split(const double *layer, int layers, double first, double last, int stages, int *counts);

#endif

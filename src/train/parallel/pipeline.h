/* How a step of training flows over devices, by itself: the order in which every stage of a pipeline takes its units, and, from what
 * things cost, when what is done. Nothing here runs or measures anything.
 *
 * A batch of a replica is cut into units: `micro` micro-batches of `chunks` time chunks each, unit u = m * chunks + k. Forwards, chunk k
 * of a micro-batch waits for its chunk k - 1 on the same stage and for the same unit on the stage below; backwards, for its chunk k + 1 and for
 * the stage above; and the last stage turns round: a micro-batch goes backwards, from its last chunk on, once all of its chunks have gone
 * forwards. Stages hold what a micro-batch's backward pass needs from its first forward unit to its last backward one, of as many
 * micro-batches at once as rcvi_pipeline_in_flight says. */
#ifndef RCVI_PIPELINE_H
#define RCVI_PIPELINE_H

#include "base/base.h"

typedef struct {
    int unit;
    bool backward;
} rcvi_pipeline_task;

/* Part of a stage's gradient that ranks sum as one. */
typedef struct {
    double bytes;
    double at; /* of the last backward unit's seconds, from 0 to 1, when it is ready; above 1: behind `inputs` */
} rcvi_pipeline_segment;

typedef struct {
    double forward, backward; /* seconds of a unit, forwards and backwards; of the last stage with the output layer */
    double begin;             /* before its first unit: what is sent to the device, ... */
    double inputs;            /* behind its last backward unit: the rows of the embedding, of the first stage */
    double update;            /* behind all sums: the norm and the update */
    double message;           /* bytes of a unit to the stage above, and as many back; of the last it means nothing */
    const rcvi_pipeline_segment *segments; /* in the order in which they are summed */
    int segment_count;
    /* Bytes of parameters that replicas gather behind the update, since each updates a share alone, for which a sum of gradients
     * need only leave it its share; 0: all update all. */
    double gathered;
} rcvi_pipeline_stage;

typedef struct {
    int stages, replicas; /* devices of a pipeline; pipelines that have parts of the batch each */
    int micro, chunks;
    const rcvi_pipeline_stage *stage; /* [stages] */
    double latency, bandwidth;        /* of a link: seconds, bytes a second each way; one rank alone has none */
    /* The same of messages between neighbours, where these take another way; 0: as the others. */
    double message_latency, message_bandwidth;
    /* Bytes of the last sum of all ranks, without which no update is made (the norm of a pipeline); 0: there is none. */
    double outcome;
} rcvi_pipeline;

/* Micro-batches that a stage holds at once: stages - stage, at most all. */
int rcvi_pipeline_in_flight(const rcvi_pipeline *pipeline, int stage);
/* 2 * micro * chunks tasks of a stage: one forward, one backward. Micro-batches go forwards as far as rcvi_pipeline_in_flight lets; then, in turn, the
 * oldest one backwards and the next one forwards. It does not depend on costs, so all ranks have the same, and no two stages wait for
 * each other for ever. What a stage hands on it hands on in the order in which its neighbour takes it. */
void rcvi_pipeline_order(const rcvi_pipeline *pipeline, int stage, rcvi_pipeline_task *tasks);

/* ---- when what is done ---- */

typedef enum {
    RCVI_PIPELINE_BEGIN,
    RCVI_PIPELINE_FORWARD,
    RCVI_PIPELINE_BACKWARD,
    RCVI_PIPELINE_INPUTS,
    RCVI_PIPELINE_SUM,     /* of a segment among replicas */
    RCVI_PIPELINE_OUTCOME, /* of all ranks, from when the last of them is there */
    RCVI_PIPELINE_UPDATE,
    RCVI_PIPELINE_GATHER
} rcvi_pipeline_event_kind;

typedef struct {
    int stage;
    rcvi_pipeline_event_kind kind;
    int unit; /* or segment; -1: neither */
    double begin, end;
} rcvi_pipeline_event;

/* seconds * stages = what all stages compute + bubble * seconds * stages + exposed * stages. */
typedef struct {
    double seconds; /* of a step */
    double bubble; /* part of all stages' time in which they would wait for each other even if exchanges took no time */
    double exposed;  /* seconds by which the step would be shorter if exchanges took no time */
    double exchange; /* seconds of all exchanges of the rank that has most of them, hidden or not */
    double sent;     /* bytes, messages and exchanges, by the rank that sends most */
} rcvi_pipeline_result;

/* A step by events, of one replica, since all are alike. Exchanges are sums, of segments and of the outcome, and gathering. Stages take their
 * tasks in order, each as soon as what it needs is there. A link to a neighbour carries one message at a time, which is there `latency`
 * after its last byte left; links are busy beside what computes, and exchanges among replicas beside both, one at a time a rank. A sum of
 * R replicas takes 2 (R - 1) latencies and 2 (R - 1) / R of its bytes, gathering and a sum that leaves shares half of that; the outcome of N
 * ranks 2 ceil(log2 N) latencies and twice its bytes.
 *
 * `events`: NULL, or room for rcvi_pipeline_event_count, all of which is filled: stage by stage, of each in the order of the kinds, with
 * tasks as they are taken. An exchange that nobody takes part in is none; work of no seconds is an event all the same. */
size_t rcvi_pipeline_event_count(const rcvi_pipeline *pipeline);
rcv_status rcvi_pipeline_simulate(rcv_context *context, const rcvi_pipeline *pipeline, rcvi_pipeline_event *events,
                                  rcvi_pipeline_result *result);

/* What of a step all devices spend computing. */
static inline double rcvi_pipeline_busy(const rcvi_pipeline_result *r) {
    double share = 1 - r->bubble - (r->seconds > 0 ? r->exposed / r->seconds : 0);
    return share > 0 ? share : 0;
}

/* ---- splitting layers ---- */

/* Into how many consecutive layers each stage gets, at least one each, so that the slowest stage is as fast as can be; of equal
 * ones, that with the least sum of squares, and then with fewer layers on earlier stages, which hold more micro-batches. Equal: but for
 * rounding. `layer`: [layers] seconds of a unit; `first` and `last` are added to the first and last stage's. */
rcv_status rcvi_pipeline_split(rcv_context *context, const double *layer, int layers, double first, double last,
                               int stages, int *counts);

#endif

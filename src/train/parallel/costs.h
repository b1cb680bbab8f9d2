/* What stages of a pipeline cost, measured, and what a step of training over many devices then takes. */
#ifndef RCVI_COSTS_H
#define RCVI_COSTS_H

#include "train/run/trainer.h"

/* Seconds of a stage. */
typedef struct {
    double forward, head, backward; /* of a unit; the output layer with its gradients */
    double begin, inputs, update;   /* of a step: what is sent to the device; rows of the embedding; norm and update */
} rcvi_seconds;

enum { RCVI_SECONDS = sizeof(rcvi_seconds) / sizeof(double) };

/* Layers first .. first + count - 1, with the embedding and the output layer where these are at the ends, on a batch of the bucket that is cut
 * into units. `ready`, [count + 1], NULL: not wanted: the part of a backward pass after which gradients are whole: of the lead of the first
 * layer (rcvi_lead_end), and of each layer. */
typedef struct {
    int64_t first, count;
    size_t bucket;
    int64_t steps, batch; /* of a replica */
    int64_t micro, chunks;
    rcvi_comm *peers;    /* ranks that measure the same, and are to have the same plan; NULL: nobody else */
    rcvi_comm *together; /* ranks that measure at the same time, whatever it is; NULL: nobody else */
} rcvi_cost_problem;

/* `alone`, NULL: not wanted: the same while all others of `together`, which is there then, wait. `plan`, NULL: not wanted: the string of the plan that was
 * chosen, for rcvi_free. */
rcv_status rcvi_costs_measure(const rcv_trainer *trainer, const rcvi_cost_problem *problem, rcvi_seconds *seconds,
                              rcvi_seconds *alone, double *ready, char **plan);

/* Seconds and bytes a second of a link, as sums have it, and as messages do; those 0: the same. */
typedef struct {
    double latency, bandwidth, message_latency, message_bandwidth;
} rcvi_links;

/* An arrangement to be judged. */
typedef struct {
    int replicas, stages;
    const int *counts; /* [stages] layers */
    int64_t micro, chunks;
    rcvi_links links;
} rcvi_arrangement;

/* Where the trainer has a topology whose arrangement this is, every rank measures its own stage, and all have the slowest's; else all is
 * measured here. `plan`, NULL: not wanted: of this rank's stage, for rcvi_free. */
rcv_status rcvi_forecast(const rcv_trainer *trainer, const rcvi_arrangement *arrangement, rcvi_pipeline_result *result,
                         char **plan);
/* Layers of each of the stages, by what they cost: as all ranks of a topology agree, where there is one. */
rcv_status rcvi_costs_split(const rcv_trainer *trainer, int replicas, int stages, int *counts);
/* The units of the arrangement with the shortest step, as far as settings do not say them. */
rcv_status rcvi_units_find(const rcv_trainer *trainer, rcvi_arrangement *arrangement, rcvi_pipeline_result *result,
                           char **plan);
/* Of the ranks of the trainer's topology; collective. */
rcv_status rcvi_measure_links(const rcv_trainer *trainer, rcvi_links *links);
/* The sample below which this part of them lies; they are put in order. */
double rcvi_quantile(double *samples, int count, double part);
/* The bucket with the most work: by it arrangements are judged. */
size_t rcvi_heaviest_bucket(const rcvi_batcher *batcher);

#endif

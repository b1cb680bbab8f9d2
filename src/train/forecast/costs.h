/* What stages of a pipeline cost, measured, and what an update of training over many devices takes by these costs, simulated. */
#ifndef RCVI_COSTS_H
#define RCVI_COSTS_H

#include "train/config/settings.h"
#include "train/parallel/pipeline.h"
#include "train/step/optimiser.h"

/* What is trained, as far as its costs depend on it. All of it is the trainer's. */
typedef struct {
    rcv_context *context;
    const rcv_settings *settings;
    const rcv_data *data;
    rcvi_batcher *batcher; /* measuring moves its position */
    const rcv_learner *learner;
    const rcvi_topology *topology; /* NULL: one rank alone */
    rcvi_optimiser optimiser;      /* the kind of update; its arrays are not used */
    rcvi_work_options work;        /* as one rank alone has them */
} rcvi_workload;

/* ---- one stage ---- */

/* Seconds of a stage. */
typedef struct {
    double forward, head, backward; /* of a unit; `head` is the output layer with its gradients */
    double begin, inputs,
        update; /* of an update: sending the batch to the device; rows of the embedding; norm and update */
} rcvi_stage_seconds;

enum { RCVI_SECONDS = sizeof(rcvi_stage_seconds) / sizeof(double) };

/* A stage to be measured: layers first .. first + count - 1, with the embedding and the output layer where the stage has these, on a batch of
 * the bucket that is cut into units. */
typedef struct {
    int64_t first, count;
    size_t bucket;
    int64_t steps, batch; /* of a replica */
    int64_t micro, chunks;
    rcvi_comm *peers;    /* ranks that measure the same stage and must choose the same plan; NULL: none */
    rcvi_comm *together; /* ranks that measure at the same time, any stage; NULL: none */
} rcvi_cost_problem;

/* `alone`, if not NULL: the seconds while all others of `together` (not NULL then) are idle. `ready`, if not NULL, [count + 1]: the fraction of a
 * backward pass after which gradients are complete, of the lead of the first layer (rcvi_first_layer_split) and of each layer. `plan`, if
 * not NULL: the string of the chosen plan, for rcvi_free. */
rcv_status rcvi_costs_measure(const rcvi_workload *workload, const rcvi_cost_problem *problem,
                              rcvi_stage_seconds *seconds, rcvi_stage_seconds *alone, double *ready, char **plan);

/* ---- links ---- */

/* Seconds and bytes per second of a link: of all-reduces among replicas, and of messages between stages (0: the same). */
typedef struct {
    double latency, bandwidth, message_latency, message_bandwidth;
} rcvi_links;

/* Of the ranks of the topology; collective. */
rcv_status rcvi_measure_links(const rcv_learner *learner, const rcvi_topology *topology, rcvi_links *links);

/* ---- an arrangement of ranks ---- */

typedef struct {
    int replicas, stages;
    const int *counts; /* [stages] layers of each */
    int64_t micro, chunks;
    rcvi_links links;
} rcvi_arrangement;

/* What an update takes. Where the workload's topology is this arrangement, every rank measures its own stage and the slowest replica
 * counts; else all stages are measured here, one after the other. `plan`, if not NULL: of this rank's stage, for rcvi_free. */
rcv_status rcvi_forecast(const rcvi_workload *workload, const rcvi_arrangement *arrangement,
                         rcvi_pipeline_result *result, char **plan);

/* ---- layers of stages (layer_split.c) ---- */

/* COUNT,COUNT,...: layers of each of the stages. */
rcv_status rcvi_read_split(const char *text, int layers, int stages, int *counts);
rcv_status rcvi_check_stages(int layers, int stages);
/* [stages] layers of each stage so that the slowest stage is fast: by measured costs, on which all ranks agree, or by parameters with
 * --effort estimate. */
rcv_status rcvi_costs_split(const rcvi_workload *workload, int replicas, int stages, int *counts);

/* ---- units (units.c) ---- */

/* Do batch and window divide into replicas, micro-batches and time chunks as settings say? */
rcv_status rcvi_units_check(const rcv_settings *settings, int replicas, int stages);
/* Micro-batches of a replica's part of a batch, and time chunks of a window of so many steps. */
int64_t rcvi_units_micro(const rcv_settings *settings, int stages, int64_t batch);
int64_t rcvi_units_chunks(const rcv_settings *settings, int stages, int64_t steps);
/* Time is cut into chunks where states are carried from window to window (a stream); other sequences of a batch end at different times. */
bool rcvi_units_cut_time(const rcv_settings *settings);
/* Sets the numbers of units of the arrangement that settings leave open to those with the shortest update. */
rcv_status rcvi_units_find(const rcvi_workload *workload, rcvi_arrangement *arrangement, rcvi_pipeline_result *result,
                           char **plan);

/* The sample below which `fraction` of them lie. Sorts the samples. */
double rcvi_quantile(double *samples, int count, double fraction);
/* The bucket with the most work: plans and arrangements are chosen by it. */
size_t rcvi_heaviest_bucket(const rcvi_batcher *batcher);

#endif

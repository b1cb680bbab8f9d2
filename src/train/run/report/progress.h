/* Clocks and counts of one call of rcv_trainer_run, recent losses, and the report that callers and the log read. */
#ifndef RCVI_PROGRESS_H
#define RCVI_PROGRESS_H

#include "train/parallel/topology.h"
#include "train/run/report/estimate.h"
#include "train/run/state.h"

enum { RCVI_RECENT_LOSSES = 50 }; /* a report has their mean */

typedef struct {
    rcv_progress report;
    /* clock readings, in seconds */
    double started, last_fetch, last_checkpoint, last_log;
    int64_t logged_step; /* of the last progress line */
    /* the run's state when the call began */
    double seconds_before;
    int64_t tokens_before, step_before, validations_before;
    double untrained;  /* seconds of this call that validations and checkpoints took */
    double validating; /* of these, validations */
    int64_t updates;   /* of this call */
    double recent[RCVI_RECENT_LOSSES];
    int64_t recent_count;
    double last_loss, norm; /* of the last update that was fetched */
    /* bytes that ranks send in an update */
    int64_t sent_before;        /* of this rank, when the update began */
    double sent_sum;            /* of this rank, in all updates of this call */
    double sent_most, sent_all; /* per update: of the rank that sends most, of all together; known when the call ends */
} rcvi_progress;

/* A call begins now. */
void rcvi_progress_begin(rcvi_progress *progress, const rcvi_run_state *state);
/* Seconds of training, those of earlier calls included. */
double rcvi_progress_seconds(const rcvi_progress *progress);
void rcvi_progress_add_loss(rcvi_progress *progress, double loss);
/* Fills the report. `length`: updates that the run will have, 0: not known; `epoch_batches`: batches of an epoch; `seconds`: limit of
 * the call, 0: none; `validations`: that still come. */
void rcvi_progress_update(rcvi_progress *progress, const rcvi_run_state *state, int64_t length, int64_t epoch_batches,
                          double seconds, int64_t validations);
/* An update begins and has ended, for the count of bytes. `topology` NULL: one rank, which sends none. */
void rcvi_progress_begin_update(rcvi_progress *progress, const rcvi_topology *topology);
void rcvi_progress_end_update(rcvi_progress *progress, const rcvi_topology *topology);
/* sent_most and sent_all. Collective. */
rcv_status rcvi_progress_count_bytes(rcvi_progress *progress, const rcvi_topology *topology);

#endif

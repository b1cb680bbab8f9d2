/* Plans and arrays for every shape of batches of a run: one window per bucket, of training and of validation. */
#ifndef RCVI_RUN_WINDOWS_H
#define RCVI_RUN_WINDOWS_H

#include "train/forecast/costs.h"

typedef struct {
    size_t *numbers; /* windows of the work: [train_count] of training, then [valid_count] of validation; by bucket */
    size_t train_count, valid_count;
    char *agreed; /* plan string of training units on which all ranks with these layers agreed; NULL: none */
    rcvi_pipeline_result forecast; /* of an update, where it was forecast; else zeros */
} rcvi_windows;

void rcvi_windows_free(rcvi_windows *windows, rcv_context *context);

/* How settings want the work of one rank alone. */
rcvi_work_options rcvi_trainer_work_options(const rcv_trainer *trainer);
/* For costs and forecasts. */
rcvi_workload rcvi_trainer_workload(const rcv_trainer *trainer);
/* Is a gradient of the output layer that is never stored (lean) possible where settings demand it? */
rcv_status rcvi_trainer_check_lean(const rcv_trainer *trainer);
/* Makes the work, with plans and arrays, unless it is there. `go_on`: as rcv_plan_options has it. */
rcv_status rcvi_trainer_prepare(rcv_trainer *trainer, bool (*go_on)(void *user), void *user);

#endif

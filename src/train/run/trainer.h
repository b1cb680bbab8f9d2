/* A training run: what was asked for, what it computes with, how far it is, what it writes. Each member has a header and a file of its own. */
#ifndef RCVI_TRAINER_H
#define RCVI_TRAINER_H

#include "train/config/settings.h"
#include "train/run/control_flags.h"
#include "train/run/files/outputs.h"
#include "train/run/report/log.h"
#include "train/run/report/outcomes.h"
#include "train/run/report/progress.h"
#include "train/run/state.h"
#include "train/run/windows.h"

struct rcv_trainer {
    rcv_context *context;
    /* what was asked for */
    rcv_settings *settings; /* with choices that the run has made itself: they are stored in checkpoints */
    rcvi_train_options options;
    const rcv_trainer_options *call; /* of rcv_trainer_run, while it runs */
    /* data */
    const rcv_data *train, *valid; /* valid NULL: there is no validation */
    rcvi_batcher *batcher, *validator;
    /* what computes */
    rcvi_topology topology; /* its world is NULL where one rank is alone */
    rcv_learner *learner;
    rcvi_work *work; /* NULL until rcvi_trainer_prepare */
    rcvi_windows windows;
    rcvi_optimiser optimiser;
    /* how far it is */
    rcvi_run_state state;
    rcvi_outcomes outcomes;
    rcvi_control_flags flags;
    rcvi_progress progress;
    /* what it writes */
    rcvi_outputs outputs;
    rcvi_run_log log;
};

/* NULL: one rank alone. */
static inline const rcvi_topology *rcvi_trainer_topology(const rcv_trainer *t) {
    return t->topology.world ? &t->topology : NULL;
}
/* Window `index` of training, or, from train_count on, of validation. */
static inline const rcvi_window *rcvi_trainer_window(const rcv_trainer *t, size_t index) {
    return &t->work->windows[t->windows.numbers[index]];
}

#endif

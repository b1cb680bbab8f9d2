/* Settings that every update reads, read once. */
#ifndef RCVI_TRAIN_OPTIONS_H
#define RCVI_TRAIN_OPTIONS_H

#include "base/base.h"

typedef struct {
    /* limits of the run; 0: none */
    int64_t epochs, steps;
    double seconds;
    int64_t patience; /* validations without a better loss */
    /* how often; 0: see settings_table.c */
    int64_t log_every, validate_every, checkpoint_every;
    double checkpoint_seconds;
    int64_t keep; /* checkpoints that stay */
    /* gradient */
    int64_t accumulate;      /* batches per update */
    double clip, clip_value; /* largest norm, largest element; 0: no limit */
    bool by_sequence;        /* the loss is summed over time and averaged over sequences, not averaged over tokens */
    /* optimiser */
    double learning_rate, weight_decay, momentum, beta1, beta2, epsilon;
    int64_t nonmono; /* averaged SGD: validations that the trigger looks back */
    /* learning-rate schedule */
    int decay; /* index of the choice */
    int64_t warmup, decay_after, decay_every, decay_patience;
    double decay_factor, final_rate;
    uint64_t seed;
} rcvi_train_options;

void rcvi_train_options_read(rcvi_train_options *options, const rcv_settings *settings);

/* Why the gradient of the output layer must be stored, judged by settings alone; NULL: it need not be. */
const char *rcvi_settings_why_not_lean(const rcv_settings *settings);

#endif

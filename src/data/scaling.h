/* Numbers by which features are filled in and normalised, and values normalised and restored. A learner has them; batches are made with them. */
#ifndef RCVI_DATA_SCALING_H
#define RCVI_DATA_SCALING_H

#include "data/data.h"

typedef struct rcvi_scaling {
    rcv_context *context;
    rcv_missing missing;
    bool normalises;
    int64_t features, outputs;         /* outputs: 0 where no values are predicted */
    float *mean, *scale;               /* [features]: (x - mean) * scale where it normalises; the mean fills in, too */
    float *target_mean, *target_scale; /* [outputs]; 0 and 1 where it does not normalise */
} rcvi_scaling;

/* Means of 0 and scales of 1. */
rcv_status rcvi_scaling_new(rcv_context *context, int64_t features, int64_t outputs, rcvi_scaling *scaling);
/* Over all of this data, which is the training part: mean and standard deviation in double, without what is missing. Of a feature or value that is
 * constant the scale is 1; of a feature that is always missing the mean is 0. */
rcv_status rcvi_scaling_measure(const rcv_data *data, bool normalises, rcv_missing missing, rcvi_scaling *scaling);
rcv_status rcvi_scaling_copy(const rcvi_scaling *from, rcvi_scaling *to);
void rcvi_scaling_free(rcvi_scaling *scaling);   /* its arrays */
void rcvi_scaling_delete(rcvi_scaling *scaling); /* and itself; NULL does nothing */
/* x: [steps, features] of one sequence, in place. NULL scaling: nothing. `before`: [features] raw values of the step before, NaN: there is none; it is
 * updated. NULL: the sequence begins. */
void rcvi_scaling_apply(const rcvi_scaling *scaling, float *x, int64_t steps, float *before);
/* The raw features of a time step again, with what was filled in: [features]. */
void rcvi_scaling_restore_features(const rcvi_scaling *scaling, const float *x, float *raw);
void rcvi_scaling_apply_targets(const rcvi_scaling *scaling, float *values, int64_t rows); /* [rows, outputs] */
void rcvi_scaling_restore(const rcvi_scaling *scaling, rcv_dtype real, void *values, int64_t rows);
/* Index of the first of `count` features that is missing where the scaling (NULL: none) fills in none; -1: there is none. */
int64_t rcvi_scaling_find_missing(const rcvi_scaling *scaling, const float *x, int64_t count);

#endif

/* Numbers by which features are filled in and normalised, and values normalised and restored. A learner has them; batches are made with them. */
#ifndef RCVI_DATA_SCALING_H
#define RCVI_DATA_SCALING_H

#include "data/data.h"

typedef struct {
    rcv_context *context;
    rcv_missing missing;
    bool normalises;
    int64_t features, outputs;         /* outputs: 0 where no values are predicted */
    float *mean, *scale;               /* [features]: (x - mean) * scale where it normalises; the mean fills in, too */
    float *target_mean, *target_scale; /* [outputs]; 0 and 1 where it does not normalise */
} rcvi_scaling;

/* Over all of this data, which is the training part. */
rcv_status rcvi_scaling_measure(const rcv_data *data, bool normalises, rcvi_scaling *scaling);
rcv_status rcvi_scaling_copy(const rcvi_scaling *from, rcvi_scaling *to);
void rcvi_scaling_free(rcvi_scaling *scaling);
/* x: [steps, features] of one sequence, in place. NULL scaling: nothing. `before`: [features] raw values of the step before, which is updated; NULL: there is
 * none. */
void rcvi_scaling_apply(const rcvi_scaling *scaling, float *x, int64_t steps, float *before);
void rcvi_scaling_apply_targets(const rcvi_scaling *scaling, float *values, int64_t rows); /* [rows, outputs] */
void rcvi_scaling_restore(const rcvi_scaling *scaling, rcv_dtype real, void *values, int64_t rows);

#endif

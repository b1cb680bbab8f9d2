/* The time that a run still takes, from numbers alone. */
#ifndef RCVI_ESTIMATE_H
#define RCVI_ESTIMATE_H

#include "base/base.h"

enum { RCVI_ENOUGH_UPDATES = 20 }; /* of a call that goes on with a run, until its own updates are believed */

typedef struct {
    /* this call */
    int64_t updates;   /* done */
    double seconds;    /* so far, with validations */
    double validating; /* of these, in validations */
    double time_limit; /* seconds that the call may take; 0: no limit */
    /* the calls before it */
    int64_t updates_before, validations_before;
    double seconds_before;
    /* what comes */
    int64_t updates_left; /* -1: not known */
    int64_t validations_left;
    double validation; /* seconds of the last validation, also of a call before; 0: none is known */
} rcvi_time_estimate;

/* Seconds to the nearest limit; -1: not known. */
double rcvi_estimate_left(const rcvi_time_estimate *estimate);
/* Validations that come after update `step`, one of them at the end of the run (`length` updates), if none is due there. `every`: updates between them; 0: they
 * are at the ends of epochs of `epoch_batches` batches, of which an update takes `accumulate`, and `batches` were read. */
int64_t rcvi_count_validations(int64_t step, int64_t length, int64_t every, int64_t batches, int64_t epoch_batches,
                               int64_t accumulate);

#endif

/* Requests that all ranks must act on at the same update, although one rank alone may know of them: the flags of all ranks are
 * all-reduced (maximum) with every update. */
#ifndef RCVI_CONTROL_FLAGS_H
#define RCVI_CONTROL_FLAGS_H

#include "train/parallel/topology.h"

typedef enum {
    RCVI_FLAG_STOP,  /* a caller asked to stop */
    RCVI_FLAG_END,   /* the run's time is over */
    RCVI_FLAG_SAVE,  /* a checkpoint is due by time */
    RCVI_FLAG_FETCH, /* outcomes are due to be fetched */
    RCVI_FLAGS
} rcvi_control_flag;

typedef struct {
    double requests[RCVI_FLAGS]; /* of this rank, 0 or 1 */
    double agreed[RCVI_FLAGS];   /* above 0: some rank had the request when the last update began */
    rcvi_transfer *transfer;     /* in flight during an update */
} rcvi_control_flags;

void rcvi_control_flags_clear(rcvi_control_flags *flags);
/* Starts the all-reduce beside an update, and waits for it. With one rank (NULL) `agreed` is `requests`. */
rcv_status rcvi_control_flags_begin(rcvi_control_flags *flags, const rcvi_topology *topology);
rcv_status rcvi_control_flags_end(rcvi_control_flags *flags);
static inline bool rcvi_control_flag_is_set(const rcvi_control_flags *f, rcvi_control_flag flag) {
    return f->agreed[flag] > 0;
}

#endif

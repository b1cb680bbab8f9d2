#ifndef RCVI_RUN_H
#define RCVI_RUN_H

#include "recurve.h"

size_t rcvi_run_bytes(const rcv_plan *plan); /* what rcv_run_new will allocate */

/* From where, in the device's memory, forward calls take the seed, or the lengths, in the place of those they are given; NULL: from
 * nowhere. So a call that was recorded on a stream can be repeated with others. Lengths are given to calls all the same, since a
 * device may need them on the host; on a GPU those in its memory count where calls are recorded. */
void rcvi_run_set_seed_at(rcv_run *run, const uint64_t *seed);
void rcvi_run_set_lengths_at(rcv_run *run, const int64_t *lengths);

#endif

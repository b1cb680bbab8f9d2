#ifndef RCVI_RUN_H
#define RCVI_RUN_H

#include "base/random.h"
#include "recurve.h"

size_t rcvi_run_bytes(const rcv_plan *plan); /* what rcv_run_new will allocate */

/* From where, in the device's memory, forward calls take the seed in the place of the one they are given; NULL: from nowhere. So a call
 * that was recorded on a stream can be repeated with others. */
void rcvi_run_set_seed_at(rcv_run *run, const uint64_t *seed);
/* The batches of calls that follow are this part of larger ones: masks are those of the whole. */
void rcvi_run_set_shard(rcv_run *run, const rcvi_shard *shard);
/* A run whose arena is that of another run on the same device, where it fits, else in memory of its own. One of them is used at a time: a
 * forward call of one whose memory another has used in between comes behind rcvi_run_reset. It is freed before the lender. */
rcv_status rcvi_run_new_sharing_arena(const rcv_plan *plan, const rcv_run *lender, rcv_run **run);
rcv_status rcvi_run_reset(rcv_run *run);
/* From here on the run uses the parameters that another run of its plan has packed, and packs for it: what one has seen both have. False where
 * the device keeps more from call to call than buffers of the program. The packer outlives it. */
bool rcvi_run_share_packed(rcv_run *run, rcv_run *packer);
/* What waits for this event of the device's goes beside the first time loop of the call before, or its last one; NULL: there is none. */
void *rcvi_run_loop_event(const rcv_run *run, bool last);
/* The lengths of the forward call that is repeated next. */
rcv_status rcvi_run_set_lengths(rcv_run *run, const int64_t *lengths);

#endif

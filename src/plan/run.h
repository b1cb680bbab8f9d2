/* Runs: a plan bound to memory and to the caller's arrays. Functions beyond the public ones, for training. */
#ifndef RCVI_RUN_H
#define RCVI_RUN_H

#include "base/random.h"
#include "recurve.h"

size_t rcvi_run_bytes(const rcv_plan *plan); /* what rcv_run_new will allocate */

/* Forward calls read their seed from this address in the device's memory, not from their data; NULL: from their data. So a call that was
 * captured on a stream can be repeated with other seeds. */
void rcvi_run_set_seed_at(rcv_run *run, const uint64_t *seed);
/* A run with a reserve of its own, even where calls of the plan give theirs: for trials. */
rcv_status rcvi_run_new_with_reserve(const rcv_plan *plan, rcv_run **run);
/* Passes of plans with graphs are captured in their first call, as for trials, which time what is repeated. */
void rcvi_run_capture_at_once(rcv_run *run);
/* The batches of later calls are this shard of larger ones: random masks are those of the whole. */
void rcvi_run_set_shard(rcv_run *run, const rcvi_shard *shard);
/* A run that uses the arena of another run on the same device, if that is large enough; else it allocates its own. One of them is used at a
 * time: before a forward call of a run whose arena another has used, rcvi_run_reset is called. It is freed before the lender. */
rcv_status rcvi_run_new_sharing_arena(const rcv_plan *plan, const rcv_run *lender, rcv_run **run);
rcv_status rcvi_run_reset(rcv_run *run);
/* The run shares packed parameters with another run of its plan: what one has packed, both use. False where the device keeps more from call
 * to call than buffers of the program. The packer outlives the run. */
bool rcvi_run_share_packed(rcv_run *run, rcv_run *packer);
/* The device's event at the start of the first time loop of the last call, or of its last loop: work that waits for it overlaps that loop.
 * NULL: there is none. */
void *rcvi_run_loop_event(const rcv_run *run, bool last);
/* Sets the lengths for the next repetition of a captured forward call. */
rcv_status rcvi_run_set_lengths(rcv_run *run, const int64_t *lengths);

#endif

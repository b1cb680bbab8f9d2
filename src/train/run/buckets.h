/* The lengths that sequences of a run are padded to. */
#ifndef RCVI_RUN_BUCKETS_H
#define RCVI_RUN_BUCKETS_H

#include "train/learner/learner.h"
#include "train/parallel/topology.h"

/* Rising lengths of the buckets, at most RCV_MOST_BUCKETS, as the setting `buckets` says. An automatic choice weighs the lengths of the data by
 * seconds that the planner measured, on rank 0, and all ranks take it. */
rcv_status rcvi_choose_buckets(const rcv_settings *settings, const rcv_learner *learner, const rcvi_topology *topology,
                               const rcv_data *data, int64_t *lengths, size_t *count);
/* Writes the lengths into the setting, so that a resumed run has the same batches. */
rcv_status rcvi_keep_buckets(rcv_settings *settings, const int64_t *lengths, size_t count);

#endif

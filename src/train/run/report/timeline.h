/* A few updates of a run of several ranks are traced on every rank, for the log. */
#ifndef RCVI_TIMELINE_H
#define RCVI_TIMELINE_H

#include "train/run/report/log.h"
#include "train/step/work.h"

/* Around update number `update` (from 0) of a call. Times count from when all ranks have begun it. Collective; nothing with one rank. */
rcv_status rcvi_timeline_begin(rcvi_work *work, int64_t update);
/* Rank 0 writes what all ranks traced. `step`: updates that were done before. */
rcv_status rcvi_timeline_end(rcvi_work *work, const rcvi_run_log *log, int64_t step);

#endif

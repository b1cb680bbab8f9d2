/* Outcomes of updates as progress: for the caller and the log. */
#ifndef RCVI_REPORT_H
#define RCVI_REPORT_H

#include "base/base.h"

/* Updates that the run will have; 0: not known. */
int64_t rcvi_trainer_length(const rcv_trainer *trainer);
/* Fetches all pending outcomes into the progress. The first loss or norm that is not finite is RCV_INVALID. Collective. */
rcv_status rcvi_trainer_fetch_outcomes(rcv_trainer *trainer);
/* Brings the report of the progress up to date. */
void rcvi_trainer_update_progress(rcv_trainer *trainer);
/* The same, and hands the report to the log, where a line is due, and to the caller. False: the caller asks to stop. */
bool rcvi_trainer_report(rcv_trainer *trainer);
/* Asks the caller alone, for use while plans are made; `user` is the trainer. */
bool rcvi_trainer_may_go_on(void *user);

#endif

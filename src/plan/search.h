/* The planner: which of all plans for a problem is the fastest. */
#ifndef RCVI_SEARCH_H
#define RCVI_SEARCH_H

#include "plan/plan.h"
#include "plan/trial.h"

/* With the effort of the problem's options, or from wisdom. The plan carries the candidates. */
rcv_status rcvi_plan_search(const rcvi_problem *problem, rcv_plan **plan);

/* RCV_UNSUPPORTED where a run takes more than `limit` bytes; 0 is no limit. */
rcv_status rcvi_check_memory(const rcv_plan *plan, size_t limit);
/* Makes the plan its only candidate. */
rcv_status rcvi_plan_note_alone(rcv_plan *plan, double seconds);

/* Times those that race until few are left: on parts of the problem and in little time, or, exhaustively, all of them on
 * the whole problem. Sets shown.seconds; leaves racing those to choose from. With none racing at the end there was no
 * time or memory for a trial. `begin` is when planning began; sentences go to the pool.
 * RCV_STOPPED where the caller had enough, also behind the last trial. */
rcv_status rcvi_measure_candidates(const rcvi_problem *problem, rcvi_candidate *contenders, size_t count, double begin,
                                   rcvi_pool *pool);

/* The same on a GPU. */
rcv_status rcvi_measure_candidates_gpu(const rcvi_problem *problem, rcvi_candidate *contenders, size_t count,
                                       rcvi_pool *pool);
/* For qsort over pointers to contenders: by estimate, a vendor's last, then as they were offered. */
int rcvi_compare_estimates(const void *a, const void *b);

#endif

/* The planner: finds the fastest of all plans for a problem. */
#ifndef RCVI_SEARCH_H
#define RCVI_SEARCH_H

#include "plan/plan.h"
#include "plan/trial.h"

/* Searches with the effort of the problem's options, or takes the plan from wisdom. The plan keeps the list of candidates. */
rcv_status rcvi_plan_search(const rcvi_problem *problem, rcv_plan **plan);

/* The plan from wisdom, if its kernels need not be compiled; else *plan is NULL. */
rcv_status rcvi_plan_recall_compiled(const rcvi_problem *problem, rcv_plan **plan);

/* Remembers this plan as what was found for the problem, in place of another one. */
rcv_status rcvi_plan_remember(const rcvi_problem *problem, const rcv_plan *plan, double seconds);

/* RCV_UNSUPPORTED where a run takes more than `limit` bytes; 0 is no limit. */
rcv_status rcvi_check_memory(const rcv_plan *plan, size_t limit);
/* Notes the plan as its own only candidate. */
rcv_status rcvi_plan_note_alone(rcv_plan *plan, double seconds);

/* Times the remaining candidates until few are left: on parts of the problem and in little time, or, exhaustively, all of them on the
 * whole problem. Sets shown.seconds; those to choose from remain. If none remains, there was no time or memory for a trial. `begin` is when
 * planning began; messages go to the pool. RCV_STOPPED where go_on answered false, also after the last trial. */
rcv_status rcvi_measure_candidates(const rcvi_problem *problem, rcvi_candidate *candidates, size_t count, double begin,
                                   rcvi_pool *pool);

/* The same on a GPU. */
rcv_status rcvi_measure_candidates_gpu(const rcvi_problem *problem, rcvi_candidate *candidates, size_t count,
                                       rcvi_pool *pool);
/* For qsort over pointers to candidates: by estimate, a vendor's last, then in the order in which they were offered. */
int rcvi_compare_estimates(const void *a, const void *b);

#endif

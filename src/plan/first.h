/* The first plan of a search beside the caller: one that is there in milliseconds. */
#ifndef RCVI_FIRST_H
#define RCVI_FIRST_H

#include "plan/plan.h"

/* Of a few plans without kernels to compile, the one with the best estimate. *plan is NULL where none of them applies or fits. */
rcv_status rcvi_plan_first(const rcvi_problem *problem, rcv_plan **plan);

#endif

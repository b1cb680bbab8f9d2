/* A plan: the program of a network for one shape of data, its schedule, and the device that runs it. */
#ifndef RCVI_PLAN_H
#define RCVI_PLAN_H

#include "device/device.h"
#include "schedule/schedule.h"

struct rcv_plan {
    rcv_context *context;
    const rcv_net *net;
    char *string;         /* the plan string */
    rcvi_program program; /* laid out and verified; its options are the plan's */
    const rcvi_schedule *schedule;
    const rcvi_device *device;
    int ordinal;         /* of it */
    rcvi_engine *engine; /* the device's, of the program */
    rcvi_sizing sizing;  /* of the program; `serves_sizes` says whether it is there */
    bool packs_by_size;  /* what is computed from the parameters has a row for every row of a call */
    bool serves_sizes;   /* calls may have fewer steps and sequences */
    size_t run_bytes;    /* of one run: tables, arena and the device's scratch */
    bool loaded;         /* rcvi_plan_load was successful */
    rcv_plan *small;     /* of calls of few sequences; NULL: this one makes all calls */

    /* How it was chosen. */
    rcvi_pool notes; /* of the candidates */
    rcv_candidate *candidates;
    size_t candidate_count;
    double seconds;
    bool from_wisdom;
    bool is_memorable;                  /* its search timed it against others, and no limit of memory decided */
    struct rcvi_background *background; /* the search for a plan that replaces this one; NULL: there is none */
};

/* A planning problem: the network, the options, and the device. */
typedef struct {
    const rcv_net *net;
    const rcv_plan_options *options;
    const rcvi_device *device;
    int ordinal; /* of it */
    rcvi_machine machine;
    bool
        in_background; /* the caller computes meanwhile: trials use little memory and a stream of their own, and pause */
} rcvi_problem;

/* The plan with these rungs, without a search. `make` is `write` and then `load`; `load` does the slow part (compiling kernels), and must come
 * before the first run; it does nothing where it was done before. */
rcv_status rcvi_plan_make(const rcvi_problem *problem, const rcvi_rungs *rungs, rcv_plan **plan);
rcv_status rcvi_plan_write(const rcvi_problem *problem, const rcvi_rungs *rungs, rcv_plan **plan);
rcv_status rcvi_plan_load(rcv_plan *plan);

/* Prepares a plan for calls of other sizes: the last step before a user gets it. */
rcv_status rcvi_plan_serve_sizes(rcv_plan *plan);

#endif

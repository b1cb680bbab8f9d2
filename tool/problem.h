/* The problem of `plan` and `bench`: a network, the shape of its data, and how to plan it. */
#ifndef TOOL_PROBLEM_H
#define TOOL_PROBLEM_H

#include "tool.h"

enum { PROBLEM_OPTIONS = 13 };

typedef struct {
    network network;
    int64_t steps, batch, input; /* input 0: as many as hidden */
    int64_t threads;
    rcv_dtype dtype;
    int training, effort; /* indices into their choices */
    const char *device;
    const char *schedule, *kernels, *wisdom;
    double memory; /* MiB */
    bool replan;   /* do not read wisdom from the cache on disk */
    option options[PROBLEM_OPTIONS];
    void (*log)(void *user, const char *line); /* receives log lines of the context; may be NULL */
    void *log_user;

    /* set by problem_open */
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
} problem;

/* Sets the defaults and fills in the tables of both groups. */
void problem_groups(problem *problem, option_group *shape, option_group *planning);
/* EXIT_DONE, or the exit status after saying which value is wrong. */
int problem_check(const problem *problem);
/* Opens context, device, cell and network; loads wisdom if the file exists. problem_close is needed in any case. */
rcv_status problem_open(problem *problem);
rcv_status problem_save_wisdom(const problem *problem);
void problem_close(problem *problem);

/* schedule NULL: the planner chooses, until a signal asks to stop. */
rcv_plan_options problem_plan_options(const problem *problem, const char *schedule);
/* "lstm, 4 layers, input 512, hidden 512, ..." on one line; for free(). */
char *problem_describe(const problem *problem);
bool problem_is_gpu(const problem *problem);
int64_t problem_threads(const problem *problem);
rcv_dtype problem_storage(const problem *problem); /* of the data: float32 or float64 */
const char *problem_effort(const problem *problem);

/* Floating-point operations of the matrix products of one call: 2 for each matrix element, step and sequence, three
 * times that for a training step. */
double problem_operations(const problem *problem, const rcv_net *net);

/* "12.3 MiB", written to `room`. */
const char *human_bytes(double bytes, char room[32]);

#endif

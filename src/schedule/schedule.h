/* Schedules: a schedule writes the program that computes a network. One file each; schedule.c lists them. */
#ifndef RCVI_SCHEDULE_H
#define RCVI_SCHEDULE_H

#include "program/program.h"

typedef struct {
    const char *name;
    /* RCV_OK, or RCV_UNSUPPORTED with the reason. */
    rcv_status (*applies)(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                          const rcvi_machine *machine);
    /* Writes both passes (the backward one where options->training). Failure is left in program->failed. */
    void (*write)(rcvi_program *program);
    /* Candidates for this problem: calls `offer` for each. Rungs that do not apply may be offered too; their refusal is listed. */
    void (*variants)(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                     void (*offer)(void *user, const rcvi_rungs *rungs), void *user);
} rcvi_schedule;

extern const rcvi_schedule *const rcvi_schedules[];
extern const size_t rcvi_schedule_count;

extern const rcvi_schedule rcvi_schedule_naive;    /* no rung but threads */
extern const rcvi_schedule rcvi_schedule_stepwise; /* any rung but vendor */
extern const rcvi_schedule rcvi_schedule_vendor;

/* Rungs of a plan for which no kernel is compiled, so that it runs at once: the first plan of a search that goes on while it is used. False
 * where there is no such plan: on the CPU no plan compiles anything. */
bool rcvi_schedule_first_rungs(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                               rcvi_rungs *rungs);

/* The schedule that writes programs with these rungs. */
const rcvi_schedule *rcvi_schedule_for(const rcvi_rungs *rungs);

#endif

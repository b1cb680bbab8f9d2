/* How a network is computed: a schedule writes a program. */
#ifndef RCVI_SCHEDULE_H
#define RCVI_SCHEDULE_H

#include "program/program.h"

typedef struct {
    const char *name;
    /* RCV_OK, or RCV_UNSUPPORTED with the sentence saying why not. */
    rcv_status (*applies)(const rcv_net *net, const rcv_plan_options *options);
    /* Writes both passes (the backward one where options->training). Failure is left in program->failed. */
    void (*write)(rcvi_program *program);
} rcvi_schedule;

extern const rcvi_schedule *const rcvi_schedules[];
extern const size_t rcvi_schedule_count;

extern const rcvi_schedule rcvi_schedule_naive;

#endif

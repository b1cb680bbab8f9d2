/* A network with a problem's shape: which schedule, its program, the device that runs it. */
#ifndef RCVI_PLAN_H
#define RCVI_PLAN_H

#include "device/device.h"
#include "schedule/schedule.h"

struct rcv_plan {
    rcv_context *context;
    const rcv_net *net;
    rcvi_program program; /* laid out and verified; its options are the plan's */
    const rcvi_schedule *schedule;
    const rcvi_device *device;
    size_t run_bytes; /* of one run: tables and arena, one allocation */
};

#endif

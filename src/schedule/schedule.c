/* The list of schedules. */
#include "schedule/stepwise/stepwise.h"

const rcvi_schedule *const rcvi_schedules[] = {
    &rcvi_schedule_stepwise,
    &rcvi_schedule_vendor,
    &rcvi_schedule_naive,
};
const size_t rcvi_schedule_count = sizeof rcvi_schedules / sizeof *rcvi_schedules;

const rcvi_schedule *rcvi_schedule_for(const rcvi_rungs *rungs) {
    if (rungs->vendor) return &rcvi_schedule_vendor;
    return rcvi_rungs_are_naive(rungs) ? &rcvi_schedule_naive : &rcvi_schedule_stepwise;
}

bool rcvi_schedule_first_rungs(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                               rcvi_rungs *rungs) {
    if (machine->gpu) *rungs = rcvi_stepwise_interpreted(net, options);
    return machine->gpu;
}

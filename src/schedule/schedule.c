#include "schedule/schedule.h"

const rcvi_schedule *const rcvi_schedules[] = {
    &rcvi_schedule_naive,
};
const size_t rcvi_schedule_count = sizeof rcvi_schedules / sizeof *rcvi_schedules;

#ifndef RCVI_CPU_H
#define RCVI_CPU_H

#include "device/device.h"

/* One step at one iteration of its loop (0 outside of loops), in float and in double. */
void rcvi_cpu_step_float(const rcvi_step *step, int64_t iteration, const rcvi_binding *binding);
void rcvi_cpu_step_double(const rcvi_step *step, int64_t iteration, const rcvi_binding *binding);

#endif

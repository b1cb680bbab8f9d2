/* The portable CPU device: it takes the steps one after another, in the plan's float type. */
#include "device/cpu/cpu.h"

static void run(const rcvi_program *program, size_t first, size_t end, const rcvi_binding *binding) {
    void (*take)(const rcvi_step *, int64_t, const rcvi_binding *) =
        program->options.dtype == RCV_FLOAT64 ? rcvi_cpu_step_double : rcvi_cpu_step_float;
    for (size_t i = first; i < end; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) {
            take(step, 0, binding);
            continue;
        }
        for (int64_t k = 0; k < step->loop.count; k++) {
            for (int body = 1; body <= step->loop.body; body++) take(step + body, k, binding);
        }
        i += (size_t)step->loop.body;
    }
}

const rcvi_device rcvi_device_cpu = {.name = "cpu", .run = run};

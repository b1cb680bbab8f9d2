/* Signal steps: after the last step that writes to the gradients of a layer, so that their exchange can begin. For programs of all
 * schedules. */
#include "program/program.h"

#include <string.h>

/* The signal step of a layer; `signal` = layers: of the first parameters of the first layer. */
static rcvi_step step_of(const rcvi_program *program, int gradients, int64_t signal) {
    int64_t layer = signal < program->net->options.layers ? signal : 0, start = rcvi_layer_start(program->net, layer);
    int64_t end = layer == signal ? rcvi_layer_start(program->net, layer + 1) : rcvi_first_layer_split(program->net);
    int64_t count = end - start;
    return (rcvi_step){.kind = RCVI_STEP_COMMUNICATE,
                       .communicate.signal = signal,
                       .layer = (int)layer,
                       .time = {.span = 1},
                       .rows = 1,
                       .columns = count,
                       .out = {.buffer = gradients, .offset = start, .row = count, .column = 1},
                       .a = rcvi_no_view(),
                       .b = rcvi_no_view(),
                       .mask = rcvi_no_view()};
}

/* The last step outside of loops, or last step of a loop, after which no step writes there. A vendor step writes more than its views name. */
static size_t last_writer(const rcvi_program *program, const rcvi_step *communicate) {
    size_t last = program->step_count - 1, found = last;
    for (size_t i = program->forward_count, end; i < program->step_count; i = end) {
        end = i + 1;
        if (program->steps[i].kind == RCVI_STEP_LOOP) end += (size_t)program->steps[i].loop.body;
        for (size_t k = i; k < end; k++) {
            const rcvi_step *step = &program->steps[k];
            if (step->kind == RCVI_STEP_VENDOR || rcvi_steps_conflict(program, communicate, step)) found = end - 1;
        }
    }
    return found;
}

static void insert(rcvi_program *program, size_t at, const rcvi_step *step) {
    rcvi_program_step(program, step); /* makes room */
    if (program->failed) return;
    memmove(&program->steps[at + 1], &program->steps[at], (program->step_count - 1 - at) * sizeof *program->steps);
    program->steps[at] = *step;
}

void rcvi_program_communicate(rcvi_program *program) {
    const rcv_net *net = program->net;
    if (!program->options.signals || !program->options.training || !net->parameter_elements || program->failed) return;
    int gradients = rcvi_program_external(program, RCVI_DPARAMETERS, 0);
    for (int64_t signal = net->options.layers; signal >= 0 && !program->failed; signal--) {
        const rcvi_step step = step_of(program, gradients, signal);
        if (step.columns) insert(program, last_writer(program, &step) + 1, &step);
    }
}

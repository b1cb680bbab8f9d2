/* A plan of recurve as an implementation. */
#include "bench/comparison.h"

#include <stdlib.h>

typedef struct {
    rcv_plan *plan;
    rcv_run *run;
    call_tensors *tensors;
    const void *parameters; /* in the device's memory, like the next fields */
    void *dparameters;
    void *own[2]; /* parameters and gradients, where their layout is not that of the tensors; or NULL */
    bool warm;
} state;

static rcv_status call(state *state) {
    const call_tensors *tensors = state->tensors;
    const rcv_forward forward =
        RCV_INIT(rcv_forward, .parameters = state->parameters, .x = tensors->on_device.x, .y = tensors->on_device.y,
                 .same_parameters = state->warm && !tensors->training);
    rcv_status status = rcv_run_forward(state->run, &forward);
    if (status == RCV_OK && tensors->training) {
        const rcv_backward backward = RCV_INIT(rcv_backward, .dy = tensors->on_device.dy, .dx = tensors->on_device.dx,
                                               .dparameters = state->dparameters);
        status = rcv_run_backward(state->run, &backward);
    }
    state->warm = status == RCV_OK;
    return status;
}

/* On a GPU all calls are enqueued before the wait, so that the device never waits for the host. */
static double run(implementation *self, int64_t repeats) {
    state *state = self->state;
    const double start = now();
    rcv_status status = RCV_OK;
    for (int64_t i = 0; i < repeats && status == RCV_OK; i++) {
        status = call(state);
    }
    if (status == RCV_OK) {
        status = rcv_run_wait(state->run);
    }
    if (status != RCV_OK) {
        implementation_refuse(self, "%s", rcv_message());
        return -1;
    }
    return now() - start;
}

static bool fetch(implementation *self) {
    if (call_tensors_fetch(((state *)self->state)->tensors, self->gradients_compare) == RCV_OK) {
        return true;
    }
    implementation_refuse(self, "%s", rcv_message());
    return false;
}

static void close_plan(implementation *self) {
    state *state = self->state;
    rcv_run_free(state->run);
    rcv_plan_free(state->plan);
    for (size_t i = 0; i < COUNT(state->own); i++) {
        rcv_memory_free(state->tensors->context, state->tensors->device, state->own[i]);
    }
    free(state);
}

/* Memory of its own for parameters that are not those of the tensors, and for their gradients. */
static rcv_status place_own_parameters(state *state, const rcv_net *net, const void *parameters) {
    const call_tensors *tensors = state->tensors;
    const size_t bytes = (size_t)rcv_net_parameter_elements(net) * rcv_dtype_bytes(tensors->storage);
    rcv_status status = RCV_OK;
    state->parameters = parameters;
    if (tensors->has_device_memory) {
        status = rcv_memory_new(tensors->context, tensors->device, bytes, &state->own[0]);
        if (status == RCV_OK) {
            status = rcv_memory_write(tensors->device, state->own[0], parameters, bytes);
        }
        state->parameters = state->own[0];
    }
    if (status == RCV_OK && tensors->training) {
        status = rcv_memory_new(tensors->context, tensors->device, bytes, &state->own[1]);
        state->dparameters = state->own[1];
    }
    return status;
}

static rcv_status place_parameters(state *state, const rcv_net *net, const void *parameters) {
    const rcv_status status = call_tensors_send(state->tensors);
    if (status != RCV_OK || parameters != state->tensors->parameters) {
        return status == RCV_OK ? place_own_parameters(state, net, parameters) : status;
    }
    state->parameters = state->tensors->on_device.parameters;
    state->dparameters = state->tensors->on_device.dparameters;
    return RCV_OK;
}

static rcv_status open_plan(state *state, const problem *problem, const rcv_net *net, const void *parameters,
                            const char *schedule) {
    const rcv_plan_options options = problem_plan_options(problem, schedule);
    rcv_status status = rcv_plan_new(net, &options, &state->plan);
    if (status == RCV_OK) {
        status = place_parameters(state, net, parameters);
    }
    return status == RCV_OK ? rcv_run_new(state->plan, &state->run) : status;
}

implementation *comparison_add_plan(comparison *comparison, const char *name, const problem *problem,
                                    const rcv_net *net, call_tensors *tensors, const void *parameters,
                                    const char *schedule) {
    implementation *added = comparison_add(comparison, name);
    state *state = need(1, sizeof *state);
    state->tensors = tensors;
    added->state = state;
    added->run = run;
    added->fetch = fetch;
    added->close = close_plan;
    added->is_asynchronous = tensors->has_device_memory;
    added->measured.operations = problem_operations(problem, net);
    added->gradients_compare = parameters == tensors->parameters;
    if (open_plan(state, problem, net, parameters, schedule) != RCV_OK) {
        added->measured.plan = schedule != NULL ? text_of("%s", schedule) : NULL;
        implementation_refuse(added, "%s", rcv_message());
        return added;
    }
    added->measured.plan = text_of("%s", rcv_plan_string(state->plan));
    added->measured.bytes = (double)rcv_plan_bytes(state->plan);
    return added;
}

const rcv_plan *implementation_plan(const implementation *implementation) {
    return implementation->measured.refusal == NULL ? ((const state *)implementation->state)->plan : NULL;
}

rcv_run *implementation_run(const implementation *implementation) {
    return implementation->measured.refusal == NULL ? ((const state *)implementation->state)->run : NULL;
}

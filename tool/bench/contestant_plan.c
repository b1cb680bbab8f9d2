/* A plan of ours as a contestant. */
#include "bench/contest.h"

#include <stdlib.h>

typedef struct {
    rcv_plan *plan;
    rcv_run *run;
    data *data;
    const void *parameters; /* in the device's memory, as what follows */
    void *dparameters;
    void *own[2]; /* memory for these where the data's are laid out otherwise; or NULL */
    bool warm;
} state;

static rcv_status call(state *state) {
    const data *data = state->data;
    const rcv_forward forward = {.parameters = state->parameters,
                                 .x = data->there.x,
                                 .y = data->there.y,
                                 .same_parameters = state->warm && !data->training};
    rcv_status status = rcv_run_forward(state->run, &forward);
    if (status == RCV_OK && data->training) {
        const rcv_backward backward = {.dy = data->there.dy, .dx = data->there.dx, .dparameters = state->dparameters};
        status = rcv_run_backward(state->run, &backward);
    }
    state->warm = status == RCV_OK;
    return status;
}

/* A GPU's calls lie one behind the other in its queue, so that it never waits for the host. */
static double run(contestant *self, int64_t repeats) {
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
        contestant_refuse(self, "%s", rcv_message());
        return -1;
    }
    return now() - start;
}

static bool fetch(contestant *self) {
    if (data_fetch(((state *)self->state)->data, self->gradients_compare) == RCV_OK) {
        return true;
    }
    contestant_refuse(self, "%s", rcv_message());
    return false;
}

static void close_plan(contestant *self) {
    state *state = self->state;
    rcv_run_free(state->run);
    rcv_plan_free(state->plan);
    for (size_t i = 0; i < COUNT(state->own); i++) {
        rcv_memory_free(state->data->context, state->data->device, state->own[i]);
    }
    free(state);
}

/* Parameters that are not the data's, and their gradients. */
static rcv_status place_own(state *state, const rcv_net *net, const void *parameters) {
    const data *data = state->data;
    const size_t bytes = (size_t)rcv_net_parameter_elements(net) * rcv_dtype_bytes(data->storage);
    rcv_status status = RCV_OK;
    state->parameters = parameters;
    if (data->is_away) {
        status = rcv_memory_new(data->context, data->device, bytes, &state->own[0]);
        if (status == RCV_OK) {
            status = rcv_memory_write(data->device, state->own[0], parameters, bytes);
        }
        state->parameters = state->own[0];
    }
    if (status == RCV_OK && data->training) {
        status = rcv_memory_new(data->context, data->device, bytes, &state->own[1]);
        state->dparameters = state->own[1];
    }
    return status;
}

static rcv_status place(state *state, const rcv_net *net, const void *parameters) {
    const rcv_status status = data_send(state->data);
    if (status != RCV_OK || parameters != state->data->parameters) {
        return status == RCV_OK ? place_own(state, net, parameters) : status;
    }
    state->parameters = state->data->there.parameters;
    state->dparameters = state->data->there.dparameters;
    return RCV_OK;
}

static rcv_status open_plan(state *state, const problem *problem, const rcv_net *net, const void *parameters,
                            const char *schedule) {
    const rcv_plan_options options = problem_plan_options(problem, schedule);
    rcv_status status = rcv_plan_new(net, &options, &state->plan);
    if (status == RCV_OK) {
        status = place(state, net, parameters);
    }
    return status == RCV_OK ? rcv_run_new(state->plan, &state->run) : status;
}

contestant *add_plan(contest *contest, const char *name, const problem *problem, const rcv_net *net, data *data,
                     const void *parameters, const char *schedule) {
    contestant *added = contest_add(contest, name);
    state *state = need(1, sizeof *state);
    state->data = data;
    added->state = state;
    added->run = run;
    added->fetch = fetch;
    added->close = close_plan;
    added->enqueues = data->is_away;
    added->operations = problem_operations(problem, net);
    added->gradients_compare = parameters == data->parameters;
    if (open_plan(state, problem, net, parameters, schedule) != RCV_OK) {
        added->plan = schedule != NULL ? text_of("%s", schedule) : NULL;
        contestant_refuse(added, "%s", rcv_message());
        return added;
    }
    added->plan = text_of("%s", rcv_plan_string(state->plan));
    added->bytes = (double)rcv_plan_bytes(state->plan);
    return added;
}

const rcv_plan *contestant_plan(const contestant *contestant) {
    return contestant->refusal == NULL ? ((const state *)contestant->state)->plan : NULL;
}

rcv_run *contestant_run(const contestant *contestant) {
    return contestant->refusal == NULL ? ((const state *)contestant->state)->run : NULL;
}

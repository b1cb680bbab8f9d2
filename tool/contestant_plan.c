/* A plan of ours as a contestant. */
#include "contest.h"

#include <stdlib.h>

typedef struct {
    rcv_plan *plan;
    rcv_run *run;
    data *data;
    const void *parameters;
    void *dparameters;
    void *own; /* memory for dparameters where the data's are laid out otherwise; or NULL */
    bool warm;
} state;

static rcv_status call(state *state) {
    data *data = state->data;
    const rcv_forward forward = {
        .parameters = state->parameters, .x = data->x, .y = data->y, .same_parameters = state->warm && !data->training};
    rcv_status status = rcv_run_forward(state->run, &forward);
    if (status == RCV_OK && data->training) {
        const rcv_backward backward = {.dy = data->dy, .dx = data->dx, .dparameters = state->dparameters};
        status = rcv_run_backward(state->run, &backward);
    }
    state->warm = status == RCV_OK;
    return status;
}

static double run(contestant *self, int64_t repeats) {
    state *state = self->state;
    const double start = now();
    for (int64_t i = 0; i < repeats; i++) {
        if (call(state) != RCV_OK) {
            contestant_refuse(self, "%s", rcv_message());
            return -1;
        }
    }
    return now() - start;
}

static void close_plan(contestant *self) {
    state *state = self->state;
    rcv_run_free(state->run);
    rcv_plan_free(state->plan);
    free(state->own);
    free(state);
}

static rcv_status open_plan(state *state, const problem *problem, const rcv_net *net, const char *schedule) {
    const rcv_plan_options options = problem_plan_options(problem, schedule);
    const rcv_status status = rcv_plan_new(net, &options, &state->plan);
    return status == RCV_OK ? rcv_run_new(state->plan, &state->run) : status;
}

contestant *add_plan(contest *contest, const char *name, const problem *problem, const rcv_net *net, data *data,
                     const void *parameters, const char *schedule) {
    contestant *added = contest_add(contest, name);
    state *state = need(1, sizeof *state);
    state->data = data;
    state->parameters = parameters;
    state->dparameters = data->dparameters;
    if (data->training && parameters != data->parameters) {
        state->own = need((size_t)rcv_net_parameter_elements(net), rcv_dtype_bytes(data->storage));
        state->dparameters = state->own;
    }
    added->state = state;
    added->run = run;
    added->close = close_plan;
    added->operations = problem_operations(problem, net);
    added->gradients_compare = parameters == data->parameters;
    if (open_plan(state, problem, net, schedule) != RCV_OK) {
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

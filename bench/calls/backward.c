/* Backward calls that are repeated, and that follow several forward calls: the same bits as one by one. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

enum { CALLS = 8, ALIGNMENT = 256 };

/* Gradients of a call on the host: dx, then dparameters. */
static rcv_status read_gradients(const network *n, char *gradients) {
    const char *device = n->job->options->device;
    rcv_status status = rcv_run_wait(n->run);
    if (!status) status = rcv_memory_read(device, gradients, n->dx, n->x_bytes);
    if (!status) status = rcv_memory_read(device, gradients + n->x_bytes, n->dparameters, n->parameter_bytes);
    return status;
}

static size_t gradient_bytes(const network *n) { return n->x_bytes + n->parameter_bytes; }

/* Overwrites the gradients on the device, so that a call that writes nothing is seen. */
static rcv_status spoil_gradients(const network *n, char *scratch) {
    const char *device = n->job->options->device;
    memset(scratch, 0xff, gradient_bytes(n));
    rcv_status status = rcv_memory_write(device, n->dx, scratch, n->x_bytes);
    return status ? status : rcv_memory_write(device, n->dparameters, scratch, n->parameter_bytes);
}

static rcv_status call_backward(network *n, const rcv_forward *forward, char *gradients) {
    rcv_status status = spoil_gradients(n, gradients);
    if (!status)
        status = rcv_run_backward(n->run, &RCV_INIT(rcv_backward, .dy = n->dy, .dx = n->dx,
                                                    .dparameters = n->dparameters, .forward = forward));
    return status ? status : read_gradients(n, gradients);
}

/* A row for a plan by estimate, which takes no time to find, or by measurement. The texts are static: of one row at a time. */
static row effort_row(const shape *s, const char *name, const char *what) {
    static char id[64], text[192];
    bool is_measured = s->effort == RCV_MEASURE;
    snprintf(id, sizeof id, "backward.%s%s", is_measured ? "measured." : "", name);
    snprintf(text, sizeof text, "%s (plan by %s)", what, is_measured ? "measurement" : "estimate");
    return (row){id, text, "", 0};
}

static void check_twice(job *j, const shape *s) {
    static network n;
    row r = effort_row(s, "twice", "a second backward call of one forward call has the bits of the first");
    rcv_status status = network_open(j, s, &n);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    char *first = need(malloc(gradient_bytes(&n))), *second = need(malloc(gradient_bytes(&n)));
    status = rcv_run_forward(n.run, &RCV_INIT(rcv_forward, .parameters = n.parameters, .x = n.x, .y = n.y));
    if (!status) status = call_backward(&n, NULL, first);
    if (!status) status = call_backward(&n, NULL, second);
    detail_text(j, "plan", rcv_plan_string(n.plan));
    if (status)
        row_failed(j, &r, status);
    else
        row_check(j, &r, memcmp(first, second, gradient_bytes(&n)) == 0);
    free(first);
    free(second);
    network_close(&n);
}

/* ---- several forward calls before their backward calls ---- */

/* The arrays of the calls, in the device's memory. */
typedef struct {
    void *x[CALLS], *y[CALLS], *reserve[CALLS];
    rcv_forward forward[CALLS];
} forward_calls;

static rcv_status make_calls(network *n, forward_calls *c) {
    const char *device = n->job->options->device;
    rcv_context *context = n->job->context;
    float *values = need(malloc(n->x_bytes));
    rcv_status status = RCV_OK;
    uint64_t state = 3;
    for (int k = 0; k < CALLS && !status; k++) {
        for (size_t i = 0; i < n->x_bytes / sizeof *values; i++)
            values[i] = (float)(draw(&state) >> 40) * 0x1p-24f - 0.5f;
        status = rcv_memory_new(context, device, n->x_bytes, &c->x[k]);
        if (!status) status = rcv_memory_write(device, c->x[k], values, n->x_bytes);
        if (!status) status = rcv_memory_new(context, device, n->y_bytes, &c->y[k]);
        if (!status)
            status = rcv_memory_new(context, device, rcv_plan_reserve_bytes(n->plan) + ALIGNMENT, &c->reserve[k]);
        uintptr_t reserve = ((uintptr_t)c->reserve[k] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        c->forward[k] =
            RCV_INIT(rcv_forward, .parameters = n->parameters, .x = c->x[k], .y = c->y[k], .reserve = (void *)reserve);
    }
    free(values);
    return status;
}

static void free_calls(const network *n, forward_calls *c) {
    for (int k = 0; k < CALLS; k++) {
        rcv_memory_free(n->job->context, n->job->options->device, c->x[k]);
        rcv_memory_free(n->job->context, n->job->options->device, c->y[k]);
        rcv_memory_free(n->job->context, n->job->options->device, c->reserve[k]);
    }
}

/* y and gradients of every call, one after the other in `results`. */
static rcv_status run_calls(network *n, const forward_calls *c, bool one_by_one, char *results) {
    size_t bytes = n->y_bytes + gradient_bytes(n);
    rcv_status status = RCV_OK;
    for (int k = 0; k < CALLS && !status; k++) {
        status = rcv_run_forward(n->run, &c->forward[k]);
        if (!status && one_by_one) status = call_backward(n, &c->forward[k], results + (size_t)k * bytes + n->y_bytes);
    }
    for (int k = CALLS - 1; k >= 0 && !status && !one_by_one; k--)
        status = call_backward(n, &c->forward[k], results + (size_t)k * bytes + n->y_bytes);
    if (!status) status = rcv_run_wait(n->run);
    for (int k = 0; k < CALLS && !status; k++)
        status = rcv_memory_read(n->job->options->device, results + (size_t)k * bytes, c->y[k], n->y_bytes);
    return status;
}

static void check_reserve(job *j, shape s) {
    static network n;
    static forward_calls calls;
    row r = effort_row(&s, "reserve", "8 forward calls, then 8 backward calls in reverse, have the bits of one by one");
    s.reserve = true;
    rcv_status status = network_open(j, &s, &n);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    size_t bytes = CALLS * (n.y_bytes + gradient_bytes(&n));
    char *single = need(calloc(1, bytes)), *reversed = need(calloc(1, bytes));
    status = make_calls(&n, &calls);
    if (!status) status = run_calls(&n, &calls, true, single);
    if (!status) status = run_calls(&n, &calls, false, reversed);
    detail_text(j, "plan", rcv_plan_string(n.plan));
    detail_number(j, "reserve_bytes", (double)rcv_plan_reserve_bytes(n.plan));
    if (status)
        row_failed(j, &r, status);
    else
        row_check(j, &r, memcmp(single, reversed, bytes) == 0);
    free_calls(&n, &calls);
    free(single);
    free(reversed);
    network_close(&n);
}

void check_backward(job *j, const char *unused) {
    (void)unused;
    shape s = sized(j, (shape){.cell = "lstm",
                               .steps = 40,
                               .batch = 32,
                               .input = 256,
                               .hidden = 256,
                               .layers = 2,
                               .dtype = is_gpu(j) ? RCV_BFLOAT16 : RCV_FLOAT32,
                               .training = true,
                               .effort = RCV_ESTIMATE});
    check_twice(j, &s);
    check_reserve(j, s);
    s.effort = RCV_MEASURE;
    check_twice(j, &s);
    check_reserve(j, s);
}

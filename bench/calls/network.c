/* Networks with their arrays in the device's memory, the times of their calls, and the ends of their searches. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

/* An LSTM whose output gate has another nonlinearity of the cell's state: a cell of the user's own. */
static const char own_cell[] = "# LSTM with c / (1 + |c|) in place of tanh(c)\n"
                               "cell own(x) {\n"
                               "    state h, c\n"
                               "    vector d as bias_hh\n"
                               "    i = sigmoid(W x + b + U h + d)\n"
                               "    f = sigmoid(W x + b + U h + d)\n"
                               "    g = tanh(W x + b + U h + d)\n"
                               "    o = sigmoid(W x + b + U h + d)\n"
                               "    c' = f * c + i * g\n"
                               "    h' = o * (c' / (1 + abs(c')))\n"
                               "    return h'\n"
                               "}\n";

static int64_t shrink(int64_t size, int64_t divisor) { return size > divisor ? size / divisor : 1; }

shape sized(const job *j, shape s) {
    if (!j->options->tiny) return s;
    s.steps = shrink(s.steps, 10);
    s.batch = shrink(s.batch, 8);
    s.input = shrink(s.input, 32);
    s.hidden = shrink(s.hidden, 32);
    return s;
}

/* ---- arrays ---- */

static size_t element_bytes(rcv_array_type type) {
    return type == RCV_AS_BFLOAT16 || type == RCV_AS_FLOAT16 ? 2 : type == RCV_AS_FLOAT64 ? 8 : 4;
}

/* The upper half of a float32: rounded towards zero. */
static void to_bfloat16(const float *from, size_t count, uint16_t *to) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = (uint16_t)(bits >> 16);
    }
}

/* Device memory with these values, as float32 or bfloat16. */
static rcv_status upload(network *n, const float *values, size_t count, rcv_array_type type, void **memory) {
    const char *device = n->job->options->device;
    size_t bytes = count * element_bytes(type);
    rcv_status status = rcv_memory_new(n->job->context, device, bytes, memory);
    if (status || !values) return status;
    if (type != RCV_AS_BFLOAT16) return rcv_memory_write(device, *memory, values, bytes);
    uint16_t *narrow = need(malloc(bytes));
    to_bfloat16(values, count, narrow);
    status = rcv_memory_write(device, *memory, narrow, bytes);
    free(narrow);
    return status;
}

static rcv_status make_arrays(network *n) {
    const shape *s = &n->shape;
    int64_t elements = rcv_net_parameter_elements(n->net), rows = s->steps * s->batch;
    size_t x_count = (size_t)(rows * s->input), y_count = (size_t)(rows * rcv_net_output(n->net));
    size_t most = x_count > y_count ? x_count : y_count;
    if ((size_t)elements > most) most = (size_t)elements;
    float *values = need(malloc(most * sizeof *values));
    uint64_t state = 1;
    n->x_bytes = x_count * element_bytes(s->data);
    n->y_bytes = y_count * element_bytes(s->data);
    n->parameter_bytes = (size_t)elements * element_bytes(s->parameters);
    rcv_status status = rcv_net_initialize(n->net, 1, RCV_FLOAT32, values);
    if (!status) status = upload(n, values, (size_t)elements, s->parameters, &n->parameters);
    for (size_t i = 0; i < most; i++) values[i] = (float)(draw(&state) >> 40) * 0x1p-24f - 0.5f;
    if (!status) status = upload(n, values, x_count, s->data, &n->x);
    if (!status) status = upload(n, NULL, y_count, s->data, &n->y);
    if (!status && s->training) status = upload(n, values, y_count, s->data, &n->dy);
    if (!status && s->training) status = upload(n, NULL, x_count, s->data, &n->dx);
    if (!status && s->training) status = upload(n, NULL, (size_t)elements, s->parameters, &n->dparameters);
    free(values);
    if (s->lengths) n->lengths = need(malloc((size_t)s->batch * sizeof *n->lengths));
    return status;
}

/* ---- objects ---- */

static bool go_on(void *user) {
    network *n = user;
    double none = 0;
    atomic_compare_exchange_strong(&n->search_began, &none, now());
    return time_is_left(n->job);
}
static void note_replaced(void *user) { atomic_store(&((network *)user)->replaced, now()); }

static rcv_status make_plan(network *n) {
    const shape *s = &n->shape;
    const rcv_plan_options o = RCV_INIT(
        rcv_plan_options, .steps = s->steps, .batch = s->batch, .dtype = s->dtype, .training = s->training,
        .lengths = s->lengths, .reserve = s->reserve, .schedule = s->schedule, .effort = s->effort,
        .device = n->job->options->device, .go_on = go_on, .user = n, .data = s->data, .parameters = s->parameters,
        .gradients = s->parameters, .replaced = note_replaced, .small_batch = s->small_batch);
    rcv_status status = rcv_plan_new(n->net, &o, &n->plan);
    if (status) return status;
    snprintf(n->first_plan, sizeof n->first_plan, "%s", rcv_plan_string(n->plan));
    n->from_wisdom = rcv_plan_from_wisdom(n->plan) && atomic_load(&n->replaced) == 0;
    return RCV_OK;
}

static rcv_status open_objects(network *n) {
    const shape *s = &n->shape;
    rcv_context *context = n->job->context;
    rcv_status status = s->cell ? rcv_cell_open(context, s->cell, &n->cell)
                                : rcv_cell_parse(context, own_cell, strlen(own_cell), "own", &n->cell);
    if (status) return status;
    rcv_net_options o = RCV_INIT(rcv_net_options, .input = s->input, .hidden = s->hidden, .layers = s->layers,
                                 .bidirectional = s->bidirectional);
    double begin = now();
    status = rcv_net_new(n->cell, &o, &n->net);
    n->net_seconds = now() - begin;
    if (!status) status = make_arrays(n);
    if (status) return status;
    n->plan_began = begin = now();
    status = make_plan(n);
    n->plan_seconds = now() - begin;
    if (status) return status;
    begin = now();
    status = rcv_run_new(n->plan, &n->run);
    n->run_seconds = now() - begin;
    return status;
}

rcv_status network_open(job *j, const shape *s, network *n) {
    memset(n, 0, sizeof *n);
    n->job = j;
    n->shape = *s;
    rcv_status status = open_objects(n);
    if (status) network_close(n);
    return status;
}

/* ---- the search beside the caller ---- */

static void *wait_for_search(void *argument) {
    network *n = argument;
    n->search_status = rcv_plan_wait(n->plan);
    snprintf(n->search_message, sizeof n->search_message, "%s", n->search_status ? rcv_message() : "");
    atomic_store(&n->search_ended, now());
    return NULL;
}

rcv_status network_watch_search(network *n) {
    n->is_watched = pthread_create(&n->watcher, NULL, wait_for_search, n) == 0;
    return n->is_watched ? RCV_OK : RCV_NO_MEMORY;
}

void network_end_search(network *n) {
    rcv_plan_stay(n->plan);
    if (n->is_watched) pthread_join(n->watcher, NULL);
    n->is_watched = false;
}

rcv_status network_renew_run(network *n) {
    rcv_run_free(n->run);
    n->run = NULL;
    return rcv_run_new(n->plan, &n->run);
}

void network_close(network *n) {
    if (n->is_watched) network_end_search(n);
    void *const arrays[] = {n->x, n->y, n->dx, n->dy, n->parameters, n->dparameters};
    rcv_run_free(n->run);
    rcv_plan_free(n->plan);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        rcv_memory_free(n->job->context, n->job->options->device, arrays[i]);
    rcv_net_free(n->net);
    rcv_cell_free(n->cell);
    free(n->lengths);
    n->run = NULL;
    n->plan = NULL;
    n->net = NULL;
    n->cell = NULL;
    n->lengths = NULL;
}

/* ---- calls ---- */

rcv_status network_forward(network *n, int64_t steps, int64_t batch) {
    const shape *s = &n->shape;
    if (!steps) steps = s->steps;
    if (!batch) batch = s->batch;
    for (int64_t b = 0; n->lengths && b < batch; b++) n->lengths[b] = steps - (b % 3 < steps ? b % 3 : 0);
    return rcv_run_forward(n->run, &RCV_INIT(rcv_forward, .parameters = n->parameters, .x = n->x, .y = n->y,
                                             .lengths = n->lengths, .steps = steps, .batch = batch));
}

rcv_status network_backward(network *n) {
    return rcv_run_backward(n->run, &RCV_INIT(rcv_backward, .dy = n->dy, .dx = n->dx, .dparameters = n->dparameters));
}

rcv_status network_enqueue(network *n, int64_t steps, int64_t batch) {
    rcv_status status = network_forward(n, steps, batch);
    return status || !n->shape.training ? status : network_backward(n);
}

rcv_status network_step(network *n, int64_t steps, int64_t batch) {
    rcv_status status = network_enqueue(n, steps, batch);
    return status ? status : rcv_run_wait(n->run);
}

rcv_status network_open_and_step(job *j, const shape *s, network *n) {
    rcv_status status = network_open(j, s, n);
    if (status) return status;
    double begin = now();
    status = network_step(n, 0, 0);
    n->step_seconds = now() - begin;
    if (status) network_close(n);
    return status;
}

double first_call_seconds(const network *n) {
    return n->net_seconds + n->plan_seconds + n->run_seconds + n->step_seconds;
}

void detail_first_call(job *j, const network *n) {
    detail_number(j, "net_ms", 1e3 * n->net_seconds);
    detail_number(j, "plan_ms", 1e3 * n->plan_seconds);
    detail_number(j, "run_ms", 1e3 * n->run_seconds);
    detail_number(j, "step_ms", 1e3 * n->step_seconds);
}

rcv_status network_time(network *n, double seconds, size_t least, size_t most, double *times, size_t *count) {
    double end = now() + seconds;
    for (*count = 0; *count < most; ++*count) {
        if (*count > 0 && !time_is_left(n->job)) break;
        if (*count >= least && now() >= end) break;
        double begin = now();
        rcv_status status = network_step(n, 0, 0);
        if (status) return status;
        times[*count] = now() - begin;
    }
    return RCV_OK;
}

enum { MOST_ROUNDS = 200, MOST_TIMED = 3, MOST_REPEATS = 64 };
static const double sample_seconds = 2e-3; /* shorter steps are repeated within a sample */
static const double long_step = 0.2;

static rcv_status repeat(const timed *t, size_t repeats, double *seconds) {
    double begin = now();
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < repeats && !status; i++) status = network_enqueue(t->network, t->steps, t->batch);
    if (!status) status = rcv_run_wait(t->network->run);
    *seconds = (now() - begin) / (double)repeats;
    return status;
}

rcv_status time_in_turns(const timed *each, size_t count, double seconds, double *medians) {
    static double times[MOST_TIMED][MOST_ROUNDS];
    size_t repeats = 1, done = 0;
    double longest = 0;
    /* First calls, and second ones unless steps are long. */
    for (int warm = 0; warm < 2 && (warm == 0 || longest < long_step); warm++) {
        longest = 0;
        for (size_t i = 0; i < count; i++) {
            rcv_status status = repeat(&each[i], 1, &medians[i]);
            if (status) return status;
            if (medians[i] > longest) longest = medians[i];
        }
    }
    if (longest < sample_seconds) repeats = (size_t)(sample_seconds / (longest + 1e-6)) + 1;
    if (repeats > MOST_REPEATS) repeats = MOST_REPEATS;
    double end = now() + seconds;
    for (; done < MOST_ROUNDS && (done < LEAST_ROUNDS || now() < end); done++) {
        if (!time_is_left(each->network->job)) break;
        for (size_t i = 0; i < count; i++) {
            size_t turn = done % 2 ? count - 1 - i : i; /* neither is always first */
            rcv_status status = repeat(&each[turn], repeats, &times[turn][done]);
            if (status) return status;
        }
    }
    if (done < LEAST_ROUNDS) return RCV_STOPPED;
    for (size_t i = 0; i < count; i++) medians[i] = median(times[i], done);
    return RCV_OK;
}

/* A stream of one sequence, a step a call, on one thread of the CPU, against what `recurve bench --streaming` times: calls of a run of a plan for
 * one step, with the states carried by hand. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

/* As the tool has them: calls of each side, those before the ones that count, calls in a turn, and steps of x. */
enum { CALLS = 4000, WARM_CALLS = 200, TURN = 20, STEPS = 100, WIDTH = 256, LAYERS = 2, MOST_STATES = 4 };

typedef struct {
    rcv_cell *cell;
    rcv_net *net;
    rcv_model *model;
    rcv_stream *stream;
    rcv_plan *plan;
    rcv_run *run;
    void *states[2][MOST_STATES]; /* before and after a call by hand, swapped at each call */
    int64_t width, calls[2];      /* by hand and of the stream */
    float *x, *y;                 /* [STEPS, width], [width] */
} sides;

static rcv_status open_sides(job *j, sides *s) {
    rcv_context *context = j->context;
    s->width = j->options->tiny ? 16 : WIDTH;
    rcv_status status = rcv_cell_open(context, "lstm", &s->cell);
    rcv_net_options o = RCV_INIT(rcv_net_options, .input = s->width, .hidden = s->width, .layers = LAYERS);
    if (!status) status = rcv_net_new(s->cell, &o, &s->net);
    if (!status) status = rcv_model_new(s->net, RCV_FLOAT32, 1, &s->model);
    const rcv_stream_options streamed = RCV_INIT(rcv_stream_options, .batch = 1, .most = 1, .threads = 1);
    if (!status) status = rcv_stream_new_model(s->model, &streamed, &s->stream);
    const rcv_plan_options planned = RCV_INIT(rcv_plan_options, .steps = 1, .batch = 1, .threads = 1);
    if (!status) status = rcv_plan_new(s->net, &planned, &s->plan);
    if (!status) status = rcv_run_new(s->plan, &s->run);
    if (status) return status;
    s->x = need(calloc((size_t)(STEPS * s->width), sizeof *s->x));
    s->y = need(calloc((size_t)s->width, sizeof *s->y));
    uint64_t state = 5;
    for (int64_t i = 0; i < STEPS * s->width; i++) s->x[i] = (float)(draw(&state) >> 40) * 0x1p-24f - 0.5f;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < rcv_net_state_count(s->net) && i < MOST_STATES; i++)
            s->states[side][i] = need(calloc((size_t)rcv_net_state(s->net, i)->total, sizeof(float)));
    }
    return RCV_OK;
}

static void close_sides(sides *s) {
    rcv_run_free(s->run);
    rcv_plan_free(s->plan);
    rcv_stream_free(s->stream);
    rcv_model_free(s->model);
    rcv_net_free(s->net);
    rcv_cell_free(s->cell);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < MOST_STATES; i++) free(s->states[side][i]);
    }
    free(s->x);
    free(s->y);
}

enum { BY_HAND, STREAMED };

static rcv_status call(sides *s, int side) {
    int64_t calls = s->calls[side]++;
    const float *x = s->x + calls % STEPS * s->width;
    if (side == STREAMED) return rcv_stream_step(s->stream, x, 1, s->y);
    return rcv_run_forward(s->run,
                           &RCV_INIT(rcv_forward, .parameters = rcv_model_parameters(s->model), .x = x,
                                     .initial = (const void *const *)s->states[calls % 2],
                                     .final = s->states[(calls + 1) % 2], .y = s->y, .same_parameters = calls > 0));
}

/* Seconds of each call; both sides do a few calls in turns, since other load on the machine slows both. */
static rcv_status time_sides(const job *j, sides *s, double times[2][CALLS], size_t counts[2]) {
    rcv_status status = RCV_OK;
    for (int i = 0; i < 2 * WARM_CALLS && !status; i++) status = call(s, i % 2);
    for (int i = 0; i < 2 * CALLS && !status && time_is_left(j); i++) {
        int side = i / TURN % 2;
        double begin = now();
        status = call(s, side);
        times[side][counts[side]++] = now() - begin;
    }
    return status;
}

void measure_stream(job *j, const char *unused) {
    (void)unused;
    static sides s;
    static double times[2][CALLS];
    size_t counts[2] = {0, 0};
    char what[192];
    rcv_status status = open_sides(j, &s);
    snprintf(what, sizeof what,
             "CPU: a step of a stream, LSTM %d x %lld, batch 1, one thread, of a call by hand as bench --streaming has "
             "it",
             LAYERS, (long long)s.width);
    row r = {"stream.step", what, "x", 1.05};
    if (!status) status = time_sides(j, &s, times, counts);
    if (status) {
        row_failed(j, &r, status);
    } else if (counts[STREAMED] < CALLS) {
        row_left_out(j, &r, "too little time was left for all calls");
    } else {
        double hand = median(times[BY_HAND], CALLS), stream = median(times[STREAMED], CALLS);
        detail_number(j, "stream_p50_us", 1e6 * stream);
        detail_number(j, "by_hand_p50_us", 1e6 * hand);
        detail_number(j, "stream_p99_us", 1e6 * quantile(times[STREAMED], CALLS, 0.99));
        detail_number(j, "by_hand_p99_us", 1e6 * quantile(times[BY_HAND], CALLS, 0.99));
        detail_text(j, "stream_plan", rcv_plan_string(rcv_stream_plan(s.stream)));
        detail_text(j, "by_hand_plan", rcv_plan_string(s.plan));
        row_end(j, &r, stream / hand);
    }
    close_sides(&s);
}

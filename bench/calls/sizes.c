/* Calls of one plan with sizes that it has not seen, with sizes that it has seen before, and with the sizes of the call before. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

/* AGAIN: calls with the same sizes after the first one of a pass; of these the first may prepare what the others use (a GPU's plan captures a
 * graph then), so it is a number of its own. FEW: sizes that take turns for ROUNDS rounds, few enough for a plan to keep what it prepared. */
enum { MOST_SIZES = 40, TINY_SIZES = 12, AGAIN = 4, PASSES = 2, FEW = 8, ROUNDS = 4 };

/* What is measured. Separate forward and backward calls are each waited for; both are enqueued together. */
typedef enum { FORWARD, BACKWARD, BOTH, CALLS } call;
/* Until when: the call has returned, or its work is done. */
typedef enum { HOST, DONE, UNTIL } until;

typedef struct {
    double seconds[CALLS][UNTIL];
} call_times;

/* Beyond the same sizes again, in seconds; and the seconds of these calls. */
typedef struct {
    double fresh[MOST_SIZES], second[MOST_SIZES], seen[MOST_SIZES], among_few[FEW * ROUNDS], again[MOST_SIZES];
} sample;

typedef struct {
    const char *id, *what;
    bool training;
    call measured;
} subject;

static const subject subjects[] = {
    {"forward", "inference, a forward call", false, FORWARD},
    {"training.forward", "training, a forward call", true, FORWARD},
    {"training.backward", "training, a backward call", true, BACKWARD},
    {"training.both", "training, a forward and a backward call", true, BOTH},
};

enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static rcv_status time_call(network *n, const int64_t pair[2], call measured, call_times *t) {
    double begin = now();
    rcv_status status = network_forward(n, pair[0], pair[1]);
    if (!status && measured == BOTH) status = network_backward(n);
    call which = measured == BOTH ? BOTH : FORWARD;
    t->seconds[which][HOST] = now() - begin;
    if (!status) status = rcv_run_wait(n->run);
    t->seconds[which][DONE] = now() - begin;
    if (status || measured != BACKWARD) return status;
    begin = now();
    status = network_backward(n);
    t->seconds[BACKWARD][HOST] = now() - begin;
    if (!status) status = rcv_run_wait(n->run);
    t->seconds[BACKWARD][DONE] = now() - begin;
    return status;
}

/* Different pairs of steps and batch, none of which is the plan's own. */
static void draw_sizes(const shape *s, int64_t pairs[][2], size_t count) {
    uint64_t state = 7;
    for (size_t i = 0; i < count; i++) {
        bool is_new = false;
        for (int tries = 0; !is_new && tries < 1000; tries++) {
            pairs[i][0] = 1 + (int64_t)(draw(&state) % (uint64_t)s->steps);
            pairs[i][1] = 1 + (int64_t)(draw(&state) % (uint64_t)s->batch);
            is_new = pairs[i][0] != s->steps || pairs[i][1] != s->batch;
            for (size_t k = 0; k < i; k++) is_new &= memcmp(pairs[k], pairs[i], sizeof pairs[i]) != 0;
        }
    }
}

/* A first call and AGAIN more with the same sizes; the last of these are what others are compared with. */
static rcv_status time_pair(network *n, const int64_t pair[2], call measured, call_times *first, call_times *second,
                            call_times *again) {
    call_times repeated[AGAIN];
    rcv_status status = time_call(n, pair, measured, first);
    for (int k = 0; k < AGAIN && !status; k++) status = time_call(n, pair, measured, &repeated[k]);
    if (status) return status;
    *second = repeated[0];
    for (int c = 0; c < CALLS; c++) {
        for (int u = 0; u < UNTIL; u++) {
            double later[AGAIN - 1];
            for (int k = 1; k < AGAIN; k++) later[k - 1] = repeated[k].seconds[c][u];
            again->seconds[c][u] = median(later, AGAIN - 1);
        }
    }
    return RCV_OK;
}

/* The first pass over the sizes is of calls not seen before, the second one of calls seen, but not last; then a few sizes take turns. All by a run
 * that has seen no call but three with the plan's own sizes. */
static rcv_status time_sizes(network *n, const int64_t pairs[][2], size_t count, call measured, sample out[UNTIL]) {
    const int64_t own[2] = {n->shape.steps, n->shape.batch};
    call_times first = {0}, second = {0}, again[MOST_SIZES] = {0};
    rcv_status status = network_renew_run(n);
    for (int i = 0; i < 3 && !status; i++) status = time_call(n, own, measured, &first);
    for (size_t i = 0; i < PASSES * count && !status; i++) {
        size_t at = i % count;
        status = time_pair(n, pairs[at], measured, &first, &second, &again[at]);
        for (int u = 0; u < UNTIL; u++) {
            double same = again[at].seconds[measured][u];
            (i < count ? out[u].fresh : out[u].seen)[at] = first.seconds[measured][u] - same;
            if (i < count) out[u].second[at] = second.seconds[measured][u] - same;
            out[u].again[at] = same;
        }
    }
    for (size_t i = 0; i < FEW * (ROUNDS + 1) && !status; i++) {
        status = time_call(n, pairs[i % FEW], measured, &first);
        for (int u = 0; u < UNTIL && i >= FEW; u++) /* the first round prepares */
            out[u].among_few[i - FEW] = first.seconds[measured][u] - again[i % FEW].seconds[measured][u];
    }
    return status;
}

/* ---- rows ---- */

static void report(job *j, const subject *s, const network *n, until u, sample *times, size_t count,
                   rcv_status status) {
    static const char *const names[UNTIL] = {"host", "done"}, *const ends[UNTIL] = {"returns", "is done"};
    char id[64], what[192];
    snprintf(id, sizeof id, "sizes.%s.new.%s", s->id, names[u]);
    snprintf(what, sizeof what, "%s with sizes not seen before, beyond the same sizes again, until it %s", s->what,
             ends[u]);
    row fresh = {id, what, "us", 20};
    if (status) {
        row_failed(j, &fresh, status);
        return;
    }
    double middle = median(times->fresh, count), seen = median(times->seen, count);
    detail_pairs(j, "T_B_H_layers", (const int64_t[]){n->shape.steps, n->shape.batch, n->shape.hidden, n->shape.layers},
                 2);
    detail_text(j, "dtype", rcv_dtype_name(n->shape.dtype));
    detail_text(j, "plan", rcv_plan_string(n->plan));
    detail_number(j, "pairs_of_sizes", (double)count);
    detail_number(j, "same_sizes_us", 1e6 * median(times->again, count));
    detail_number(j, "nine_tenths_below_us", 1e6 * quantile(times->fresh, count, 0.9));
    detail_number(j, "worst_us", 1e6 * quantile(times->fresh, count, 1));
    detail_number(j, "second_call_us", 1e6 * median(times->second, count));
    detail_number(j, "seen_but_not_last_us", 1e6 * seen);
    detail_number(j, "seen_among_8_us", 1e6 * median(times->among_few, FEW * ROUNDS));
    row_end(j, &fresh, 1e6 * middle);

    snprintf(id, sizeof id, "sizes.%s.seen_but_not_last.%s", s->id, names[u]);
    snprintf(what, sizeof what, "%s with sizes seen before, but not by the last call, beyond the same, until it %s",
             s->what, ends[u]);
    detail_number(j, "nine_tenths_below_us", 1e6 * quantile(times->seen, count, 0.9));
    detail_number(j, "worst_us", 1e6 * quantile(times->seen, count, 1));
    row_end(j, &(row){id, what, "us", 0}, 1e6 * seen);
}

static shape plan_shape(const job *j, bool training) {
    shape s = {.cell = "lstm",
               .steps = 100,
               .batch = 64,
               .input = 512,
               .hidden = 512,
               .layers = 2,
               .dtype = RCV_BFLOAT16,
               .training = training};
    if (is_gpu(j)) return sized(j, s);
    /* On a CPU the calls are short, so that the difference can be seen beside them, and their arrays stay in the caches. */
    s.dtype = RCV_FLOAT32;
    s.steps = 20;
    s.batch = 16;
    s.input = s.hidden = 32;
    return s;
}

void measure_sizes(job *j, const char *unused) {
    (void)unused;
    static network n;
    static sample times[UNTIL];
    const size_t count = j->options->tiny ? TINY_SIZES : MOST_SIZES;
    int64_t pairs[SUBJECTS * MOST_SIZES][2]; /* every subject has sizes of its own */
    bool is_open = false;
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < SUBJECTS; i++) {
        const subject *s = &subjects[i];
        if (i == 0 || s->training != subjects[i - 1].training) {
            if (is_open) network_close(&n);
            shape wanted = plan_shape(j, s->training);
            status = network_open(j, &wanted, &n);
            is_open = !status;
            draw_sizes(&wanted, pairs, SUBJECTS * count);
        }
        if (is_open) status = time_sizes(&n, &pairs[i * count], count, s->measured, times);
        for (until u = 0; u < UNTIL; u++) report(j, s, &n, u, &times[u], count, status);
    }
    if (is_open) network_close(&n);
}

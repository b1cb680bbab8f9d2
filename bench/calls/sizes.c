/* Calls of one plan with sizes that it has not seen, and with the sizes of the call before. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 40, AGAIN = 3, PASSES = 2 };

typedef struct {
    double host, done; /* seconds until the call returned, and until its work was done */
} call_time;

static rcv_status time_call(network *n, int64_t steps, int64_t batch, call_time *t) {
    double begin = now();
    rcv_status status = network_enqueue(n, steps, batch);
    t->host = now() - begin;
    if (!status) status = rcv_run_wait(n->run);
    t->done = now() - begin;
    return status;
}

/* Different pairs of steps and batch, none of which is the plan's own. */
static void draw_sizes(const shape *s, int64_t *pairs) {
    uint64_t state = 7;
    for (size_t i = 0; i < SIZES; i++) {
        bool is_new = false;
        for (int tries = 0; !is_new && tries < 1000; tries++) {
            pairs[2 * i] = 1 + (int64_t)(draw(&state) % (uint64_t)s->steps);
            pairs[2 * i + 1] = 1 + (int64_t)(draw(&state) % (uint64_t)s->batch);
            is_new = pairs[2 * i] != s->steps || pairs[2 * i + 1] != s->batch;
            for (size_t k = 0; k < i; k++) is_new &= memcmp(&pairs[2 * k], &pairs[2 * i], 2 * sizeof *pairs) != 0;
        }
    }
}

/* What the first call with each pair takes longer than the calls after it with the same pair; and the same in the second pass over the pairs,
 * when each was seen, but not in the call before. */
static rcv_status time_sizes(network *n, const int64_t *pairs, double host[PASSES][SIZES], double done[PASSES][SIZES],
                             double *again) {
    rcv_status status = RCV_OK;
    for (int i = 0; i < 3 && !status; i++) status = network_step(n, 0, 0);
    for (size_t i = 0; i < PASSES * SIZES && !status; i++) {
        size_t pass = i / SIZES, at = i % SIZES;
        int64_t steps = pairs[2 * at], batch = pairs[2 * at + 1];
        call_time first = {0}, repeated[AGAIN];
        status = time_call(n, steps, batch, &first);
        double hosts[AGAIN], dones[AGAIN];
        for (int k = 0; k < AGAIN && !status; k++) {
            status = time_call(n, steps, batch, &repeated[k]);
            hosts[k] = repeated[k].host;
            dones[k] = repeated[k].done;
        }
        if (status) return status;
        host[pass][at] = first.host - median(hosts, AGAIN);
        done[pass][at] = first.done - median(dones, AGAIN);
        again[at] = median(dones, AGAIN);
    }
    return status;
}

static void report_sizes(job *j, bool training) {
    static network n;
    static double host[PASSES][SIZES], done[PASSES][SIZES], again[SIZES];
    int64_t pairs[2 * SIZES];
    char ids[2][64], whats[2][128];
    static const char *const until[] = {"returns", "is done"}, *const names[] = {"host", "done"};
    for (int i = 0; i < 2; i++) {
        snprintf(ids[i], sizeof ids[i], "sizes.%s.%s", training ? "training" : "forward", names[i]);
        snprintf(whats[i], sizeof whats[i], "%s with sizes not seen before, beyond the same sizes again, until it %s",
                 training ? "a training step" : "a forward call", until[i]);
    }
    row rows[] = {{ids[0], whats[0], "us", 20}, {ids[1], whats[1], "us", 20}};
    /* On a CPU the calls are short, so that the difference can be seen beside them, and their arrays stay in the caches. */
    shape s = {.cell = "lstm",
               .steps = 100,
               .batch = 64,
               .input = 512,
               .hidden = 512,
               .layers = 2,
               .dtype = RCV_BFLOAT16,
               .training = training};
    if (!is_gpu(j)) {
        s.dtype = RCV_FLOAT32;
        s.steps = 20;
        s.batch = 16;
        s.input = s.hidden = 32;
    } else {
        s = sized(j, s);
    }
    rcv_status status = network_open(j, &s, &n);
    if (!status) {
        draw_sizes(&s, pairs);
        status = time_sizes(&n, pairs, host, done, again);
    }
    for (int i = 0; i < 2; i++) {
        double(*times)[SIZES] = i ? done : host;
        if (status) {
            row_failed(j, &rows[i], status);
            continue;
        }
        detail_pairs(j, "T_B_H_layers", (const int64_t[]){s.steps, s.batch, s.hidden, s.layers}, 2);
        detail_text(j, "dtype", rcv_dtype_name(s.dtype));
        detail_text(j, "plan", rcv_plan_string(n.plan));
        detail_number(j, "same_sizes_us", 1e6 * median(again, SIZES));
        detail_number(j, "seen_but_not_last_us", 1e6 * median(times[1], SIZES));
        double middle = median(times[0], SIZES);
        detail_number(j, "worst_us", 1e6 * times[0][SIZES - 1]); /* median() sorts */
        row_end(j, &rows[i], 1e6 * middle);
    }
    if (!status) network_close(&n);
}

void measure_sizes(job *j, const char *unused) {
    (void)unused;
    report_sizes(j, false);
    report_sizes(j, true);
}

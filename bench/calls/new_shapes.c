/* First calls of shapes that are new to a process, on a CPU: what they take beyond the computation. */
#include "calls/calls.h"

enum { MOST_STEPS = 101, REPEATS = 3, TEXT = 192 };

/* A network whose search is ended after the first step, so that nothing disturbs what is timed next and nothing is learnt. */
static rcv_status time_first(job *j, const shape *s, network *kept, double *seconds, bool *was_replaced) {
    static network n;
    rcv_status status = network_open_and_step(j, s, &n);
    if (status) return status;
    *was_replaced |= rcv_run_version(n.run) > 1 || atomic_load(&n.replaced) != 0;
    *seconds = n.plan_seconds + n.run_seconds + n.step_seconds;
    rcv_plan_stay(n.plan);
    *kept = n; /* for its numbers */
    network_close(&n);
    return RCV_OK;
}

/* The first call by a plan string, where nothing searches, and the median of the steps after it. */
static rcv_status time_pinned(job *j, const shape *s, const char *plan, double *first, double *later, size_t *count) {
    static double times[MOST_STEPS];
    static network n;
    shape pinned = *s;
    pinned.schedule = plan;
    rcv_status status = network_open_and_step(j, &pinned, &n);
    if (status) return status;
    *first = n.plan_seconds + n.run_seconds + n.step_seconds;
    status = network_time(&n, spend(j, 0.4), 3, MOST_STEPS, times, count);
    *later = median(times, *count);
    network_close(&n);
    return status;
}

/* First calls and later steps in turns. */
static void report_new_shape(job *j, const shape *s, const row *r) {
    static network kept;
    double beyond[REPEATS], pinned_beyond[REPEATS], later[REPEATS], begun = now(), longest = 0;
    size_t done = 0, count = 0;
    bool was_replaced = false;
    rcv_status status = RCV_OK;
    for (; done < REPEATS && (done == 0 || now() + longest < j->until); done++) {
        double first = 0, pinned = 0, begin = now();
        status = time_first(j, s, &kept, &first, &was_replaced);
        if (!status && now() + 3 * kept.step_seconds > j->until) break;
        if (!status) status = time_pinned(j, s, kept.first_plan, &pinned, &later[done], &count);
        if (status || count < 3) break;
        beyond[done] = 1e3 * (first - later[done]);
        pinned_beyond[done] = 1e3 * (pinned - later[done]);
        if (done == 0) {
            detail_first_call(j, &kept);
            detail_number(j, "beyond_at_first_ms", beyond[0]);
        }
        if (now() - begin > longest) longest = now() - begin;
    }
    if (status) {
        row_failed(j, r, status);
        return;
    }
    if (done == 0) {
        row_left_out(j, r, "too little time was left for the steps after the first");
        return;
    }
    detail_number(j, "repeats", (double)done);
    detail_number(j, "later_step_ms", 1e3 * median(later, done));
    detail_number(j, "pinned_beyond_ms", median(pinned_beyond, done));
    detail_text(j, "plan", kept.first_plan);
    detail_text(j, "search_ended_during_a_step", was_replaced ? "yes" : "no");
    show(j, "%zu repeats in %.1f s", done, now() - begun);
    row_end(j, r, median(beyond, done));
}

void measure_new_shapes(job *j, const char *unused) {
    (void)unused;
    static const char *const cells[] = {"lstm", "gru", "sru", NULL};
    static const struct {
        const char *name;
        int64_t steps, batch, hidden, layers;
    } sizes[] = {{"small", 35, 20, 200, 2}, {"headline", 100, 64, 512, 4}};
    static network warm;
    shape other = sized(j, (shape){.cell = "rnn_tanh",
                                   .steps = 20,
                                   .batch = 24,
                                   .input = 64,
                                   .hidden = 64,
                                   .layers = 1,
                                   .dtype = RCV_FLOAT32,
                                   .training = true,
                                   .effort = RCV_ESTIMATE});
    if (!network_open_and_step(j, &other, &warm)) network_close(&warm);
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
        for (size_t i = 0; i < 2 * sizeof cells / sizeof *cells; i++) {
            const char *cell = cells[i / 2], *name = cell ? cell : "own", *pass = i % 2 ? "training" : "inference";
            char id[TEXT], what[TEXT];
            shape s = sized(j, (shape){.cell = cell,
                                       .steps = sizes[size].steps,
                                       .batch = sizes[size].batch,
                                       .input = sizes[size].hidden,
                                       .hidden = sizes[size].hidden,
                                       .layers = sizes[size].layers,
                                       .dtype = RCV_FLOAT32,
                                       .training = i % 2,
                                       .effort = RCV_BACKGROUND});
            snprintf(id, sizeof id, "new.%s.%s.%s", name, sizes[size].name, pass);
            snprintf(what, sizeof what,
                     "CPU: plan, run and first step beyond a later step: %s T %lld B %lld H %lld, %lld layers, %s",
                     name, (long long)s.steps, (long long)s.batch, (long long)s.hidden, (long long)s.layers, pass);
            row r = {id, what, "ms", 30};
            if (time_is_left(j))
                report_new_shape(j, &s, &r);
            else
                row_left_out(j, &r, "no time was left");
        }
    }
}

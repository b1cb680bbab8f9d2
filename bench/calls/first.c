/* First calls: from a network's sizes to the end of the first step, in a process without caches, in one with caches on disk, and of shapes that
 * are new to a process; and the search beside the caller. */
#include "calls/calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1 << 16, TEXT = 192 };

/* The shape of the first calls; a CPU's is one whose steps are short beside a search. */
static const shape on_gpu = {.cell = "lstm",
                             .steps = 100,
                             .batch = 64,
                             .input = 512,
                             .hidden = 512,
                             .layers = 2,
                             .training = true,
                             .effort = RCV_BACKGROUND},
                   on_cpu = {.cell = "lstm",
                             .steps = 50,
                             .batch = 32,
                             .input = 256,
                             .hidden = 256,
                             .layers = 2,
                             .training = true,
                             .effort = RCV_BACKGROUND};

/* The networks that jobs begin with. */
static const struct {
    const char *name, *cell;
    rcv_dtype dtype;
} kinds[] = {
    {"float32", "lstm", RCV_FLOAT32},
    {"bfloat16", "lstm", RCV_BFLOAT16},
    {"own", NULL, RCV_BFLOAT16},
};

static size_t find_kind(const char *name) {
    size_t k = 0;
    while (strcmp(kinds[k].name, name) != 0) k++;
    return k;
}

static shape first_shape(const job *j, size_t kind) {
    shape s = is_gpu(j) ? on_gpu : on_cpu;
    s.cell = kinds[kind].cell;
    s.dtype = kinds[kind].dtype;
    return sized(j, s);
}

/* A row whose id is JOB.KIND.NAME and whose text is KIND: WHAT. The texts are static: of one row at a time. */
static row name_row(const char *job_name, size_t kind, const char *name, const char *what, const char *unit,
                    double target) {
    static char id[TEXT], text[TEXT];
    snprintf(id, sizeof id, "%s.%s.%s", job_name, kinds[kind].name, name);
    snprintf(text, sizeof text, "%s%s: %s", kinds[kind].cell ? "" : "own cell ", rcv_dtype_name(kinds[kind].dtype),
             what);
    return (row){id, text, unit, target};
}

/* Uses the device for the first time: its driver and its context are no part of a first call. */
static rcv_status bring_up(job *j, const char *job_name, size_t kind) {
    enum { BYTES = 1 << 20 };
    const char *device = j->options->device;
    void *memory = NULL, *bytes = need(calloc(1, BYTES));
    double begin = now();
    rcv_status status = rcv_memory_new(j->context, device, BYTES, &memory);
    if (!status) status = rcv_memory_write(device, memory, bytes, BYTES);
    if (!status) status = rcv_memory_read(device, bytes, memory, BYTES);
    double seconds = now() - begin;
    row r = name_row(job_name, kind, "device", "the device is brought up", "ms", 0);
    if (status)
        row_failed(j, &r, status);
    else
        row_end(j, &r, 1e3 * seconds);
    rcv_memory_free(j->context, device, memory);
    free(bytes);
    return status;
}

/* ---- the search beside the caller ---- */

typedef struct {
    const rcv_plan *plan;
    pthread_t thread;
    atomic_bool ended;
    double latest; /* when it is given up */
    double end;
    rcv_status status;
    char message[512];
} search_end;

static void *wait_for_search(void *argument) {
    search_end *s = argument;
    s->status = rcv_plan_wait(s->plan);
    s->end = now();
    snprintf(s->message, sizeof s->message, "%s", s->status ? rcv_message() : "");
    atomic_store(&s->ended, true);
    return NULL;
}

/* Seconds of the steps by the first plan while the search runs. */
typedef struct {
    double *times; /* [MOST_STEPS] */
    size_t count;
} steps_while_searching;

/* Steps until the search has ended. Steps by the first plan after it had ended count no more. */
static rcv_status step_until_tuned(network *n, search_end *s, steps_while_searching *steps) {
    s->plan = n->plan;
    if (pthread_create(&s->thread, NULL, wait_for_search, s)) return RCV_NO_MEMORY;
    rcv_status status = RCV_OK;
    while (!status && !atomic_load(&s->ended)) {
        double begin = now();
        status = network_step(n, 0, 0);
        double end = now();
        if (rcv_run_version(n->run) == 1 && steps->count < MOST_STEPS && !atomic_load(&s->ended))
            steps->times[steps->count++] = end - begin;
        if (end > s->latest) rcv_plan_stay(n->plan); /* ends the search */
    }
    if (status) rcv_plan_stay(n->plan);
    pthread_join(s->thread, NULL);
    return status;
}

/* Steps by the first plan alone: its plan string, pinned. */
static rcv_status time_alone(job *j, const shape *s, const char *plan, double *times, size_t *count) {
    shape pinned = *s;
    network n;
    pinned.schedule = plan;
    rcv_status status = network_open_and_step(j, &pinned, &n);
    if (status) return status;
    status = network_time(&n, spend(j, 1), 3, MOST_STEPS, times, count);
    network_close(&n);
    return status;
}

static void report_slowed(job *j, size_t kind, const network *n, steps_while_searching *during) {
    row r = name_row("first", kind, "slowed", "a step by the first plan while the search runs, of one alone (mean)",
                     "x", is_gpu(j) ? 1.1 : 0);
    if (during->count == 0) {
        row_left_out(j, &r, "the search ended before a second step");
        return;
    }
    double *alone = need(malloc(MOST_STEPS * sizeof *alone));
    size_t count = 0;
    rcv_status status = time_alone(j, &n->shape, n->first_plan, alone, &count);
    if (status) {
        row_failed(j, &r, status);
    } else {
        double means[] = {mean(during->times, during->count), mean(alone, count)};
        detail_number(j, "steps_during", (double)during->count);
        detail_number(j, "mean_during_ms", 1e3 * means[0]);
        detail_number(j, "median_during_ms", 1e3 * median(during->times, during->count));
        detail_number(j, "longest_during_ms", 1e3 * during->times[during->count - 1]); /* median() sorts */
        detail_number(j, "steps_alone", (double)count);
        detail_number(j, "mean_alone_ms", 1e3 * means[1]);
        detail_number(j, "median_alone_ms", 1e3 * median(alone, count));
        row_end(j, &r, means[0] / means[1]);
    }
    free(alone);
}

/* Seconds of the first step by the plan that was found: the run makes another run and takes its memory. */
static rcv_status time_takeover(network *n, double *seconds) {
    double begin = now();
    rcv_status status = network_step(n, 0, 0);
    *seconds = now() - begin;
    return status;
}

/* The rows `tuned`, `slowed` and `tuned_step`. */
static void follow_search(job *j, size_t kind, network *n) {
    row r = name_row("first", kind, "tuned", "from the first plan's creation to the end of the search", "s",
                     is_gpu(j) ? 8 : 0);
    search_end end = {.latest = now() + 0.8 * (j->until - now())}; /* the rest is for the shapes after it */
    steps_while_searching during = {.times = need(malloc(MOST_STEPS * sizeof(double)))};
    rcv_status status = step_until_tuned(n, &end, &during);
    if (status) {
        row_failed(j, &r, status);
        goto done;
    }
    double replaced = atomic_load(&n->replaced);
    detail_text(j, "first_plan", n->first_plan);
    detail_text(j, "tuned_plan", rcv_plan_string(n->plan));
    detail_number(j, "candidates", (double)rcv_plan_candidate_count(n->plan));
    if (replaced != 0) detail_number(j, "replaced_s", replaced - n->plan_began);
    if (!end.status)
        row_end(j, &r, end.end - n->plan_began);
    else if (end.status == RCV_STOPPED) {
        char reason[TEXT];
        snprintf(reason, sizeof reason, "the search was given up after %.1f s", now() - n->plan_began);
        row_left_out(j, &r, reason);
    } else {
        rcv_plan_wait(n->plan); /* sets this thread's message */
        row_failed(j, &r, end.status);
    }
    report_slowed(j, kind, n, &during);

    r = name_row("first", kind, "tuned_step", "a step by the plan that the search found (median)", "ms", 0);
    size_t count = 0;
    double takeover = 0;
    if (end.status)
        row_left_out(j, &r, "the search did not end");
    else
        status = time_takeover(n, &takeover);
    if (!end.status && !status) status = network_time(n, spend(j, 1), 3, MOST_STEPS, during.times, &count);
    if (status)
        row_failed(j, &r, status);
    else if (!end.status) {
        detail_number(j, "version", (double)rcv_run_version(n->run));
        detail_number(j, "takeover_ms", 1e3 * takeover);
        row_end(j, &r, 1e3 * median(during.times, count));
    }
done:
    free(during.times);
}

/* ---- a process without caches ---- */

/* What differs from the first shape: the hidden size to three quarters, one layer more, both directions, a GRU, half the steps and sequences. */
typedef enum { HIDDEN, LAYERS, BOTH_DIRECTIONS, GRU, SMALLER, CHANGES } change;

static shape change_shape(shape s, change what) {
    if (what == HIDDEN) s.hidden = s.hidden / 4 * 3;
    if (what == LAYERS) s.layers++;
    if (what == BOTH_DIRECTIONS) s.bidirectional = true;
    if (what == GRU) s.cell = "gru";
    if (what == SMALLER) s.steps = (s.steps + 1) / 2;
    if (what == SMALLER) s.batch = (s.batch + 1) / 2;
    return s;
}

static void report_next_shapes(job *j, size_t kind) {
    static const char *const names[CHANGES] = {"hidden", "layers", "both", "gru", "smaller"};
    static network
        opened[CHANGES]; /* their searches run on, as a program's would; the process ends without closing them */
    for (change c = 0; c < CHANGES; c++) {
        if (c == GRU && !kinds[kind].cell) continue;
        char id[TEXT / 4], what[TEXT / 2];
        shape s = change_shape(first_shape(j, kind), c);
        snprintf(id, sizeof id, "next.%s", names[c]);
        snprintf(what, sizeof what, "first step of the next shape, %s T %lld B %lld H %lld, %lld layers%s",
                 s.cell ? s.cell : "own", (long long)s.steps, (long long)s.batch, (long long)s.hidden,
                 (long long)s.layers, s.bidirectional ? ", bidirectional" : "");
        row r = name_row("first", kind, id, what, "ms", is_gpu(j) ? 200 : 0);
        if (!time_is_left(j)) {
            row_left_out(j, &r, "no time was left");
            continue;
        }
        rcv_status status = network_open_and_step(j, &s, &opened[c]);
        if (status) {
            row_failed(j, &r, status);
            continue;
        }
        detail_first_call(j, &opened[c]);
        detail_text(j, "plan", opened[c].first_plan);
        row_end(j, &r, 1e3 * first_call_seconds(&opened[c]));
    }
}

void measure_first(job *j, const char *type) {
    static network n;
    size_t kind = find_kind(type);
    if (bring_up(j, "first", kind)) return;
    shape s = first_shape(j, kind);
    rcv_status status = network_open_and_step(j, &s, &n);
    row r = name_row("first", kind, "step", "first step, no caches", "ms", is_gpu(j) ? 500 : 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_pairs(j, "T_B_H_layers", (const int64_t[]){s.steps, s.batch, s.hidden, s.layers}, 2);
    detail_first_call(j, &n);
    detail_text(j, "plan", n.first_plan);
    row_end(j, &r, 1e3 * first_call_seconds(&n));
    follow_search(j, kind, &n);
    report_next_shapes(j, kind);
}

/* ---- a process with caches on disk ---- */

void measure_again(job *j, const char *type) {
    static network n;
    size_t kind = find_kind(type);
    if (bring_up(j, "again", kind)) return;
    shape s = first_shape(j, kind);
    rcv_status status = network_open_and_step(j, &s, &n);
    row r =
        name_row("again", kind, "step", "first step of a second process, caches on disk", "ms", is_gpu(j) ? 150 : 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_first_call(j, &n);
    detail_text(j, "plan", rcv_plan_string(n.plan));
    detail_text(j, "from_wisdom", rcv_plan_from_wisdom(n.plan) ? "yes" : "no");
    row_end(j, &r, 1e3 * first_call_seconds(&n));
}

/* ---- the planner in the foreground ---- */

void measure_planning(job *j, const char *type) {
    static network n;
    static double times[MOST_STEPS];
    size_t kind = find_kind(type), count = 0;
    if (bring_up(j, "measure", kind)) return;
    shape s = first_shape(j, kind);
    s.effort = RCV_MEASURE;
    rcv_status status = network_open_and_step(j, &s, &n);
    row r = name_row("measure", kind, "plan", "a plan by RCV_MEASURE, no caches", "s", 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_first_call(j, &n);
    detail_text(j, "plan", rcv_plan_string(n.plan));
    detail_number(j, "candidates", (double)rcv_plan_candidate_count(n.plan));
    row_end(j, &r, n.plan_seconds);
    r = name_row("measure", kind, "step", "a step by the plan of RCV_MEASURE (median)", "ms", 0);
    status = network_time(&n, spend(j, 1), 3, MOST_STEPS, times, &count);
    if (status)
        row_failed(j, &r, status);
    else
        row_end(j, &r, 1e3 * median(times, count));
}

/* ---- shapes that are new to a process, on a CPU ---- */

/* The first call by a plan string, where nothing searches, and the median of the steps after it. */
static rcv_status time_pinned(job *j, const shape *s, const char *plan, double *first, double *later) {
    static double times[MOST_STEPS];
    static network n;
    shape pinned = *s;
    size_t count = 0;
    pinned.schedule = plan;
    rcv_status status = network_open_and_step(j, &pinned, &n);
    if (status) return status;
    *first = n.plan_seconds + n.run_seconds + n.step_seconds;
    status = network_time(&n, spend(j, 0.5), 3, 101, times, &count);
    *later = median(times, count);
    network_close(&n);
    return status;
}

static void report_new_shape(job *j, const shape *s, const row *r) {
    static network n;
    double first = 0, later = 0;
    rcv_status status = network_open_and_step(j, s, &n);
    if (status) {
        row_failed(j, r, status);
        return;
    }
    bool was_replaced = rcv_run_version(n.run) > 1 || atomic_load(&n.replaced) != 0;
    rcv_plan_stay(n.plan);
    double seconds = n.plan_seconds + n.run_seconds + n.step_seconds;
    network timed_ones = n;
    network_close(&n);
    if (now() + 3 * timed_ones.step_seconds > j->until) {
        row_left_out(j, r, "too little time was left for the steps after the first");
        return;
    }
    status = time_pinned(j, s, timed_ones.first_plan, &first, &later);
    if (status) {
        row_failed(j, r, status);
    } else {
        detail_first_call(j, &timed_ones);
        detail_number(j, "later_step_ms", 1e3 * later);
        detail_number(j, "pinned_beyond_ms", 1e3 * (first - later));
        detail_text(j, "plan", timed_ones.first_plan);
        detail_text(j, "search_ended_during_the_step", was_replaced ? "yes" : "no");
        row_end(j, r, 1e3 * (seconds - later));
    }
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
                     "plan, run and first step beyond a later step: %s T %lld B %lld H %lld, %lld layers, %s", name,
                     (long long)s.steps, (long long)s.batch, (long long)s.hidden, (long long)s.layers, pass);
            row r = {id, what, "ms", 30};
            if (time_is_left(j))
                report_new_shape(j, &s, &r);
            else
                row_left_out(j, &r, "no time was left");
        }
    }
}

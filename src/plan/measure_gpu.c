/* Times candidates on a GPU. Candidates are few and runs short, but the first runs of each are slow (kernels are loaded, graphs
 * captured), and waiting for a call costs more than its work. So a sample is several calls that are waited for once, and every candidate
 * runs the whole problem. Rounds sample all candidates in turn; those that are much slower than the best are dropped. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double entry_seconds =
    0.25; /* seconds in which candidates get a first sample, unless the search is exhaustive */
static const double last_seconds = 0.1; /* seconds for further samples of the fastest, where that time is over */
static const double sample = 1.5e-3;    /* seconds that a sample should take */
static const double abandon_factor = 3; /* times the fastest: dropped after one call */
static const double drop_factor = 1.25; /* times the fastest: dropped after a round */
static const double near_factor = 1.1;  /* times the fastest: other algorithms of its products are tried */
static const double too_long = 0.1;     /* estimated seconds: not tried after the first candidate */
static const double slow = 0.02;        /* estimated seconds: one call is enough to warm up */
enum { MOST_CALLS = 16, ROUNDS = 4, EXHAUSTIVE_ROUNDS = 8 };

typedef struct {
    rcvi_bench bench;
    rcvi_candidate **order;
    size_t count;
    double best;     /* shown.seconds of the fastest */
    double deadline; /* 0: none */
} measurement;

static bool is_past_deadline(const measurement *m) {
    return m->deadline > 0 && m->best > 0 && rcvi_bench_now(&m->bench) > m->deadline;
}

static void drop(measurement *m, rcvi_candidate *c) {
    c->remaining = false;
    rcvi_trial_close(&m->bench, c);
}

/* Adds a sample of so many calls; shown.seconds is the least of all samples. */
static rcv_status add_sample(measurement *m, rcvi_candidate *c, int calls) {
    double seconds = 0;
    RCVI_TRY(rcvi_trial_repeat(&m->bench, c, calls, &seconds));
    if (!c->run) return RCV_OK;
    seconds /= calls;
    if (c->sample_count == 0 || seconds < c->shown.seconds) c->shown.seconds = seconds;
    if (c->sample_count < RCVI_MAX_SAMPLES) c->samples[c->sample_count++] = seconds;
    if (m->best == 0 || c->shown.seconds < m->best) m->best = c->shown.seconds;
    return RCV_OK;
}

static int calls_of(const rcvi_candidate *c) {
    double calls = sample / c->shown.seconds;
    return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
}

/* Do two candidates differ in the algorithm of their products, and in nothing else? */
static bool differ_in_choice(rcvi_rungs a, rcvi_rungs b) {
    bool same = a.choice == b.choice;
    a.choice = b.choice = 0;
    return !same && rcvi_rungs_equal(&a, &b);
}

/* Does it differ only in the algorithm of its products from a plan that was much slower than the best? */
static bool is_variant_of_slow_plan(const measurement *m, const rcvi_candidate *c) {
    for (size_t i = 0; c->rungs.choice && i < m->count; i++) {
        const rcvi_candidate *other = m->order[i];
        bool is_slower = other->sample_count > 0 && other->shown.seconds > near_factor * m->best;
        if (is_slower && differ_in_choice(c->rungs, other->rungs)) return true;
    }
    return false;
}

/* Closes other trials until there is memory for this one beside those that are open. */
static void make_room(measurement *m, const rcvi_candidate *c) {
    for (size_t i = 0; i < m->count && !c->run && !rcvi_trial_fits_beside(&m->bench, c); i++)
        rcvi_trial_close(&m->bench, m->order[i]);
}

/* The first calls load kernels and capture graphs; in inference one for new parameters and one for unchanged ones. */
static rcv_status warm_up(measurement *m, rcvi_candidate *c) {
    double seconds = 0;
    make_room(m, c);
    RCVI_TRY(rcvi_trial_repeat(&m->bench, c, 1, &seconds));
    bool warm = m->bench.problem.options->training && c->shown.estimate > slow;
    return !c->run || warm ? RCV_OK : rcvi_trial_repeat(&m->bench, c, 1, &seconds);
}

static rcv_status first_sample(measurement *m, rcvi_candidate *c) {
    double fresh = 0;
    RCVI_TRY(rcvi_trial_make(&m->bench, c, m->bench.problem.options->steps));
    if (!rcvi_trial_fits(&m->bench, c, &fresh)) {
        drop(m, c);
        return RCV_OK;
    }
    RCVI_TRY(warm_up(m, c));
    if (c->run) RCVI_TRY(add_sample(m, c, 1));
    if (c->run && calls_of(c) > 1 && c->shown.seconds <= abandon_factor * m->best)
        RCVI_TRY(add_sample(m, c, calls_of(c)));
    if (c->sample_count > 0)
        rcvi_log(m->bench.context, "planning: first: %s takes %.3g s", c->shown.schedule, c->shown.seconds);
    if (!c->run || c->shown.seconds > abandon_factor * m->best) drop(m, c);
    return RCV_OK;
}

/* Remaining candidates that take at most `limit` times as long as the fastest. */
static size_t count_close(const measurement *m, double limit) {
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++)
        count += m->order[i]->remaining && m->order[i]->shown.seconds <= limit * m->best;
    return count;
}

/* Drops candidates above the limit; stops where one is left. */
static rcv_status run_rounds(measurement *m, int rounds, double limit) {
    for (int n = 0; n < rounds && count_close(m, limit) > 1; n++) {
        for (size_t i = 0; i < m->count; i++) {
            rcvi_candidate *c = m->order[i];
            if (!c->remaining) continue;
            if (c->shown.seconds > limit * m->best) {
                drop(m, c);
                continue;
            }
            if (is_past_deadline(m)) return RCV_OK;
            if (!c->run) RCVI_TRY(warm_up(m, c)); /* it was closed to make room */
            if (c->run) RCVI_TRY(add_sample(m, c, calls_of(c)));
            rcvi_log(m->bench.context, "planning: round %d of %d: %s takes %.3g s", n + 1, rounds, c->shown.schedule,
                     c->shown.seconds);
        }
    }
    return RCV_OK;
}

/* Where the fastest failed after the others were dropped, those that were timed are candidates again. */
static void restore_timed(measurement *m) {
    for (size_t i = 0; i < m->count; i++) {
        if (m->order[i]->remaining) return;
    }
    for (size_t i = 0; i < m->count; i++)
        m->order[i]->remaining = m->order[i]->sample_count > 0 && !m->order[i]->shown.status;
}

/* By estimate; a vendor's library, whose estimate is unreliable, comes second, so that later candidates are compared with its time. */
static void sort_candidates(measurement *m) {
    size_t own = 0;
    qsort(m->order, m->count, sizeof(rcvi_candidate *), rcvi_compare_estimates);
    while (own < m->count && !m->order[own]->rungs.vendor) own++;
    for (size_t to = 1; own > 1 && own < m->count; own++, to++) {
        rcvi_candidate *vendor = m->order[own];
        memmove(&m->order[to + 1], &m->order[to], (own - to) * sizeof(rcvi_candidate *));
        m->order[to] = vendor;
    }
}

static rcv_status measure(measurement *m, rcvi_candidate *candidates, size_t count, bool exhaustive) {
    m->order = rcvi_new(m->bench.context, count, sizeof(rcvi_candidate *));
    if (!m->order) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (candidates[i].remaining) m->order[m->count++] = &candidates[i];
    }
    sort_candidates(m);
    if (!exhaustive) m->deadline = rcvi_bench_now(&m->bench) + entry_seconds;
    for (size_t i = 0; i < m->count; i++) {
        bool is_modelled = !m->order[i]->rungs.vendor; /* a vendor's library is always timed; its time does not count */
        double begin = rcvi_bench_now(&m->bench);
        bool longer = m->best > 0 && m->order[i]->shown.estimate > too_long;
        if (!exhaustive && is_modelled && (is_past_deadline(m) || longer || is_variant_of_slow_plan(m, m->order[i])))
            drop(m, m->order[i]);
        else
            RCVI_TRY(first_sample(m, m->order[i]));
        bool compiles =
            m->order[i]->rungs.persistent; /* its kernels are compiled for this shape: that time does not count */
        if (m->deadline > 0 && (!is_modelled || compiles)) m->deadline += rcvi_bench_now(&m->bench) - begin;
    }
    bool is_out_of_time = is_past_deadline(m);
    if (is_out_of_time) m->deadline = rcvi_bench_now(&m->bench) + last_seconds;
    RCVI_TRY(run_rounds(m, exhaustive ? EXHAUSTIVE_ROUNDS : ROUNDS,
                        exhaustive       ? INFINITY
                        : is_out_of_time ? near_factor
                                         : drop_factor));
    restore_timed(m);
    return RCV_OK;
}

rcv_status rcvi_measure_candidates_gpu(const rcvi_problem *problem, rcvi_candidate *candidates, size_t count,
                                       rcvi_pool *pool) {
    measurement m = {0};
    rcv_status status = rcvi_bench_begin(&m.bench, problem, pool);
    if (!status) status = measure(&m, candidates, count, problem->options->effort == RCV_EXHAUSTIVE);
    if (!status) status = rcvi_ask_to_go_on(problem->options, m.bench.runs);
    for (size_t i = 0; i < count; i++) rcvi_trial_close(&m.bench, &candidates[i]);
    rcvi_bench_end(&m.bench);
    rcvi_free(m.bench.context, m.order);
    return status;
}

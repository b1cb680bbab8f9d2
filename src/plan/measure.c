/* Times candidates on the CPU by successive halving: every remaining candidate is timed once, the slower half is dropped, and the others
 * are timed more often. A round samples all candidates before one is sampled again, so that a slow moment of the machine does not fall on
 * one candidate only. A trial may have fewer steps and layers than the problem; its seconds are scaled as the cost model scales.
 * Candidates that differ in their chunks of time only are a family: a representative of it, cheap to time and with a good estimate, is
 * timed first, and the other members only where it was not much slower than the best. */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

/* Limits of a search, in seconds. The whole of planning takes more. */
static const double longest_search = 1.1, shortest_search = 2.5e-3;
static const double runs_budget = 25;         /* times the best run, between these two */
static const double cheap_run = 1e-3;         /* seconds; a representative that is this short is always timed */
static const double longest_trial = 0.04;     /* seconds; trials of longer runs are shortened */
static const double deep_run = 0.2;           /* seconds; trials of longer runs have fewer layers */
static const double interruption = 0.02;      /* seconds that other work on the machine may add to a run */
static const double drop_factor = 1.5;        /* times the fastest: dropped */
static const double abandon_factor = 3;       /* times the fastest: dropped after one run */
static const double family_drop_factor = 1.2; /* times the fastest: other members of the family are skipped */
static const double near_factor = 1.05;       /* times the best estimate: counts as equally good */
static const double member_share = 0.6;       /* of the search time: for first samples of other members */
static const double vendor_slack = 4;         /* times its estimate that a vendor's library may take */
static const double first_touch = 1e9;        /* bytes a second at which new memory is touched */
enum { EXHAUSTIVE_ROUNDS = 5, FEWEST_STEPS = 4 };

typedef struct {
    rcvi_bench bench;
    rcv_net *shallow; /* network of the trials, where it has fewer layers than the one to plan for; else NULL */
    int64_t layers;   /* of the network to plan for */
    bool exhaustive;
    int timed; /* candidates so far */
    double begin, deadline;
    double member_deadline; /* for first samples of members other than representatives */
    double scale;           /* measured seconds per estimated second; 0: unknown */
    double trial;           /* seconds that a trial may take before it is shortened */
    double best;            /* shown.seconds of the fastest so far; 0: none */
    rcvi_candidate **order; /* [count] the remaining candidates, by estimate and then by time */
    size_t count;
} measurement;

/* Seconds that a run with this estimate is expected to take. */
static double expected_seconds(const measurement *m, double estimate) {
    return estimate * (m->scale > 0 ? m->scale : 1);
}
static bool is_past_deadline(const measurement *m, double cost) {
    return !m->exhaustive && rcvi_bench_now(&m->bench) + cost > m->deadline;
}

/* ---- shortening ---- */

/* The fewest steps of a trial that still shows how a plan performs: two chunks, three times the layers of a wavefront. */
static int64_t fewest_steps(const rcvi_problem *p, const rcvi_rungs *g) {
    int64_t fewest = FEWEST_STEPS, steps = p->options->steps;
    if (g->combine && g->steps > 1 && 2 * g->steps > fewest) fewest = 2 * g->steps;
    if (g->recompute && 2 * g->recompute > fewest) fewest = 2 * g->recompute;
    if (g->wavefront && 3 * p->net->options.layers > fewest) fewest = 3 * p->net->options.layers;
    return fewest < steps ? fewest : steps;
}

/* Makes a trial of about this many seconds, or of the fewest steps. */
static rcv_status shorten(measurement *m, rcvi_candidate *c, double seconds) {
    const rcvi_problem *p = &m->bench.problem;
    int64_t steps = p->options->steps, fewest = fewest_steps(p, &c->rungs), own = steps;
    double expected = expected_seconds(m, c->shown.estimate);
    if (m->shallow) expected *= (double)m->shallow->options.layers / (double)m->layers;
    if (!m->exhaustive && expected > seconds) {
        own = (int64_t)((double)steps * seconds / expected);
        if (own < fewest) own = fewest;
        if (2 * own > steps) own = steps;
    }
    return rcvi_trial_make(&m->bench, c, own);
}

/* Is there memory and time for the candidate's trial, including a warm-up run? */
static bool is_affordable(const measurement *m, rcvi_candidate *c, double deadline) {
    double fresh = 0, seconds = expected_seconds(m, c->estimate) * (m->bench.problem.options->training ? 1 : 2);
    if (c->rungs.vendor) seconds *= vendor_slack;
    return rcvi_trial_fits(&m->bench, c, &fresh) &&
           (m->exhaustive || rcvi_bench_now(&m->bench) + seconds + fresh / first_touch <= deadline);
}

/* Layers are alike. Where a run is long, trials have two layers, or as many as there are threads. */
static rcv_status use_fewer_layers(measurement *m) {
    rcvi_problem *p = &m->bench.problem;
    int64_t layers = p->machine.threads > 2 ? p->machine.threads : 2;
    if (m->exhaustive || m->order[0]->shown.estimate < deep_run || 2 * layers > m->layers) return RCV_OK;
    rcv_net_options options = p->net->options;
    options.layers = layers;
    RCVI_TRY(rcv_net_new(p->net->cell, &options, &m->shallow));
    p->net = m->shallow;
    return RCV_OK;
}

/* ---- order ---- */

int rcvi_compare_estimates(const void *a, const void *b) {
    const rcvi_candidate *x = *(rcvi_candidate *const *)a, *y = *(rcvi_candidate *const *)b;
    if (x->rungs.vendor != y->rungs.vendor) return x->rungs.vendor ? 1 : -1; /* its estimate is unreliable */
    if (x->shown.estimate != y->shown.estimate) return x->shown.estimate < y->shown.estimate ? -1 : 1;
    return x < y ? -1 : 1;
}

static int compare_seconds(const void *a, const void *b) {
    const rcvi_candidate *x = *(rcvi_candidate *const *)a, *y = *(rcvi_candidate *const *)b;
    if (x->shown.seconds != y->shown.seconds) return x->shown.seconds < y->shown.seconds ? -1 : 1;
    return x < y ? -1 : 1;
}

/* A candidate's rungs without the sizes of its chunks of time: equal for candidates of one family. */
static rcvi_rungs without_chunks(rcvi_rungs rungs) {
    rungs.steps = rungs.forward = 0;
    rungs.recompute = rungs.recompute > 0;
    return rungs;
}

static bool same_family(const rcvi_rungs *a, const rcvi_rungs *b) {
    const rcvi_rungs x = without_chunks(*a), y = without_chunks(*b);
    return rcvi_rungs_equal(&x, &y);
}

/* The representative of the family of `c`: of the members with an estimate near the family's best, the one with the shortest trial. */
static const rcvi_candidate *find_representative(const measurement *m, const rcvi_candidate *c) {
    const rcvi_problem *p = &m->bench.problem;
    const rcvi_candidate *found = NULL;
    double best = 0;
    for (size_t i = 0; i < m->count; i++) { /* sorted by estimate: the first is the best */
        const rcvi_candidate *other = m->order[i];
        if (!same_family(&c->rungs, &other->rungs)) continue;
        if (!found) best = other->shown.estimate;
        if (other->shown.estimate > near_factor * best) break;
        if (!found || fewest_steps(p, &other->rungs) < fewest_steps(p, &found->rungs)) found = other;
    }
    return found;
}

/* Puts representatives first, then the other members, both sorted by estimate. Sets the number of representatives. */
static rcv_status put_representatives_first(measurement *m, size_t *representatives) {
    rcvi_candidate **order = rcvi_new(m->bench.context, m->count, sizeof(rcvi_candidate *));
    if (!order) return RCV_NO_MEMORY;
    size_t placed = 0;
    for (int others = 0; others < 2; others++) {
        for (size_t i = 0; i < m->count; i++) {
            if ((find_representative(m, m->order[i]) != m->order[i]) == others) order[placed++] = m->order[i];
        }
        if (!others) *representatives = placed;
    }
    memcpy(m->order, order, m->count * sizeof(rcvi_candidate *));
    rcvi_free(m->bench.context, order);
    return RCV_OK;
}

/* Was a member of the same family timed, and much slower than the best? */
static bool is_family_slow(const measurement *m, size_t place) {
    for (size_t i = 0; i < place; i++) {
        const rcvi_candidate *other = m->order[i];
        if (other->shown.seconds > family_drop_factor * m->best && same_family(&other->rungs, &m->order[place]->rungs))
            return true;
    }
    return false;
}

/* ---- rounds ---- */

/* A slow sample may be due to other work on the machine: the scale grows by at most 1.2 at a time. */
static void update_scale(measurement *m, double scale) {
    if (m->scale > 0 && scale > 1.2 * m->scale) scale = 1.2 * m->scale;
    m->scale = scale;
}

/* Sets the end of the search, and the end of first samples of other members. */
static void set_deadline(measurement *m, double deadline) {
    double now = rcvi_bench_now(&m->bench);
    m->deadline = deadline;
    m->member_deadline = now + member_share * (deadline - now);
}

/* Seconds spent on an abandoned candidate do not count, as far as the longest search allows. */
static void extend_deadline(measurement *m, double seconds) {
    double latest = m->begin + longest_search, more = m->deadline + seconds;
    if (m->deadline < latest) set_deadline(m, more < latest ? more : latest);
}

static rcv_status first_sample(measurement *m, rcvi_candidate *c, bool is_representative) {
    RCVI_TRY(shorten(m, c, m->trial));
    double fresh = 0;
    /* At least one is timed, however late; and a second where it is short, since one time alone decides nothing. */
    bool wanted = m->timed == 0 || (m->timed == 1 && expected_seconds(m, c->estimate) < interruption);
    bool fits = rcvi_trial_fits(&m->bench, c, &fresh);
    c->remaining = fits && (wanted || is_affordable(m, c, is_representative ? m->deadline : m->member_deadline) ||
                            (is_representative && expected_seconds(m, c->estimate) < cheap_run));
    if (!c->remaining) return RCV_OK;
    double enough = m->best > 0 && !m->exhaustive ? abandon_factor * m->best : 1e300, start = rcvi_bench_now(&m->bench);
    RCVI_TRY(rcvi_trial_sample(&m->bench, c, enough));
    if (!c->sample_count) return RCV_OK;
    m->timed++;
    bool slow = m->best > 0 && c->shown.seconds > drop_factor * m->best && !m->exhaustive;
    bool doubtful = c->shown.seconds < enough || c->samples[0] < interruption; /* other work may have slowed it down */
    if (slow && doubtful && !is_past_deadline(m, c->samples[0])) RCVI_TRY(rcvi_trial_sample(&m->bench, c, enough));
    if (c->shown.seconds > enough) extend_deadline(m, rcvi_bench_now(&m->bench) - start);
    update_scale(m, c->shown.seconds / c->shown.estimate);
    if (m->best == 0 || c->shown.seconds < m->best) m->best = c->shown.seconds;
    c->remaining = m->exhaustive || c->shown.seconds <= drop_factor * m->best;
    if (!c->remaining) rcvi_trial_close(&m->bench, c);
    return RCV_OK;
}

/* The first candidate was timed without a comparison: if it was slow, it is timed once more, since other work may have slowed it down. */
static rcv_status repeat_first(measurement *m) {
    rcvi_candidate *c = m->order[0];
    bool slow = c->sample_count == 1 && c->shown.seconds > drop_factor * m->best;
    if (!slow || is_past_deadline(m, c->samples[0])) return RCV_OK;
    RCVI_TRY(rcvi_trial_sample(&m->bench, c, 1e300));
    if (c->shown.seconds < m->best) m->best = c->shown.seconds;
    return RCV_OK;
}

/* Removes candidates that were not timed or were dropped. */
static void remove_untimed(measurement *m) {
    size_t left = 0;
    for (size_t i = 0; i < m->count; i++) {
        rcvi_candidate *c = m->order[i];
        c->remaining = c->remaining && c->sample_count > 0;
        if (c->remaining) m->order[left++] = c;
    }
    m->count = left;
}

/* Samples every candidate once, representatives first. Candidates that would end after the deadline, or need more memory than there is,
 * are dropped. Members of slow families are sampled last, if half of the time is left. The rest of the time is for further samples of the
 * fastest: with one sample each, other work on the machine would decide. */
static rcv_status first_round(measurement *m, size_t representatives) {
    double half = (rcvi_bench_now(&m->bench) + m->deadline) / 2;
    for (size_t i = 0; i < m->count; i++) {
        if (i < representatives || !is_family_slow(m, i)) RCVI_TRY(first_sample(m, m->order[i], i < representatives));
        if (i + 1 == representatives) RCVI_TRY(repeat_first(m));
    }
    for (size_t i = representatives; i < m->count; i++) {
        rcvi_candidate *c = m->order[i];
        if (c->remaining && c->sample_count == 0 && rcvi_bench_now(&m->bench) < half)
            RCVI_TRY(first_sample(m, c, false));
    }
    remove_untimed(m);
    return RCV_OK;
}

static rcv_status measure_exhaustively(measurement *m) {
    m->bench.sample = 1e-3;
    for (int n = 0; n < EXHAUSTIVE_ROUNDS; n++) {
        for (size_t i = 0; i < m->count; i++) {
            rcvi_candidate *c = m->order[i];
            RCVI_TRY(n == 0 ? first_sample(m, c, false) : rcvi_trial_sample(&m->bench, c, 1e300));
            rcvi_log(m->bench.context, "planning: round %d of %d, %zu of %zu: %s takes %.3g s", n + 1,
                     EXHAUSTIVE_ROUNDS, i + 1, m->count, c->shown.schedule, c->shown.seconds);
        }
        remove_untimed(m);
    }
    return RCV_OK;
}

static rcv_status sample_all(measurement *m, int samples) {
    for (int n = 0; n < samples; n++) {
        for (size_t i = 0; i < m->count; i++) {
            if (is_past_deadline(m, m->order[i]->samples[0])) return RCV_OK;
            RCVI_TRY(rcvi_trial_sample(&m->bench, m->order[i], 1e300));
        }
    }
    return RCV_OK;
}

/* Keeps at least three. */
static void keep_faster_half(measurement *m) {
    qsort(m->order, m->count, sizeof(rcvi_candidate *), compare_seconds);
    size_t kept = m->count > 3 ? (m->count + 1) / 2 : m->count;
    for (size_t i = kept; i < m->count; i++) {
        m->order[i]->remaining = false;
        rcvi_trial_close(&m->bench, m->order[i]);
    }
    m->count = kept;
}

static rcv_status run_rounds(measurement *m, size_t representatives) {
    RCVI_TRY(first_round(m, representatives));
    for (int samples = 2; samples <= 4 && m->count > 1 && !is_past_deadline(m, 0); samples += samples) {
        keep_faster_half(m);
        RCVI_TRY(sample_all(m, samples));
    }
    return RCV_OK;
}

/* ---- time limits ---- */

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

/* Sets the deadline, and the seconds of trials and samples, from the expected time of the best candidate. */
static void set_times(measurement *m) {
    double best = expected_seconds(m, m->order[0]->shown.estimate), now = rcvi_bench_now(&m->bench);
    double budget = clamp(runs_budget * best, shortest_search, longest_search);
    double left = m->begin + budget - now;
    if (left < shortest_search / 2) left = shortest_search / 2;
    set_deadline(m, now + left);
    m->trial = clamp(left / (4 * (double)m->count), 1e-4, longest_trial);
    m->bench.sample = left / (6 * (double)m->count);
}

/* Where the whole problem takes too long, a trial of few steps gives the ratio of measured to estimated seconds. */
static rcv_status calibrate(measurement *m) {
    rcvi_candidate *c = m->order[0];
    double seconds = 0, least = 0;
    if (c->shown.estimate < m->trial) return RCV_OK;
    RCVI_TRY(shorten(m, c, 0));
    if (!is_affordable(m, c, m->deadline)) return RCV_OK;
    for (int i = 0; i < 2 && seconds < longest_trial; i++) { /* the first run may start threads */
        RCVI_TRY(rcvi_trial_run(&m->bench, c, &seconds));
        if (i == 0 || seconds < least) least = seconds;
    }
    m->scale = least / c->estimate;
    return RCV_OK;
}

static rcv_status measure(measurement *m, rcvi_candidate *candidates, size_t count) {
    size_t representatives = 0;
    m->order = rcvi_new(m->bench.context, count, sizeof(rcvi_candidate *));
    if (!m->order) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (candidates[i].remaining) m->order[m->count++] = &candidates[i];
    }
    if (m->count == 0) return RCV_OK;
    qsort(m->order, m->count, sizeof(rcvi_candidate *), rcvi_compare_estimates);
    if (m->exhaustive) return measure_exhaustively(m);
    set_times(m);
    RCVI_TRY(use_fewer_layers(m));
    RCVI_TRY(put_representatives_first(m, &representatives));
    RCVI_TRY(calibrate(m));
    set_times(m);
    return run_rounds(m, representatives);
}

/* Frees the shallow network and the trials' plans, which refer to it. */
static void free_shallow_plans(rcvi_candidate *candidates, size_t count, rcv_net *net) {
    for (size_t i = 0; i < count; i++) {
        if (!candidates[i].plan || candidates[i].plan->net != net) continue;
        rcv_plan_free(candidates[i].plan);
        candidates[i].plan = NULL;
    }
    rcv_net_free(net);
}

rcv_status rcvi_measure_candidates(const rcvi_problem *problem, rcvi_candidate *candidates, size_t count, double begin,
                                   rcvi_pool *pool) {
    if (problem->machine.gpu) return rcvi_measure_candidates_gpu(problem, candidates, count, pool);
    measurement m = {.begin = begin,
                     .layers = problem->net->options.layers,
                     .exhaustive = problem->options->effort == RCV_EXHAUSTIVE};
    rcv_status status = rcvi_bench_begin(&m.bench, problem, pool);
    if (!status) status = measure(&m, candidates, count);
    if (!status) status = rcvi_ask_to_go_on(problem->options, m.bench.runs);
    for (size_t i = 0; i < count; i++) rcvi_trial_close(&m.bench, &candidates[i]);
    rcvi_bench_end(&m.bench);
    rcvi_free(m.bench.context, m.order);
    if (m.shallow) free_shallow_plans(candidates, count, m.shallow);
    return status;
}

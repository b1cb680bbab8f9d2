/* The race on a GPU. There candidates are few and runs short, but the first runs of each are slow (kernels are loaded,
 * graphs captured), and a call that is waited for costs more than its work: so a sample is several calls that are waited for
 * once, and every candidate runs the whole problem. Samples are taken in turns; who is well behind leaves. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double longest = 0.25;  /* seconds in which candidates may enter, but for an exhaustive search */
static const double final = 0.1;     /* seconds for those that are close, where that time is over */
static const double sample = 1.5e-3; /* seconds that a sample should take */
static const double hopeless = 3;    /* times the fastest: out after one call */
static const double beaten = 1.25;   /* times the fastest: out after a round */
static const double near = 1.1;      /* times the fastest: worth another choice of products */
static const double too_long = 0.1;  /* seconds of the model: not tried where others are faster */
static const double slow = 0.02;     /* seconds of the model: one call is enough to warm up */
enum { MOST_CALLS = 16, ROUNDS = 4, EXHAUSTIVE_ROUNDS = 8 };

typedef struct {
    rcvi_bench bench;
    rcvi_candidate **by;
    size_t count;
    double best;     /* shown.seconds of the fastest */
    double deadline; /* 0: none */
} race;

static bool late(const race *r) { return r->deadline > 0 && r->best > 0 && rcvi_now() > r->deadline; }

static void leave(race *r, rcvi_candidate *c) {
    c->racing = false;
    rcvi_trial_close(&r->bench, c);
}

/* One more sample of so many calls; shown.seconds is the least of all. */
static rcv_status take_sample(race *r, rcvi_candidate *c, int calls) {
    double seconds = 0;
    RCVI_TRY(rcvi_trial_repeat(&r->bench, c, calls, &seconds));
    if (!c->run) return RCV_OK;
    seconds /= calls;
    if (c->sample_count == 0 || seconds < c->shown.seconds) c->shown.seconds = seconds;
    if (c->sample_count < RCVI_MAX_SAMPLES) c->samples[c->sample_count++] = seconds;
    if (r->best == 0 || c->shown.seconds < r->best) r->best = c->shown.seconds;
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

/* Is this another choice of products for a plan that is well behind? */
static bool is_pointless(const race *r, const rcvi_candidate *c) {
    for (size_t i = 0; c->rungs.choice && i < r->count; i++) {
        const rcvi_candidate *other = r->by[i];
        bool behind = other->sample_count > 0 && other->shown.seconds > near * r->best;
        if (behind && differ_in_choice(c->rungs, other->rungs)) return true;
    }
    return false;
}

/* The first calls load kernels and capture graphs; in inference one for parameters that are new and one for those that are
 * not. */
static rcv_status warm_up(race *r, rcvi_candidate *c) {
    double seconds = 0;
    RCVI_TRY(rcvi_trial_repeat(&r->bench, c, 1, &seconds));
    bool warm = r->bench.problem.options->training && c->shown.estimate > slow;
    return !c->run || warm ? RCV_OK : rcvi_trial_repeat(&r->bench, c, 1, &seconds);
}

static rcv_status first_sample(race *r, rcvi_candidate *c) {
    double fresh = 0;
    RCVI_TRY(rcvi_trial_make(&r->bench, c, r->bench.problem.options->steps));
    if (!rcvi_trial_fits(&r->bench, c, &fresh)) {
        leave(r, c);
        return RCV_OK;
    }
    RCVI_TRY(warm_up(r, c));
    if (c->run) RCVI_TRY(take_sample(r, c, 1));
    if (c->run && calls_of(c) > 1 && c->shown.seconds <= hopeless * r->best) RCVI_TRY(take_sample(r, c, calls_of(c)));
    if (c->sample_count > 0)
        rcvi_log(r->bench.context, "planning: first: %s takes %.3g s", c->shown.schedule, c->shown.seconds);
    if (!c->run || c->shown.seconds > hopeless * r->best) leave(r, c);
    return RCV_OK;
}

/* Those who take at most `limit` times as long as the fastest. */
static size_t count_close(const race *r, double limit) {
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) count += r->by[i]->racing && r->by[i]->shown.seconds <= limit * r->best;
    return count;
}

/* The others leave; where one is left there is nothing to decide. */
static rcv_status take_rounds(race *r, int rounds, double limit) {
    for (int n = 0; n < rounds && count_close(r, limit) > 1; n++) {
        for (size_t i = 0; i < r->count; i++) {
            rcvi_candidate *c = r->by[i];
            if (!c->racing) continue;
            if (c->shown.seconds > limit * r->best) {
                leave(r, c);
                continue;
            }
            if (late(r)) return RCV_OK;
            RCVI_TRY(take_sample(r, c, calls_of(c)));
            rcvi_log(r->bench.context, "planning: round %d of %d: %s takes %.3g s", n + 1, rounds, c->shown.schedule,
                     c->shown.seconds);
        }
    }
    return RCV_OK;
}

/* Where the fastest fails when the others have left, they are what is left to choose from. */
static void bring_back(race *r) {
    for (size_t i = 0; i < r->count; i++) {
        if (r->by[i]->racing) return;
    }
    for (size_t i = 0; i < r->count; i++) r->by[i]->racing = r->by[i]->sample_count > 0 && !r->by[i]->shown.status;
}

/* By estimate; behind the first those of which the model knows little: what comes after them has their times to beat. */
static void sort(race *r) {
    size_t own = 0;
    qsort(r->by, r->count, sizeof(rcvi_candidate *), rcvi_compare_estimates);
    while (own < r->count && !r->by[own]->rungs.vendor) own++;
    for (size_t to = 1; own > 1 && own < r->count; own++, to++) {
        rcvi_candidate *vendor = r->by[own];
        memmove(&r->by[to + 1], &r->by[to], (own - to) * sizeof(rcvi_candidate *));
        r->by[to] = vendor;
    }
}

static rcv_status run_race(race *r, rcvi_candidate *contenders, size_t count, bool exhaustive) {
    r->by = rcvi_new(r->bench.context, count, sizeof(rcvi_candidate *));
    if (!r->by) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (contenders[i].racing) r->by[r->count++] = &contenders[i];
    }
    sort(r);
    if (!exhaustive) r->deadline = rcvi_now() + longest;
    for (size_t i = 0; i < r->count; i++) {
        bool known = !r->by[i]->rungs.vendor; /* a library always has its turn, in time of its own */
        double begin = rcvi_now();
        bool longer = r->best > 0 && r->by[i]->shown.estimate > too_long;
        if (!exhaustive && known && (late(r) || longer || is_pointless(r, r->by[i])))
            leave(r, r->by[i]);
        else
            RCVI_TRY(first_sample(r, r->by[i]));
        bool compiles = r->by[i]->rungs.persistent; /* its kernels serve this shape alone */
        if (r->deadline > 0 && (!known || compiles)) r->deadline += rcvi_now() - begin;
    }
    bool hurried = late(r);
    if (hurried) r->deadline = rcvi_now() + final;
    RCVI_TRY(take_rounds(r, exhaustive ? EXHAUSTIVE_ROUNDS : ROUNDS, exhaustive ? INFINITY : hurried ? near : beaten));
    bring_back(r);
    return RCV_OK;
}

rcv_status rcvi_measure_candidates_gpu(const rcvi_problem *problem, rcvi_candidate *contenders, size_t count,
                                       rcvi_pool *pool) {
    race r = {0};
    rcvi_bench_begin(&r.bench, problem, pool);
    rcv_status status = run_race(&r, contenders, count, problem->options->effort == RCV_EXHAUSTIVE);
    if (!status) status = rcvi_ask_to_go_on(problem->options, r.bench.runs);
    for (size_t i = 0; i < count; i++) rcvi_trial_close(&r.bench, &contenders[i]);
    rcvi_bench_end(&r.bench);
    rcvi_free(r.bench.context, r.by);
    return status;
}

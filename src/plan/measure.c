/* Successive halving: every candidate that races is timed once, the slower half leaves, the rest is timed more often.
 * Rounds go through all candidates before one is timed again, so that a slow moment of the machine is not one
 * candidate's bad luck. A trial may have fewer steps and layers than the problem; its seconds are scaled as the model
 * scales. Candidates that differ in their chunks of time alone are a family: its cheapest good member is timed first,
 * and the others only where it was not beaten. */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

static const double longest_search = 1.1, shortest_search = 2.5e-3; /* seconds; the whole of planning takes more */
static const double runs_worth = 25;                                /* times the best run, between these two */
static const double cheap = 1e-3;                                   /* seconds that an elder is always worth */
static const double longest_trial = 0.04;                           /* seconds of a run that is shortened */
static const double many_layers = 0.2;                              /* seconds of a run whose layers are left out */
static const double beaten = 1.5;                                   /* times the fastest: out */
static const double hopeless = 3;                                   /* times the fastest: out after one run */
static const double family_beaten = 1.2;                            /* times the fastest: so are its siblings */
static const double near = 1.05;                                    /* times the best estimate: as good */
static const double interruption = 0.02;                            /* seconds that other work may add to a run */
static const double first_share = 0.6;                              /* of the time: for samples of siblings */
static const double vendor_doubt = 4;                               /* times its estimate: it may take so long */
static const double touching = 1e9;                                 /* bytes a second of new memory */
enum { EXHAUSTIVE_ROUNDS = 5, FEWEST_STEPS = 4 };

typedef struct {
    rcvi_bench bench;
    rcv_net *fewer; /* the trials' network, where that has fewer layers than the one to plan for */
    int64_t layers; /* of the network to plan for */
    bool exhaustive;
    int timed; /* contenders so far */
    double begin, deadline;
    double siblings;     /* when those that are no elders have no more first samples */
    double scale;        /* seconds that a second of the model takes; 0: not known */
    double trial;        /* seconds that a trial may take before it is shortened */
    double best;         /* shown.seconds of the fastest so far; 0: none */
    rcvi_candidate **by; /* those that race, by estimate and then by time */
    size_t count;
} race;

/* Seconds that the model's seconds will take. */
static double expect(const race *r, double estimate) { return estimate * (r->scale > 0 ? r->scale : 1); }
static bool late(const race *r, double cost) { return !r->exhaustive && rcvi_now() + cost > r->deadline; }

/* ---- shortening ---- */

/* Steps below which a plan does not show what it is: two of its chunks, a few times its layers. */
static int64_t fewest_steps(const rcvi_problem *p, const rcvi_rungs *g) {
    int64_t fewest = FEWEST_STEPS, steps = p->options->steps;
    if (g->combine && g->steps > 1 && 2 * g->steps > fewest) fewest = 2 * g->steps;
    if (g->recompute && 2 * g->recompute > fewest) fewest = 2 * g->recompute;
    if (g->wavefront && 3 * p->net->options.layers > fewest) fewest = 3 * p->net->options.layers;
    return fewest < steps ? fewest : steps;
}

/* Gives the contender a trial of about this many seconds, or of the fewest steps. */
static rcv_status shorten(race *r, rcvi_candidate *c, double seconds) {
    const rcvi_problem *p = &r->bench.problem;
    int64_t steps = p->options->steps, fewest = fewest_steps(p, &c->rungs), own = steps;
    double expected = expect(r, c->shown.estimate);
    if (r->fewer) expected *= (double)r->fewer->options.layers / (double)r->layers;
    if (!r->exhaustive && expected > seconds) {
        own = (int64_t)((double)steps * seconds / expected);
        if (own < fewest) own = fewest;
        if (2 * own > steps) own = steps;
    }
    return rcvi_trial_make(&r->bench, c, own);
}

/* Whether there is memory and time for the contender's trial, with the run that warms it up. */
static bool affordable(const race *r, const rcvi_candidate *c, double deadline) {
    double fresh = 0, seconds = expect(r, c->estimate) * (r->bench.problem.options->training ? 1 : 2);
    if (c->rungs.vendor) seconds *= vendor_doubt;
    return rcvi_trial_fits(&r->bench, c, &fresh) &&
           (r->exhaustive || rcvi_now() + seconds + fresh / touching <= deadline);
}

/* Layers are alike: where a run is long, trials have two, or as many as threads can take at once. */
static rcv_status leave_layers_out(race *r) {
    rcvi_problem *p = &r->bench.problem;
    int64_t layers = p->machine.threads > 2 ? p->machine.threads : 2;
    if (r->exhaustive || r->by[0]->shown.estimate < many_layers || 2 * layers > r->layers) return RCV_OK;
    rcv_net_options options = p->net->options;
    options.layers = layers;
    RCVI_TRY(rcv_net_new(p->net->cell, &options, &r->fewer));
    r->fewer->certain = p->net->certain;
    p->net = r->fewer;
    return RCV_OK;
}

/* ---- order ---- */

int rcvi_compare_estimates(const void *a, const void *b) {
    const rcvi_candidate *x = *(rcvi_candidate *const *)a, *y = *(rcvi_candidate *const *)b;
    if (x->rungs.vendor != y->rungs.vendor) return x->rungs.vendor ? 1 : -1; /* the model knows little of it */
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

/* Who goes first for the family of `c`: of those that are estimated near its best, the one with the shortest trial. */
static const rcvi_candidate *elder(const race *r, const rcvi_candidate *c) {
    const rcvi_problem *p = &r->bench.problem;
    const rcvi_candidate *found = NULL;
    double best = 0;
    for (size_t i = 0; i < r->count; i++) { /* by estimate: the first is the best */
        const rcvi_candidate *other = r->by[i];
        if (!same_family(&c->rungs, &other->rungs)) continue;
        if (!found) best = other->shown.estimate;
        if (other->shown.estimate > near * best) break;
        if (!found || fewest_steps(p, &other->rungs) < fewest_steps(p, &found->rungs)) found = other;
    }
    return found;
}

/* Elders first, then the others, each part by estimate; answers how many elders there are. */
static rcv_status put_elders_first(race *r, size_t *elders) {
    rcvi_candidate **order = rcvi_new(r->bench.context, r->count, sizeof(rcvi_candidate *));
    if (!order) return RCV_NO_MEMORY;
    size_t placed = 0;
    for (int others = 0; others < 2; others++) {
        for (size_t i = 0; i < r->count; i++) {
            if ((elder(r, r->by[i]) != r->by[i]) == others) order[placed++] = r->by[i];
        }
        if (!others) *elders = placed;
    }
    memcpy(r->by, order, r->count * sizeof(rcvi_candidate *));
    rcvi_free(r->bench.context, order);
    return RCV_OK;
}

/* Whether a sibling that was timed is well behind the best. */
static bool family_is_beaten(const race *r, size_t place) {
    for (size_t i = 0; i < place; i++) {
        const rcvi_candidate *other = r->by[i];
        if (other->shown.seconds > family_beaten * r->best && same_family(&other->rungs, &r->by[place]->rungs))
            return true;
    }
    return false;
}

/* ---- rounds ---- */

/* A sample that took long tells of other work on the machine as much as of this one's. */
static void learn_scale(race *r, double scale) {
    if (r->scale > 0 && scale > 1.2 * r->scale) scale = 1.2 * r->scale;
    r->scale = scale;
}

/* Sets when the race ends, and when siblings may not begin any more. */
static void set_deadline(race *r, double deadline) {
    double now = rcvi_now();
    r->deadline = deadline;
    r->siblings = now + first_share * (deadline - now);
}

/* The others do not pay for the seconds of one that is hopeless, so far as the longest search allows. */
static void give_back(race *r, double seconds) {
    double latest = r->begin + longest_search, more = r->deadline + seconds;
    if (r->deadline < latest) set_deadline(r, more < latest ? more : latest);
}

static rcv_status first_sample(race *r, rcvi_candidate *c, bool is_elder) {
    RCVI_TRY(shorten(r, c, r->trial));
    double fresh = 0;
    /* One must be timed, however late; and a second, since one time alone says nothing, where it is short. */
    bool wanted = r->timed == 0 || (r->timed == 1 && expect(r, c->estimate) < interruption);
    bool first = wanted && rcvi_trial_fits(&r->bench, c, &fresh);
    c->racing =
        first || affordable(r, c, is_elder ? r->deadline : r->siblings) || (is_elder && expect(r, c->estimate) < cheap);
    if (!c->racing) return RCV_OK;
    double enough = r->best > 0 && !r->exhaustive ? hopeless * r->best : 1e300, start = rcvi_now();
    RCVI_TRY(rcvi_trial_sample(&r->bench, c, enough));
    if (!c->sample_count) return RCV_OK;
    r->timed++;
    bool slow = r->best > 0 && c->shown.seconds > beaten * r->best && !r->exhaustive;
    bool doubtful = c->shown.seconds < enough || c->samples[0] < interruption; /* it may have been the machine */
    if (slow && doubtful && !late(r, c->samples[0])) RCVI_TRY(rcvi_trial_sample(&r->bench, c, enough));
    if (c->shown.seconds > enough) give_back(r, rcvi_now() - start);
    learn_scale(r, c->shown.seconds / c->shown.estimate);
    if (r->best == 0 || c->shown.seconds < r->best) r->best = c->shown.seconds;
    c->racing = r->exhaustive || c->shown.seconds <= beaten * r->best;
    if (!c->racing) rcvi_trial_close(&r->bench, c);
    return RCV_OK;
}

/* When the best by estimate was timed there was nothing to tell that the machine was at other work. */
static rcv_status doubt_first(race *r) {
    rcvi_candidate *c = r->by[0];
    bool slow = c->sample_count == 1 && c->shown.seconds > beaten * r->best;
    if (!slow || late(r, c->samples[0])) return RCV_OK;
    RCVI_TRY(rcvi_trial_sample(&r->bench, c, 1e300));
    if (c->shown.seconds < r->best) r->best = c->shown.seconds;
    return RCV_OK;
}

/* Takes everybody out who was not timed or was beaten. */
static void sift(race *r) {
    size_t left = 0;
    for (size_t i = 0; i < r->count; i++) {
        rcvi_candidate *c = r->by[i];
        c->racing = c->racing && c->sample_count > 0;
        if (c->racing) r->by[left++] = c;
    }
    r->count = left;
}

/* Everybody once, elders first. Who comes too late, or needs more memory than there is, leaves. Beaten families have
 * their turn where half of the time is left. What remains is for further samples of the best: one sample each would
 * let the machine's other work decide. */
static rcv_status first_round(race *r, size_t elders) {
    double half = (rcvi_now() + r->deadline) / 2;
    for (size_t i = 0; i < r->count; i++) {
        if (i < elders || !family_is_beaten(r, i)) RCVI_TRY(first_sample(r, r->by[i], i < elders));
        if (i + 1 == elders) RCVI_TRY(doubt_first(r));
    }
    for (size_t i = elders; i < r->count; i++) {
        rcvi_candidate *c = r->by[i];
        if (c->racing && c->sample_count == 0 && rcvi_now() < half) RCVI_TRY(first_sample(r, c, false));
    }
    sift(r);
    return RCV_OK;
}

static rcv_status time_all(race *r) {
    r->bench.sample = 1e-3;
    for (int n = 0; n < EXHAUSTIVE_ROUNDS; n++) {
        for (size_t i = 0; i < r->count; i++) {
            rcvi_candidate *c = r->by[i];
            RCVI_TRY(n == 0 ? first_sample(r, c, false) : rcvi_trial_sample(&r->bench, c, 1e300));
            rcvi_log(r->bench.context, "planning: round %d of %d, %zu of %zu: %s takes %.3g s", n + 1,
                     EXHAUSTIVE_ROUNDS, i + 1, r->count, c->shown.schedule, c->shown.seconds);
        }
        sift(r);
    }
    return RCV_OK;
}

static rcv_status round_of(race *r, int samples) {
    for (int n = 0; n < samples; n++) {
        for (size_t i = 0; i < r->count; i++) {
            if (late(r, r->by[i]->samples[0])) return RCV_OK;
            RCVI_TRY(rcvi_trial_sample(&r->bench, r->by[i], 1e300));
        }
    }
    return RCV_OK;
}

/* The faster half, but not fewer than three. */
static void halve(race *r) {
    qsort(r->by, r->count, sizeof(rcvi_candidate *), compare_seconds);
    size_t kept = r->count > 3 ? (r->count + 1) / 2 : r->count;
    for (size_t i = kept; i < r->count; i++) {
        r->by[i]->racing = false;
        rcvi_trial_close(&r->bench, r->by[i]);
    }
    r->count = kept;
}

static rcv_status run_race(race *r, size_t elders) {
    RCVI_TRY(first_round(r, elders));
    for (int samples = 2; samples <= 4 && r->count > 1 && !late(r, 0); samples += samples) {
        halve(r);
        RCVI_TRY(round_of(r, samples));
    }
    return RCV_OK;
}

/* ---- how long it may take ---- */

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

/* Sets the deadline, and the seconds of trials and samples, from what is known of the machine's speed. */
static void set_pace(race *r) {
    double best = expect(r, r->by[0]->shown.estimate), now = rcvi_now();
    double budget = clamp(runs_worth * best, shortest_search, longest_search);
    double left = r->begin + budget - now;
    if (left < shortest_search / 2) left = shortest_search / 2;
    set_deadline(r, now + left);
    r->trial = clamp(left / (4 * (double)r->count), 1e-4, longest_trial);
    r->bench.sample = left / (6 * (double)r->count);
}

/* Where the problem is too long to be timed whole, a trial of few steps says how far off the model is. */
static rcv_status calibrate(race *r) {
    rcvi_candidate *c = r->by[0];
    double seconds = 0, least = 0;
    if (c->shown.estimate < r->trial) return RCV_OK;
    RCVI_TRY(shorten(r, c, 0));
    if (!affordable(r, c, r->deadline)) return RCV_OK;
    for (int i = 0; i < 2 && seconds < longest_trial; i++) { /* the first one may wake threads */
        RCVI_TRY(rcvi_trial_run(&r->bench, c, &seconds));
        if (i == 0 || seconds < least) least = seconds;
    }
    r->scale = least / c->estimate;
    return RCV_OK;
}

static rcv_status begin_race(race *r, rcvi_candidate *contenders, size_t count) {
    size_t elders = 0;
    r->by = rcvi_new(r->bench.context, count, sizeof(rcvi_candidate *));
    if (!r->by) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (contenders[i].racing) r->by[r->count++] = &contenders[i];
    }
    if (r->count == 0) return RCV_OK;
    qsort(r->by, r->count, sizeof(rcvi_candidate *), rcvi_compare_estimates);
    if (r->exhaustive) return time_all(r);
    set_pace(r);
    RCVI_TRY(leave_layers_out(r));
    RCVI_TRY(put_elders_first(r, &elders));
    RCVI_TRY(calibrate(r));
    set_pace(r);
    return run_race(r, elders);
}

/* The plans of trials go with their network. */
static void forget(rcvi_candidate *contenders, size_t count, rcv_net *net) {
    for (size_t i = 0; i < count; i++) {
        if (!contenders[i].plan || contenders[i].plan->net != net) continue;
        rcv_plan_free(contenders[i].plan);
        contenders[i].plan = NULL;
    }
    rcv_net_free(net);
}

rcv_status rcvi_measure_candidates(const rcvi_problem *problem, rcvi_candidate *contenders, size_t count, double begin,
                                   rcvi_pool *pool) {
    if (problem->machine.gpu) return rcvi_measure_candidates_gpu(problem, contenders, count, pool);
    race r = {.begin = begin,
              .layers = problem->net->options.layers,
              .exhaustive = problem->options->effort == RCV_EXHAUSTIVE};
    rcvi_bench_begin(&r.bench, problem, pool);
    rcv_status status = begin_race(&r, contenders, count);
    if (!status) status = rcvi_ask_to_go_on(problem->options, r.bench.runs);
    for (size_t i = 0; i < count; i++) rcvi_trial_close(&r.bench, &contenders[i]);
    rcvi_bench_end(&r.bench);
    rcvi_free(r.bench.context, r.by);
    if (r.fewer) forget(contenders, count, r.fewer);
    return status;
}

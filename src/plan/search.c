/* The search for a plan: collects the candidates of all schedules, estimates each by the cost model, times the promising ones, and keeps
 * the fastest; or takes the plan from wisdom. Candidates keep the order in which they were offered. */
#include "plan/search.h"
#include "plan/cost.h"
#include "plan/wisdom.h"

#include <string.h>

static const double tie = 1.02;      /* faster by less than this is not faster: the one offered first wins */
static const double tie_gpu = 1.005; /* times on a GPU vary less */
static const double
    much_memory = 1.1,
    memory_gain =
        1.04; /* on a GPU: a plan with more than this times another's memory must be faster by the second factor */
/* Times the best estimate: not timed. Where a run is long, estimates are more reliable. */
static const double rule_out_factor = 2.5, rule_out_factor_long = 1.7, long_run = 0.02, rule_out_factor_gpu = 6;
static const double vendor_penalty =
    1e6;                     /* times the estimate of a vendor's library, which is unreliable: it is chosen last */
enum { KEPT_STEPS = 20000 }; /* of all programs that are kept for their trials */

typedef struct {
    const rcvi_problem *problem;
    double begin;
    rcvi_pool pool; /* texts and the candidates; moved to the plan */
    rcvi_candidate *candidates;
    size_t count, capacity;
    bool failed;       /* no memory for a candidate */
    bool limited;      /* a candidate was refused for its memory */
    bool compared;     /* at least two candidates were timed */
    size_t kept_steps; /* of the programs that are kept */
} search;

/* ---- candidates ---- */

static void offer(void *user, const rcvi_rungs *rungs) {
    search *s = user;
    if (rungs->threads > s->problem->machine.threads) return;
    rcvi_text text;
    rcvi_text_init(&text, s->pool.context);
    rcvi_rungs_print(rungs, &text);
    char *kept = text.failed ? NULL : rcvi_pool_text(&s->pool, text.bytes, text.length);
    rcvi_text_drop(&text);
    for (size_t i = 0; kept && i < s->count; i++) {
        if (!strcmp(s->candidates[i].shown.schedule, kept)) return;
    }
    if (!kept || !rcvi_grow(s->pool.context, &s->candidates, &s->capacity, s->count + 1, sizeof *s->candidates)) {
        s->failed = true;
        return;
    }
    s->candidates[s->count++] = (rcvi_candidate){.rungs = *rungs, .shown = {.schedule = kept}};
}

static rcv_status estimate_candidate(search *s, rcvi_candidate *c) {
    double begin = rcvi_now();
    bool is_timed = s->problem->options->effort != RCV_ESTIMATE;
    rcv_status status = (is_timed ? rcvi_plan_make : rcvi_plan_write)(s->problem, &c->rungs, &c->plan);
    if (s->problem->machine.gpu && is_timed)
        rcvi_log(s->pool.context, "planning: %s made ready in %.3g s", c->shown.schedule, rcvi_now() - begin);
    if (status) return rcvi_refuse(&s->pool, c, status);
    c->shown.bytes = c->plan->run_bytes;
    c->shown.estimate = rcvi_estimate(&c->plan->program);
    status = rcvi_check_memory(c->plan, s->problem->options->memory);
    s->limited |= status != RCV_OK;
    c->remaining = status == RCV_OK;
    s->kept_steps += c->plan->program.step_count;
    if (status || s->kept_steps > KEPT_STEPS) {
        s->kept_steps -= c->plan->program.step_count;
        rcv_plan_free(c->plan);
        c->plan = NULL;
    }
    return status ? rcvi_refuse(&s->pool, c, status) : RCV_OK;
}

static rcv_status collect(search *s) {
    const rcvi_problem *p = s->problem;
    for (size_t i = 0; i < rcvi_schedule_count; i++) {
        if (rcvi_schedules[i]->variants) rcvi_schedules[i]->variants(p->net, p->options, &p->machine, offer, s);
    }
    if (s->failed) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        RCVI_TRY(rcvi_ask_to_go_on(p->options, 0));
        RCVI_TRY(estimate_candidate(s, &s->candidates[i]));
    }
    return RCV_OK;
}

/* The message where no candidate can be used: the smallest of those that need too much memory, or the first refusal. */
static rcv_status fail_without_plan(const search *s) {
    const rcv_candidate *smallest = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const rcv_candidate *c = &s->candidates[i].shown;
        if (s->limited && c->bytes && (!smallest || c->bytes < smallest->bytes)) smallest = c;
    }
    if (smallest) {
        return rcvi_fail(RCV_UNSUPPORTED, "no plan keeps to %zu bytes: the smallest, %s, needs %zu",
                         s->problem->options->memory, smallest->schedule, smallest->bytes);
    }
    if (s->count == 0) return rcvi_fail(RCV_UNSUPPORTED, "no schedule applies to this network");
    return rcvi_fail(s->candidates[0].shown.status, "%s", s->candidates[0].shown.reason);
}

/* ---- choice ---- */

/* Seconds by which candidates are compared: measured, or estimated. */
static double seconds_of(const rcvi_candidate *c, bool measured) {
    if (measured) return c->shown.seconds;
    return c->rungs.vendor ? vendor_penalty * c->shown.estimate : c->shown.estimate;
}

/* The first offered of the candidates that are as good as the fastest: of the remaining ones by measured, or of all by estimated seconds;
 * NULL where there are none. */
static rcvi_candidate *find_fastest(search *s, bool measured) {
    double least = 0, as_good = s->problem->machine.gpu && measured ? tie_gpu : tie;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < s->count; i++) {
            rcvi_candidate *c = &s->candidates[i];
            double seconds = seconds_of(c, measured);
            if ((measured ? !c->remaining : c->shown.status) || seconds <= 0) continue;
            if (round == 1 && seconds <= as_good * least) return c;
            if (least == 0 || seconds < least) least = seconds;
        }
    }
    return NULL;
}

/* On a GPU: of the candidates that are nearly as fast as `c` and need much less memory, the smallest; else `c`. A vendor's library is not
 * preferred: it allocates more than it reports. */
static rcvi_candidate *prefer_small(search *s, rcvi_candidate *c) {
    rcvi_candidate *found = c;
    if (!c || !s->problem->machine.gpu) return c;
    for (size_t i = 0; i < s->count; i++) {
        rcvi_candidate *other = &s->candidates[i];
        bool near = other->remaining && !other->rungs.vendor && other->shown.seconds > 0 &&
                    other->shown.seconds <= memory_gain * c->shown.seconds;
        if (near && much_memory * (double)other->shown.bytes < (double)c->shown.bytes &&
            other->shown.bytes < found->shown.bytes)
            found = other;
    }
    return found;
}

/* Drops candidates whose estimate is far above the best. A vendor's library has an unreliable estimate: it is not dropped, and its estimate
 * drops no other. Recomputation costs time and saves memory: it is dropped where a candidate without it fits. */
static void rule_out(search *s) {
    bool plain = false;
    double best = 0;
    for (size_t i = 0; i < s->count; i++) {
        const rcvi_candidate *c = &s->candidates[i];
        if (!c->remaining || c->rungs.vendor) continue;
        plain |= !c->rungs.recompute;
        if (best == 0 || c->shown.estimate < best) best = c->shown.estimate;
    }
    double worst = best * (s->problem->machine.gpu ? rule_out_factor_gpu
                           : best > long_run       ? rule_out_factor_long
                                                   : rule_out_factor);
    for (size_t i = 0; i < s->count; i++) {
        rcvi_candidate *c = &s->candidates[i];
        bool slow = c->shown.estimate > worst && best > 0 && !c->rungs.vendor;
        if (slow || (plain && c->rungs.recompute)) c->remaining = false;
    }
}

static size_t count_remaining(const search *s) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) count += s->candidates[i].remaining;
    return count;
}

static size_t count_timed(const search *s) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) count += s->candidates[i].shown.seconds > 0;
    return count;
}

static rcv_status choose(search *s, rcvi_candidate **chosen) {
    rcv_effort effort = s->problem->options->effort;
    if (effort == RCV_MEASURE) rule_out(s);
    if (effort == RCV_EXHAUSTIVE || (effort == RCV_MEASURE && count_remaining(s) > 1))
        RCVI_TRY(rcvi_measure_candidates(s->problem, s->candidates, s->count, s->begin, &s->pool));
    s->compared = count_timed(s) > 1; /* one time alone decides nothing */
    *chosen = s->compared ? prefer_small(s, find_fastest(s, true)) : NULL;
    if (!*chosen) *chosen = find_fastest(s, false);
    return *chosen ? RCV_OK : fail_without_plan(s);
}

/* ---- the plan ---- */

static rcv_status attach_candidates(search *s, const rcvi_candidate *chosen, rcv_plan *plan) {
    rcv_candidate *candidates = rcvi_pool_new(&s->pool, s->count, sizeof *candidates);
    if (!candidates) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        candidates[i] = s->candidates[i].shown;
        candidates[i].chosen = &s->candidates[i] == chosen;
    }
    plan->candidates = candidates;
    plan->candidate_count = s->count;
    plan->notes = s->pool; /* the plan's own was empty */
    rcvi_pool_init(&s->pool, plan->context);
    return RCV_OK;
}

/* Wisdom keeps what was timed, unless a memory limit refused candidates: the limit is not part of the key. */
static rcv_status remember(const search *s, const rcvi_candidate *chosen, const char *key) {
    if (!s->compared || chosen->shown.seconds <= 0 || s->limited) return RCV_OK;
    rcvi_lesson lesson = {.rungs = chosen->rungs,
                          .seconds = chosen->shown.seconds,
                          .exhaustive = s->problem->options->effort == RCV_EXHAUSTIVE};
    return rcvi_wisdom_remember(s->pool.context, key, &lesson);
}

/* The candidate's plan, ready to run; NULL where the device refuses a plan that was only estimated: that is then its refusal. */
static rcv_status prepare_chosen(search *s, rcvi_candidate *c, rcv_plan **plan) {
    bool estimated = s->problem->options->effort == RCV_ESTIMATE;
    rcv_status status = RCV_OK;
    if (c->plan && c->plan->program.options.steps == s->problem->options->steps) {
        *plan = c->plan;
        c->plan = NULL;
        if (estimated) status = rcvi_plan_load(*plan);
    } else {
        status = rcvi_plan_make(s->problem, &c->rungs, plan);
    }
    if (!status) return RCV_OK;
    rcv_plan_free(*plan);
    *plan = NULL;
    return estimated ? rcvi_refuse(&s->pool, c, status) : status;
}

static rcv_status find(search *s, const char *key, rcv_plan **plan) {
    rcvi_candidate *chosen = NULL;
    RCVI_TRY(collect(s));
    while (!*plan) {
        RCVI_TRY(choose(s, &chosen));
        RCVI_TRY(prepare_chosen(s, chosen, plan));
    }
    RCVI_TRY(remember(s, chosen, key));
    return attach_candidates(s, chosen, *plan);
}

static void free_search(search *s) {
    for (size_t i = 0; i < s->count; i++) {
        rcv_run_free(s->candidates[i].run);
        rcv_plan_free(s->candidates[i].plan);
    }
    rcvi_free(s->pool.context, s->candidates);
    rcvi_pool_free(&s->pool);
}

/* A plan from wisdom, or NULL where there is none or it cannot be used (any more). */
static rcv_status recall(const rcvi_problem *problem, const char *key, rcv_plan **plan) {
    rcv_context *context = problem->net->context;
    const rcv_plan_options *o = problem->options;
    rcvi_lesson lesson;
    if (!rcvi_wisdom_find(context, key, o->effort == RCV_EXHAUSTIVE, &lesson)) return RCV_OK;
    rcv_status status = RCV_OK;
    if (lesson.rungs.threads > problem->machine.threads)
        status = rcvi_fail(RCV_UNSUPPORTED, "it asks for %lld threads", (long long)lesson.rungs.threads);
    if (!status) status = rcvi_plan_make(problem, &lesson.rungs, plan);
    if (!status) status = rcvi_check_memory(*plan, o->memory);
    if (status == RCV_NO_MEMORY) return status;
    if (status) {
        rcvi_log(context, "the plan that wisdom has for this problem is not used: %s", rcv_message());
        rcv_plan_free(*plan);
        *plan = NULL;
        return RCV_OK;
    }
    (*plan)->from_wisdom = true;
    return rcvi_plan_note_alone(*plan, lesson.seconds);
}

rcv_status rcvi_plan_search(const rcvi_problem *problem, rcv_plan **plan) {
    search s = {.problem = problem, .begin = rcvi_now()};
    rcv_context *context = problem->net->context;
    char *key = NULL;
    RCVI_TRY(rcvi_problem_key(problem, &key));
    rcv_status status = recall(problem, key, plan);
    if (!status && !*plan) {
        rcvi_pool_init(&s.pool, context);
        status = find(&s, key, plan);
        free_search(&s);
    }
    rcvi_free(context, key);
    return status;
}

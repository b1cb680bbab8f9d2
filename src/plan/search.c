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
    1e6; /* times the estimate of a vendor's library, which is unreliable: it is chosen last */
static const double writing_rest = 2; /* beside a caller: times the seconds in which a candidate is written */
enum { KEPT_STEPS = 20000 };          /* of all programs that are kept for their trials */

typedef struct {
    const rcvi_problem *problem;
    double begin;
    rcvi_pool pool; /* texts and the candidates; moved to the plan */
    rcvi_candidate *candidates;
    size_t count, capacity;
    bool failed;       /* no memory for a candidate */
    bool limited;      /* a candidate was refused, or not timed beside a caller, for its memory */
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

static void drop_plan(search *s, rcvi_candidate *c) {
    s->kept_steps -= c->plan->program.step_count;
    rcv_plan_free(c->plan);
    c->plan = NULL;
}

static rcv_status estimate_candidate(search *s, rcvi_candidate *c) {
    rcv_status status = rcvi_plan_write(s->problem, &c->rungs, &c->plan);
    if (status) return rcvi_refuse(&s->pool, c, status);
    c->shown.bytes = c->plan->run_bytes;
    c->shown.estimate = rcvi_estimate(&c->plan->program);
    status = rcvi_check_memory(c->plan, s->problem->options->memory);
    s->limited |= status != RCV_OK;
    c->remaining = status == RCV_OK;
    s->kept_steps += c->plan->program.step_count;
    if (status || s->kept_steps > KEPT_STEPS) drop_plan(s, c);
    return status ? rcvi_refuse(&s->pool, c, status) : RCV_OK;
}

static rcv_status collect(search *s) {
    const rcvi_problem *p = s->problem;
    for (size_t i = 0; i < rcvi_schedule_count; i++) {
        if (rcvi_schedules[i]->variants) rcvi_schedules[i]->variants(p->net, p->options, &p->machine, offer, s);
    }
    if (s->failed) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        double begin = rcvi_now();
        RCVI_TRY(rcvi_ask_to_go_on(p->options, 0));
        RCVI_TRY(estimate_candidate(s, &s->candidates[i]));
        s->begin += rcvi_rest(p, writing_rest, rcvi_now() - begin); /* does not count as time of the search */
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

/* ---- loading ---- */

static bool is_to_load(const rcvi_candidate *c) { return c->remaining && c->plan && !c->plan->loaded; }

/* Compiles the kernels of all remaining candidates at once: a plan has few, too few for the cores of a machine. */
static rcv_status compile_together(search *s) {
    const rcvi_problem *p = s->problem;
    rcv_context *context = s->pool.context;
    size_t count = 0;
    if (!p->device->compile) return RCV_OK;
    rcvi_engine **engines = rcvi_new(context, s->count, sizeof(rcvi_engine *));
    if (!engines) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        if (is_to_load(&s->candidates[i])) engines[count++] = s->candidates[i].plan->engine;
    }
    double begin = rcvi_now();
    bool goes_on = count == 0 || p->device->compile(engines, count, p->options->go_on, p->options->user);
    if (count > 0) rcvi_log(context, "planning: kernels of %zu plans made in %.3g s", count, rcvi_now() - begin);
    rcvi_free(context, engines);
    return goes_on ? RCV_OK : rcvi_stop_planning(0);
}

/* Loads the remaining candidates; one that the device refuses is refused. */
static rcv_status load_remaining(search *s, bool *refused) {
    *refused = false;
    RCVI_TRY(compile_together(s));
    for (size_t i = 0; i < s->count; i++) {
        rcvi_candidate *c = &s->candidates[i];
        if (!is_to_load(c)) continue;
        rcv_status status = rcvi_plan_load(c->plan);
        if (!status) continue;
        RCVI_TRY(rcvi_refuse(&s->pool, c, status));
        c->shown.bytes = 0;
        c->shown.estimate = 0;
        drop_plan(s, c);
        *refused = true;
    }
    return RCV_OK;
}

/* Decides which candidates are timed, and loads these. What was ruled out by the estimate of one that the device then refuses is considered
 * again. */
static rcv_status load_candidates(search *s) {
    bool measured = s->problem->options->effort == RCV_MEASURE;
    for (bool refused = true; refused;) {
        for (size_t i = 0; i < s->count; i++) s->candidates[i].remaining = s->candidates[i].shown.status == RCV_OK;
        if (measured) rule_out(s);
        if (!s->problem->device->load) return RCV_OK;
        RCVI_TRY(load_remaining(s, &refused));
    }
    return RCV_OK;
}

static rcv_status choose(search *s, rcvi_candidate **chosen) {
    rcv_effort effort = s->problem->options->effort;
    if (effort != RCV_ESTIMATE) RCVI_TRY(load_candidates(s));
    if (effort == RCV_EXHAUSTIVE || (effort == RCV_MEASURE && count_remaining(s) > 1))
        RCVI_TRY(rcvi_measure_candidates(s->problem, s->candidates, s->count, s->begin, &s->pool));
    s->compared = count_timed(s) > 1; /* one time alone decides nothing */
    for (size_t i = 0; s->problem->in_background && i < s->count; i++) s->limited |= s->candidates[i].is_too_large;
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

/* Wisdom keeps what was timed, unless a memory limit refused candidates: the limit is not part of the key. Beside a caller it is kept when it
 * has been confirmed (background.c). */
static rcv_status remember(const search *s, const rcvi_candidate *chosen, const char *key, rcv_plan *plan) {
    plan->is_memorable = s->compared && chosen->shown.seconds > 0 && !s->limited;
    if (!plan->is_memorable || s->problem->in_background) return RCV_OK;
    rcvi_lesson lesson = {.rungs = chosen->rungs,
                          .seconds = chosen->shown.seconds,
                          .exhaustive = s->problem->options->effort == RCV_EXHAUSTIVE};
    return rcvi_wisdom_learn(s->pool.context, key, &lesson);
}

/* The candidate's plan, ready to run; NULL where the device refuses a plan that was only estimated: that is then its refusal. */
static rcv_status prepare_chosen(search *s, rcvi_candidate *c, rcv_plan **plan) {
    bool estimated = s->problem->options->effort == RCV_ESTIMATE;
    rcv_status status = RCV_OK;
    if (c->plan && c->plan->program.options.steps == s->problem->options->steps) {
        *plan = c->plan;
        c->plan = NULL;
        status = rcvi_plan_load(*plan);
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
    RCVI_TRY(remember(s, chosen, key, *plan));
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

/* Loads a plan from wisdom; with `only_compiled` one whose kernels would have to be compiled is freed instead. */
static rcv_status load_recalled(rcv_plan **plan, bool only_compiled) {
    const rcvi_device *device = (*plan)->device;
    if (!only_compiled || !device->is_compiled || device->is_compiled((*plan)->engine)) return rcvi_plan_load(*plan);
    rcv_plan_free(*plan);
    *plan = NULL;
    return RCV_OK;
}

/* A plan from wisdom, or NULL where there is none or it cannot be used (any more). */
static rcv_status recall(const rcvi_problem *problem, const char *key, bool only_compiled, rcv_plan **plan) {
    rcv_context *context = problem->net->context;
    const rcv_plan_options *o = problem->options;
    rcvi_lesson lesson;
    bool found = false;
    RCVI_TRY(rcvi_wisdom_recall(context, key, o->effort == RCV_EXHAUSTIVE, &lesson, &found));
    if (!found) return RCV_OK;
    rcv_status status = RCV_OK;
    if (lesson.rungs.threads > problem->machine.threads)
        status = rcvi_fail(RCV_UNSUPPORTED, "it asks for %lld threads", (long long)lesson.rungs.threads);
    if (!status) status = rcvi_plan_write(problem, &lesson.rungs, plan);
    if (!status) status = rcvi_check_memory(*plan, o->memory);
    if (!status) status = load_recalled(plan, only_compiled);
    if (status == RCV_NO_MEMORY || (!status && !*plan)) return status;
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
    rcv_status status = recall(problem, key, false, plan);
    if (!status && !*plan) {
        rcvi_pool_init(&s.pool, context);
        status = find(&s, key, plan);
        free_search(&s);
    }
    rcvi_free(context, key);
    return status;
}

rcv_status rcvi_plan_recall_compiled(const rcvi_problem *problem, rcv_plan **plan) {
    char *key = NULL;
    RCVI_TRY(rcvi_problem_key(problem, &key));
    rcv_status status = recall(problem, key, true, plan);
    rcvi_free(problem->net->context, key);
    return status;
}

rcv_status rcvi_plan_remember(const rcvi_problem *problem, const rcv_plan *plan, double seconds) {
    char *key = NULL;
    RCVI_TRY(rcvi_problem_key(problem, &key));
    rcvi_lesson lesson = {.rungs = plan->program.rungs, .seconds = seconds};
    rcv_status status = rcvi_wisdom_learn(problem->net->context, key, &lesson);
    rcvi_free(problem->net->context, key);
    return status;
}

/* Collects the candidates of every schedule, judges each by the model, has the promising ones timed, and keeps the
 * fastest; or takes it from wisdom. Candidates keep the order in which they were offered. */
#include "plan/search.h"
#include "plan/cost.h"
#include "plan/wisdom.h"

#include <string.h>

static const double tie = 1.02;      /* faster by less than this is not faster: the one offered first wins */
static const double tie_gpu = 1.005; /* there times are steady */
static const double dear = 1.1, dear_gain = 1.04; /* there, times the memory of another: it must be faster by this */
/* Times the best estimate: not worth timing. Where a run is long, the model is sure that threads pay. */
static const double hopeless = 2.5, hopeless_long = 1.7, long_run = 0.02, hopeless_gpu = 6;
static const double unknown = 1e6; /* times an estimate that cannot be relied on */
enum { KEPT_STEPS = 20000 };       /* of programs that are kept for their trials */

typedef struct {
    const rcvi_problem *problem;
    double begin;
    rcvi_pool pool; /* texts and the candidates; handed to the plan */
    rcvi_candidate *contenders;
    size_t count, capacity;
    bool failed;       /* no memory for a candidate */
    bool limited;      /* a candidate was refused for its memory */
    bool raced;        /* candidates were timed against one another */
    size_t kept_steps; /* of the programs of contenders */
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
        if (!strcmp(s->contenders[i].shown.schedule, kept)) return;
    }
    if (!kept || !rcvi_grow(s->pool.context, &s->contenders, &s->capacity, s->count + 1, sizeof *s->contenders)) {
        s->failed = true;
        return;
    }
    s->contenders[s->count++] = (rcvi_candidate){.rungs = *rungs, .shown = {.schedule = kept}};
}

static rcv_status judge(search *s, rcvi_candidate *c) {
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
    c->racing = status == RCV_OK;
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
        RCVI_TRY(judge(s, &s->contenders[i]));
    }
    return RCV_OK;
}

/* The sentence when nothing can be used: the smallest of those that need too much memory, or the first refusal. */
static rcv_status nothing_applies(const search *s) {
    const rcv_candidate *smallest = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const rcv_candidate *c = &s->contenders[i].shown;
        if (s->limited && c->bytes && (!smallest || c->bytes < smallest->bytes)) smallest = c;
    }
    if (smallest) {
        return rcvi_fail(RCV_UNSUPPORTED, "no plan keeps to %zu bytes: the smallest, %s, needs %zu",
                         s->problem->options->memory, smallest->schedule, smallest->bytes);
    }
    if (s->count == 0) return rcvi_fail(RCV_UNSUPPORTED, "no schedule applies to this network");
    return rcvi_fail(s->contenders[0].shown.status, "%s", s->contenders[0].shown.reason);
}

/* ---- choice ---- */

/* Of a vendor's library the model knows little: without a time it is the last resort. */
static double seconds_of(const rcvi_candidate *c, bool measured) {
    if (measured) return c->shown.seconds;
    return c->rungs.vendor ? unknown * c->shown.estimate : c->shown.estimate;
}

/* The first of those that are as good as the fastest, of those that race or that the model has judged; NULL where there
 * are none. */
static rcvi_candidate *fastest(search *s, bool measured) {
    double least = 0, as_good = s->problem->machine.gpu && measured ? tie_gpu : tie;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < s->count; i++) {
            rcvi_candidate *c = &s->contenders[i];
            double seconds = seconds_of(c, measured);
            if ((measured ? !c->racing : c->shown.status) || seconds <= 0) continue;
            if (round == 1 && seconds <= as_good * least) return c;
            if (least == 0 || seconds < least) least = seconds;
        }
    }
    return NULL;
}

/* On a GPU memory is short: of those that are nearly as fast as `c` and take far less, the one that takes least; else `c`. A vendor's
 * library takes more than it says. */
static rcvi_candidate *thriftiest(search *s, rcvi_candidate *c) {
    rcvi_candidate *found = c;
    if (!c || !s->problem->machine.gpu) return c;
    for (size_t i = 0; i < s->count; i++) {
        rcvi_candidate *other = &s->contenders[i];
        bool near = other->racing && !other->rungs.vendor && other->shown.seconds > 0 &&
                    other->shown.seconds <= dear_gain * c->shown.seconds;
        if (near && dear * (double)other->shown.bytes < (double)c->shown.bytes &&
            other->shown.bytes < found->shown.bytes)
            found = other;
    }
    return found;
}

/* Leaves in the race what the model does not rule out. It knows little of a vendor's library, which therefore rules
 * nobody out, nor is ruled out. To recompute costs time and saves memory: where memory is not short, those that do are
 * beaten by those that do not. */
static void rule_out(search *s) {
    bool plain = false;
    double best = 0;
    for (size_t i = 0; i < s->count; i++) {
        const rcvi_candidate *c = &s->contenders[i];
        if (!c->racing || c->rungs.vendor) continue;
        plain |= !c->rungs.recompute;
        if (best == 0 || c->shown.estimate < best) best = c->shown.estimate;
    }
    double worst = best * (s->problem->machine.gpu ? hopeless_gpu : best > long_run ? hopeless_long : hopeless);
    for (size_t i = 0; i < s->count; i++) {
        rcvi_candidate *c = &s->contenders[i];
        bool slow = c->shown.estimate > worst && best > 0 && !c->rungs.vendor;
        if (slow || (plain && c->rungs.recompute)) c->racing = false;
    }
}

static size_t racing(const search *s) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) count += s->contenders[i].racing;
    return count;
}

static size_t timed(const search *s) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) count += s->contenders[i].shown.seconds > 0;
    return count;
}

static rcv_status choose(search *s, rcvi_candidate **chosen) {
    rcv_effort effort = s->problem->options->effort;
    if (effort == RCV_MEASURE) rule_out(s);
    if (effort == RCV_EXHAUSTIVE || (effort == RCV_MEASURE && racing(s) > 1))
        RCVI_TRY(rcvi_measure_candidates(s->problem, s->contenders, s->count, s->begin, &s->pool));
    s->raced = timed(s) > 1; /* one time alone says nothing */
    *chosen = s->raced ? thriftiest(s, fastest(s, true)) : NULL;
    if (!*chosen) *chosen = fastest(s, false);
    return *chosen ? RCV_OK : nothing_applies(s);
}

/* ---- the plan ---- */

static rcv_status hand_over(search *s, const rcvi_candidate *chosen, rcv_plan *plan) {
    rcv_candidate *candidates = rcvi_pool_new(&s->pool, s->count, sizeof *candidates);
    if (!candidates) return RCV_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        candidates[i] = s->contenders[i].shown;
        candidates[i].chosen = &s->contenders[i] == chosen;
    }
    plan->candidates = candidates;
    plan->candidate_count = s->count;
    plan->notes = s->pool; /* which was empty */
    rcvi_pool_init(&s->pool, plan->context);
    return RCV_OK;
}

/* What was timed is remembered, unless a memory limit kept candidates away: the limit is not part of the key. */
static rcv_status remember(const search *s, const rcvi_candidate *chosen, const char *key) {
    if (!s->raced || chosen->shown.seconds <= 0 || s->limited) return RCV_OK;
    rcvi_lesson lesson = {.rungs = chosen->rungs,
                          .seconds = chosen->shown.seconds,
                          .exhaustive = s->problem->options->effort == RCV_EXHAUSTIVE};
    return rcvi_wisdom_remember(s->pool.context, key, &lesson);
}

/* The contender's plan, ready to run; NULL where the device refuses what was only estimated, which is noted. */
static rcv_status take(search *s, rcvi_candidate *c, rcv_plan **plan) {
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
        RCVI_TRY(take(s, chosen, plan));
    }
    RCVI_TRY(remember(s, chosen, key));
    return hand_over(s, chosen, *plan);
}

static void end(search *s) {
    for (size_t i = 0; i < s->count; i++) {
        rcv_run_free(s->contenders[i].run);
        rcv_plan_free(s->contenders[i].plan);
    }
    rcvi_free(s->pool.context, s->contenders);
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
        end(&s);
    }
    rcvi_free(context, key);
    return status;
}

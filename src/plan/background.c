/* Searches on a thread of their own: see background.h. The thread has its own copy of the problem, publishes the plan that it found, and
 * ends. A child of fork() has no such thread: there the plan stays as it is. */
#include "plan/background.h"
#include "plan/search.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const long poll_nanoseconds = 2000000; /* between two looks at what the thread waits for */
static const double least_gain = 0.97; /* times the seconds of the first plan: what takes longer does not replace it */
/* Seconds for which a search on a CPU waits until the plan's first call, or a training step, begins, and until it is done. */
static const double longest_delay = 0.1, longest_first_call = 10;

struct rcvi_background {
    rcv_context *context;
    rcv_plan *plan; /* the one to replace */
    rcvi_problem problem;
    rcv_plan_options options, asked; /* of the search, and as the caller gave them */
    unsigned fork_generation;
    pthread_t thread;
    atomic_bool stopping;       /* the thread is to end */
    atomic_bool called, begins; /* the first call has begun; the thread need not wait for it (any more) */
    _Atomic(rcv_plan *) found;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool ended;
    rcv_status status; /* of the search, and its message */
    char message[512];
    rcvi_watched *runs;
};

static _Thread_local const rcvi_background *own_search; /* of the thread that searches; NULL: another thread */

/* Is the thread in this process? */
static bool is_here(const rcvi_background *b) { return b->fork_generation == rcvi_fork_generation(); }

static void sleep_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = poll_nanoseconds}, NULL); }

/* ---- what trials wait for ---- */

static bool is_any_captured(rcvi_background *b) {
    const rcvi_device *device = b->problem.device;
    bool captured = false;
    pthread_mutex_lock(&b->mutex);
    for (rcvi_watched *run = b->runs; run && device->is_captured; run = run->next)
        captured |= run->stream && device->is_captured(run->stream);
    pthread_mutex_unlock(&b->mutex);
    return captured;
}

/* The search's go_on: false where the plan is freed or stays, or the caller's own says no. */
static bool goes_on(void *user) {
    rcvi_background *b = user;
    while (!atomic_load(&b->stopping) && is_any_captured(b)) sleep_a_little();
    if (atomic_load(&b->stopping)) return false;
    return !b->asked.go_on || b->asked.go_on(b->asked.user);
}

/* A context's searches run one after the other, since each would disturb the times of the other. False: stopped while waiting. */
static bool take_turn(rcvi_background *b) {
    rcv_context *context = b->context;
    for (bool mine = false; !atomic_load(&b->stopping); sleep_a_little()) {
        rcvi_global_lock();
        mine = !context->searching || context->searching_generation != b->fork_generation;
        if (mine) {
            context->searching = true;
            context->searching_generation = b->fork_generation;
        }
        rcvi_global_unlock();
        if (mine) return true;
    }
    return false;
}

static void end_turn(rcvi_background *b) {
    rcvi_global_lock();
    b->context->searching = false;
    rcvi_global_unlock();
}

/* On a CPU the search would take the cores from the plan's first call. */
static void wait_for_first_call(const rcvi_background *b) {
    double begin = rcvi_now();
    if (b->problem.machine.gpu) return;
    while (!atomic_load(&b->begins) && !atomic_load(&b->stopping) &&
           rcvi_now() - begin < (atomic_load(&b->called) ? longest_first_call : longest_delay))
        sleep_a_little();
}

void rcvi_background_note_begin(rcvi_background *b) { atomic_store_explicit(&b->called, true, memory_order_relaxed); }
void rcvi_background_note_end(rcvi_background *b) { atomic_store_explicit(&b->begins, true, memory_order_relaxed); }

/* ---- the thread ---- */

/* Seconds of the chosen candidate; 0: it was not timed. */
static double seconds_of(const rcv_plan *plan) {
    for (size_t i = 0; i < plan->candidate_count; i++) {
        if (plan->candidates[i].chosen) return plan->candidates[i].seconds;
    }
    return 0;
}

static rcv_status remember(rcvi_background *b, const rcv_plan *plan, double seconds) {
    return seconds > 0 && isfinite(seconds) ? rcvi_plan_remember(&b->problem, plan, seconds) : RCV_OK;
}

/* The trials of the search were disturbed by the caller: what it found is run in turns with the first plan. Where it is not faster, the first
 * plan stays; *plan is NULL then. Wisdom gets what is the plan from then on. */
static rcv_status confirm(rcvi_background *b, rcv_plan **plan) {
    double ratio = 1, seconds = (*plan)->is_memorable ? seconds_of(*plan) : 0;
    if ((*plan)->from_wisdom) return RCV_OK;
    if (!strcmp((*plan)->string, b->plan->string)) return remember(b, *plan, seconds);
    RCVI_TRY(rcvi_compare_plans(&b->problem, *plan, b->plan, &ratio));
    if (ratio == 0) return RCV_OK; /* there was no memory for both */
    if (ratio < least_gain) return remember(b, *plan, seconds);
    rcvi_log(b->context, "the search beside the caller found %s, which takes %.3g times as long as the first plan",
             (*plan)->string, ratio);
    rcv_plan_free(*plan);
    *plan = NULL;
    return remember(b, b->plan, seconds / ratio);
}

static rcv_status search_and_confirm(rcvi_background *b, rcv_plan **plan) {
    RCVI_TRY(rcvi_plan_search(&b->problem, plan));
    if (*plan) RCVI_TRY(confirm(b, plan));
    return *plan ? rcvi_plan_serve_sizes(*plan) : RCV_OK;
}

static rcv_status find(rcvi_background *b, rcv_plan **plan) {
    double begin = rcvi_now();
    wait_for_first_call(b);
    if (!take_turn(b)) return rcvi_stop_planning(0);
    if (b->problem.device->begin_search) b->problem.device->begin_search();
    rcv_status status = search_and_confirm(b, plan);
    end_turn(b);
    if (!status && *plan) {
        (*plan)->seconds = rcvi_now() - begin;
        return RCV_OK;
    }
    rcv_plan_free(*plan);
    *plan = NULL;
    return status;
}

static void *search(void *argument) {
    rcvi_background *b = argument;
    rcv_plan *plan = NULL;
    own_search = b;
    rcv_status status = find(b, &plan);
    bool better = plan && strcmp(plan->string, b->plan->string) != 0;
    if (status) rcvi_log(b->context, "the search beside the caller ended without a plan: %s", rcv_message());
    if (plan)
        rcvi_log(b->context, "the search beside the caller took %.3g s: %s %s", plan->seconds, plan->string,
                 better ? "replaces the plan" : "is the plan already");
    if (better)
        atomic_store(&b->found, plan);
    else
        rcv_plan_free(plan);
    if (better && b->asked.replaced) b->asked.replaced(b->asked.user);
    pthread_mutex_lock(&b->mutex);
    b->status = status;
    if (status) snprintf(b->message, sizeof b->message, "%s", rcv_message());
    b->ended = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

static rcv_status start_thread(rcvi_background *b) {
    int error = rcvi_thread_start(&b->thread, search, b);
    return error ? rcvi_fail(RCV_NO_MEMORY, "the system refused a thread to plan on (%s)", strerror(error)) : RCV_OK;
}

rcv_status rcvi_background_start(const rcvi_problem *problem, rcv_plan *plan) {
    rcvi_background *b = rcvi_new(plan->context, 1, sizeof *b);
    if (!b) return RCV_NO_MEMORY;
    b->context = plan->context;
    b->plan = plan;
    b->fork_generation = rcvi_fork_generation();
    b->problem = *problem;
    b->problem.in_background = true;
    b->asked = b->options = *problem->options;
    b->options.effort = RCV_MEASURE;
    b->options.device = NULL; /* the caller's text; the problem says it */
    b->options.go_on = goes_on;
    b->options.user = b;
    b->problem.options = &b->options;
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    rcv_status status = start_thread(b);
    if (status) {
        rcvi_free(b->context, b);
        return status;
    }
    plan->background = b;
    return RCV_OK;
}

/* Waits for the thread, unless this is the thread, in a callback. */
static void stop(rcvi_background *b) {
    atomic_store(&b->stopping, true);
    if (!is_here(b) || own_search == b) return;
    pthread_mutex_lock(&b->mutex);
    while (!b->ended) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

void rcvi_background_free(rcvi_background *b) {
    if (!b) return;
    stop(b);
    if (is_here(b)) pthread_join(b->thread, NULL);
    rcv_plan_free(atomic_load(&b->found));
    if (is_here(b)) {
        pthread_cond_destroy(&b->changed);
        pthread_mutex_destroy(&b->mutex);
    }
    rcvi_free(b->context, b);
}

const rcv_plan *rcvi_plan_newest(const rcv_plan *plan) {
    const rcv_plan *found =
        plan->background ? atomic_load_explicit(&plan->background->found, memory_order_acquire) : NULL;
    return found ? found : plan;
}

/* ---- runs ---- */

void rcvi_background_watch(rcvi_background *b, rcvi_watched *run) {
    if (!b || !is_here(b)) return;
    pthread_mutex_lock(&b->mutex);
    run->next = b->runs;
    b->runs = run;
    pthread_mutex_unlock(&b->mutex);
}

void rcvi_background_unwatch(rcvi_background *b, rcvi_watched *run) {
    if (!b || !is_here(b)) return;
    pthread_mutex_lock(&b->mutex);
    for (rcvi_watched **at = &b->runs; *at; at = &(*at)->next) {
        if (*at != run) continue;
        *at = run->next;
        break;
    }
    pthread_mutex_unlock(&b->mutex);
}

void rcvi_background_set_stream(rcvi_background *b, rcvi_watched *run, void *stream) {
    if (!b || !is_here(b)) return;
    pthread_mutex_lock(&b->mutex);
    run->stream = stream;
    pthread_mutex_unlock(&b->mutex);
}

/* ---- public ---- */

static rcv_status wait_for_search(const rcv_plan *plan) {
    rcvi_background *b = plan->background;
    if (!b) return RCV_OK;
    if (!is_here(b)) return rcvi_fail(RCV_UNSUPPORTED, "the search for this plan runs in the parent of this process");
    if (own_search == b)
        return rcvi_fail(RCV_INVALID, "a callback of the search for this plan cannot wait for its end");
    if (is_any_captured(b))
        return rcvi_fail(RCV_INVALID,
                         "the search for this plan waits while the stream of one of its runs is captured: wait "
                         "for it after the capture");
    atomic_store(&b->begins, true);
    pthread_mutex_lock(&b->mutex);
    while (!b->ended) pthread_cond_wait(&b->changed, &b->mutex);
    rcv_status status = b->status;
    pthread_mutex_unlock(&b->mutex);
    return status ? rcvi_fail(status, "%s", b->message) : RCV_OK;
}

rcv_status rcv_plan_wait(const rcv_plan *plan) {
    RCVI_NEED(plan, "plan");
    rcv_status status = wait_for_search(plan);
    if (!plan->small) return status;
    rcv_status small = wait_for_search(plan->small);
    return status ? status : small;
}

rcv_status rcv_plan_stay(rcv_plan *plan) {
    RCVI_NEED(plan, "plan");
    if (plan->background) stop(plan->background);
    return plan->small ? rcv_plan_stay(plan->small) : RCV_OK;
}

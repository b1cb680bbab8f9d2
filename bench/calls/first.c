/* First calls: from a network's sizes to the end of the first step, in a process without caches and in one with caches on disk; and the search
 * beside the caller. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1 << 16, TEXT = 192 };

/* ---- the search beside the caller ---- */

/* The steps by the first plan while the search runs, and the first step by the plan that it found. */
typedef struct {
    double *times; /* [MOST_STEPS] of the former, in seconds */
    size_t count;
    double tuned_began, tuned_ended; /* of the latter, by now(); 0: there was none */
} steps_while_searching;

static rcv_status step_once(network *n, steps_while_searching *steps) {
    double begin = now();
    rcv_status status = network_step(n, 0, 0);
    double end = now();
    bool is_first = rcv_run_version(n->run) == 1;
    /* Steps by the first plan after the search had ended count no more. */
    if (is_first && steps->count < MOST_STEPS && atomic_load(&n->search_ended) == 0)
        steps->times[steps->count++] = end - begin;
    if (!is_first && steps->tuned_ended == 0) {
        steps->tuned_began = begin;
        steps->tuned_ended = end;
    }
    return status;
}

/* Steps until the search has ended and the plan that it found, if any, has run. At `latest` the search is given up. */
static rcv_status step_until_tuned(network *n, double latest, steps_while_searching *steps) {
    rcv_status status = network_watch_search(n);
    while (!status && atomic_load(&n->search_ended) == 0) {
        status = step_once(n, steps);
        if (now() > latest) rcv_plan_stay(n->plan); /* ends the search */
    }
    if (n->is_watched) network_end_search(n);
    if (!status && atomic_load(&n->replaced) != 0 && steps->tuned_ended == 0) status = step_once(n, steps);
    return status;
}

/* Steps by the first plan alone: its plan string, pinned. */
static rcv_status time_alone(job *j, const shape *s, const char *plan, double *times, size_t *count) {
    shape pinned = *s;
    network n;
    pinned.schedule = plan;
    rcv_status status = network_open_and_step(j, &pinned, &n);
    if (status) return status;
    status = network_time(&n, spend(j, 1.5), 3, MOST_STEPS, times, count);
    network_close(&n);
    return status;
}

static void report_slowed(job *j, const kind *k, const network *n, steps_while_searching *during) {
    row r =
        name_row("first", k, "slowed", "a step by the first plan while the search runs, of one alone after it (mean)",
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
    } else if (count < 3) {
        row_left_out(j, &r, "too little time was left for steps alone");
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

/* The row `tuned`: when the search ended, when it replaced the plan, and when that plan had run. */
static void report_tuned(job *j, const kind *k, network *n, const steps_while_searching *steps) {
    row r = name_row("first", k, "tuned", "from the first plan's creation until a step by the tuned plan is done", "s",
                     is_gpu(j) ? 8 : 0);
    double replaced = atomic_load(&n->replaced), ended = atomic_load(&n->search_ended);
    detail_number(j, "search_ended_s", ended - n->plan_began);
    if (replaced != 0)
        detail_number(j, "replaced_s", replaced - n->plan_began);
    else
        detail_text(j, "replaced",
                    n->search_status ? "no: the search did not end"
                                     : "no: nothing faster than the first plan was found");
    detail_number(j, "version", (double)rcv_run_version(n->run));
    detail_text(j, "first_plan", n->first_plan);
    detail_text(j, "tuned_plan", rcv_plan_string(n->plan));
    if (replaced != 0) detail_number(j, "candidates", (double)rcv_plan_candidate_count(n->plan));
    if (steps->tuned_ended != 0)
        detail_number(j, "first_tuned_step_ms", 1e3 * (steps->tuned_ended - steps->tuned_began));
    if (n->search_status == RCV_STOPPED) {
        char reason[TEXT];
        snprintf(reason, sizeof reason, "the search was given up after %.1f s", ended - n->plan_began);
        /* What took longer than the target has missed it, however long it would have taken. */
        if (r.target > 0 && ended - n->plan_began > r.target)
            row_missed(j, &r, reason);
        else
            row_left_out(j, &r, reason);
    } else if (n->search_status) {
        row_wrong(j, &r, n->search_message);
    } else if (replaced != 0 && steps->tuned_ended == 0) {
        row_missed(j, &r, "the plan was replaced, but the run did not take the new one");
    } else {
        row_end(j, &r, (replaced != 0 ? steps->tuned_ended : ended) - n->plan_began);
    }
}

/* The rows `tuned`, `slowed` and `tuned_step`. */
static void follow_search(job *j, const kind *k, network *n) {
    steps_while_searching steps = {.times = need(malloc(MOST_STEPS * sizeof(double)))};
    rcv_status status = step_until_tuned(n, now() + 0.75 * (j->until - now()), &steps);
    if (status) {
        row r = name_row("first", k, "tuned", "steps while the search runs", "s", 0);
        row_failed(j, &r, status);
        free(steps.times);
        return;
    }
    report_tuned(j, k, n, &steps);
    report_slowed(j, k, n, &steps);

    row r = name_row("first", k, "tuned_step", "a step by the plan that the search found (median)", "ms", 0);
    size_t count = 0;
    if (!n->search_status) status = network_time(n, spend(j, 1), 3, MOST_STEPS, steps.times, &count);
    if (status) {
        row_failed(j, &r, status);
    } else if (n->search_status || count < 3) {
        row_left_out(j, &r, n->search_status ? "the search did not end" : "too little time was left");
    } else {
        detail_number(j, "version", (double)rcv_run_version(n->run));
        detail_text(j, "plan", rcv_plan_string(n->plan));
        row_end(j, &r, 1e3 * median(steps.times, count));
    }
    free(steps.times);
}

/* ---- a process without caches, and one with caches on disk ---- */

static const char *say(bool is_so) { return is_so ? "yes" : "no"; }

/* The text of a row of a first step: whether the disk is part of it. Static. */
static const char *describe_first(const job *j, const char *what) {
    static char text[TEXT];
    snprintf(text, sizeof text, "%s%s", what,
             !is_gpu(j)               ? ""
             : j->options->files_read ? " (library files in the page cache, but not loaded)"
                                      : " (cold: library files may be read from the disk)");
    return text;
}

static void detail_first_step(job *j, const network *n) {
    const shape *s = &n->shape;
    detail_pairs(j, "T_B_H_layers", (const int64_t[]){s->steps, s->batch, s->hidden, s->layers}, 2);
    detail_first_call(j, n);
    detail_text(j, "plan", n->first_plan);
    detail_text(j, "from_wisdom", say(n->from_wisdom));
}

void measure_first(job *j, const char *type) {
    static network n;
    const kind *k = find_kind(type);
    if (bring_up(j, "first", k)) return;
    shape s = first_shape(j, k);
    rcv_status status = network_open_and_step(j, &s, &n);
    row r = name_row("first", k, "step", describe_first(j, "first step, no caches"), "ms", is_gpu(j) ? 500 : 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_first_step(j, &n);
    if (n.from_wisdom)
        row_missed(j, &r, "the plan came from wisdom: the caches were not empty");
    else
        row_end(j, &r, 1e3 * first_call_seconds(&n));
    follow_search(j, k, &n);
}

void measure_again(job *j, const char *type) {
    static network n;
    const kind *k = find_kind(type);
    if (bring_up(j, "again", k)) return;
    shape s = first_shape(j, k);
    rcv_status status = network_open_and_step(j, &s, &n);
    row r = name_row("again", k, "step",
                     describe_first(j, "first step of a second process, by the tuned plan from the caches on disk"),
                     "ms", is_gpu(j) ? 150 : 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_first_step(j, &n);
    if (n.from_wisdom) {
        row_end(j, &r, 1e3 * first_call_seconds(&n));
    } else {
        char reason[TEXT];
        snprintf(reason, sizeof reason, "the plan did not come from wisdom (another plan's first step took %.0f ms)",
                 1e3 * first_call_seconds(&n));
        row_missed(j, &r, reason);
    }
}

/* ---- the planner in the foreground ---- */

void measure_planning(job *j, const char *type) {
    static network n;
    static double times[MOST_STEPS];
    size_t count = 0;
    const kind *k = find_kind(type);
    if (bring_up(j, "measure", k)) return;
    shape s = first_shape(j, k);
    s.effort = RCV_MEASURE;
    rcv_status status = network_open_and_step(j, &s, &n);
    row r = name_row("measure", k, "plan", "a plan by RCV_MEASURE, no caches", "s", 0);
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_first_call(j, &n);
    detail_text(j, "plan", rcv_plan_string(n.plan));
    detail_number(j, "candidates", (double)rcv_plan_candidate_count(n.plan));
    row_end(j, &r, n.plan_seconds);
    r = name_row("measure", k, "step", "a step by the plan of RCV_MEASURE (median)", "ms", 0);
    status = network_time(&n, spend(j, 1), 3, MOST_STEPS, times, &count);
    if (status)
        row_failed(j, &r, status);
    else
        row_end(j, &r, 1e3 * median(times, count));
}

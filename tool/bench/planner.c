/* The planner: the time to choose a plan with each effort, and the time of the chosen plan. */
#include "bench/experiments.h"

#include <stdlib.h>
#include <string.h>

static void show_planning(void *user, const char *line) { show_progress("%s: %s", (const char *)user, line); }

/* Plans in a new context, without wisdom; bench reads none from the cache. */
static void choose_plan(const problem *asked, int effort, choice *choice) {
    problem own = *asked;
    own.wisdom = own.schedule = NULL;
    own.effort = effort;
    choice->effort = problem_effort(&own);
    own.log = show_planning;
    own.log_user = (void *)choice->effort;
    show_progress("%s: planning", choice->effort);
    rcv_plan *plan = NULL;
    rcv_status status = problem_open(&own);
    if (status == RCV_OK) {
        const rcv_plan_options options = problem_plan_options(&own, NULL);
        status = rcv_plan_new(own.net, &options, &plan);
    }
    if (status == RCV_OK) {
        choice->plan = text_of("%s", rcv_plan_string(plan));
        choice->candidates = rcv_plan_candidate_count(plan);
        choice->choosing = rcv_plan_seconds(plan);
    } else {
        choice->refusal = text_of("%s", rcv_message());
    }
    rcv_plan_free(plan);
    problem_close(&own);
}

/* Copies the time of the implementation with its plan. Efforts that chose the same plan share one. */
static void copy_time(choice *choice, const comparison *comparison) {
    for (size_t i = 0; i < comparison->count && choice->plan != NULL; i++) {
        const measurement *item = &comparison->items[i].measured;
        if (strcmp(item->plan, choice->plan) == 0) {
            choice->seconds = item->median;
            choice->refusal = item->refusal != NULL ? text_of("%s", item->refusal) : NULL;
        }
    }
}

/* Times all chosen plans in turns, that of the exhaustive search first. */
static rcv_status compare_choices(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    comparison comparison = {.count = 0};
    call_tensors tensors;
    call_tensors_new(&tensors, problem, problem->net, bench->seed);
    const rcv_status status = initialize_parameters(bench, problem->net, &tensors);
    for (size_t i = EFFORTS; i-- > 0 && status == RCV_OK;) {
        const choice *choice = &results->choices[i];
        bool known = choice->plan == NULL;
        for (size_t j = 0; j < comparison.count && !known; j++) {
            known = strcmp(comparison.items[j].measured.plan, choice->plan) == 0;
        }
        if (!known) {
            comparison_add_plan(&comparison, choice->effort, problem, problem->net, &tensors, tensors.parameters,
                                choice->plan);
        }
    }
    if (status == RCV_OK && comparison.count > 0) {
        comparison_measure(&comparison, problem, &tensors, NULL, "choices", bench->seconds, 5);
    }
    for (size_t i = 0; i < EFFORTS; i++) {
        copy_time(&results->choices[i], &comparison);
    }
    const double best = results->choices[EFFORTS - 1].seconds;
    for (size_t i = 0; i < EFFORTS && best > 0; i++) {
        results->choices[i].ratio = results->choices[i].seconds / best;
    }
    comparison_free(&comparison);
    call_tensors_free(&tensors);
    return status;
}

rcv_status bench_planner(const bench *bench, results *results) {
    static const rcv_effort efforts[EFFORTS] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (size_t i = 0; i < EFFORTS && stop_signal() == 0; i++) {
        choose_plan(&bench->problem, (int)efforts[i], &results->choices[i]);
        results->choice_count = i + 1;
    }
    const rcv_status status = stop_signal() == 0 ? compare_choices(bench, results) : RCV_OK;
    hide_progress();
    return status;
}

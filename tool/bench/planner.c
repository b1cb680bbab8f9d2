/* The planner: how long it takes to choose with each effort, and how good its choices are. */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

static void show_planning(void *user, const char *line) { show_progress("%s: %s", (const char *)user, line); }

/* In a context of its own, where nothing has been learnt yet. */
static void choose(const problem *asked, int effort, choice *choice) {
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

/* Its time, from the contestant that has its plan; efforts that chose the same share one. */
static void take_time(choice *choice, const contest *contest) {
    for (size_t i = 0; i < contest->count && choice->plan != NULL; i++) {
        const contestant *item = &contest->items[i];
        if (strcmp(item->plan, choice->plan) == 0) {
            choice->seconds = item->median;
            choice->refusal = item->refusal != NULL ? text_of("%s", item->refusal) : NULL;
        }
    }
}

/* All that was chosen in turns, the most thorough choice first. */
static rcv_status compete(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    contest contest = {.count = 0};
    data data;
    data_new(&data, problem, problem->net, bench->seed);
    const rcv_status status = fill_parameters(bench, problem->net, &data);
    for (size_t i = EFFORTS; i-- > 0 && status == RCV_OK;) {
        const choice *choice = &results->choices[i];
        bool known = choice->plan == NULL;
        for (size_t j = 0; j < contest.count && !known; j++) {
            known = strcmp(contest.items[j].plan, choice->plan) == 0;
        }
        if (!known) {
            add_plan(&contest, choice->effort, problem, problem->net, &data, data.parameters, choice->plan);
        }
    }
    if (status == RCV_OK && contest.count > 0) {
        contest_measure(&contest, problem, &data, NULL, "choices", bench->seconds, 5);
    }
    for (size_t i = 0; i < EFFORTS; i++) {
        take_time(&results->choices[i], &contest);
    }
    const double best = results->choices[EFFORTS - 1].seconds;
    for (size_t i = 0; i < EFFORTS && best > 0; i++) {
        results->choices[i].ratio = results->choices[i].seconds / best;
    }
    contest_free(&contest);
    data_free(&data);
    return status;
}

rcv_status bench_planner(const bench *bench, results *results) {
    static const rcv_effort efforts[EFFORTS] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (size_t i = 0; i < EFFORTS && stop_signal() == 0; i++) {
        choose(&bench->problem, (int)efforts[i], &results->choices[i]);
        results->choice_count = i + 1;
    }
    const rcv_status status = stop_signal() == 0 ? compete(bench, results) : RCV_OK;
    hide_progress();
    return status;
}

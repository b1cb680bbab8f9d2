/* recurve plan: the plans that the planner considered for a problem, and the chosen one. */
#include "paths.h"
#include "problem.h"
#include "verbs/plan_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Order: timed plans by time, then other usable plans by estimate, then those that do not apply. */
static int by_time(const void *left, const void *right) {
    const rcv_candidate *a = *(const rcv_candidate *const *)left, *b = *(const rcv_candidate *const *)right;
    if ((a->status == RCV_OK) != (b->status == RCV_OK)) {
        return a->status == RCV_OK ? -1 : 1;
    }
    if ((a->seconds > 0) != (b->seconds > 0)) {
        return a->seconds > 0 ? -1 : 1;
    }
    const double x = a->seconds > 0 ? a->seconds : a->estimate, y = b->seconds > 0 ? b->seconds : b->estimate;
    return (x > y) - (x < y);
}

static void print_time(double seconds) {
    if (seconds > 0) {
        printf("%11.3f", seconds * 1e3);
    } else {
        printf("%11s", "-");
    }
}

static void print_candidates(const rcv_plan *plan) {
    const size_t count = rcv_plan_candidate_count(plan);
    const rcv_candidate **sorted = need(count, sizeof(const rcv_candidate *));
    for (size_t i = 0; i < count; i++) {
        sorted[i] = rcv_plan_candidate(plan, i);
    }
    qsort(sorted, count, sizeof *sorted, by_time);
    printf("\n  %11s%11s%11s%15s  plan\n", "measured ms", "model ms", "memory", "bytes");
    size_t refused = 0;
    for (size_t i = 0; i < count; i++) {
        char room[32];
        if (sorted[i]->status != RCV_OK) {
            refused++;
            continue;
        }
        printf("%c ", sorted[i]->chosen ? '*' : ' ');
        print_time(sorted[i]->seconds);
        print_time(sorted[i]->estimate);
        printf("%11s%15zu  %s\n", human_bytes((double)sorted[i]->bytes, room), sorted[i]->bytes, sorted[i]->schedule);
    }
    if (refused > 0) {
        printf("\nNot used:\n");
    }
    for (size_t i = count - refused; i < count; i++) {
        printf("  %s: %s\n", sorted[i]->schedule, sorted[i]->reason != NULL ? sorted[i]->reason : "no reason given");
    }
    free(sorted);
}

/* The GPU, or the threads and kernels of the CPU. */
static rcv_status print_machine(const problem *problem) {
    char *text = NULL;
    if (!problem_is_gpu(problem)) {
        printf("%lld thread%s at most, kernels %s\n", (long long)problem_threads(problem),
               problem_threads(problem) == 1 ? "" : "s", rcv_context_kernels(problem->context));
        return RCV_OK;
    }
    const rcv_status status = rcv_device_describe(problem->context, problem->device, &text);
    if (status == RCV_OK) {
        printf("Device:  %s\n", text);
        rcv_text_free(problem->context, text);
    }
    return status;
}

/* The device's explanation of the chosen plan, line by line. */
static rcv_status print_explanation(const problem *problem, const rcv_plan *plan) {
    char *text = NULL;
    const rcv_status status = rcv_plan_explain(plan, &text);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        const size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        printf("%-8s %.*s\n", line == text ? "Kernels:" : "", (int)length, line);
        line = end != NULL ? end + 1 : line + length;
    }
    if (text != NULL) {
        rcv_text_free(problem->context, text);
    }
    return status;
}

static rcv_status show(problem *problem, bool program) {
    const rcv_plan_options options = problem_plan_options(problem, problem->schedule);
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(problem->net, &options, &plan);
    if (status != RCV_OK) {
        return status;
    }
    char *title = problem_describe(problem), *text = NULL, room[32];
    printf("%s\n", title);
    free(title);
    status = print_machine(problem);
    print_candidates(plan);
    printf("\nPlan:    %s%s\n", rcv_plan_string(plan), problem->schedule != NULL ? " (pinned)" : "");
    printf("Memory:  %s (%zu bytes)\n", human_bytes((double)rcv_plan_bytes(plan), room), rcv_plan_bytes(plan));
    printf("Planned: in %.3f s, %s\n", rcv_plan_seconds(plan),
           problem->schedule != NULL    ? "pinned, not searched"
           : rcv_plan_from_wisdom(plan) ? "from wisdom"
                                        : problem_effort(problem));
    if (status == RCV_OK) {
        status = print_explanation(problem, plan);
    }
    if (program && status == RCV_OK) {
        status = rcv_plan_print(plan, &text);
    }
    if (text != NULL) {
        printf("\n%s", text);
        rcv_text_free(problem->context, text);
    }
    rcv_plan_free(plan);
    return status == RCV_OK ? problem_save_wisdom(problem) : status;
}

int verb_plan(int argc, char **argv) {
    if (plan_is_parallel(argc, argv)) {
        return plan_ranks(argc, argv);
    }
    problem problem;
    option_group shape, planning;
    problem_groups(&problem, &shape, &planning);
    bool program = false;
    option options[] = {{"print", OPTION_FLAG, &program, .help = "also print the program of the chosen plan"},
                        {"replan", OPTION_FLAG, &problem.replan, .help = "measure anew: no wisdom from the cache"}};
    const option_group groups[] = {shape, planning, {"Options", options, COUNT(options)}};
    const command command = {.verb = "plan",
                             .summary = "Lists the plans of a network, fastest first, and the chosen one",
                             .details =
                                 "For each plan: its measured time, the time that the planner's cost model expects,\n"
                                 "and the memory of a run; for a plan that does not apply, the reason. Plans with\n"
                                 "recompute need less memory and more time. For persistent kernels on a GPU the last\n"
                                 "lines say where the weights are kept.\n\n"
                                 "Ctrl-C ends planning after the current trial, without a plan and with wisdom\n"
                                 "unchanged; a second Ctrl-C ends it at once.\n\n"
                                 "What was measured is kept in the cache (RECURVE_CACHE), and a later call takes it\n"
                                 "from there; --replan measures again and replaces it.\n\n"
                                 "recurve plan --parallel HOW DATA [--machine N,GB,US] plans training over many\n"
                                 "devices; see recurve plan --parallel data --help.",
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    const int wrong = problem_check(&problem);
    if (wrong != EXIT_DONE) {
        return wrong;
    }
    paths paths = {0};
    paths_add_problem(&paths, &problem);
    if (!paths_are_apart(&paths)) {
        return EXIT_FAILED;
    }
    stop_on_signals();
    rcv_status status = problem_open(&problem);
    if (status == RCV_OK) {
        status = show(&problem, program);
    }
    const int result = status == RCV_OK ? EXIT_DONE : fail(status);
    problem_close(&problem);
    return result;
}

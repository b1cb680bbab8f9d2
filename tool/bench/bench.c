/* The main comparison, and the order of the experiments. */
#include "bench/bench.h"
#include "bench/experiments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 400000 };

rcv_status initialize_parameters(const bench *bench, const rcv_net *net, call_tensors *tensors) {
    return rcv_net_initialize(net, bench->seed, tensors->storage, tensors->parameters);
}

/* ---- the main comparison ---- */

static void copy_considered_plans(const rcv_plan *plan, results *results) {
    results->planning_seconds = rcv_plan_seconds(plan);
    results->from_wisdom = rcv_plan_from_wisdom(plan);
    results->option_count = rcv_plan_candidate_count(plan);
    results->options = need(results->option_count, sizeof *results->options);
    for (size_t i = 0; i < results->option_count; i++) {
        const rcv_candidate *candidate = rcv_plan_candidate(plan, i);
        results->options[i] =
            (considered_plan){.schedule = text_of("%s", candidate->schedule),
                              .reason = candidate->reason != NULL ? text_of("%s", candidate->reason) : NULL,
                              .estimate = candidate->estimate,
                              .seconds = candidate->seconds,
                              .bytes = (double)candidate->bytes,
                              .chosen = candidate->chosen};
    }
}

/* The events of the backward pass are shifted so that they follow those of the forward pass. */
void record_timeline(timeline *timeline, implementation *implementation) {
    rcv_run *run = implementation_run(implementation);
    if (run == NULL) {
        return;
    }
    timeline->events = need(MOST_EVENTS, sizeof *timeline->events);
    if (rcv_run_trace(run, timeline->events, MOST_EVENTS) != RCV_OK || implementation->run(implementation, 1) < 0) {
        return;
    }
    timeline->plan = text_of("%s", implementation->measured.plan);
    timeline->count = rcv_run_trace_count(run);
    rcv_run_trace(run, NULL, 0);
    for (size_t i = 0; i < timeline->count; i++) {
        if (!timeline->events[i].backward && timeline->events[i].end > timeline->forward_seconds) {
            timeline->forward_seconds = timeline->events[i].end;
        }
    }
    for (size_t i = 0; i < timeline->count; i++) {
        if (timeline->events[i].backward) {
            timeline->events[i].begin += timeline->forward_seconds;
            timeline->events[i].end += timeline->forward_seconds;
        }
    }
}

rcv_status bench_main(bench *bench, results *results) {
    const problem *problem = &bench->problem;
    comparison comparison = {.count = 0};
    call_tensors tensors;
    call_tensors_new(&tensors, problem, problem->net, bench->seed);
    rcv_status status = initialize_parameters(bench, problem->net, &tensors);
    if (status == RCV_OK) {
        show_progress("planning");
        implementation *ours = comparison_add_plan(&comparison, "recurve", problem, problem->net, &tensors,
                                                   tensors.parameters, problem->schedule);
        if (ours->measured.refusal != NULL) { /* rcv_message() still has the sentence */
            status = stop_signal() != 0 ? RCV_STOPPED : RCV_UNSUPPORTED;
        } else {
            copy_considered_plans(implementation_plan(ours), results);
            if (bench->anchors) {
                comparison_add_anchors(&comparison, bench, &tensors);
            }
            comparison_measure(&comparison, problem, &tensors, &results->peak, "comparison", bench->seconds, 5);
            results->peak_speed = peak_best(&results->peak);
            if (bench->report != NULL && stop_signal() == 0) {
                record_timeline(&results->chosen, ours);
            }
        }
        hide_progress();
    }
    comparison_end(&comparison, &results->main);
    call_tensors_free(&tensors);
    return status;
}

static rcv_status measure_scans(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    const bool gpu = problem_is_gpu(problem);
    results->title = text_of("linear recurrences h[t] = a[t] h[t-1] + b[t], %s%s%s", rcv_dtype_name(problem->dtype),
                             gpu ? ", on " : "", gpu ? problem->device : "");
    machine_describe(&results->machine, problem);
    const rcv_status status = bench_scan(bench, results);
    if (status == RCV_OK) {
        print_scan(results);
    }
    return status;
}

static rcv_status measure_lengths(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    const rcv_net_options *net = &problem->network.net;
    const bool gpu = problem_is_gpu(problem);
    results->title = text_of(
        "cells over the number of steps, %lld layer%s, input %lld, hidden %lld, batch %lld, %s%s%s",
        (long long)net->layers, net->layers == 1 ? "" : "s", (long long)net->input, (long long)net->hidden,
        (long long)problem->batch, rcv_dtype_name(problem->dtype), gpu ? ", on " : "", gpu ? problem->device : "");
    machine_describe(&results->machine, problem);
    const rcv_status status = bench_lengths(bench, results);
    if (status == RCV_OK) {
        print_lengths(results);
    }
    return status;
}

static rcv_status measure_network(bench *bench, results *results) {
    results->title = problem_describe(&bench->problem);
    results->unit =
        problem_is_gpu(&bench->problem) ? (speed_unit){"TFLOP/s", 1e-12, 2} : (speed_unit){"GFLOP/s", 1e-9, 1};
    machine_describe(&results->machine, &bench->problem);
    peak_begin(&results->peak, &bench->problem, bench->seconds);
    rcv_status status = bench_main(bench, results);
    if (status != RCV_OK) {
        return status;
    }
    print_head(bench, results);
    print_comparison(results);
    if (bench->ladder && stop_signal() == 0) {
        bench_ladder(bench, results);
        print_ladder(results);
    }
    if (bench->batches && stop_signal() == 0) {
        bench_batches(bench, results);
        print_batches(bench, results);
    }
    if ((bench->ranks != NULL || bench->problem.network.net.rank > 0) && stop_signal() == 0) {
        status = bench_ranks(bench, results);
        print_ranks(results);
    }
    if (bench->streaming && status == RCV_OK && stop_signal() == 0) {
        bench_streaming(bench, results);
        print_streaming(results);
    }
    if (bench->gemm && status == RCV_OK && stop_signal() == 0) {
        bench_gemm(bench, results);
        print_gemm(results);
    }
    if (bench->planner && status == RCV_OK && stop_signal() == 0) {
        status = bench_planner(bench, results);
        print_planner(results);
    }
    return status;
}

rcv_status bench_run(bench *bench, results *results) {
    const rcv_status status = bench->scan              ? measure_scans(bench, results)
                              : bench->lengths != NULL ? measure_lengths(bench, results)
                                                       : measure_network(bench, results);
    hide_progress();
    return status;
}

/* ---- the list of --ranks ---- */

static bool ranks_are_valid(const char *ranks) {
    if (ranks == NULL || strcmp(ranks, "auto") == 0) {
        return true;
    }
    size_t count = 0;
    for (const char *at = ranks;; at++) {
        char *end;
        const long long rank = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || rank < 1 || rank > 1 << 24 || (*end != ',' && *end != '\0') ||
            ++count > MAXIMUM_RANKS - 2) {
            say("--ranks must be up to %d whole numbers of at least 1, such as 128,64,32, or auto; not '%.60s'",
                MAXIMUM_RANKS - 2, ranks);
            return false;
        }
        if (*end == '\0') {
            return true;
        }
        at = end;
    }
}

bool bench_lists_are_valid(const bench *bench) {
    return (bench->lengths == NULL || lengths_are_valid(bench)) && ranks_are_valid(bench->ranks);
}

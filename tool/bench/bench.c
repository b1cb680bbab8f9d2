/* recurve bench: options, the experiments in their order, and what is written at the end. */
#include "bench/bench.h"
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 400000 };

rcv_status fill_parameters(const bench *bench, const rcv_net *net, data *data) {
    return rcv_net_initialize(net, bench->seed, data->storage, data->parameters);
}

/* ---- the main contest ---- */

static void copy_considered(const rcv_plan *plan, results *results) {
    results->planning_seconds = rcv_plan_seconds(plan);
    results->from_wisdom = rcv_plan_from_wisdom(plan);
    results->option_count = rcv_plan_candidate_count(plan);
    results->options = need(results->option_count, sizeof *results->options);
    for (size_t i = 0; i < results->option_count; i++) {
        const rcv_candidate *candidate = rcv_plan_candidate(plan, i);
        results->options[i] =
            (option_considered){.schedule = text_of("%s", candidate->schedule),
                                .reason = candidate->reason != NULL ? text_of("%s", candidate->reason) : NULL,
                                .estimate = candidate->estimate,
                                .seconds = candidate->seconds,
                                .bytes = (double)candidate->bytes,
                                .chosen = candidate->chosen};
    }
}

/* Times of the backward pass are counted on from the forward pass's end. */
void record_timeline(timeline *timeline, contestant *contestant) {
    rcv_run *run = contestant_run(contestant);
    if (run == NULL) {
        return;
    }
    timeline->events = need(MOST_EVENTS, sizeof *timeline->events);
    if (rcv_run_trace(run, timeline->events, MOST_EVENTS) != RCV_OK || contestant->run(contestant, 1) < 0) {
        return;
    }
    timeline->plan = text_of("%s", contestant->plan);
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
    data data;
    data_new(&data, problem, problem->net, bench->seed);
    rcv_status status = fill_parameters(bench, problem->net, &data);
    if (status == RCV_OK) {
        show_progress("planning");
        contestant *ours =
            add_plan(&results->main, "recurve", problem, problem->net, &data, data.parameters, problem->schedule);
        if (ours->refusal != NULL) { /* rcv_message() still has the sentence */
            status = stop_signal() != 0 ? RCV_STOPPED : RCV_UNSUPPORTED;
        } else {
            copy_considered(contestant_plan(ours), results);
            if (bench->anchors) {
                add_anchors(&results->main, bench, &data);
            }
            contest_measure(&results->main, problem, &data, &results->peak, "contest", bench->seconds, 5);
            results->peak_speed = peak_best(&results->peak);
            if (bench->report != NULL && stop_signal() == 0) {
                record_timeline(&results->chosen, ours);
            }
        }
        hide_progress();
    }
    contest_close(&results->main);
    data_free(&data);
    return status;
}

/* ---- all of it ---- */

void results_free(results *results) {
    contest_free(&results->main);
    contest_free(&results->ladder);
    for (size_t i = 0; i < results->option_count; i++) {
        free(results->options[i].schedule);
        free(results->options[i].reason);
    }
    for (size_t i = 0; i < results->batch_count; i++) {
        free(results->batches[i].plan);
    }
    for (size_t i = 0; i < results->rank_count; i++) {
        free(results->ranks[i].plan);
        free(results->ranks[i].refusal);
    }
    for (size_t i = 0; i < results->choice_count; i++) {
        free(results->choices[i].plan);
        free(results->choices[i].refusal);
    }
    for (size_t i = 0; i < results->scans.count; i++) {
        free(results->scans.points[i].form);
        free(results->scans.points[i].refusal);
    }
    lengths_free(&results->lengths);
    const streaming *streaming = &results->streaming;
    machine_free(&results->machine);
    void *const blocks[] = {results->title,        results->options,          results->chosen.events,
                            results->chosen.plan,  results->wavefront.events, results->wavefront.plan,
                            results->peak.refusal, results->gemm.refusal,     streaming->refusal,
                            streaming->plan,       streaming->whole_plan,     streaming->unhoisted_plan};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
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

static rcv_status measure_all(bench *bench, results *results) {
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
    print_contest(results);
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

static int work(bench *bench) {
    results *results = need(1, sizeof *results);
    stop_on_signals();
    rcv_status status = problem_open(&bench->problem);
    if (status == RCV_OK) {
        status = bench->scan              ? measure_scans(bench, results)
                 : bench->lengths != NULL ? measure_lengths(bench, results)
                                          : measure_all(bench, results);
    }
    int result = EXIT_DONE;
    if (status != RCV_OK) {
        hide_progress();
        result = fail(status);
    } else {
        const bool written = (bench->json == NULL || write_json(bench, results)) &&
                             (bench->report == NULL || write_report(bench, results));
        result = written ? stop_status() : EXIT_FAILED;
        if (problem_save_wisdom(&bench->problem) != RCV_OK) {
            result = fail(RCV_IO);
        }
        if (stop_signal() != 0) {
            say("stopped: what is printed%s is what was measured until then",
                bench->json != NULL || bench->report != NULL ? " and written" : "");
        }
    }
    results_free(results);
    free(results);
    problem_close(&bench->problem);
    return result;
}

/* ---- options ---- */

static bool ranks_are_clear(const char *ranks) {
    if (ranks == NULL || strcmp(ranks, "auto") == 0) {
        return true;
    }
    size_t count = 0;
    for (const char *at = ranks;; at++) {
        char *end;
        const long long rank = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || rank < 1 || rank > 1 << 24 || (*end != ',' && *end != '\0') ||
            ++count > MAXIMUM_RANKS - 2) {
            say("--ranks wants up to %d whole numbers of at least 1, such as 128,64,32, or auto; not '%.60s'",
                MAXIMUM_RANKS - 2, ranks);
            return false;
        }
        if (*end == '\0') {
            return true;
        }
        at = end;
    }
}

/* Linear recurrences have no network, and lengths are about several ones. */
static bool stands_alone(const bench *bench) {
    const struct {
        const char *name;
        bool given;
    } others[] = {{"anchors", bench->anchors},     {"ladder", bench->ladder},
                  {"batches", bench->batches},     {"gemm", bench->gemm},
                  {"streaming", bench->streaming}, {"ranks", bench->ranks != NULL},
                  {"planner", bench->planner},     {"scan", bench->scan}};
    const size_t count = bench->lengths != NULL ? COUNT(others) : bench->scan ? COUNT(others) - 1 : 0;
    for (size_t i = 0; i < count; i++) {
        if (others[i].given) {
            say("%s: leave out --%s",
                bench->lengths != NULL ? "--lengths measures cells over the number of steps and nothing else"
                                       : "--scan measures linear recurrences and no network",
                others[i].name);
            return false;
        }
    }
    return true;
}

static bool is_given(const option *options, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return options[i].given;
        }
    }
    return false;
}

static bool problem_has(const problem *problem, const char *name) {
    return is_given(problem->options, COUNT(problem->options), name) ||
           is_given(problem->network.options, COUNT(problem->network.options), name);
}

/* Cells, steps and passes are its own. */
static bool lengths_go_together(const bench *bench) {
    static const char *const foreign[] = {"cell", "size", "steps", "pass"};
    if (bench->lengths == NULL) {
        if (bench->cells != NULL) {
            say("--cells names the cells of --lengths, which is not given");
        }
        return bench->cells == NULL;
    }
    for (size_t i = 0; i < COUNT(foreign); i++) {
        if (problem_has(&bench->problem, foreign[i])) {
            say("--lengths measures both passes of the cells of --cells over steps of its own: leave out --%s",
                foreign[i]);
            return false;
        }
    }
    return lengths_are_clear(bench);
}

static bool options_are_clear(const bench *bench) {
    if (!stands_alone(bench) || !lengths_go_together(bench)) {
        return false;
    }
    if (!ranks_are_clear(bench->ranks)) {
        return false;
    }
    if (bench->gemm && problem_is_gpu(&bench->problem)) {
        say("--gemm measures the CPU's kernels: leave out --device %s", bench->problem.device);
        return false;
    }
    if (bench->streaming && problem_is_gpu(&bench->problem)) {
        say("--streaming measures the latency of calls on the CPU: leave out --device %s", bench->problem.device);
        return false;
    }
    if (bench->streaming && bench->problem.network.net.bidirectional) {
        say("--streaming and --bidirectional exclude each other: the reverse direction begins at the end of a "
            "sequence");
        return false;
    }
    if (bench->streaming && bench->chunk > bench->problem.steps) {
        say("--chunk %lld is more than the %lld steps of a sequence", (long long)bench->chunk,
            (long long)bench->problem.steps);
        return false;
    }
    return true;
}

static parsed parse(bench *bench, int argc, char **argv) {
    option_group shape, planning;
    problem_groups(&bench->problem, &shape, &planning);
    option options[] = {
        {"anchors", OPTION_FLAG, &bench->anchors, .help = "against oneDNN, OpenBLAS and PyTorch; GPU: cuDNN, PyTorch"},
        {"no-torch", OPTION_FLAG, &bench->no_torch, .help = "leave out PyTorch, which takes a while to start"},
        {"ladder", OPTION_FLAG, &bench->ladder, .help = "each rung alone, then one upon the other, over naive"},
        {"batches", OPTION_FLAG, &bench->batches, .help = "speed over batch sizes 1 to 256; GPU: 512"},
        {"gemm", OPTION_FLAG, &bench->gemm, .help = "the three products over batch sizes 1 to 256"},
        {"streaming", OPTION_FLAG, &bench->streaming, .help = "latency of a few steps a call, state carried"},
        {"chunk", OPTION_INTEGER, &bench->chunk, 1, 1 << 24, .value = "N", .help = "steps a call of --streaming"},
        {"ranks", OPTION_TEXT, &bench->ranks, .value = "LIST", .help = "time and error of these ranks, or auto"},
        {"planner", OPTION_FLAG, &bench->planner, .help = "time to choose and quality of each planning effort"},
        {"scan", OPTION_FLAG, &bench->scan, .help = "linear recurrences against a copy, and no network"},
        {"elements", OPTION_INTEGER, &bench->elements, 64, 1e12, .value = "N",
         .help = "of an array of --scan, at most"},
        {"lengths", OPTION_TEXT, &bench->lengths, .value = "LIST",
         .help = "cells over these steps against the LSTM, or auto"},
        {"cells", OPTION_TEXT, &bench->cells, .value = "LIST", .help = "of --lengths; by default scans and diagonals"},
        {"longest", OPTION_REAL, &bench->longest, 0, 1e6, .value = "S",
         .help = "seconds of an LSTM's call, else extrapolated"},
        {"seconds", OPTION_REAL, &bench->seconds, 0, 1e6, .value = "S", .help = "of measuring in each experiment"},
        {"seed", OPTION_SEED, &bench->seed, .value = "N", .help = "of parameters and data"},
        {"json", OPTION_TEXT, &bench->json, .value = "FILE", .help = "write every number"},
        {"report", OPTION_TEXT, &bench->report, .value = "FILE",
         .help = "write a page with plots; with ladder, batches"},
    };
    const option_group groups[] = {{"What to measure", options, COUNT(options)}, shape, planning};
    const command command = {
        .verb = "bench",
        .summary = "Measures a network against other libraries and against this machine's limit",
        .details =
            "Contestants take turns in one run, after a warm-up; times are medians over the rounds.\n"
            "Speed counts the matrix products alone: 2 operations for each matrix element, step and\n"
            "sequence, three times that for a training step. The limit is that of fused\n"
            "multiply-adds from registers, on a GPU of large products by cuBLASLt, measured in the\n"
            "same run. With --rank the approximation is compared with the full matrices. --scan\n"
            "measures no network but linear recurrences h[t] = a[t] h[t-1] + b[t], as bandwidths: 3\n"
            "arrays forward, 5 backward, against a copy and against one step after the other. --lengths\n"
            "measures cells, forward and training step, over numbers of steps, such as 1024,65536 or\n"
            "auto: 1024 to 1048576; hidden is 128 and batch 1 unless given. Of each the plan is chosen\n"
            "for at most 16384 steps. The LSTM takes turns with each cell while a call is expected to\n"
            "take no more than --longest; beyond, its time is that of fewer steps, scaled, and said so.\n"
            "Ctrl-C ends it with what was measured so far, also while it plans; a second Ctrl-C ends it at once.",
        .groups = groups,
        .group_count = COUNT(groups)};
    return command_parse(&command, argc, argv);
}

static bool files_are_clear(const bench *bench) {
    paths paths = {0};
    paths_add_problem(&paths, &bench->problem);
    paths_add_cells(&paths, "--cells", bench->cells);
    paths_add(&paths, PATH_WRITTEN, "--json", bench->json);
    paths_add(&paths, PATH_WRITTEN, "--report", bench->report);
    return paths_are_apart(&paths) && (bench->json == NULL || output_is_free(bench->json, OUTPUT_JSON)) &&
           (bench->report == NULL || output_is_free(bench->report, OUTPUT_PAGE));
}

int verb_bench(int argc, char **argv) {
    bench *bench = need(1, sizeof *bench);
    bench->seconds = 10;
    bench->chunk = 1;
    bench->elements = 128 << 20;
    bench->longest = 1;
    bench->command = command_line(argc, argv);
    const parsed next = parse(bench, argc, argv);
    int result = next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    if (next == PARSED_GO && bench->lengths != NULL) {
        problem *problem = &bench->problem;
        problem->network.net.hidden = problem_has(problem, "hidden") ? problem->network.net.hidden : 128;
        problem->batch = problem_has(problem, "batch") ? problem->batch : 1;
    }
    if (next == PARSED_GO && options_are_clear(bench)) {
        result = problem_check(&bench->problem);
        if (result == EXIT_DONE && !files_are_clear(bench)) {
            result = EXIT_FAILED;
        }
        if (result == EXIT_DONE) {
            bench->ladder = bench->ladder || bench->report != NULL;
            bench->batches = bench->batches || bench->report != NULL;
            if ((bench->anchors || bench->gemm) && !problem_is_gpu(&bench->problem)) {
                help_openblas(argv);
            }
            result = work(bench);
        }
    }
    free(bench->command);
    free(bench);
    return result;
}

/* recurve bench: its options, and the files that it writes. */
#include "bench/bench.h"
#include "paths.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static int work(bench *bench) {
    results *results = need(1, sizeof *results);
    stop_on_signals();
    rcv_status status = problem_open(&bench->problem);
    if (status == RCV_OK) {
        status = bench_run(bench, results);
    }
    int result = EXIT_DONE;
    if (status != RCV_OK) {
        result = fail(status);
    } else {
        const bool written = (bench->json == NULL || bench_write_json(bench, results)) &&
                             (bench->report == NULL || write_bench_page(bench, results));
        result = written ? stop_status() : EXIT_FAILED;
        if (problem_save_wisdom(&bench->problem) != RCV_OK) {
            result = fail(RCV_IO);
        }
        if (stop_signal() != 0) {
            say("stopped: what is printed%s was measured before the signal",
                bench->json != NULL || bench->report != NULL ? " and written" : "");
        }
    }
    results_free(results);
    free(results);
    problem_close(&bench->problem);
    return result;
}

/* ---- checks of options ---- */

/* --scan and --lengths are experiments of their own. */
static bool excludes_other_experiments(const bench *bench) {
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

/* --lengths has its own cells, steps and passes. */
static bool check_lengths(const bench *bench) {
    static const char *const excluded[] = {"cell", "size", "steps", "pass"};
    if (bench->lengths == NULL) {
        if (bench->cells != NULL) {
            say("--cells lists the cells of --lengths, which is not given");
        }
        return bench->cells == NULL;
    }
    for (size_t i = 0; i < COUNT(excluded); i++) {
        if (problem_has(&bench->problem, excluded[i])) {
            say("--lengths measures both passes of the cells of --cells over its own numbers of steps: leave out --%s",
                excluded[i]);
            return false;
        }
    }
    return true;
}

static bool check_options(const bench *bench) {
    if (!excludes_other_experiments(bench) || !check_lengths(bench) || !bench_lists_are_valid(bench)) {
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
    bench->problem.replan = true; /* planning is one of the things that it measures */
    option options[] = {
        {"anchors", OPTION_FLAG, &bench->anchors, .help = "also oneDNN, OpenBLAS, PyTorch; GPU: cuDNN, PyTorch"},
        {"no-torch", OPTION_FLAG, &bench->no_torch, .help = "leave out PyTorch, which starts slowly"},
        {"ladder", OPTION_FLAG, &bench->ladder, .help = "speed-up of each rung alone and of rungs added"},
        {"batches", OPTION_FLAG, &bench->batches, .help = "throughput over batch sizes 1 to 256; GPU: 512"},
        {"gemm", OPTION_FLAG, &bench->gemm, .help = "the three matrix products over batch sizes"},
        {"streaming", OPTION_FLAG, &bench->streaming, .help = "latency of calls of a few steps"},
        {"chunk", OPTION_INTEGER, &bench->chunk, 1, 1 << 24, .value = "N", .help = "steps of a call of --streaming"},
        {"ranks", OPTION_TEXT, &bench->ranks, .value = "LIST", .help = "time and error of low-rank weights, or auto"},
        {"planner", OPTION_FLAG, &bench->planner, .help = "planning time and chosen plan of each effort"},
        {"scan", OPTION_FLAG, &bench->scan, .help = "linear recurrences only, compared with a copy"},
        {"elements", OPTION_INTEGER, &bench->elements, 64, 1e12, .value = "N", .help = "largest array of --scan"},
        {"lengths", OPTION_TEXT, &bench->lengths, .value = "LIST",
         .help = "time of cells over steps, and of the LSTM; or auto"},
        {"cells", OPTION_TEXT, &bench->cells, .value = "LIST", .help = "cells of --lengths"},
        {"longest", OPTION_REAL, &bench->longest, 0, 1e6, .value = "S",
         .help = "longer calls of the LSTM are extrapolated"},
        {"seconds", OPTION_REAL, &bench->seconds, 0, 1e6, .value = "S", .help = "duration of each experiment"},
        {"seed", OPTION_SEED, &bench->seed, .value = "N", .help = "of parameters and inputs"},
        {"json", OPTION_TEXT, &bench->json, .value = "FILE", .help = "write all results as JSON"},
        {"report", OPTION_TEXT, &bench->report, .value = "FILE",
         .help = "write an HTML page; adds --ladder and --batches"},
    };
    const option_group groups[] = {{"What to measure", options, COUNT(options)}, shape, planning};
    const command command = {
        .verb = "bench",
        .summary = "Times a network, other libraries and the limit of the machine",
        .details = "Implementations are timed in turns in one process, after a warm-up; times are\n"
                   "medians over the rounds. Speed counts matrix products only: 2 operations for each\n"
                   "matrix element, step and sequence, three times that for a training step. The limit\n"
                   "is the speed of fused multiply-adds on registers, on a GPU that of large products by\n"
                   "cuBLASLt, measured in the same process. With --rank the low-rank network is compared\n"
                   "with the full matrices.\n\n"
                   "--scan measures linear recurrences h[t] = a[t] h[t-1] + b[t] as bandwidths (3 arrays\n"
                   "forward, 5 backward), compared with a copy and with the serial form.\n\n"
                   "--lengths measures cells, forward and training step, over numbers of steps, such as\n"
                   "1024,65536, or auto: 1024 to 1048576. Default hidden 128, batch 1. A plan is chosen\n"
                   "for at most 16384 steps. The LSTM is timed in turns with each cell as long as one\n"
                   "call should take at most --longest seconds; after that its time is extrapolated from\n"
                   "fewer steps and marked with ~.\n\n"
                   "Ctrl-C ends the benchmark with the results so far; a second Ctrl-C ends it at once.",
        .groups = groups,
        .group_count = COUNT(groups)};
    return command_parse(&command, argc, argv);
}

static bool check_files(const bench *bench) {
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
    if (next == PARSED_GO && check_options(bench)) {
        result = problem_check(&bench->problem);
        if (result == EXIT_DONE && !check_files(bench)) {
            result = EXIT_FAILED;
        }
        if (result == EXIT_DONE) {
            bench->ladder = bench->ladder || bench->report != NULL;
            bench->batches = bench->batches || bench->report != NULL;
            if ((bench->anchors || bench->gemm) && !problem_is_gpu(&bench->problem)) {
                bench_set_openblas_core(argv);
            }
            result = work(bench);
        }
    }
    free(bench->command);
    free(bench);
    return result;
}

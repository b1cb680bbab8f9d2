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
    return true;
}

static bool options_are_clear(const bench *bench) {
    if (!stands_alone(bench) || !lengths_go_together(bench) || !bench_lists_are_valid(bench)) {
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
                bench_set_openblas_core(argv);
            }
            result = work(bench);
        }
    }
    free(bench->command);
    free(bench);
    return result;
}

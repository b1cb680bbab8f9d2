/* The ladder: the speed-up of each rung alone, and of rungs added one after the other. Then: the speed over batch sizes. */
#include "bench/experiments.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name, *schedule;
    bool cumulative, threads;
} rung;

/* %lld is the number of threads. Rungs with `threads` are left out where there is one thread. */
static const rung cpu_rungs[] = {
    {"naive", "naive", false, false},
    {"kernels", "kernels", false, false},
    {"combine gates", "combine", false, false},
    {"combine gates and steps", "combine(steps=all)", false, false},
    {"fuse", "fuse", false, false},
    {"pack", "pack", false, false},
    {"transpose", "transpose", false, false},
    {"wavefront", "wavefront", false, false},
    {"threads", "naive+threads(%lld)", false, true},
    {"kernels", "kernels", true, false},
    {"+ combine gates", "combine", true, false},
    {"+ fuse", "combine+fuse", true, false},
    {"+ pack", "combine+fuse+pack", true, false},
    {"+ combine steps", "combine(steps=all)+fuse+pack", true, false},
    {"+ threads", "combine(steps=all)+fuse+pack+threads(%lld)", true, true},
    {"+ wavefront", "combine+fuse+pack+wavefront+threads(%lld)", true, false},
};

/* The layers of a wavefront run at the same time on several streams, or, with merge, in one launch. */
static const rung gpu_rungs[] = {
    {"naive", "naive", false, false},
    {"combine gates", "combine", false, false},
    {"fuse", "fuse", false, false},
    {"streams", "naive+streams(4)", false, false},
    {"pack", "pack", false, false},
    {"transpose", "transpose", false, false},
    {"wavefront", "wavefront", false, false},
    {"graph", "naive+graph", false, false},
    {"combine gates", "combine", true, false},
    {"+ fuse", "combine+fuse", true, false},
    {"+ transpose", "combine+fuse+transpose", true, false},
    {"+ wavefront", "combine+fuse+transpose+wavefront", true, false},
    {"+ streams", "combine+fuse+transpose+wavefront+streams(4)", true, false},
    {"+ graph", "combine+fuse+transpose+wavefront+streams(4)+graph", true, false},
    {"pack, merge in their place", "combine+fuse+pack+wavefront+merge+graph", true, false},
    {"+ persistent", "combine+fuse+pack+wavefront+merge+persistent+graph", true, false},
};

static void add_rung(const bench *bench, results *results, comparison *comparison, call_tensors *tensors,
                     const rung *rung) {
    const long long threads = (long long)problem_threads(&bench->problem);
    char schedule[128];
    if (rung->threads && threads == 1) {
        return;
    }
    snprintf(schedule, sizeof schedule, rung->schedule, threads);
    if (!rung->cumulative && comparison->count > 0) {
        results->ladder_alone++;
    }
    if (strstr(schedule, "+threads(1)") != NULL) {
        *strstr(schedule, "+threads(1)") = '\0';
    }
    comparison_add_plan(comparison, rung->name, &bench->problem, bench->problem.net, tensors, tensors->parameters,
                        schedule);
}

/* Records the wavefront of the ladder, where the planner's choice has none. */
static void record_wavefront(const bench *bench, results *results, comparison *comparison) {
    const char *chosen = results->chosen.plan;
    if (bench->report == NULL || chosen == NULL || strstr(chosen, "wavefront") != NULL) {
        return;
    }
    for (size_t i = 0; i < comparison->count && stop_signal() == 0; i++) {
        if (strcmp(comparison->items[i].measured.name, "+ wavefront") == 0) {
            record_timeline(&results->wavefront, &comparison->items[i]);
        }
    }
}

void bench_ladder(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    comparison comparison = {.count = 0};
    call_tensors tensors;
    call_tensors_new(&tensors, problem, problem->net, bench->seed);
    if (initialize_parameters(bench, problem->net, &tensors) == RCV_OK) {
        const bool gpu = problem_is_gpu(problem);
        for (size_t i = 0; i < (gpu ? COUNT(gpu_rungs) : COUNT(cpu_rungs)) && stop_signal() == 0; i++) {
            show_progress("ladder: preparing rung %zu", i + 1);
            add_rung(bench, results, &comparison, &tensors, gpu ? &gpu_rungs[i] : &cpu_rungs[i]);
        }
        comparison_add_plan(&comparison, "the planner's choice", problem, problem->net, &tensors, tensors.parameters,
                            results->main.items[0].plan);
        comparison_measure(&comparison, problem, &tensors, NULL, "ladder", bench->seconds, 3);
        record_wavefront(bench, results, &comparison);
    }
    comparison_end(&comparison, &results->ladder);
    call_tensors_free(&tensors);
}

static void add_batch_point(results *results, int64_t batch, const measurements *measured) {
    const measurement *ours = &measured->items[0];
    const measurement *vendor = measured->count > 1 ? family_best(measured, 1) : NULL;
    if (ours->median > 0) {
        results->batches[results->batch_count++] = (batch_point){
            .batch = batch,
            .plan = text_of("%s", ours->plan),
            .seconds = ours->median,
            .speed = ours->operations / ours->median,
            .vendor_speed = vendor != NULL && vendor->median > 0 ? vendor->operations / vendor->median : 0,
            .peak = peak_best(&results->peak)};
    }
}

static void measure_batch(const bench *bench, results *results, int64_t batch) {
    problem problem = bench->problem;
    problem.batch = batch;
    comparison comparison = {.count = 0};
    measurements measured = {.count = 0};
    call_tensors tensors;
    call_tensors_new(&tensors, &problem, problem.net, bench->seed);
    if (initialize_parameters(bench, problem.net, &tensors) == RCV_OK) {
        show_progress("batch sizes: planning for %lld", (long long)batch);
        comparison_add_plan(&comparison, "recurve", &problem, problem.net, &tensors, tensors.parameters,
                            problem.schedule);
        if (bench->anchors) {
            comparison_add_vendors(&comparison, &problem, &tensors);
        }
        char title[64];
        snprintf(title, sizeof title, "batch size %lld", (long long)batch);
        comparison_measure(&comparison, &problem, &tensors, NULL, title, bench->seconds / CPU_BATCH_SIZES, 3);
        peak_sample(&results->peak, &problem);
        comparison_end(&comparison, &measured);
        add_batch_point(results, batch, &measured);
    }
    measurements_free(&measured);
    call_tensors_free(&tensors);
}

/* Ends at the batch size whose call takes more than about half of the experiment's seconds. */
void bench_batches(const bench *bench, results *results) {
    const size_t sizes = problem_is_gpu(&bench->problem) ? BATCH_SIZES : CPU_BATCH_SIZES;
    for (size_t i = 0; i < sizes && stop_signal() == 0; i++) {
        const size_t before = results->batch_count;
        measure_batch(bench, results, batch_sizes[i]);
        if (results->batch_count == before || results->batches[before].seconds > bench->seconds / 2 + 0.1) {
            break;
        }
    }
}

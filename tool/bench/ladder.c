/* The ladder: every rung alone, then one upon the other; and the speed over batch sizes. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

const int64_t batch_sizes[BATCH_SIZES] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

typedef struct {
    const char *name, *schedule;
    bool cumulative, threads;
} rung;

/* A number stands for the threads; rungs with threads are left out where there is one. */
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

/* Without merge a wavefront's layers need streams to run side by side; with it they are one launch. */
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

static void add_rung(const bench *bench, results *results, data *data, const rung *rung) {
    const long long threads = (long long)problem_threads(&bench->problem);
    char schedule[128];
    if (rung->threads && threads == 1) {
        return;
    }
    snprintf(schedule, sizeof schedule, rung->schedule, threads);
    if (!rung->cumulative && results->ladder.count > 0) {
        results->ladder_alone++;
    }
    if (strstr(schedule, "+threads(1)") != NULL) {
        *strstr(schedule, "+threads(1)") = '\0';
    }
    add_plan(&results->ladder, rung->name, &bench->problem, bench->problem.net, data, data->parameters, schedule);
}

void bench_ladder(const bench *bench, results *results) {
    data data;
    data_new(&data, &bench->problem, bench->problem.net, bench->seed);
    if (fill_parameters(bench, bench->problem.net, &data) == RCV_OK) {
        const bool gpu = problem_is_gpu(&bench->problem);
        for (size_t i = 0; i < (gpu ? COUNT(gpu_rungs) : COUNT(cpu_rungs)) && stop_signal() == 0; i++) {
            show_progress("ladder: preparing rung %zu", i + 1);
            add_rung(bench, results, &data, gpu ? &gpu_rungs[i] : &cpu_rungs[i]);
        }
        const contestant *chosen = &results->main.items[0];
        add_plan(&results->ladder, "the planner's choice", &bench->problem, bench->problem.net, &data, data.parameters,
                 chosen->plan);
        contest_measure(&results->ladder, &bench->problem, &data, NULL, "ladder", bench->seconds, 3);
        for (size_t i = 0; i < results->ladder.count && bench->report != NULL && stop_signal() == 0; i++) {
            if (strcmp(results->ladder.items[i].name, "+ wavefront") == 0 && results->chosen.plan != NULL &&
                strstr(results->chosen.plan, "wavefront") == NULL) {
                record_timeline(&results->wavefront, &results->ladder.items[i]);
            }
        }
        contest_close(&results->ladder);
    }
    data_free(&data);
}

static void measure_batch(const bench *bench, results *results, int64_t batch) {
    problem problem = bench->problem;
    problem.batch = batch;
    contest contest = {.count = 0};
    data data;
    data_new(&data, &problem, problem.net, bench->seed);
    if (fill_parameters(bench, problem.net, &data) == RCV_OK) {
        show_progress("batch sizes: planning for %lld", (long long)batch);
        const contestant *ours =
            add_plan(&contest, "recurve", &problem, problem.net, &data, data.parameters, problem.schedule);
        if (bench->anchors) {
            add_vendors(&contest, &problem, &data);
        }
        char title[64];
        snprintf(title, sizeof title, "batch size %lld", (long long)batch);
        contest_measure(&contest, &problem, &data, NULL, title, bench->seconds / CPU_BATCH_SIZES, 3);
        peak_sample(&results->peak, &problem);
        const contestant *vendor = contest.count > 1 ? contest_speaker(&contest, 1) : NULL;
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
    contest_free(&contest);
    data_free(&data);
}

/* Until a call takes longer than the whole time there is. */
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

/* Which layers each stage of a pipeline has: as the setting says, or by measured costs. */
#include "train/forecast/costs.h"

#include "net/net.h"

#include <math.h>
#include <stdlib.h>

/* COUNT,COUNT,...: one a stage, all of the layers together. */
rcv_status rcvi_read_split(const char *text, int layers, int stages, int *counts) {
    int found = 0;
    long sum = 0;
    const char *at = text;
    bool good = true;
    while (good && *at) {
        char *end;
        long value = strtol(at, &end, 10);
        good = end != at && (!*end || (*end == ',' && end[1])) && value > 0 && value <= layers && found < stages;
        if (good) counts[found++] = (int)value;
        sum += value;
        at = *end ? end + 1 : end;
    }
    if (good && found == stages && sum == layers) return RCV_OK;
    return rcvi_fail(RCV_INVALID,
                     "split '%s' does not divide %d layers among %d stages: write the layers of each, such as 2,1,1",
                     text, layers, stages);
}

rcv_status rcvi_check_stages(int layers, int stages) {
    if (stages <= layers) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "%d layers cannot be divided among %d stages: a stage needs at least one layer",
                     layers, stages);
}

/* ---- by cost ---- */

/* The seconds of the slowest rank, on all ranks. */
static rcv_status take_slowest(const rcvi_workload *w, double *seconds, int64_t count) {
    return w->topology ? rcvi_comm_all_reduce(w->topology->world, RCVI_ALL_REDUCE_MAX, seconds, count) : RCV_OK;
}

/* Without measuring: in proportion to multiplications per token. */
static void guess_layers(const rcv_learner *l, double *layers, double *outputs) {
    for (int64_t i = 0; i < l->net->options.layers; i++)
        layers[i] = (double)(rcvi_layer_start(l->net, i + 1) - rcvi_layer_start(l->net, i));
    *outputs = (double)(l->shape.outputs * l->width);
}

/* The faster of two measurements: a disturbance may affect one alone. */
static rcv_status measure_twice(const rcvi_workload *w, const rcvi_cost_problem *problem, double *seconds,
                                double *outputs) {
    rcvi_stage_seconds s[2];
    for (int i = 0; i < 2; i++) RCVI_TRY(rcvi_costs_measure(w, problem, &s[i], NULL, NULL, NULL));
    *seconds = fmin(s[0].forward + s[0].backward, s[1].forward + s[1].backward);
    *outputs = fmin(s[0].head, s[1].head);
    return RCV_OK;
}

/* Measures the first layer, whose input may have another size, the second, which stands for all between, and the last. */
static rcv_status measure_layers(const rcvi_workload *w, int replicas, double *layers, double *outputs) {
    rcvi_comm *world = w->topology ? w->topology->world : NULL;
    int64_t count = w->learner->net->options.layers, whole;
    rcvi_cost_problem problem = {.count = 1,
                                 .bucket = rcvi_heaviest_bucket(w->batcher),
                                 .micro = 1,
                                 .chunks = 1,
                                 .peers = world,
                                 .together = world};
    rcvi_batcher_shape(w->batcher, problem.bucket, &problem.steps, &whole, NULL);
    problem.batch = (whole + replicas - 1) / replicas;
    for (int64_t l = 0; l < count; l++) {
        if (l > 1 && l < count - 1) continue;
        problem.first = l;
        RCVI_TRY(measure_twice(w, &problem, &layers[l], outputs));
    }
    for (int64_t l = 2; l < count - 1; l++) layers[l] = layers[1];
    RCVI_TRY(take_slowest(w, layers, count));
    return take_slowest(w, outputs, 1);
}

rcv_status rcvi_costs_split(const rcvi_workload *w, int replicas, int stages, int *counts) {
    int layers = (int)w->learner->net->options.layers;
    double *seconds = rcvi_new(w->context, (size_t)layers, sizeof *seconds), outputs = 0;
    rcv_status status = seconds ? RCV_OK : RCV_NO_MEMORY;
    bool guesses = rcvi_settings_is(w->settings, "effort", "estimate");
    if (!status && guesses) guess_layers(w->learner, seconds, &outputs);
    if (!status && !guesses) status = measure_layers(w, replicas, seconds, &outputs);
    if (!status) status = rcvi_pipeline_split(w->context, seconds, layers, 0, outputs, stages, counts);
    rcvi_free(w->context, seconds);
    return status;
}

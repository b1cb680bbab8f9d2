/* What an update over many devices takes: stages measured, links measured (links.c) or given, the rest simulated (pipeline.h). */
#include "train/forecast/costs.h"

#include "net/net.h"
#include "train/parallel/gradient_segments.h"

#include <math.h>
#include <string.h>

/* ---- stages ---- */

/* What is measured of a stage: seconds, and when the gradients of the lead of its first layer and of each layer are complete. */
typedef struct {
    double *seconds, *alone; /* as rcvi_stage_seconds: while all ranks compute, and while the others are idle */
    double *ready;           /* [layers of it + 1] */
} stage_cost;

enum { OF_STAGE = 2 * RCVI_SECONDS + 1 };
enum { BESIDE_LAYERS = 5 }; /* segments of a stage's gradient beside those of its layers, at most */

typedef struct {
    const rcvi_workload *workload;
    const rcvi_arrangement *a;
    size_t bucket;
    int64_t steps, batch; /* of a replica */
    char **plan;          /* where this stage's plan string goes; NULL: not wanted */
    double *numbers;      /* of all stages: OF_STAGE numbers and one per layer, each */
    int64_t count;
    rcvi_pipeline_stage *stages;
    rcvi_pipeline_segment *segments;
} forecast;

static int64_t first_layer(const rcvi_arrangement *a, int stage) {
    int64_t first = 0;
    for (int s = 0; s < stage; s++) first += a->counts[s];
    return first;
}

static stage_cost cost_at(const forecast *f, int stage) {
    double *at = f->numbers + stage * OF_STAGE + first_layer(f->a, stage);
    return (stage_cost){at, at + RCVI_SECONDS, at + (ptrdiff_t)2 * RCVI_SECONDS};
}

/* The arrangement is that of the ranks that are here. */
static bool is_own(const forecast *f) {
    const rcvi_topology *topology = f->workload->topology;
    return topology && topology->stage_count == f->a->stages && topology->replica_count == f->a->replicas;
}

static bool shares_device(const forecast *f) {
    return is_own(f) && rcvi_comm_shares_device(f->workload->topology->world);
}

static rcv_status measure_stage(const forecast *f, int stage) {
    const rcvi_arrangement *a = f->a;
    stage_cost cost = cost_at(f, stage);
    rcvi_stage_seconds seconds, alone;
    const rcvi_cost_problem problem = {.first = first_layer(a, stage),
                                       .count = a->counts[stage],
                                       .bucket = f->bucket,
                                       .steps = f->steps,
                                       .batch = f->batch,
                                       .micro = a->micro,
                                       .chunks = a->chunks,
                                       .peers = is_own(f) ? f->workload->topology->replicas : NULL,
                                       .together = is_own(f) ? f->workload->topology->world : NULL};
    RCVI_TRY(rcvi_costs_measure(f->workload, &problem, &seconds, shares_device(f) ? &alone : NULL, cost.ready,
                                is_own(f) ? f->plan : NULL));
    memcpy(cost.seconds, &seconds, sizeof seconds);
    memcpy(cost.alone, shares_device(f) ? &alone : &seconds, sizeof alone);
    return RCV_OK;
}

/* An earlier stage that costs the same: neither is the first or the last one, and both have as many layers. Without one, the stage itself. */
static int find_alike(const forecast *f, int stage) {
    const rcvi_arrangement *a = f->a;
    for (int s = 1; s < stage && stage < a->stages - 1; s++)
        if (a->counts[s] == a->counts[stage]) return s;
    return stage;
}

static rcv_status measure_stages(forecast *f) {
    const rcvi_workload *w = f->workload;
    if (is_own(f)) {
        RCVI_TRY(rcvi_comm_agree(w->topology->world, measure_stage(f, w->topology->stage)));
        return rcvi_comm_all_reduce(w->topology->world, RCVI_ALL_REDUCE_MAX, f->numbers, f->count);
    }
    for (int s = 0; s < f->a->stages; s++) {
        int like = find_alike(f, s);
        stage_cost cost = cost_at(f, s), other = cost_at(f, like);
        if (like == s)
            RCVI_TRY(measure_stage(f, s));
        else
            memcpy(cost.seconds, other.seconds, (size_t)(OF_STAGE + f->a->counts[s]) * sizeof(double));
    }
    return RCV_OK;
}

/* ---- exchanges ---- */

/* Bytes of a sparse gradient of the embedding as those of an all-reduce with the same cost, which sends twice what an all-gather does. */
static double rows_bytes(const forecast *f, double real) {
    const rcvi_shape *shape = &f->workload->learner->shape;
    double rows = (double)(f->steps * f->batch), most = (double)shape->tokens;
    double read =
        most *
        (1 - exp(-rows / most)); /* expected number of different tokens, if all were equally likely: an upper bound */
    return (double)f->a->replicas * read * (double)shape->embedding * real / 2;
}

/* The output layer's gradient is complete before the backward pass begins, the embedding's after it. */
static double ready_at(const rcvi_gradient_segment *segment, const double *ready, int layers) {
    if (segment->event < layers) return ready[segment->event + 1];
    if (segment->event == layers) return ready[0];
    return segment->event == layers + 1 + RCVI_AFTER_HEAD ? 0 : 2;
}

/* The segments of a stage's gradient, in the order in which they are reduced. */
static rcv_status fill_segments(const forecast *f, const rcv_learner *part, const double *ready,
                                rcvi_pipeline_segment *segments, rcvi_pipeline_stage *out) {
    const rcv_settings *s = f->workload->settings;
    int layers = (int)part->slice->options.layers;
    double real = (double)rcvi_real_bytes(part), wire = rcvi_settings_is(s, "wire", "bfloat16") ? 2 : real;
    bool sparse = f->workload->work.sparse;
    size_t count = 0;
    rcvi_gradient_segment *gradient = rcvi_gradient_segments_new(part, sparse, &count);
    if (!gradient) return RCV_NO_MEMORY;
    out->segments = segments;
    for (size_t i = 0; i < count; i++) {
        double elements = (double)gradient[i].count;
        segments[out->segment_count++] =
            (rcvi_pipeline_segment){elements * wire, ready_at(&gradient[i], ready, layers)};
        if (rcvi_settings_flag(s, "share-optimiser")) out->gathered += elements * real;
    }
    if (sparse && part->has_embedding) segments[out->segment_count++] = (rcvi_pipeline_segment){rows_bytes(f, wire), 2};
    rcvi_free(part->context, gradient);
    return RCV_OK;
}

static rcv_status fill_stage(forecast *f, int stage, rcvi_pipeline_segment *segments) {
    const rcvi_arrangement *a = f->a;
    stage_cost cost = cost_at(f, stage);
    rcvi_pipeline_stage *out = &f->stages[stage];
    rcv_learner part;
    RCVI_TRY(rcvi_learner_describe_slice(f->workload->learner, first_layer(a, stage), a->counts[stage], &part));
    int64_t rows = f->steps / a->chunks * (f->batch / a->micro), handed = rows * rcv_net_output(part.slice);
    *out = (rcvi_pipeline_stage){.message = part.has_head ? 0 : (double)handed * (double)rcvi_real_bytes(&part)};
    rcv_status status = fill_segments(f, &part, cost.ready, segments, out);
    rcvi_learner_drop_slice(&part);
    return status;
}

/* ---- the update ---- */

/* Seconds where other ranks on the same device compute during a fraction `others` of the time. */
static void set_seconds(const forecast *f, int stage, double others) {
    stage_cost cost = cost_at(f, stage);
    rcvi_pipeline_stage *out = &f->stages[stage];
    double blend[RCVI_SECONDS] = {0};
    rcvi_stage_seconds seconds;
    for (int i = 0; i < RCVI_SECONDS; i++) blend[i] = cost.alone[i] + others * (cost.seconds[i] - cost.alone[i]);
    memcpy(&seconds, blend, sizeof seconds);
    out->forward = seconds.forward + seconds.head;
    out->backward = seconds.backward;
    out->begin = seconds.begin;
    out->inputs = seconds.inputs;
    out->update = seconds.update;
}

static rcv_status simulate(forecast *f, rcvi_pipeline_result *result) {
    enum { ROUNDS = 6 }; /* of a fixed-point iteration: costs depend on how busy ranks are, and that on their costs */
    const rcvi_arrangement *a = f->a;
    for (int s = 0; s < a->stages; s++) RCVI_TRY(fill_stage(f, s, f->segments + first_layer(a, s) + BESIDE_LAYERS * s));
    const rcvi_pipeline pipeline = {.stages = a->stages,
                                    .replicas = a->replicas,
                                    .micro = (int)a->micro,
                                    .chunks = (int)a->chunks,
                                    .stage = f->stages,
                                    .latency = a->links.latency,
                                    .bandwidth = a->links.bandwidth,
                                    .message_latency = a->links.message_latency,
                                    .message_bandwidth = a->links.message_bandwidth,
                                    .outcome = a->stages > 1 ? 8 : 0};
    double others = 1;
    for (int round = 0; round < (shares_device(f) ? ROUNDS : 1); round++) {
        for (int s = 0; s < a->stages; s++) set_seconds(f, s, others);
        RCVI_TRY(rcvi_pipeline_simulate(f->workload->context, &pipeline, NULL, result));
        others = rcvi_pipeline_busy(result);
    }
    return RCV_OK;
}

rcv_status rcvi_forecast(const rcvi_workload *w, const rcvi_arrangement *a, rcvi_pipeline_result *result, char **plan) {
    int64_t layers = w->learner->net->options.layers, whole;
    forecast f = {.workload = w, .a = a, .bucket = rcvi_heaviest_bucket(w->batcher), .plan = plan};
    rcvi_batcher_shape(w->batcher, f.bucket, &f.steps, &whole, NULL);
    f.batch = (whole + a->replicas - 1) / a->replicas;
    f.count = a->stages * OF_STAGE + layers;
    f.numbers = rcvi_new(w->context, (size_t)f.count, sizeof *f.numbers);
    f.stages = rcvi_new(w->context, (size_t)a->stages, sizeof *f.stages);
    f.segments = rcvi_new(w->context, (size_t)(layers + BESIDE_LAYERS * a->stages), sizeof *f.segments);
    rcv_status status = f.numbers && f.stages && f.segments ? RCV_OK : RCV_NO_MEMORY;
    if (!status) status = measure_stages(&f);
    if (!status) status = simulate(&f, result);
    rcvi_free(w->context, f.numbers);
    rcvi_free(w->context, f.stages);
    rcvi_free(w->context, f.segments);
    return status;
}
